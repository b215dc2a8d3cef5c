// Elementwise loops over contiguous memory.
#pragma once

#include "backends/cpu/parallel.h"
#include "core/tensor.h"

namespace engine::cpu {

/// y[i] = f(x[i]), of one floating dtype.
template <class F>
void map(const Tensor& x, const Tensor& y, F f) {
  with_floating(y.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const bool stream = in != out && exceeds_caches(y);
    parallel_for(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
      store(out, begin, end, stream, [=](int64_t i) { return T(f(static_cast<float>(in[i]))); });
    });
  });
}

/// y[i] = f(a[i], b[i]), all of one shape and floating dtype.
template <class F>
void map(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  with_floating(y.dtype(), [&]<class T>(T) {
    const T *in_a = a.data<T>(), *in_b = b.data<T>();
    T* out = y.data<T>();
    const bool stream = in_a != out && exceeds_caches(y);
    parallel_for(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
      store(out, begin, end, stream, [=](int64_t i) {
        return T(f(static_cast<float>(in_a[i]), static_cast<float>(in_b[i])));
      });
    });
  });
}

/// NaN stays NaN: the comparison is false for it.
inline float relu_value(float x) { return x <= 0.f ? 0.f : x; }

template <class T>
void relu_in_place(T* y, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = T(relu_value(static_cast<float>(y[i])));
  });
}

}  // namespace engine::cpu
