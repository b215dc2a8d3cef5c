// leaky_relu, gelu, gelu_tanh, silu, sigmoid, tanh, softplus, elu.
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Function {
  const char* op;
  const char* setting;
  std::function<Tensor(const Tensor&)> call;
  std::function<double(double)> reference;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const Function kFunctions[] = {
    {"leaky_relu", "", [](const Tensor& x) { return ops::leaky_relu(x); },
     [](double x) { return x > 0 ? x : static_cast<double>(0.01f) * x; }},
    {"leaky_relu", " 0.2", [](const Tensor& x) { return ops::leaky_relu(x, 0.25); },
     [](double x) { return x > 0 ? x : 0.25 * x; }},
    {"gelu", "", ops::gelu, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }},
    {"gelu_tanh", "", ops::gelu_tanh,
     [](double x) {
       const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
       return x * sigmoid(2 * inner);  // (1 + tanh) / 2, without the cancellation
     }},
    {"silu", "", ops::silu, [](double x) { return x * sigmoid(x); }},
    {"sigmoid", "", ops::sigmoid, sigmoid},
    {"tanh", "", ops::tanh, [](double x) { return std::tanh(x); }},
    {"softplus", "", [](const Tensor& x) { return ops::softplus(x); },
     [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); }},
    {"softplus", " beta 2, threshold 4", [](const Tensor& x) { return ops::softplus(x, 2, 4); },
     [](double x) { return 2 * x > 4 ? x : std::log1p(std::exp(2 * x)) / 2; }},
    {"elu", "", [](const Tensor& x) { return ops::elu(x); },
     [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"elu", " 0.5", [](const Tensor& x) { return ops::elu(x, 0.5); },
     [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); }},
};

OpCase make(const Function& f, const std::string& name, Input input) {
  return OpCase{
      .op = f.op,
      .name = std::string(f.op) + f.setting + ", " + name,
      .inputs = {std::move(input)},
      .call = [call = f.call](const Tensors& t) { return call(t[0]); },
      .reference = [value = f.reference](const Arrays& a) { return reference::map(a[0], value); },
      // The exponent of gelu_tanh's exponential is large far to the left, and so is what its
      // rounding does.
      .ulps = std::string(f.op) == "gelu_tanh" ? 32. : 8.,
      // The slope of sigmoid and tanh comes from the rounded output: 1 - y^2 magnifies it.
      .bf16_roundings = 4};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Function& f : kFunctions) {
    // Terms of about 1 cancel in the slopes.
    all.push_back(make(f, "odd size", apart({3, 5, 7}, 0.01, 0.6)).with_terms(1));
    all.push_back(make(f, "one element", values({}, {0.5})));
    all.push_back(make(f, "empty", uniform({0, 3})));
    all.push_back(make(f, "many threads", uniform({3, 20011}, -4, 4)).with_terms(1));
    // Without its gradient, which is lost in the rounding of 1 - y where y is 1.
    all.push_back(
        make(f, "far out",
             values({12}, {-9, -5, -3, -1.5, -1e-3, 1e-3, 1e-8, 1.5, 3, 5, 12, 30}).no_grad()));
    all.push_back(make(f, "NaN and infinity", values({4}, {NAN, kInf, 0.0, -1e4}).no_grad())
                      .with_zero_output());
  }
  // At the kink the slope is the lower side's; NaN, which is on no side, has elu's 1.
  const auto kinked = [&](size_t function, double below, double at_nan) {
    all.push_back(
        make(kFunctions[function], "the slope at 0 and at NaN", values({4}, {0.0, -0.0, NAN, 1.5}))
            .with_zero_output()
            .with_gradient([=](const Arrays&, const Array& upstream) {
              Array slope = upstream;
              slope[0] *= below;
              slope[1] *= below;
              slope[2] *= at_nan;
              return Arrays{slope};
            }));
  };
  kinked(0, static_cast<double>(0.01f), static_cast<double>(0.01f));
  kinked(1, 0.25, 0.25);
  kinked(9, 1, 1);
  kinked(10, 0.5, 1);
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op activation") { run_cases(cases()); }

TEST_CASE("op activation errors") {
  const Tensor integers = tensor({2}, {1, 2}, DType::i64), x = tensor({2}, {1, 2});
  check_error([&] { ops::gelu(integers); }, {"[gelu]", "f32 or bf16", "i64[2]"});
  check_error([&] { ops::softplus(x, 0); }, {"[softplus]", "beta"});
}

}  // namespace engine::test
