// Sums over a row that is in the cache, as vector code.
#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace engine::cpu
