// softmax and log_softmax over any axis, masked_softmax over the last. The tensor is seen as
// [outer, n, inner]; a block of inner positions is handled at once, so that the loops over memory
// stay contiguous for inner > 1.
#include <cmath>
#include <limits>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/row.h"
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

constexpr int64_t kRow = 4096;  // exponentials that are kept until their sum is known

// One row of contiguous elements. A row too long to keep its exponentials computes them again.
template <bool kLog, class T>
void forward_row(const T* x, T* y, int64_t n, bool stream) {
  const auto at = [x](int64_t i) { return static_cast<float>(x[i]); };
  const float top = largest(x, n);
  if (!kLog && n <= kRow) {
    alignas(kCacheLine) float e[kRow];
    for (int64_t i = 0; i < n; ++i) e[i] = vector_exp_nonpositive(at(i) - top);
    const auto scale = static_cast<float>(1 / sum_row(n, [&e](int64_t i) { return e[i]; }));
    return store(y, 0, n, stream, [&e, scale](int64_t i) { return T(e[i] * scale); });
  }
  const double sum = sum_row(n, [&](int64_t i) { return vector_exp_nonpositive(at(i) - top); });
  const auto log_sum = static_cast<float>(std::log(sum)), scale = static_cast<float>(1 / sum);
  store(y, 0, n, stream, [=](int64_t i) {
    return T(kLog ? at(i) - top - log_sum : vector_exp_nonpositive(at(i) - top) * scale);
  });
}

// kLog: y = x - max - log(sum); else y = exp(x - max) / sum.
template <bool kLog, class T>
void forward(KernelArgs& args) {
  const View v = view_of(args);
  const T* x = args.inputs[0].data<T>();
  T* y = args.outputs[0].data<T>();
  const bool stream = exceeds_caches(args.outputs[0]);
  if (v.inner == 1) {
    parallel_items(v.outer, v.n, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        forward_row<kLog>(x + row * v.n, y + row * v.n, v.n, stream);
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
        sum[i] += vector_exp_nonpositive(static_cast<float>(from[i]) - top[i]);
    });
    for (int64_t i = 0; i < width; ++i) sum[i] = kLog ? std::log(sum[i]) : 1.f / sum[i];
    rows([&](const T* from, T* to) {
      for (int64_t i = 0; i < width; ++i) {
        const float below = static_cast<float>(from[i]) - top[i];
        to[i] = T(kLog ? below - sum[i] : vector_exp_nonpositive(below) * sum[i]);
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
  const bool stream = exceeds_caches(args.outputs[0]);
  if (v.inner == 1) {
    parallel_items(v.outer, v.n, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T *g = dy + row * v.n, *o = y + row * v.n;
        T* to = dx + row * v.n;
        const auto gradient = [g](int64_t i) { return static_cast<float>(g[i]); };
        const auto value = [o](int64_t i) { return static_cast<float>(o[i]); };
        const auto total = static_cast<float>(
            sum_row(v.n, [&](int64_t i) { return kLog ? gradient(i) : gradient(i) * value(i); }));
        store(to, 0, v.n, stream, [=](int64_t i) {
          return T(kLog ? gradient(i) - vector_exp_nonpositive(value(i)) * total
                        : value(i) * (gradient(i) - total));
        });
      }
    });
    return;
  }
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
        to[i] =
            T(kLog ? gradient - vector_exp_nonpositive(value) * total : value * (gradient - total));
      }
    }
  });
}

// The offset in a mask that broadcasts to x [..., n] of a row of x.
int64_t mask_offset(const Shape& mask, const Shape& x, int64_t row) {
  int64_t offset = 0, stride = mask.rank() > 0 ? mask[-1] : 1;
  for (int back = 2; back <= mask.rank(); ++back) {
    if (mask[-back] != 1) offset += row % x[-back] * stride;
    stride *= mask[-back];
    row /= x[-back];
  }
  return offset;
}

// As forward<false>, of the columns that the mask shows and that are not beyond the row.
template <class T>
void masked_forward(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &mask = args.inputs[1], &y = args.outputs[0];
  if (y.numel() == 0) return;
  const bool causal = args.attrs.as<MaskedSoftmaxAttrs>().causal;
  const int64_t n = x.size(-1), queries = x.size(-2);
  const uint8_t* shown = mask.defined() ? mask.data<uint8_t>() : nullptr;
  const int64_t step = shown != nullptr && mask.rank() > 0 && mask.size(-1) > 1 ? 1 : 0;
  const T* in = x.data<T>();
  T* out = y.data<T>();
  const F32Output exponentials(args, y);
  parallel_items(x.numel() / n, n, [&](int64_t begin, int64_t end) {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t visible = causal ? std::min(n, row % queries + 1) : n;
      const T* from = in + row * n;
      T* to = out + row * n;
      float* e = exponentials.data() + row * n;
      if (shown != nullptr) {
        const uint8_t* m = shown + mask_offset(mask.shape(), x.shape(), row);
        for (int64_t i = 0; i < visible; ++i)
          e[i] = m[i * step] != 0 ? static_cast<float>(from[i]) : kHidden;
      } else {
        for (int64_t i = 0; i < visible; ++i) e[i] = static_cast<float>(from[i]);
      }
      const float most = largest(e, visible), top = most == kHidden ? 0.f : most;
      for (int64_t i = 0; i < visible; ++i) e[i] = vector_exp_nonpositive(e[i] - top);
      const double sum = sum_row(visible, [&](int64_t i) { return e[i]; });
      const float scale = sum == 0 ? 0.f : static_cast<float>(1 / sum);
      for (int64_t i = 0; i < visible; ++i) to[i] = T(e[i] * scale);
      std::fill(to + visible, to + n,
                T(0.f * scale));  // NaN in a row with NaN, as what the mask hides
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
void kernels::masked_softmax(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { masked_forward<T>(args); });
}

}  // namespace engine::cpu
