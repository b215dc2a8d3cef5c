// Functions for loops that the compiler turns into vector code: no branch, no table, no library
// call. The coefficients are least-squares fits of relative error on Chebyshev points, unless said.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

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

/// The natural logarithm, within 2 units in the last place; -infinity at 0, NaN below. x = m 2^e
/// with m in [sqrt(1/2), sqrt(2)), then log(1 + r) = r - r^2/2 + r^3 P(r).
inline float vector_log(float x) {
  const bool small = x < 1.17549435e-38f;  // not normal: scaled up
  const float scaled = small ? x * 8388608.f : x;
  const auto bits = std::bit_cast<int32_t>(scaled);
  // sqrt(1/2) is 0x3f3504f3: what is subtracted moves the cut between two exponents there.
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const float r = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.f;
  const float e = static_cast<float>(exponent) - (small ? 23.f : 0.f);
  float p = -0.0736309426f;
  p = __builtin_fmaf(p, r, 0.12620654f);
  p = __builtin_fmaf(p, r, -0.132021817f);
  p = __builtin_fmaf(p, r, 0.142270781f);
  p = __builtin_fmaf(p, r, -0.166213585f);
  p = __builtin_fmaf(p, r, 0.199998275f);
  p = __builtin_fmaf(p, r, -0.250008523f);
  p = __builtin_fmaf(p, r, 0.33333354f);
  // ln2 in two parts: the first has few bits, so e times it is exact.
  const float tail = __builtin_fmaf(e, -2.12194440e-4f, p * r * r * r);
  const float y = __builtin_fmaf(e, 0.693359375f, __builtin_fmaf(-0.5f * r, r, tail) + r);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float edge = x == 0.f ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  const float positive = x < kInfinity ? y : x;  // infinity stays
  return x > 0.f ? positive : edge;
}

/// log(1 + u) for u in [0, 1], within 3 units: log(1 + u) u / ((1 + u) - 1) takes back what the sum
/// rounded away.
inline float vector_log1p_unit(float u) {
  const float w = 1.f + u, log = vector_log(w) * (u / (w - 1.f));
  return w == 1.f ? u : log;
}

/// e^x - 1, within 3 units for x <= 0: Taylor's polynomial near 0.
inline float vector_expm1(float x) {
  float p = 1.f / 40320.f;
  p = __builtin_fmaf(p, x, 1.f / 5040.f);
  p = __builtin_fmaf(p, x, 1.f / 720.f);
  p = __builtin_fmaf(p, x, 1.f / 120.f);
  p = __builtin_fmaf(p, x, 1.f / 24.f);
  p = __builtin_fmaf(p, x, 1.f / 6.f);
  p = __builtin_fmaf(p, x, 0.5f);
  const float near = __builtin_fmaf(p * x, x, x), far = vector_exp(x) - 1.f;
  return __builtin_fabsf(x) < 0.5f ? near : far;
}

/// 1 / (1 + e^-x), within 4 units; 0 and 1 far out.
inline float vector_sigmoid(float x) { return 1.f / (1.f + vector_exp(-x)); }

/// tanh, within 4 units: an odd polynomial near 0, else 1 - 2 / (e^2x + 1).
inline float vector_tanh(float x) {
  const float z = x * x;
  float p = -0.00545974785f;
  p = __builtin_fmaf(p, z, 0.020406159f);
  p = __builtin_fmaf(p, z, -0.0536619239f);
  p = __builtin_fmaf(p, z, 0.133303642f);
  p = __builtin_fmaf(p, z, -0.333332266f);
  const float near = __builtin_fmaf(p * z, x, x);
  const float far = 1.f - 2.f / (vector_exp(2.f * x) + 1.f);
  return z < 0.65f * 0.65f ? near : far;
}

/// The normal distribution function (1 + erf(x / sqrt(2))) / 2, within 8 units to the left of 0 as
/// to the right, until it underflows. a = |x| / sqrt(2): erf(a) = a P(a^2) up to 1, and beyond
/// erfc(a) = e^(-a^2) t Q(t) with t = 1 / (1 + a / 2).
inline float vector_normal_cdf(float x) {
  const float a = __builtin_fabsf(x) * 0.707106781f, z = a * a;
  float p = 7.84726573e-05f;
  p = __builtin_fmaf(p, z, -0.000800819734f);
  p = __builtin_fmaf(p, z, 0.00518810065f);
  p = __builtin_fmaf(p, z, -0.0268536926f);
  p = __builtin_fmaf(p, z, 0.112835823f);
  p = __builtin_fmaf(p, z, -0.376126256f);
  p = __builtin_fmaf(p, z, 1.12837917f);
  const float t = 1.f / (1.f + 0.5f * a);
  float q = 0.0972361339f;
  q = __builtin_fmaf(q, t, -0.236992722f);
  q = __builtin_fmaf(q, t, 0.0952163582f);
  q = __builtin_fmaf(q, t, 0.0528683771f);
  q = __builtin_fmaf(q, t, 0.181778705f);
  q = __builtin_fmaf(q, t, 0.246326518f);
  q = __builtin_fmaf(q, t, 0.282111808f);
  q = __builtin_fmaf(q, t, 0.282095043f);
  // x^2 / 2 in two parts: the exponential would magnify its rounding.
  const float half = 0.5f * x * x, rest = __builtin_fmaf(0.5f * x, x, -half);
  const float far = 0.5f * vector_exp(-half) * (1.f - (half < 100.f ? rest : 0.f)) * t * q;
  const float left = z < 1.f ? 0.5f * (1.f - a * p) : far;  // of -|x|
  return x > 0.f ? 1.f - left : left;
}

}  // namespace engine::cpu
