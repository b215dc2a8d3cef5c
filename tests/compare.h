// Comparing what a device computed with what the reference did, and judging whether the comparison
// could have failed at all. Apart from the harness, so that this can be tested on its own.
#pragma once

#include <string>
#include <vector>

#include "core/dtype.h"
#include "tests/reference/reference.h"

namespace engine::test {

struct Tolerance {
  double relative = 0;  ///< of the expected value's magnitude
  double absolute = 0;
  double of(double expected) const;
};

/// The value as the nearest element of this dtype; integers truncate.
double round_to(DType dtype, double value);
/// The distance from 1 to the next element; 0 for integers.
double epsilon(DType dtype);

/// Empty when equal within the tolerance, else the number of wrong elements and the worst. NaN
/// where NaN is expected and equal infinities are right; all else is wrong unless error <=
/// tolerance.
std::string compare(const reference::Array& got, const reference::Array& expected,
                    Tolerance tolerance);

/// Empty, or why a comparison with these expected values says nothing: more than half are zeros
/// (unless allowed), or they all lie within the tolerance of each other. Values that differ by no
/// more than `noise` are one constant, which must be beyond the tolerance itself.
std::string vacuous(const reference::Array& expected, Tolerance tolerance, bool zeros_allowed,
                    double noise = 0);

}  // namespace engine::test
