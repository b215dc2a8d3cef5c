// Sixteen floats as one value, for kernels that keep a few of them in registers over a loop that
// the compiler would not turn into vector code by itself. f32 or bf16 in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

namespace engine::cpu {

inline constexpr int64_t kFloatLanes = 16;
using Floats [[gnu::vector_size(64)]] = float;
using Ints [[gnu::vector_size(64)]] = int32_t;

// By reference: passing vectors by value has no stable ABI where registers are narrower.
template <class T>
inline void load_lanes(Floats& v, const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(&v, from, sizeof v);
  } else {
    using Halves [[gnu::vector_size(32)]] = uint16_t;
    using Words [[gnu::vector_size(64)]] = uint32_t;
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    v = reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
  }
}
template <class T>
inline void store_lanes(const Floats& v, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(to, &v, sizeof v);
  } else {
    for (int i = 0; i < kFloatLanes; ++i) to[i] = T(v[i]);
  }
}

/// y[k] = finish(sum over the taps of weight * pixel[k]) for k in [0, channels). for_taps(f) calls
/// f(pixel, weight) for each, in the same order every time; finish(v) changes a float or Floats.
template <class T, class ForTaps, class Finish>
void sum_pixels(int64_t channels, T* y, ForTaps for_taps, Finish finish) {
  int64_t first = 0;
  const auto vectors = [&]<int kVectors>(std::integral_constant<int, kVectors>) {
    for (; first + kVectors * kFloatLanes <= channels; first += kVectors * kFloatLanes) {
      Floats sum[kVectors] = {};
      for_taps([&](const T* pixel, float weight) {
        for (int i = 0; i < kVectors; ++i) {
          Floats v;
          load_lanes(v, pixel + first + i * kFloatLanes);
          sum[i] += weight * v;
        }
      });
      for (int i = 0; i < kVectors; ++i) {
        finish(sum[i]);
        store_lanes(sum[i], y + first + i * kFloatLanes);
      }
    }
  };
  vectors(std::integral_constant<int, 4>());
  vectors(std::integral_constant<int, 1>());
  if (first == channels) return;
  float sum[kFloatLanes] = {};
  const int64_t rest = channels - first;
  for_taps([&](const T* pixel, float weight) {
    for (int64_t k = 0; k < rest; ++k) sum[k] += weight * static_cast<float>(pixel[first + k]);
  });
  for (int64_t k = 0; k < rest; ++k) {
    finish(sum[k]);
    y[first + k] = T(sum[k]);
  }
}

}  // namespace engine::cpu
