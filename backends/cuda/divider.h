// Division by a number that a launch knows: a multiplication and a shift, where indices fit 31
// bits.
#pragma once

#include "backends/cuda/device.h"

namespace engine::cuda {

/// For 0 <= n < 2^31: quotient and remainder by d in [1, 2^31). Granlund and Montgomery, "Division
/// by Invariant Integers using Multiplication", PLDI 1994.
class SmallDivider {
 public:
  using Index = uint32_t;
  SmallDivider() = default;
  explicit SmallDivider(int64_t d) : divisor_(static_cast<uint32_t>(d)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    const uint64_t power = (uint64_t{1} << 32) * ((uint64_t{1} << shift_) - divisor_);
    factor_ = static_cast<uint32_t>(power / divisor_ + 1);
  }
  /// n becomes the quotient; the remainder is returned.
  __device__ Index divide(Index& n) const {
    const auto high = static_cast<uint32_t>((static_cast<uint64_t>(n) * factor_) >> 32);
    const uint32_t quotient = (high + n) >> shift_;
    const Index rest = n - quotient * divisor_;
    n = quotient;
    return rest;
  }

 private:
  uint32_t divisor_ = 1, factor_ = 1, shift_ = 0;
};

/// The same for any n >= 0.
class LargeDivider {
 public:
  using Index = int64_t;
  LargeDivider() = default;
  explicit LargeDivider(int64_t d) : divisor_(d) {}
  __device__ Index divide(Index& n) const {
    const Index quotient = n / divisor_, rest = n - quotient * divisor_;
    n = quotient;
    return rest;
  }

 private:
  int64_t divisor_ = 1;
};

/// Calls f(Divider{}) with the divider for indices below n.
template <class F>
void with_divider(int64_t n, F&& f) {
  if (n < int64_t{1} << 31)
    f(SmallDivider{});
  else
    f(LargeDivider{});
}

}  // namespace engine::cuda
