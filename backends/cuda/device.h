// The one header that kernels are written with. Under nvcc the language brings what they need. An
// ordinary C++ compiler takes the same source too: the words of the language are then declared
// here, and something that is linked in runs the blocks and their threads (tests/software_device).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "backends/cuda/check.h"
#include "backends/cuda/runtime.h"

#ifndef __CUDACC__
#include <functional>
#include <vector>

#undef __shared__
#define __shared__ static
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
void __syncthreads();

namespace engine::cuda::software {
/// One launch, to be run when its stream is waited for. `pointers`: the arguments that are
/// pointers.
void enqueue(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
             std::vector<const void*> pointers, std::function<void()> thread);
void* dynamic_shared();
/// Gives every thread of the warp the 8 bytes that lane `source` came with.
uint64_t exchange(uint64_t value, int source);
/// Bit i: whether lane i came with true.
uint32_t ballot(bool value);
}  // namespace engine::cuda::software

template <class T>
T __shfl_sync(unsigned, T value, int source) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = engine::cuda::software::exchange(bits, source);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ lanes);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  return engine::cuda::software::ballot(predicate != 0);
}
// Threads run one at a time, so a plain change is an atomic one.
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
inline int atomicCAS(int* at, int expected, int value) {
  const int before = *at;
  if (before == expected) *at = value;
  return before;
}
#endif

namespace engine::cuda {

/// Threads of a block, where a kernel does not need another number.
inline constexpr int kThreads = 256;

/// Blocks for `items` threads of kThreads a block. Kernels walk the rest with a stride: a grid
/// never meets its limit, and more blocks than fill the device would only start and end.
inline unsigned blocks_for(int64_t items, int64_t per_thread = 1) {
  const int64_t threads = (items + per_thread - 1) / per_thread;
  return static_cast<unsigned>(
      std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, 1 << 16));
}

/// kernel<<<grid, block, shared_bytes, stream()>>>(arguments...)
template <class... P, class... A>
void launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                   const A&... arguments) {
#ifdef __CUDACC__
  kernel<<<grid, block, shared_bytes, stream()>>>(P(arguments)...);
#else
  std::vector<const void*> pointers;
  const auto note = [&pointers](const auto& argument) {
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(argument)>>)
      pointers.push_back(argument);
  };
  (note(P(arguments)), ...);
  software::enqueue(grid, block, shared_bytes, stream(), std::move(pointers),
                    [=] { kernel(P(arguments)...); });
#endif
  check_status(cudaGetLastError(), "cudaLaunchKernel");
}

/// The first of all indices that this thread has in a walk over the grid, and the step to its next.
__device__ inline int64_t grid_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t grid_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// Shared memory whose size the launch gave.
template <class T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
#else
  return static_cast<T*>(software::dynamic_shared());
#endif
}

inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// The sum, by f, over the threads of a warp; every thread gets it.
template <class T, class F>
__device__ inline T reduce_warp(T value, F f) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = f(value, __shfl_xor_sync(kWholeWarp, value, lanes));
  return value;
}

/// Likewise over a block of whole warps, at most 1024 threads in one row. `start` changes nothing
/// that f adds it to. Every thread gets the result; all threads of the block must come here.
template <class T, class F>
__device__ inline T reduce_block(T value, T start, F f) {
  __shared__ T warps[32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  value = reduce_warp(value, f);
  __syncthreads();  // warps may still be read by an earlier call
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  const int count = static_cast<int>(blockDim.x / 32);
  return reduce_warp(lane < count ? warps[lane] : start, f);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace engine::cuda
