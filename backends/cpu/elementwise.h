// Elementwise loops over contiguous memory.
#pragma once

#include "backends/cpu/parallel.h"
#include "core/tensor.h"

namespace engine::cpu {

/// y[i] = f(x[i]), f32.
template <class F>
void map(const Tensor& x, const Tensor& y, F f) {
  const float* in = x.data<float>();
  float* out = y.data<float>();
  parallel_for(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = f(in[i]);
  });
}

/// y[i] = f(a[i], b[i]), f32, all of one shape.
template <class F>
void map(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  const float *in_a = a.data<float>(), *in_b = b.data<float>();
  float* out = y.data<float>();
  parallel_for(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = f(in_a[i], in_b[i]);
  });
}

/// NaN stays NaN: the comparison is false for it.
inline float relu_value(float x) { return x <= 0.f ? 0.f : x; }

inline void relu_in_place(float* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = relu_value(y[i]);
  });
}

}  // namespace engine::cpu
