// softmax and log_softmax over any axis. The tensor is seen as [outer, n, inner]; a block of inner
// positions is handled at once, so that the loops over memory stay contiguous for inner > 1.
#include <cmath>
#include <limits>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/vector_math.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

constexpr int64_t kBlock = 64;  // inner positions at once

struct View {
  int64_t outer, n, inner;
};
View view_of(const KernelArgs& args) {
  const auto axis = args.attrs.as<AxisAttrs>().axis;
  const Shape& shape = args.outputs[0].shape();
  return {shape.product(0, axis), shape[axis], shape.product(axis + 1, shape.rank())};
}

// Calls f(offset of the first element, number of inner positions) for each block of each outer row.
template <class F>
void for_blocks(const View& v, F&& f) {
  const int64_t blocks = (v.inner + kBlock - 1) / kBlock;
  parallel_items(v.outer * blocks, v.n * std::min(v.inner, kBlock),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t item = begin; item < end; ++item) {
                     const int64_t first = item % blocks * kBlock;
                     f(item / blocks * v.n * v.inner + first, std::min(kBlock, v.inner - first));
                   }
                 });
}

// The largest of n contiguous elements; a NaN among them need not be it.
template <class T>
float largest(const T* x, int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i)
    top = static_cast<float>(x[i]) > top ? static_cast<float>(x[i]) : top;
  return top;
}

// The sum of exp(x - top) over n contiguous elements.
template <class T>
float sum_exp(const T* x, int64_t n, float top) {
  float lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int64_t j = 0; j < 16; ++j) lane[j] += vector_exp(static_cast<float>(x[i + j]) - top);
  }
  for (int64_t j = 0; i < n; ++i, ++j) lane[j] += vector_exp(static_cast<float>(x[i]) - top);
  for (int64_t width = 8; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

// kLog: y = x - max - log(sum); else y = exp(x - max) / sum.
// The exponentials are computed twice: that is cheaper than a row of f32 to keep them in.
template <bool kLog, class T>
void forward(KernelArgs& args) {
  const View v = view_of(args);
  const T* x = args.inputs[0].data<T>();
  T* y = args.outputs[0].data<T>();
  if (v.inner == 1) {
    parallel_items(v.outer, v.n, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* from = x + row * v.n;
        T* to = y + row * v.n;
        const float top = largest(from, v.n), sum = sum_exp(from, v.n, top);
        const float log_sum = kLog ? std::log(sum) : 0.f, scale = 1.f / sum;
        for (int64_t i = 0; i < v.n; ++i) {
          const float below = static_cast<float>(from[i]) - top;
          to[i] = T(kLog ? below - log_sum : vector_exp(below) * scale);
        }
      }
    });
    return;
  }
  for_blocks(v, [&](int64_t offset, int64_t width) {
    float top[kBlock], sum[kBlock] = {};
    std::fill(top, top + width, -std::numeric_limits<float>::infinity());
    const auto rows = [&](auto&& f) {
      for (int64_t k = 0; k < v.n; ++k) f(x + offset + k * v.inner, y + offset + k * v.inner);
    };
    rows([&](const T* from, T*) {
      for (int64_t i = 0; i < width; ++i)
        top[i] = static_cast<float>(from[i]) > top[i] ? static_cast<float>(from[i]) : top[i];
    });
    rows([&](const T* from, T*) {
      for (int64_t i = 0; i < width; ++i)
        sum[i] += vector_exp(static_cast<float>(from[i]) - top[i]);
    });
    for (int64_t i = 0; i < width; ++i) sum[i] = kLog ? std::log(sum[i]) : 1.f / sum[i];
    rows([&](const T* from, T* to) {
      for (int64_t i = 0; i < width; ++i) {
        const float below = static_cast<float>(from[i]) - top[i];
        to[i] = T(kLog ? below - sum[i] : vector_exp(below) * sum[i]);
      }
    });
  });
}

// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy). Sums in double.
template <bool kLog, class T>
void backward(KernelArgs& args) {
  const View v = view_of(args);
  const T *dy = args.inputs[0].data<T>(), *y = args.inputs[1].data<T>();
  T* dx = args.outputs[0].data<T>();
  for_blocks(v, [&](int64_t offset, int64_t width) {
    double sum[kBlock] = {};
    for (int64_t k = 0; k < v.n; ++k) {
      const T *g = dy + offset + k * v.inner, *o = y + offset + k * v.inner;
      for (int64_t i = 0; i < width; ++i) {
        const auto gradient = static_cast<float>(g[i]);
        sum[i] += static_cast<double>(kLog ? gradient : gradient * static_cast<float>(o[i]));
      }
    }
    for (int64_t k = 0; k < v.n; ++k) {
      const T *g = dy + offset + k * v.inner, *o = y + offset + k * v.inner;
      T* to = dx + offset + k * v.inner;
      for (int64_t i = 0; i < width; ++i) {
        const auto gradient = static_cast<float>(g[i]), value = static_cast<float>(o[i]),
                   total = static_cast<float>(sum[i]);
        to[i] = T(kLog ? gradient - vector_exp(value) * total : value * (gradient - total));
      }
    }
  });
}

}  // namespace

void kernels::softmax(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { forward<false, T>(args); });
}
void kernels::log_softmax(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { forward<true, T>(args); });
}
void kernels::softmax_backward(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { backward<false, T>(args); });
}
void kernels::log_softmax_backward(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { backward<true, T>(args); });
}

}  // namespace engine::cpu
