// softmax and log_softmax over any axis. The tensor is seen as [outer, n, inner]; a block of inner
// positions is handled at once, so that the loops over memory stay contiguous for inner > 1.
#include <cmath>
#include <limits>

#include "backends/cpu/kernels.h"
#include "backends/cpu/parallel.h"
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

// exp(x - max) for n contiguous elements; returns their sum. NaN spreads through the maximum.
float exp_row(const float* x, float* y, int64_t n, float* maximum) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  for (int64_t i = 0; i < n; ++i) y[i] = vector_exp(x[i] - top);
  float lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int64_t j = 0; j < 16; ++j) lane[j] += y[i + j];
  }
  for (int64_t j = 0; i < n; ++i, ++j) lane[j] += y[i];
  for (int64_t width = 8; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  *maximum = top;
  return lane[0];
}

// kLog: y = x - max - log(sum); else y = exp(x - max) / sum.
template <bool kLog>
void forward(KernelArgs& args) {
  const View v = view_of(args);
  const float* x = args.inputs[0].data<float>();
  float* y = args.outputs[0].data<float>();
  if (v.inner == 1) {
    parallel_items(v.outer, v.n, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = x + row * v.n;
        float* to = y + row * v.n;
        float top = 0;
        const float sum = exp_row(from, to, v.n, &top);
        const float log_sum = kLog ? std::log(sum) : 0.f, scale = 1.f / sum;
        for (int64_t i = 0; i < v.n; ++i) to[i] = kLog ? from[i] - top - log_sum : to[i] * scale;
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
    rows([&](const float* from, float*) {
      for (int64_t i = 0; i < width; ++i) top[i] = from[i] > top[i] ? from[i] : top[i];
    });
    rows([&](const float* from, float* to) {
      for (int64_t i = 0; i < width; ++i) {
        const float e = vector_exp(from[i] - top[i]);
        if (!kLog) to[i] = e;
        sum[i] += e;
      }
    });
    for (int64_t i = 0; i < width; ++i) sum[i] = kLog ? std::log(sum[i]) : 1.f / sum[i];
    rows([&](const float* from, float* to) {
      for (int64_t i = 0; i < width; ++i) to[i] = kLog ? from[i] - top[i] - sum[i] : to[i] * sum[i];
    });
  });
}

// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy). Sums in double.
template <bool kLog>
void backward(KernelArgs& args) {
  const View v = view_of(args);
  const float *dy = args.inputs[0].data<float>(), *y = args.inputs[1].data<float>();
  float* dx = args.outputs[0].data<float>();
  for_blocks(v, [&](int64_t offset, int64_t width) {
    double sum[kBlock] = {};
    for (int64_t k = 0; k < v.n; ++k) {
      const float *g = dy + offset + k * v.inner, *o = y + offset + k * v.inner;
      for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(kLog ? g[i] : g[i] * o[i]);
    }
    for (int64_t k = 0; k < v.n; ++k) {
      const float *g = dy + offset + k * v.inner, *o = y + offset + k * v.inner;
      float* to = dx + offset + k * v.inner;
      for (int64_t i = 0; i < width; ++i) {
        const auto total = static_cast<float>(sum[i]);
        to[i] = kLog ? g[i] - vector_exp(o[i]) * total : o[i] * (g[i] - total);
      }
    }
  });
}

}  // namespace

void kernels::softmax(KernelArgs& args) { forward<false>(args); }
void kernels::log_softmax(KernelArgs& args) { forward<true>(args); }
void kernels::softmax_backward(KernelArgs& args) { backward<false>(args); }
void kernels::log_softmax_backward(KernelArgs& args) { backward<true>(args); }

}  // namespace engine::cpu
