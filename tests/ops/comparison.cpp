// eq, ne, lt, le, gt, ge, where.
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Comparison {
  const char* op;
  Tensor (*call)(const Tensor&, const Tensor&);
  bool (*holds)(double, double);
};

const Comparison kComparisons[] = {
    {"eq", ops::eq, [](double a, double b) { return a == b; }},
    {"ne", ops::ne, [](double a, double b) { return a != b; }},
    {"lt", ops::lt, [](double a, double b) { return a < b; }},
    {"le", ops::le, [](double a, double b) { return a <= b; }},
    {"gt", ops::gt, [](double a, double b) { return a > b; }},
    {"ge", ops::ge, [](double a, double b) { return a >= b; }},
};

// Small whole numbers, so that many are equal.
Input whole(const Shape& shape) {
  Input input = below(shape, 3);
  input.dtype = DType::f32;
  return input;
}

OpCase compare_case(const Comparison& c, const std::string& name, Input a, Input b) {
  return OpCase{.op = c.op,
                .name = std::string(c.op) + ", " + name,
                .inputs = {a.no_grad(), b.no_grad()},
                .call = [call = c.call](const Tensors& t) { return call(t[0], t[1]); },
                .reference =
                    [holds = c.holds](const Arrays& in) {
                      return reference::map(in[0], in[1], [holds](double x, double y) {
                        return holds(x, y) ? 1. : 0.;
                      });
                    },
                .ulps = 0,
                .zero_output = true};
}

OpCase where_case(const std::string& name, const Shape& condition, Input a, Input b) {
  Input bits = below(condition, 2).as(DType::u8);
  return OpCase{.op = "where",
                .name = "where, " + name,
                .inputs = {bits, std::move(a), std::move(b)},
                .call = [](const Tensors& t) { return ops::where(t[0], t[1], t[2]); },
                .reference =
                    [](const Arrays& in) {
                      const Shape shape =
                          broadcast("", broadcast("", in[0].shape, in[1].shape), in[2].shape);
                      const Array c = reference::broadcast_to(in[0], shape),
                                  x = reference::broadcast_to(in[1], shape),
                                  y = reference::broadcast_to(in[2], shape);
                      Array result(shape);
                      for (int64_t i = 0; i < shape.numel(); ++i)
                        result[i] = c[i] != 0 ? x[i] : y[i];
                      return result;
                    },
                .ulps = 0,
                .zero_gradient = true};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Comparison& c : kComparisons) {
    all.push_back(compare_case(c, "same shape", whole({3, 5, 7}), whole({3, 5, 7})));
    all.push_back(compare_case(c, "broadcast", whole({4, 1, 3}), whole({5, 3})));
    all.push_back(compare_case(c, "scalars", whole({}), whole({})));
    all.push_back(compare_case(c, "empty", whole({0, 3}), whole({1, 3})));
    all.push_back(compare_case(c, "many threads", whole({3, 20011}), whole({3, 20011})));
    all.push_back(compare_case(c, "special values", values({6}, {NAN, NAN, kInf, -kInf, 0.0, 1e8}),
                               values({6}, {NAN, 1, kInf, kInf, -0.0, 1e8})));
  }
  all.push_back(where_case("same shape", {3, 5, 7}, uniform({3, 5, 7}), uniform({3, 5, 7})));
  all.push_back(where_case("broadcast", {5, 1}, uniform({4, 1, 3}), uniform({1})));
  all.push_back(where_case("empty", {0, 3}, uniform({3}), uniform({1})).with_zero_output());
  all.push_back(where_case("many threads", {3, 20011}, uniform({3, 20011}), uniform({3, 20011})));
  all.push_back(
      where_case("NaN beside", {40}, constant({40}, 2).no_grad(), values({1}, {NAN}).no_grad()));
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    all.push_back(where_case(std::string("of ") + name(dtype), {3, 7}, below({3, 7}, 100).as(dtype),
                             below({7}, 100).as(dtype)));
  }
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op comparison") { run_cases(cases()); }

TEST_CASE("op comparison errors") {
  const Tensor a = full({2, 3}, 1), b = full({4}, 1);
  check_error([&] { ops::lt(a, b); }, {"[lt]", "[2, 3]", "[4]"});
  check_error([&] { ops::where(a, a, a); }, {"[where]", "u8", "f32[2, 3]"});
  const Tensor condition = full({2, 3}, 1, DType::u8);
  check_error([&] { ops::where(condition, a, ops::cast(a, DType::bf16)); },
              {"[where]", "f32[2, 3]", "bf16[2, 3]"});
}

TEST_CASE("op comparison: pow, maximum and minimum at their edges") {
  const auto gradients = [](auto call, double a, double b) {
    Tensor x = tensor({}, {a}), y = tensor({}, {b});
    x.set_requires_grad(true);
    y.set_requires_grad(true);
    call(x, y).backward();
    return std::pair(x.grad().item(), y.grad().item());
  };
  const auto pow = [](const Tensor& a, const Tensor& b) { return ops::pow(a, b); };
  CHECK(ops::pow(tensor({}, {0}), tensor({}, {0})).item() == 1);
  CHECK(gradients(pow, 0, 0) == std::pair(0., 0.));
  CHECK(gradients(pow, 0, 2) == std::pair(0., 0.));
  CHECK(gradients(pow, 2, 0).first == 0);
  CHECK(gradients(pow, 3, 2).first == 6);
  CHECK(gradients(ops::maximum, 1, 1) == std::pair(0.5, 0.5));
  CHECK(gradients(ops::minimum, 1, 1) == std::pair(0.5, 0.5));
  CHECK(gradients(ops::maximum, 1, 2) == std::pair(0., 1.));
  CHECK(gradients(ops::minimum, 1, 2) == std::pair(1., 0.));
  Tensor x = tensor({2}, {0, 3});
  x.set_requires_grad(true);
  ops::sum(ops::pow(x, 0)).backward();
  CHECK(to_array(x.grad()).values == std::vector<double>{0, 0});
}

}  // namespace engine::test
