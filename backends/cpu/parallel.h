// Splitting loops over threads. How a loop is split never changes a result: kernels that sum across
// pieces fix the pieces by size, not by thread count.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "backends/cpu/store.h"

namespace engine::cpu {

/// Below this many elements a loop runs on the calling thread: waking the others costs more.
inline constexpr int64_t kGrain = 16384;

/// Calls f(begin, end) for disjoint ranges that cover [0, n), on as many threads as give each at
/// least `grain` of the range. f must not throw.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int threads =
      static_cast<int>(std::min<int64_t>(omp_get_max_threads(), (n + grain - 1) / grain));
  if (threads <= 1) {
    f(int64_t{0}, n);
    stream_fence();
    return;
  }
  // Ranges begin at multiples of 16 elements, so that neighbours do not share a cache line.
  const int64_t piece = ((n + threads - 1) / threads + 15) / 16 * 16;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) {
    const int64_t begin = std::min<int64_t>(n, t * piece), end = std::min(n, begin + piece);
    if (begin < end) f(begin, end);
    stream_fence();
  }
}

/// For items that are large each: rows, images. Ranges are even, with no rounding.
template <class F>
void parallel_items(int64_t items, int64_t work_per_item, F&& f) {
  if (items <= 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work_per_item));
  const int threads =
      static_cast<int>(std::min<int64_t>(omp_get_max_threads(), (items + grain - 1) / grain));
  if (threads <= 1) {
    f(int64_t{0}, items);
    stream_fence();
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) {
    f(items * t / threads, items * (t + 1) / threads);
    stream_fence();
  }
}

}  // namespace engine::cpu
