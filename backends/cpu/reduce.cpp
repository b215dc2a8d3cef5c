// sum, mean, max, min, their gradient, argmax, sum_squares.
#include "backends/cpu/reduce.h"

#include <cmath>

#include "backends/cpu/kernels.h"
#include "backends/cpu/reduce_axes.h"
#include "backends/cpu/row.h"
#include "core/op_attrs.h"

namespace engine::cpu {

using namespace reduction;

namespace {

template <class R, class F, class Finish>
void reduce(KernelArgs& args, F f, Finish finish) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  with_floating(x.dtype(), [&]<class T>(T) {
    reduce<R>(args.scratch, x.data<T>(), x.shape(), args.attrs.as<ReduceAttrs>().axes, y.data<T>(),
              y.numel(), f, finish);
  });
}

}  // namespace

void sum_rows(Scratch& scratch, const float* x, int64_t rows, int64_t columns, float* out) {
  reduce<Add>(scratch, x, Shape{rows, columns}, 1, out, columns, kIdentity, kToFloat);
}

void kernels::sum(KernelArgs& args) { reduce<Add>(args, kIdentity, kToFloat); }

void kernels::mean(KernelArgs& args) {
  // The mean over no elements is 0 / 0 = NaN.
  const double count = static_cast<double>(args.inputs[0].numel()) /
                       static_cast<double>(std::max<int64_t>(1, args.outputs[0].numel()));
  reduce<Add>(args, kIdentity, [count](double v) { return static_cast<float>(v / count); });
}

void kernels::max(KernelArgs& args) { reduce<Larger>(args, kIdentity, kToFloat); }
void kernels::min(KernelArgs& args) { reduce<Smaller>(args, kIdentity, kToFloat); }

void kernels::sum_squares(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const uint32_t all = (uint32_t{1} << x.rank()) - 1;
  with_floating(x.dtype(), [&]<class T>(T) {
    reduce<Add>(
        args.scratch, x.data<T>(), x.shape(), all, args.outputs[0].data<float>(), 1,
        [](double v, double) { return v * v; }, kToFloat);
  });
}

namespace {

// inputs dy, x, y: every element equal to the extremum (or NaN where that is NaN) shares dy evenly.
template <class T>
void spread_over_extrema(KernelArgs& args) {
  const Tensor& x = args.inputs[1];
  const T *dy = args.inputs[0].data<T>(), *in = x.data<T>(), *y = args.inputs[2].data<T>();
  T* out = args.outputs[0].data<T>();
  const Layout layout = layout_of(x.shape(), args.attrs.as<ReduceAttrs>().axes);
  for_outputs(layout, args.inputs[0].numel(), x.numel(), [=](int64_t o, auto&& for_each) {
    const float top = static_cast<float>(y[o]);
    const auto equal = [=](int64_t i) {
      const float value = static_cast<float>(in[i]);
      return value == top || (std::isnan(top) && std::isnan(value));
    };
    int64_t ties = 0;
    for_each([&](int64_t i) { ties += equal(i); });
    const T share(static_cast<float>(dy[o]) / static_cast<float>(ties));
    for_each([&](int64_t i) { out[i] = equal(i) ? share : T(0.f); });
  });
}

template <class T>
void find_largest(KernelArgs& args) {
  const auto axis = args.attrs.as<AxisAttrs>().axis;
  const Tensor& x = args.inputs[0];
  const T* in = x.data<T>();
  int64_t* out = args.outputs[0].data<int64_t>();
  const int64_t n = x.size(axis), inner = x.shape().product(axis + 1, x.rank());
  if (inner == 1) {
    parallel_items(args.outputs[0].numel(), n, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const auto at = [row = in + o * n](int64_t i) { return static_cast<float>(row[i]); };
        const int64_t nan = first_of(n, [&](int64_t i) { return at(i) != at(i); });
        const float top = largest(in + o * n, n);
        out[o] = nan < n ? nan : first_of(n, [&](int64_t i) { return at(i) == top; });
      }
    });
    return;
  }
  // Columns side by side, a block of them at once.
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (inner + kBlock - 1) / kBlock, outer = x.shape().product(0, axis);
  parallel_items(outer * blocks, n * std::min(inner, kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % blocks * kBlock, width = std::min(kBlock, inner - first);
      const T* column = in + item / blocks * n * inner + first;
      float top[kBlock];
      int64_t best[kBlock] = {};
      for (int64_t j = 0; j < width; ++j) top[j] = static_cast<float>(column[j]);
      for (int64_t i = 1; i < n; ++i) {
        for (int64_t j = 0; j < width; ++j) {
          const auto value = static_cast<float>(column[i * inner + j]);
          // The first of equal ones stays, and the first NaN.
          const bool wins = (value > top[j]) | ((value != value) & (top[j] == top[j]));
          top[j] = wins ? value : top[j];
          best[j] = wins ? i : best[j];
        }
      }
      std::copy(best, best + width, out + item / blocks * inner + first);
    }
  });
}

}  // namespace

void kernels::extremum_backward(KernelArgs& args) {
  with_floating(args.inputs[1].dtype(), [&]<class T>(T) { spread_over_extrema<T>(args); });
}
void kernels::argmax(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { find_largest<T>(args); });
}

}  // namespace engine::cpu
