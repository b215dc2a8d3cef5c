// Sums and largest elements of a row that is in the cache, as vector code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace engine::cpu {

/// The sum of term(j) for j in [0, n). Up to 16 terms a lane are added in f32, and these sums in
/// double: as exact as f32 terms deserve, at half the cost of adding each in double.
template <class Term>
inline double sum_row(int64_t n, Term term) {
  constexpr int64_t kLanes = 32, kBlock = 16 * kLanes;
  double lane[kLanes] = {};
  int64_t i = 0;
  while (i + kLanes <= n) {
    float part[kLanes] = {};
    const int64_t end = std::min(n, i + kBlock);
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) part[j] += term(i + j);
    }
    for (int64_t j = 0; j < kLanes; ++j) lane[j] += static_cast<double>(part[j]);
  }
  for (int64_t j = 0; i < n; ++i, ++j) lane[j] += static_cast<double>(term(i));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

/// The largest of n contiguous elements; a NaN among them need not be it.
template <class T>
inline float largest(const T* x, int64_t n) {
  constexpr int64_t kLanes = 32;
  float lane[kLanes];
  std::fill(lane, lane + kLanes, -std::numeric_limits<float>::infinity());
  const auto take = [&](int64_t j, float value) { lane[j] = value > lane[j] ? value : lane[j]; };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) take(j, static_cast<float>(x[i + j]));
  }
  for (int64_t j = 0; i < n; ++i, ++j) take(j, static_cast<float>(x[i]));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) take(j, lane[j + width]);
  }
  return lane[0];
}

/// The first i in [0, n) for which holds(i), or n.
template <class Holds>
inline int64_t first_of(int64_t n, Holds holds) {
  constexpr int64_t kStretch = 256;
  for (int64_t begin = 0; begin < n; begin += kStretch) {
    const int64_t end = std::min(n, begin + kStretch);
    int any = 0;
    for (int64_t i = begin; i < end; ++i) any |= holds(i);
    if (any == 0) continue;
    for (int64_t i = begin; i < end; ++i)
      if (holds(i)) return i;
  }
  return n;
}

}  // namespace engine::cpu
