// Reductions about a center that is reduced first: var about the mean, logsumexp about the largest
// element.
#include <cmath>

#include "backends/cpu/kernels.h"
#include "backends/cpu/reduce_axes.h"
#include "backends/cpu/row.h"
#include "backends/cpu/vector_math.h"
#include "core/op_attrs.h"

namespace engine::cpu {

using namespace reduction;

namespace {

// The means of the elements behind each output, and these in f32.
template <class T>
std::pair<const double*, const float*> means_of(KernelArgs& args, const Tensor& x, uint32_t axes,
                                                int64_t outputs) {
  auto* means = args.scratch.array<double>(outputs);
  auto* centers = args.scratch.array<float>(outputs);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(outputs);
  reduce<Add>(args.scratch, x.data<T>(), x.shape(), axes, means, outputs, kIdentity,
              [count](double v) { return v / count; });
  for (int64_t o = 0; o < outputs; ++o) centers[o] = static_cast<float>(means[o]);
  return {means, centers};
}

template <class T>
void var_as(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const auto& a = args.attrs.as<VarAttrs>();
  const int64_t outputs = y.numel();
  if (outputs == 0) return;
  const auto [means, centers] = means_of<T>(args, x, a.axes, outputs);
  auto* squares = args.scratch.array<double>(outputs);
  reduce<Add>(
      args.scratch, x.data<T>(), x.shape(), a.axes, squares, outputs,
      [](double v, double c) { return (v - c) * (v - c); }, [](double v) { return v; }, centers);
  const double n = static_cast<double>(x.numel()) / static_cast<double>(outputs);
  T* out = y.data<T>();
  for (int64_t o = 0; o < outputs; ++o) {
    // The center is the mean rounded to f32: n times the square of what that moved it is too much.
    const double moved = means[o] - static_cast<double>(centers[o]);
    const double less = squares[o] - n * moved * moved, sum = less < 0 ? 0 : less;  // NaN stays
    out[o] = T(static_cast<float>(n > a.correction ? sum / (n - a.correction) : NAN));
  }
}

// inputs dy, x: dx = dy 2 (x - mean) / (n - correction)
template <class T>
void var_backward_as(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1];
  const auto& a = args.attrs.as<VarAttrs>();
  const int64_t outputs = dy.numel();
  if (x.numel() == 0) return;
  const auto means = means_of<T>(args, x, a.axes, outputs).first;
  const double n = static_cast<double>(x.numel()) / static_cast<double>(outputs);
  const auto scale = static_cast<float>(n > a.correction ? 2 / (n - a.correction) : NAN);
  const T *gradient = dy.data<T>(), *in = x.data<T>();
  T* out = args.outputs[0].data<T>();
  for_outputs(layout_of(x.shape(), a.axes), outputs, x.numel(), [=](int64_t o, auto&& for_each) {
    const float factor = static_cast<float>(gradient[o]) * scale;
    const double mean = means[o];
    for_each([&](int64_t i) {
      const double distance = static_cast<double>(static_cast<float>(in[i])) - mean;
      out[i] = T(factor * static_cast<float>(distance));
    });
  });
}

constexpr int64_t kCachedRow = 65536;  // a row up to here is read from memory once

// What is taken from an exponent so that no exponential overflows: 0 where the largest is infinite,
// as infinity less infinity is no number.
float center_of(float largest) { return std::isinf(largest) ? 0.f : largest; }

template <class T>
void logsumexp_as(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const auto axes = args.attrs.as<ReduceAttrs>().axes;
  const int64_t outputs = y.numel();
  if (outputs == 0) return;
  const Layout layout = layout_of(x.shape(), axes);
  const int64_t n = layout.run;
  if (layout.run_reduced && layout.reduced.count == 0 && n <= kCachedRow && x.numel() > 0) {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    parallel_items(outputs, n * 8, [=](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const T* row = in + o * n;
        const float center = center_of(largest(row, n));
        const double sum =
            sum_row(n, [=](int64_t i) { return vector_exp(static_cast<float>(row[i]) - center); });
        out[o] = T(static_cast<float>(std::log(sum) + static_cast<double>(center)));
      }
    });
    return;
  }
  auto* centers = args.scratch.array<float>(outputs);
  reduce<Larger>(args.scratch, x.data<T>(), x.shape(), axes, centers, outputs, kIdentity,
                 center_of);
  auto* sums = args.scratch.array<double>(outputs);
  reduce<Add>(
      args.scratch, x.data<T>(), x.shape(), axes, sums, outputs,
      [](double v, double c) { return static_cast<double>(vector_exp(static_cast<float>(v - c))); },
      [](double v) { return v; }, centers);
  T* out = y.data<T>();
  for (int64_t o = 0; o < outputs; ++o)
    out[o] = T(static_cast<float>(std::log(sums[o]) + static_cast<double>(centers[o])));
}

// inputs dy, x, y: dx = dy exp(x - y). Where y is infinite, infinity less infinity is NaN, as it is
// in PyTorch: there is no slope.
template <class T>
void logsumexp_backward_as(KernelArgs& args) {
  const Tensor& x = args.inputs[1];
  const T *dy = args.inputs[0].data<T>(), *in = x.data<T>(), *y = args.inputs[2].data<T>();
  T* out = args.outputs[0].data<T>();
  const Layout layout = layout_of(x.shape(), args.attrs.as<ReduceAttrs>().axes);
  for_outputs(layout, args.inputs[0].numel(), x.numel(), [=](int64_t o, auto&& for_each) {
    const float gradient = static_cast<float>(dy[o]), whole = static_cast<float>(y[o]);
    for_each(
        [&](int64_t i) { out[i] = T(gradient * vector_exp(static_cast<float>(in[i]) - whole)); });
  });
}

}  // namespace

void kernels::var(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { var_as<T>(args); });
}
void kernels::var_backward(KernelArgs& args) {
  with_floating(args.inputs[1].dtype(), [&]<class T>(T) { var_backward_as<T>(args); });
}
void kernels::logsumexp(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { logsumexp_as<T>(args); });
}
void kernels::logsumexp_backward(KernelArgs& args) {
  with_floating(args.inputs[1].dtype(), [&]<class T>(T) { logsumexp_backward_as<T>(args); });
}

}  // namespace engine::cpu
