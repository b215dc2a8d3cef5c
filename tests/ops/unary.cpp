// scale, shift, neg, exp, log, sqrt, rsqrt, pow by a scalar, clamp, abs, relu.
#include <fmt/format.h>

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
  Tensor (*call)(const Tensor&);
  double (*reference)(double);
  double low, high;  // inside the domain, away from its edge
  double ulps;
};

const Function kFunctions[] = {
    {"scale", [](const Tensor& x) { return ops::scale(x, -1.5); },
     [](double x) { return -1.5 * x; }, -3, 3, 1},
    {"shift", [](const Tensor& x) { return ops::shift(x, 0.75); },
     [](double x) { return x + 0.75; }, -3, 3, 1},
    {"neg", ops::neg, [](double x) { return -x; }, -3, 3, 0},
    {"exp", ops::exp, [](double x) { return std::exp(x); }, -6, 6, 4},
    {"log", ops::log, [](double x) { return std::log(x); }, 0.1, 20, 4},
    {"sqrt", ops::sqrt, [](double x) { return std::sqrt(x); }, 0.1, 20, 1},
    {"rsqrt", ops::rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.1, 20, 2},
    {"pow_scalar", [](const Tensor& x) { return ops::pow(x, 2.5); },
     [](double x) { return std::pow(x, 2.5); }, 0.1, 4, 4},
};

OpCase make(const Function& f, const std::string& name, Input input) {
  const auto call = f.call;
  const auto reference = f.reference;
  return OpCase{
      .op = f.op,
      .name = std::string(f.op) + ", " + name,
      .inputs = {std::move(input)},
      .call = [call](const Tensors& t) { return call(t[0]); },
      .reference = [reference](const Arrays& a) { return reference::map(a[0], reference); },
      .ulps = f.ulps};
}

Input extremes() {
  return values({12}, {kNaN, kInf, -kInf, 1e8, -1e8, 3e38, -3e38, 1e-30, -0.0, 0.0, 88.5, -87})
      .no_grad();
}

// dy where the function passes, as PyTorch has it: relu passes where its output is not <= 0.
Arrays masked(const Arrays& in, const Array& upstream, double (*slope)(double)) {
  return {reference::map(in[0], upstream,
                         [slope](double x, double u) { return slope(x) == 0 ? 0 : u * slope(x); })};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Function& f : kFunctions) {
    const double low = f.low, high = f.high;
    all.push_back(make(f, "odd size", uniform({3, 5, 7}, low, high)));
    all.push_back(make(f, "scalar", uniform({}, low, high)));
    all.push_back(make(f, "one element of rank 8", uniform({1, 1, 1, 1, 1, 1, 1, 1}, low, high)));
    all.push_back(make(f, "empty", uniform({0, 3}, low, high)));
    all.push_back(make(f, "many threads", uniform({3, 20011}, low, high)));
    all.push_back(make(f, "extremes", extremes()));
  }

  for (const double e : {2.0, 3.0, -1.0, 0.5}) {
    OpCase c{.op = "pow_scalar",
             .name = fmt::format("pow_scalar, exponent {}", e),
             .inputs = {uniform({3, 5}, 0.5, 2)},
             .call = [e](const Tensors& t) { return ops::pow(t[0], e); },
             .reference =
                 [e](const Arrays& a) {
                   return reference::map(a[0], [e](double x) { return std::pow(x, e); });
                 }};
    all.push_back(c);
  }
  const auto clamped = [](const std::string& name, Input input, double low, double high) {
    return OpCase{.op = "clamp",
                  .name = "clamp, " + name,
                  .inputs = {std::move(input)},
                  .call = [=](const Tensors& t) { return ops::clamp(t[0], low, high); },
                  .reference =
                      [=](const Arrays& a) {
                        return reference::map(
                            a[0], [=](double x) { return x < low ? low : (x > high ? high : x); });
                      },
                  .ulps = 0,
                  .zero_gradient = true};
  };
  all.push_back(clamped("both sides", apart({3, 5, 7}, 0.02), -0.503, 0.757));
  all.push_back(clamped("above alone", apart({3, 20011}, 1e-4), -kInf, 0.5).with_bf16_roundings(0));
  all.push_back(clamped("empty", uniform({0, 3}), 0, 1));
  all.push_back(
      clamped("NaN and infinities", values({5}, {kNaN, kInf, -kInf, 0.5, 1}).no_grad(), 0, 1));
  // At the edges the gradient is 0.
  all.push_back(clamped("edges", values({4}, {0, 1, 0.5, 2}), 0, 1)
                    .with_gradient([](const Arrays& in, const Array& up) {
                      return Arrays{reference::map(
                          in[0], up, [](double x, double u) { return x > 0 && x < 1 ? u : 0; })};
                    }));
  const auto slope_relu = [](double x) { return x <= 0 ? 0.0 : 1.0; };
  const auto slope_abs = [](double x) { return x > 0 ? 1.0 : (x < 0 ? -1.0 : 0.0); };
  const Function relu{"relu", ops::relu, reference::relu, 0, 0, 0};
  const Function abs{"abs", ops::abs, [](double x) { return std::abs(x); }, 0, 0, 0};
  for (const Function& f : {relu, abs}) {
    all.push_back(make(f, "odd size", apart({3, 5, 7}, 0.01, 0.7)));
    all.push_back(make(f, "one element", values({1}, {0.5})));
    all.push_back(make(f, "empty", apart({0, 3})));
    all.push_back(make(f, "many threads", apart({3, 20011}, 0.0001, 0.7)));
  }
  // NaN stays NaN, and its gradient passes, as in PyTorch; at 0 the gradient is 0.
  all.push_back(
      make(relu, "NaN, infinities and zeros", values({7}, {kNaN, kInf, -kInf, 1e8, 2, 3, 0}))
          .with_gradient(
              [=](const Arrays& in, const Array& up) { return masked(in, up, slope_relu); }));
  all.push_back(make(abs, "infinities and zeros", values({7}, {kInf, -kInf, 1e8, -2, 3, 0.0, -0.0}))
                    .with_gradient([=](const Arrays& in, const Array& up) {
                      return masked(in, up, slope_abs);
                    }));
  all.push_back(make(abs, "NaN", values({3}, {kNaN, 1, -1}).no_grad()));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op unary") { run_cases(cases()); }

TEST_CASE("op unary errors") {
  const Tensor integers = tensor({2, 3}, {1, 2, 3, 4, 5, 6}, DType::i64);
  check_error([&] { ops::exp(integers); }, {"[exp]", "f32", "i64[2, 3]"});
  check_error([] { ops::clamp(tensor({1}, {1}), 2, 1); }, {"[clamp]", "2", "1"});
  check_error([&] { ops::relu(integers); }, {"[relu]", "f32", "i64[2, 3]"});
  CHECK(error_of([] { ops::neg(Tensor()); }) != "");
}

}  // namespace engine::test
