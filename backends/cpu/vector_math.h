// exp for loops that the compiler turns into vector code: no branch, no table, no library call.
#pragma once

#include <bit>
#include <cstdint>

namespace engine::cpu {

/// e^x in f32, within 1.5 units in the last place; exact for 0, infinities and NaN; gradual
/// underflow is kept. Range reduction x = n ln2 + r with |r| <= ln2/2, then the Taylor polynomial
/// of degree 7.
inline float vector_exp(float x) {
  const float bounded = x > 89.f ? 89.f : (x < -104.f ? -104.f : x);  // beyond: inf and 0 anyway
  const float n = __builtin_rintf(bounded * 1.44269504f);
  float r = __builtin_fmaf(n, -0.693359375f, bounded);
  r = __builtin_fmaf(n, 2.12194440e-4f, r);
  float p = 1.f / 5040.f;
  p = __builtin_fmaf(p, r, 1.f / 720.f);
  p = __builtin_fmaf(p, r, 1.f / 120.f);
  p = __builtin_fmaf(p, r, 1.f / 24.f);
  p = __builtin_fmaf(p, r, 1.f / 6.f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.f);
  p = __builtin_fmaf(p, r, 1.f);
  // 2^n in two factors, as n reaches 128 and -150. (NaN has no integer; p carries it on.)
  const auto whole = static_cast<int32_t>(n == n ? n : 0.f);
  const int32_t half = whole / 2;
  const float scale1 = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float scale2 = std::bit_cast<float>(static_cast<uint32_t>(whole - half + 127) << 23);
  return p * scale1 * scale2;
}

}  // namespace engine::cpu
