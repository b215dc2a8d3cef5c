// mse_loss, l1_loss, smooth_l1_loss, bce_with_logits.
#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

struct Loss {
  const char* op;
  const char* setting;
  std::function<Tensor(const Tensor&, const Tensor&, Reduction)> call;
  std::function<double(double, double)> reference;
};

double smooth_l1(double d, double beta) {
  return std::abs(d) < beta ? d * d / (2 * beta) : std::abs(d) - beta / 2;
}

const Loss kLosses[] = {
    {"mse_loss", "", ops::mse_loss, [](double x, double t) { return (x - t) * (x - t); }},
    {"l1_loss", "", ops::l1_loss, [](double x, double t) { return std::abs(x - t); }},
    {"smooth_l1_loss", " beta 1",
     [](const Tensor& x, const Tensor& t, Reduction r) { return ops::smooth_l1_loss(x, t, 1, r); },
     [](double x, double t) { return smooth_l1(x - t, 1); }},
    {"smooth_l1_loss", " beta 0.25",
     [](const Tensor& x, const Tensor& t, Reduction r) {
       return ops::smooth_l1_loss(x, t, 0.25, r);
     },
     [](double x, double t) { return smooth_l1(x - t, 0.25); }},
    {"bce_with_logits", "", ops::bce_with_logits,
     [](double x, double t) {
       return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
     }},
};

OpCase make(const Loss& loss, Reduction reduction, const std::string& name, Input x, Input target) {
  const double n = static_cast<double>(x.shape.numel());
  return OpCase{.op = loss.op,
                .name = std::string(loss.op) + loss.setting + ", reduction " +
                        std::to_string(static_cast<int>(reduction)) + ", " + name,
                .inputs = {std::move(x), std::move(target)},
                .call = [call = loss.call,
                         reduction](const Tensors& t) { return call(t[0], t[1], reduction); },
                .reference =
                    [value = loss.reference, reduction, n](const Arrays& in) {
                      const Array each = reference::map(in[0], in[1], value);
                      if (reduction == Reduction::none) return each;
                      const Array sum = reference::sum(each);
                      return reduction == Reduction::sum
                                 ? sum
                                 : reference::map(sum, [n](double v) { return v / n; });
                    },
                .ulps = 8,
                .terms = 1};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Loss& loss : kLosses) {
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      // Beyond 2 apart here and below there, never equal: no kink is near.
      const Input x = apart({3, 5, 7}, 0.03), target = uniform({3, 5, 7}, -3e-3, 3e-3);
      all.push_back(make(loss, reduction, "odd size", x, target));
      all.push_back(make(loss, reduction, "target without gradient", x, target.no_grad()));
      all.push_back(
          make(loss, reduction, "one element", values({1}, {0.75}), values({1}, {0.125})));
      all.push_back(make(loss, reduction, "many threads", uniform({3, 20011}, 2, 3),
                         uniform({3, 20011}, 0, 1)));
    }
    all.push_back(
        make(loss, Reduction::none, "empty", uniform({0, 3}), uniform({0, 3})).with_zero_output());
    all.push_back(make(loss, Reduction::mean, "mean of nothing", uniform({0, 3}).no_grad(),
                       uniform({0, 3}).no_grad()));
  }
  all.push_back(make(kLosses[4], Reduction::none, "far out",
                     values({6}, {1e4, -1e4, 88, -88, 30, -30}).no_grad(),
                     values({6}, {0, 1, 1, 0, 0.5, 0.5}).no_grad()));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op pointwise loss") { run_cases(cases()); }

TEST_CASE("op pointwise loss: equal elements have no slope in l1") {
  Tensor x = tensor({3}, {1, 2, 3});
  x.set_requires_grad(true);
  ops::l1_loss(x, tensor({3}, {1, 1, 4}), Reduction::sum).backward();
  CHECK(to_array(x.grad()).values == std::vector<double>{0, 1, -1});
}

TEST_CASE("op pointwise loss: smooth_l1 with a beta of 0 is l1") {
  Tensor x = tensor({3}, {1, 2.5, 3});
  x.set_requires_grad(true);
  const Tensor loss = ops::smooth_l1_loss(x, tensor({3}, {1, 1, 4}), 0, Reduction::sum);
  CHECK(loss.item() == 2.5);
  loss.backward();
  CHECK(to_array(x.grad()).values == std::vector<double>{0, 1, -1});
}

TEST_CASE("op pointwise loss: NaN has a slope of NaN in smooth_l1") {
  for (const Device device : test_devices()) {
    Tensor x = tensor({3}, {NAN, INFINITY, -INFINITY}, DType::f32, device);
    x.set_requires_grad(true);
    ops::smooth_l1_loss(x, full({3}, 0, DType::f32, device), 1, Reduction::sum).backward();
    const std::vector<double> slopes = to_array(x.grad()).values;
    CHECK(std::isnan(slopes[0]));
    CHECK(slopes[1] == 1);
    CHECK(slopes[2] == -1);
  }
}

TEST_CASE("op pointwise loss errors") {
  const Tensor a = tensor({2}, {1, 2}), b = tensor({3}, {1, 2, 3});
  check_error([&] { ops::mse_loss(a, b); }, {"[mse_loss]", "f32[2]", "f32[3]"});
  check_error([&] { ops::bce_with_logits(a, ops::cast(a, DType::bf16)); },
              {"[bce_with_logits]", "f32[2]", "bf16[2]"});
  check_error([&] { ops::smooth_l1_loss(a, a, -1); }, {"[smooth_l1_loss]", "beta", "-1"});
}

}  // namespace engine::test
