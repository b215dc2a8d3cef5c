#include "tests/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace engine::test {

using reference::Array;

double Tolerance::of(double expected) const { return relative * std::abs(expected) + absolute; }

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::bf16:
      return reference::round_to_bf16(static_cast<double>(static_cast<float>(value)));
    default:
      return std::trunc(value);
  }
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-23;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

std::string compare(const Array& got, const Array& expected, Tolerance tolerance) {
  if (!(got.shape == expected.shape)) {
    return fmt::format("shape {} instead of {}", to_string(got.shape), to_string(expected.shape));
  }
  int64_t wrong = 0, worst = 0;
  double worst_excess = 0;
  for (int64_t i = 0; i < got.shape.numel(); ++i) {
    const double g = got[i], e = expected[i];
    if (g == e || (std::isnan(g) && std::isnan(e))) continue;
    const double error = std::abs(g - e), allowed = tolerance.of(e);
    if (std::isfinite(e) && error <= allowed) continue;
    const double excess = std::isnan(error) || allowed == 0
                              ? std::numeric_limits<double>::infinity()
                              : error / allowed;
    if (wrong++ == 0 || excess > worst_excess) worst = i, worst_excess = excess;
  }
  if (wrong == 0) return "";
  return fmt::format(
      "{} of {} elements wrong; element {} of {}: got {:.9g}, expected {:.9g}, allowed error "
      "{:.3g}",
      wrong, got.shape.numel(), worst, to_string(got.shape), got[worst], expected[worst],
      tolerance.of(expected[worst]));
}

std::string vacuous(const Array& expected, Tolerance tolerance, bool zeros_allowed, double noise) {
  const auto& v = expected.values;
  const auto zeros = std::count(v.begin(), v.end(), 0.0);
  if (!zeros_allowed && 2 * zeros > static_cast<int64_t>(v.size())) {
    return fmt::format("says nothing: {} of {} expected values are 0", zeros, v.size());
  }
  double low = std::numeric_limits<double>::infinity(), high = -low, allowed = 0;
  for (const double x : v) {
    if (!std::isfinite(x)) continue;
    low = std::min(low, x);
    high = std::max(high, x);
    allowed = std::max(allowed, tolerance.of(x));
  }
  if (low > high || (zeros_allowed && low == 0 && high == 0))
    return "";  // nothing finite, or all 0
  const double spread = high - low <= noise ? std::abs(high) : high - low;
  if (allowed < spread) return "";
  return fmt::format("says nothing: a tolerance of {:.3g} for values from {:.9g} to {:.9g}",
                     allowed, low, high);
}

}  // namespace engine::test
