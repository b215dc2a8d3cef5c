// add, sub, mul, div, pow, maximum, minimum, with broadcasting in both directions.
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Function {
  const char* op;
  Tensor (*call)(const Tensor&, const Tensor&);
  double (*reference)(double, double);
};

const Function kFunctions[] = {
    {"add", ops::add, [](double a, double b) { return a + b; }},
    {"sub", ops::sub, [](double a, double b) { return a - b; }},
    {"mul", ops::mul, [](double a, double b) { return a * b; }},
    {"div", ops::div, [](double a, double b) { return a / b; }},
    {"pow", ops::pow, [](double a, double b) { return std::pow(a, b); }},
    {"maximum", ops::maximum, [](double a, double b) { return a > b || std::isnan(a) ? a : b; }},
    {"minimum", ops::minimum, [](double a, double b) { return a < b || std::isnan(a) ? a : b; }},
};

OpCase make(const Function& f, const std::string& name, Input a, Input b) {
  const auto call = f.call;
  const auto reference = f.reference;
  return OpCase{
      .op = f.op,
      .name = std::string(f.op) + ", " + name,
      .inputs = {std::move(a), std::move(b)},
      .call = [call](const Tensors& t) { return call(t[0], t[1]); },
      .reference =
          [reference](const Arrays& in) { return reference::map(in[0], in[1], reference); },
      .ulps = 2,
      // Gradients are several results one after the other, as dy / b * y, negated, summed.
      .bf16_roundings = std::string(f.op) == "div" || std::string(f.op) == "pow" ? 6. : 2.};
}

// Away from 0, since div divides by the second, and pow takes the logarithm of the first.
Input first(const Function& f, const Shape& shape) {
  return uniform(shape, std::string(f.op) == "pow" ? 0.25 : -2, 2);
}
Input second(const Shape& shape) { return uniform(shape, 0.5, 2); }

std::vector<OpCase> cases() {
  struct Pair {
    const char* name;
    Shape a, b;
  };
  const Pair pairs[] = {
      {"same shape", {3, 5, 7}, {3, 5, 7}},
      {"scalars", {}, {}},
      {"scalar with tensor", {}, {5, 3}},
      {"tensor with scalar", {5, 3}, {}},
      {"bias", {6, 5}, {5}},
      {"leading axes", {7, 3}, {2, 1, 7, 3}},
      {"trailing 1", {2, 1, 4, 64}, {2, 1, 4, 1}},
      {"both ways", {4, 1, 3}, {1, 5, 3}},
      {"alternating axes", {2, 1, 3, 1, 2}, {1, 4, 1, 5, 2}},
      {"middle 1", {3, 1, 4}, {3, 5, 4}},
      {"channel of an image", {2, 3, 3, 5}, {2, 1, 1, 5}},
      {"ones", {1, 1}, {1}},
      {"empty", {0, 3}, {0, 3}},
      {"empty by broadcast", {0, 3}, {1, 3}},
      {"empty inner", {2, 0}, {2, 1}},
      {"rank 8", {2, 1, 2, 1, 2, 1, 2, 1}, {1, 2, 1, 2, 1, 2, 1, 3}},
      {"many threads", {7, 10007}, {7, 10007}},
      {"many threads, bias", {301, 173}, {173}},
      {"many threads, rows", {301, 173}, {301, 1}},
  };
  std::vector<OpCase> all;
  for (const Function& f : kFunctions) {
    for (const Pair& p : pairs) {
      OpCase c = make(f, p.name, first(f, p.a), second(p.b));
      // The gradient of an input that no element of the output uses is 0.
      if (broadcast("", p.a, p.b).numel() == 0) c.zero_gradient = true;
      c.zero_gradient |= c.op == "maximum" || c.op == "minimum";
      all.push_back(c);
    }
    all.push_back(make(f, "extremes",
                       values({8}, {kNaN, kInf, -kInf, kInf, 1e8, 3e38, 1, 0}).no_grad(),
                       values({8}, {1, kInf, kInf, 0, 1e8, 3e38, 0, 0}).no_grad()));
  }
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op binary") { run_cases(cases()); }

TEST_CASE("op binary errors") {
  const Tensor a = full({32, 3}, 1), b = full({1, 4}, 1);
  check_error([&] { ops::add(a, b); }, {"[add]", "[32, 3]", "[1, 4]", "3", "4"});
  check_error(
      [&] {
        ops::div(full({2, 3, 4}, 1), full({2, 4}, 1));
      },
      {"[div]", "[2, 3, 4]", "[2, 4]"});
  check_error(
      [&] {
        ops::mul(a, full({32, 3}, 1, DType::bf16));
      },
      {"[mul]", "f32[32, 3]", "bf16[32, 3]"});
  check_error([&] { ops::sub(full({2}, 1, DType::i32), full({2}, 1, DType::i32)); },
              {"[sub]", "i32[2]"});
}

TEST_CASE("op binary with one tensor twice") {
  // Both inputs are one leaf: their gradients add up, also in a buffer.
  Tensor x = tensor({3}, {1, 2, -3});
  x.set_requires_grad(true);
  x.set_grad_buffer(full({3}, std::nan("")));
  ops::sum(ops::mul(x, x)).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 4, -6});
  x.zero_grad();
  ops::sum(ops::sub(x, x)).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{0, 0, 0});
}

}  // namespace engine::test
