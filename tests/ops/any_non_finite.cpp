// any_non_finite.
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

// Finite numbers, up to the largest, but for `last` at the end.
OpCase non_finite(const std::string& name, int64_t n, double last) {
  std::vector<double> list(static_cast<size_t>(n), 3e38);
  for (size_t i = 0; i < list.size(); i += 2) list[i] = 0.5;
  if (n > 0) list.back() = last;
  return OpCase{.op = "any_non_finite",
                .name = "any_non_finite, " + name,
                .inputs = {values(Shape{n}, list).no_grad()},
                .call = [](const Tensors& t) { return ops::any_non_finite(t[0]); },
                .reference =
                    [](const Arrays& in) {
                      Array result(Shape{}, 0);
                      for (const double v : in[0].values) result[0] += std::isfinite(v) ? 0 : 1;
                      result[0] = result[0] > 0;
                      return result;
                    },
                .ulps = 0,
                .zero_output = true};
}

std::vector<OpCase> cases() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return {non_finite("all finite", 7, 1e-40),
          non_finite("NaN", 1, NAN),
          non_finite("infinity", 19, kInf),
          non_finite("minus infinity", 19, -kInf),
          non_finite("none", 0, 0),
          non_finite("many, finite", 50021, 3.3e38),
          non_finite("many, a NaN", 50021, -NAN),
          non_finite("many, infinite", 50021, kInf)};
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op any_non_finite") { run_cases(cases()); }

}  // namespace engine::test
