// Elementwise kernels over contiguous memory: each thread reads and writes 16 bytes at a time where
// the addresses allow it.
#pragma once

#include "backends/cuda/device.h"
#include "core/backend.h"

namespace engine::cuda {

/// kCount neighbouring elements, moved as one.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

/// Whether the pointers are at multiples of `bytes`.
template <class... P>
bool aligned(size_t bytes, const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

namespace detail {

// out[i] = f(in[i]...) for packs of kCount elements; the last elements one by one.
template <int kCount, class Out, class F, class... In>
__global__ void map_kernel(int64_t n, F f, Out* out, const In*... in) {
  const int64_t packs = n / kCount;
  for (int64_t i = grid_index(); i < packs; i += grid_step()) {
    Pack<Out, kCount> result;
    const auto apply = [&](const auto&... pack) {
      for (int k = 0; k < kCount; ++k) result.at[k] = Out(f(pack.at[k]...));
    };
    apply(reinterpret_cast<const Pack<In, kCount>*>(in)[i]...);
    reinterpret_cast<Pack<Out, kCount>*>(out)[i] = result;
  }
  const int64_t last = packs * kCount + grid_index();
  if (last < n) out[last] = Out(f(in[last]...));
}

}  // namespace detail

/// out[i] = Out(f(in[i]...)), n elements. F is a struct with a __device__ call operator on
/// elements.
template <class Out, class F, class... In>
void map_elements(int64_t n, F f, Out* out, const In*... in) {
  if (n == 0) return;
  constexpr size_t kLargest = std::max({sizeof(Out), sizeof(In)...});
  constexpr int kCount = static_cast<int>(16 / kLargest);
  if (aligned(sizeof(Out) * kCount, out) && (aligned(sizeof(In) * kCount, in) && ...)) {
    launch_kernel(detail::map_kernel<kCount, Out, F, In...>, blocks_for(n, kCount), kThreads, 0, n,
                  f, out, in...);
  } else {
    launch_kernel(detail::map_kernel<1, Out, F, In...>, blocks_for(n), kThreads, 0, n, f, out,
                  in...);
  }
}

/// A function of floats as one of elements of any floating type.
template <class F>
struct OfFloats {
  F f;
  template <class... T>
  __device__ float operator()(T... elements) const {
    return f(static_cast<float>(elements)...);
  }
};

/// y[i] = f(x[i]) and y[i] = f(a[i], b[i]), of one shape and floating dtype, f on floats.
template <class F>
void map(const Tensor& x, const Tensor& y, F f) {
  with_floating(y.dtype(), [&]<class T>(T) {
    map_elements(y.numel(), OfFloats<F>{f}, y.data<T>(), static_cast<const T*>(x.data<T>()));
  });
}
template <class F>
void map(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  with_floating(y.dtype(), [&]<class T>(T) {
    map_elements(y.numel(), OfFloats<F>{f}, y.data<T>(), static_cast<const T*>(a.data<T>()),
                 static_cast<const T*>(b.data<T>()));
  });
}

/// NaN stays NaN: the comparison is false for it.
__device__ inline float relu_value(float x) { return x <= 0.f ? 0.f : x; }

}  // namespace engine::cuda
