// Functions for loops that the compiler turns into vector code: no branch, no table, no library
// call. The coefficients are least-squares fits of relative error on Chebyshev points, unless said.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace engine::cpu {

/// e^x for x <= 0 (and right up to 88.7228), within 1 unit in the last place; 0 where it would be
/// below the least normal number; NaN stays. x = n ln2 + r with |r| <= ln2/2, then 1 + r + r^2
/// P(r), whose exponent takes n. A sum with kRound has n in its lowest bits: rounding, and its
/// whole number at once.
inline float vector_exp_nonpositive(float x) {
  constexpr float kLow = -87.3365479f, kRound = 12582912.f;
  const float bounded = x < kLow ? kLow : x;
  const float t = __builtin_fmaf(bounded, 1.44269504f, kRound), n = t - kRound;
  float r = __builtin_fmaf(n, -0.693359375f, bounded);
  r = __builtin_fmaf(n, 2.12194440e-4f, r);
  float p = 0.00138146151f;
  p = __builtin_fmaf(p, r, 0.00836871183f);
  p = __builtin_fmaf(p, r, 0.0416683874f);
  p = __builtin_fmaf(p, r, 0.166665207f);
  p = __builtin_fmaf(p, r, 0.499999935f);
  p = __builtin_fmaf(p * r, r, r) + 1.f;
  const auto bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(t) << 23);
  const float y = std::bit_cast<float>(bits);
  return x < kLow ? 0.f : y;
}

/// The same for any x; infinity from 88.72284.
inline float vector_exp(float x) {
  constexpr float kHigh = 88.7228317f;
  const float y = vector_exp_nonpositive(x > kHigh ? kHigh : x);
  return x > kHigh ? std::numeric_limits<float>::infinity() : y;
}

/// The natural logarithm, within 2 units in the last place; -infinity at 0, NaN below. x = m 2^e
/// with m in [sqrt(1/2), sqrt(2)), then log(1 + r) = r - r^2/2 + r^3 P(r).
inline float vector_log(float x) {
  const bool small = x < 1.17549435e-38f;  // not normal: scaled up
  const float scaled = small ? x * 8388608.f : x;
  const auto bits = std::bit_cast<uint32_t>(scaled);
  // sqrt(1/2) is 0x3f3504f3: what is subtracted moves the cut between two exponents there.
  // Unsigned, as the numbers below 0, which have no logarithm, wrap around.
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3) >> 23;
  const float r = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.f;
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

/// log(1 + u) for u in [0, 1], within 3 units.
inline float vector_log1p_unit(float u) {
  float p = -0.00324391553f;
  p = __builtin_fmaf(p, u, 0.0198509673f);
  p = __builtin_fmaf(p, u, -0.056958601f);
  p = __builtin_fmaf(p, u, 0.106035597f);
  p = __builtin_fmaf(p, u, -0.153055357f);
  p = __builtin_fmaf(p, u, 0.196759192f);
  p = __builtin_fmaf(p, u, -0.249541296f);
  p = __builtin_fmaf(p, u, 0.33329962f);
  p = __builtin_fmaf(p, u, -0.499999024f);
  return __builtin_fmaf(p * u, u, u);
}

/// e^x - 1 for x <= 0, within 3 units: Taylor's polynomial near 0.
inline float vector_expm1(float x) {
  float p = 1.f / 40320.f;
  p = __builtin_fmaf(p, x, 1.f / 5040.f);
  p = __builtin_fmaf(p, x, 1.f / 720.f);
  p = __builtin_fmaf(p, x, 1.f / 120.f);
  p = __builtin_fmaf(p, x, 1.f / 24.f);
  p = __builtin_fmaf(p, x, 1.f / 6.f);
  p = __builtin_fmaf(p, x, 0.5f);
  const float near = __builtin_fmaf(p * x, x, x), far = vector_exp_nonpositive(x) - 1.f;
  return __builtin_fabsf(x) < 0.5f ? near : far;
}

/// 1 / (1 + e^-x), within 4 units; 0 and 1 far out.
inline float vector_sigmoid(float x) { return 1.f / (1.f + vector_exp(-x)); }

/// tanh, within 4 units: an odd polynomial near 0, else (1 - e^-2|x|) / (1 + e^-2|x|).
inline float vector_tanh(float x) {
  const float z = x * x;
  float p = -0.00545974785f;
  p = __builtin_fmaf(p, z, 0.020406159f);
  p = __builtin_fmaf(p, z, -0.0536619239f);
  p = __builtin_fmaf(p, z, 0.133303642f);
  p = __builtin_fmaf(p, z, -0.333332266f);
  const float near = __builtin_fmaf(p * z, x, x);
  const float e = vector_exp_nonpositive(-2.f * __builtin_fabsf(x));
  const float far = __builtin_copysignf((1.f - e) / (1.f + e), x);
  return z < 0.65f * 0.65f ? near : far;
}

/// The normal distribution: its function (1 + erf(x / sqrt(2))) / 2, within 8 units on both sides
/// of 0 until it underflows, and its density.
struct Normal {
  float cdf, density;
};
/// With a = |x| / sqrt(2), erfc(a) = e^(-a^2) t Q(t), t = 1 / (1 + 0.35 a).
inline Normal vector_normal(float x) {
  const float a = __builtin_fabsf(x) * 0.707106781f;
  const float t = 1.f / __builtin_fmaf(0.35f, a, 1.f);
  float q = 0.0396689188f;
  q = __builtin_fmaf(q, t, -0.165991538f);
  q = __builtin_fmaf(q, t, 0.198540138f);
  q = __builtin_fmaf(q, t, -0.0511887666f);
  q = __builtin_fmaf(q, t, 0.107215154f);
  q = __builtin_fmaf(q, t, 0.134796617f);
  q = __builtin_fmaf(q, t, 0.155232572f);
  q = __builtin_fmaf(q, t, 0.186996706f);
  q = __builtin_fmaf(q, t, 0.197252611f);
  q = __builtin_fmaf(q, t, 0.197477596f);
  // x^2 / 2 in two parts: the exponential would magnify its rounding.
  const float half = 0.5f * x * x, rest = __builtin_fmaf(0.5f * x, x, -half);
  const float rough = vector_exp_nonpositive(-half);
  const float bell = __builtin_fmaf(-rough, half < 100.f ? rest : 0.f, rough);
  const float left = 0.5f * bell * (t * q);
  return {x > 0.f ? 1.f - left : left, 0.398942280f * bell};  // 1 / sqrt(2 pi)
}

}  // namespace engine::cpu
