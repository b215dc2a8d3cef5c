// Who takes a row: as many threads as there is work for.
#pragma once

#include <type_traits>

#include "backends/cuda/device.h"

namespace engine::cuda {

struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/// The threads that take one row or column: one, a warp or a block.
template <int kLanes>
struct Team {
  static_assert(kLanes == 1 || kLanes == 32 || kLanes == kThreads);
  __device__ static int64_t index() { return grid_index() / kLanes; }
  __device__ static int64_t step() { return grid_step() / kLanes; }
  __device__ static int64_t lane() { return threadIdx.x % kLanes; }
  template <class T, class F>
  __device__ static T reduce(T value, T start, F f) {
    if constexpr (kLanes == 1) return value;
    if constexpr (kLanes == 32) return reduce_warp(value, f);
    return reduce_block(value, start, f);
  }
};

/// Calls f with the lanes of a team for rows of n, `inner` elements apart: with more than one, the
/// rows lie side by side and a thread takes each.
template <class F>
void with_team(int64_t n, int64_t inner, F&& f) {
  if (inner > 1)
    f(std::integral_constant<int, 1>());
  else if (n <= 1024)
    f(std::integral_constant<int, 32>());
  else
    f(std::integral_constant<int, kThreads>());
}

}  // namespace engine::cuda
