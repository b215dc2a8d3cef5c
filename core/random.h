// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011). Number i of a stream is a pure function of (seed, offset, i), so any device
// and any number of threads computes the same numbers, and backward recomputes a dropout mask
// instead of saving it.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/host_device.h"

namespace engine {

/// A position in a stream. One draw of n numbers uses the counters offset .. offset + ceil(n/4)
/// - 1.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

/// Four 32-bit numbers of the block with this counter.
ENGINE_HOST_DEVICE inline std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// 24 random bits as a float in [0, 1).
ENGINE_HOST_DEVICE inline float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// log(x) for normal x > 0 to within 2e-16 relative, with every operation written out: libraries'
/// logarithms differ in the last bit between devices.
ENGINE_HOST_DEVICE inline double portable_log(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.172: the series up to s^23 is exact to double.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 1; k -= 2) sum = std::fma(sum, s2, 1.0 / k);
  return std::fma(static_cast<double>(exponent), 0.69314718055994530942, 2.0 * s * sum);
}

/// A standard normal number: the inverse of the normal distribution function at the point
/// (bits + 1/2) / 2^32. Wichura's algorithm AS 241 (Applied Statistics 37, 1988), accurate to
/// 1e-16, in double with every operation written out, so that compilers and devices agree on each
/// bit of the float result. (Its third region, for tails below 1e-11, is out of reach of 32 bits.)
ENGINE_HOST_DEVICE inline float normal_from_bits(uint32_t bits) {
  const double q = (static_cast<double>(bits) + 0.5) * 0x1p-32 - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    double a = 2.5090809287301226727e+3, b = 5.2264952788528545610e+3;
    a = std::fma(a, r, 3.3430575583588128105e+4), b = std::fma(b, r, 2.8729085735721942674e+4);
    a = std::fma(a, r, 6.7265770927008700853e+4), b = std::fma(b, r, 3.9307895800092710610e+4);
    a = std::fma(a, r, 4.5921953931549871457e+4), b = std::fma(b, r, 2.1213794301586595867e+4);
    a = std::fma(a, r, 1.3731693765509461125e+4), b = std::fma(b, r, 5.3941960214247511077e+3);
    a = std::fma(a, r, 1.9715909503065514427e+3), b = std::fma(b, r, 6.8718700749205790830e+2);
    a = std::fma(a, r, 1.3314166789178437745e+2), b = std::fma(b, r, 4.2313330701600911252e+1);
    a = std::fma(a, r, 3.3871328727963666080e+0), b = std::fma(b, r, 1.0);
    return static_cast<float>(q * a / b);
  }
  const double tail = q < 0 ? q + 0.5 : 0.5 - q;
  const double r = std::sqrt(-portable_log(tail)) - 1.6;
  double c = 7.74545014278341407640e-4, d = 1.05075007164441684324e-9;
  c = std::fma(c, r, 2.27238449892691845833e-2), d = std::fma(d, r, 5.47593808499534494600e-4);
  c = std::fma(c, r, 2.41780725177450611770e-1), d = std::fma(d, r, 1.51986665636164571966e-2);
  c = std::fma(c, r, 1.27045825245236838258e+0), d = std::fma(d, r, 1.48103976427480074590e-1);
  c = std::fma(c, r, 3.64784832476320460504e+0), d = std::fma(d, r, 6.89767334985100004550e-1);
  c = std::fma(c, r, 5.76949722146069140550e+0), d = std::fma(d, r, 1.67638483018380384940e+0);
  c = std::fma(c, r, 4.63033784615654529590e+0), d = std::fma(d, r, 2.05319162663775882187e+0);
  c = std::fma(c, r, 1.42343711074968357734e+0), d = std::fma(d, r, 1.0);
  return static_cast<float>(q < 0 ? -c / d : c / d);
}

/// Gives out positions of one stream in order; its state is what a checkpoint stores.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_{seed, 0} {}
  /// The stream's position for `count` numbers, and moves past them.
  RandomStream take(int64_t count) {
    const RandomStream here = state_;
    state_.offset += (static_cast<uint64_t>(count) + 3) / 4;
    return here;
  }
  RandomStream state() const { return state_; }
  void set_state(RandomStream state) { state_ = state; }

 private:
  RandomStream state_;
};

/// The generator that ops of this thread draw from.
Generator& default_generator();

/// The numbers 0 .. n-1 in random order (Fisher-Yates over the stream).
std::vector<int64_t> random_permutation(int64_t n, RandomStream stream);

}  // namespace engine
