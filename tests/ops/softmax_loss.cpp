// softmax, log_softmax, nll_loss, cross_entropy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kInf = INFINITY;

OpCase softmax(bool log, const std::string& what, Input x, int axis) {
  const double classes = x.shape.rank() == 0 ? 1 : static_cast<double>(x.shape[axis]);
  return OpCase{
      .op = log ? "log_softmax" : "softmax",
      .name = fmt::format("{}, {}", log ? "log_softmax" : "softmax", what),
      .inputs = {std::move(x)},
      .call = [=](const Tensors& t) { return (log ? ops::log_softmax : ops::softmax)(t[0], axis); },
      .reference =
          [=](const Arrays& a) {
            return (log ? reference::log_softmax : reference::softmax)(a[0], axis);
          },
      .terms = log ? classes : 1,
      .term = log ? 1 : 0.25};
}

OpCase loss(bool nll, const std::string& what, Input scores, Input target, const LossAttrs& attrs,
            bool weighted = false) {
  const double rows = static_cast<double>(scores.shape[0]),
               classes = static_cast<double>(scores.shape[1]);
  OpCase c{.op = nll ? "nll_loss" : "cross_entropy",
           .name = fmt::format("{}, {}{}", nll ? "nll" : "ce", what, weighted ? ", weights" : ""),
           .inputs = {std::move(scores), std::move(target)},
           .call =
               [=](const Tensors& t) {
                 return (nll ? ops::nll_loss : ops::cross_entropy)(t[0], t[1], attrs,
                                                                   t.size() > 2 ? t[2] : Tensor());
               },
           .reference =
               [=](const Arrays& a) {
                 return (nll ? reference::nll_loss : reference::cross_entropy)(a, attrs);
               },
           .terms = std::sqrt(rows * classes),
           .zero_gradient = nll};  // of all but the target's class
  if (weighted) c.inputs.push_back(uniform({static_cast<int64_t>(classes)}, 0.25, 2).no_grad());
  return c;
}

// d(cross entropy) of each row by hand: weight * (softmax - target distribution); ignored rows 0.
std::function<Arrays(const Arrays&, const Array&)> softmax_minus_target(bool mean) {
  return [mean](const Arrays& in, const Array& upstream) {
    Array dx = reference::softmax(in[0], 1);
    const int64_t classes = in[0].shape[1];
    const double rows = mean ? static_cast<double>(in[0].shape[0]) : 1;
    for (int64_t i = 0; i < dx.shape.numel(); ++i) {
      const bool is_target = static_cast<double>(i % classes) == in[1][i / classes];
      dx[i] = (dx[i] - (is_target ? 1 : 0)) * upstream[0] / rows;
    }
    return Arrays{dx};
  };
}

Arrays zero_gradients(const Arrays& in, const Array&) { return {Array(in[0].shape)}; }

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const bool log : {false, true}) {
    const auto add = [&](const std::string& what, Input x, int axis) {
      all.push_back(softmax(log, what, std::move(x), axis));
    };
    add("rows", uniform({4, 7}, -3, 3), 1);
    add("columns", uniform({4, 7}, -3, 3), 0);
    add("middle axis", uniform({2, 5, 3}, -3, 3), 1);
    add("last axis of 4", uniform({2, 1, 3, 6}, -3, 3), -1);
    add("one row", uniform({1, 2}, -3, 3), -1);
    add("vector", uniform({9}, -3, 3), 0);
    add("no rows", uniform({0, 5}), 1);
    add("17 classes", uniform({3, 17}, -3, 3), 1);
    add("1000 classes", uniform({3, 1000}, -3, 3), 1);
    add("many threads", uniform({2003, 10}, -3, 3), 1);
    add("many threads, columns", uniform({10, 2003}, -3, 3), 0);
    add("large", values({2, 3}, {1e8, 1e8, 1e8, -1e8, 0, 1}).no_grad(), 1);
    add("far apart", values({2, 3}, {-431, 279, 427, 1e4, -1e4, 9999}).no_grad(), 1);
    add("-infinity beside numbers", values({2, 3}, {-kInf, 1, 2, 3, -kInf, -kInf}).no_grad(), 1);
    add("NaN, infinity, only -infinity", values({3, 2}, {NAN, 1, kInf, 1, -kInf, -kInf}).no_grad(),
        1);
    add("large mean", uniform({3, 8}, 1448, 1450).no_grad(), 1);
  }
  for (OpCase& c : all) {
    if (c.name.ends_with("far apart") || c.name.ends_with("infinity beside numbers"))
      c.zero_output = true;
  }
  all.push_back(softmax(true, "one class", uniform({3, 1}), 1).with_zero_output());
  all.push_back(softmax(false, "one class", uniform({3, 1}), 1).with_zero_gradient());

  const Reduction reductions[] = {Reduction::mean, Reduction::sum, Reduction::none};
  for (const bool nll : {false, true}) {
    const auto scores = [nll](const Shape& s) {
      return nll ? uniform(s, -4, -0.1) : uniform(s, -3, 3);
    };
    for (const Reduction reduction : reductions) {
      for (const float smoothing : {0.f, 0.1f, 1.f}) {
        const std::string kind =
            fmt::format("reduction {}, smoothing {}", static_cast<int>(reduction), smoothing);
        const LossAttrs attrs{-100, smoothing, reduction};
        const auto add = [&](const std::string& what, const Shape& shape, Input target) {
          for (const bool weighted : {false, true}) {
            all.push_back(loss(nll, kind + ", " + what, scores(shape), target, attrs, weighted));
            // Means of all classes: alike to bf16, with gradients near 0.
            if (smoothing == 1 && (weighted || shape[1] == 1000)) all.back().bf16_roundings = 0;
          }
        };
        add("rows", {5, 7}, labels({0, 6, 3, 3, 1}));
        add("some ignored", {5, 4}, labels({0, -100, 3, -100, 1}));
        add("one row", {1, 3}, labels({2}));
        add("many threads", {2501, 10}, below({2501}, 10));
        add("1000 classes", {3, 1000}, below({3}, 1000));
      }
    }
    const auto add = [&](const std::string& what, const Shape& shape, Input target,
                         const LossAttrs& attrs) {
      all.push_back(loss(nll, what, scores(shape), std::move(target), attrs));
      return &all.back();
    };
    add("an ignored class of the range", {4, 3}, labels({0, 1, 2, 1}), {.ignore_index = 1});
    for (const float smoothing : {0.f, 0.2f}) {
      const std::string suffix = smoothing > 0 ? ", smoothing" : "";
      // PyTorch's: the mean over no rows is 0 / 0; the gradients are 0.
      add("all ignored, mean" + suffix, {3, 4}, labels({-100, -100, -100}),
          {.label_smoothing = smoothing})
          ->gradient = zero_gradients;
      add("all ignored, sum" + suffix, {3, 4}, labels({-100, -100, -100}),
          {-100, smoothing, Reduction::sum})
          ->zero_output = true;
      add("all ignored, none" + suffix, {3, 4}, labels({-100, -100, -100}),
          {-100, smoothing, Reduction::none})
          ->zero_output = true;
      add("no rows, mean" + suffix, {0, 4}, labels({}), {.label_smoothing = smoothing})->gradient =
          zero_gradients;
      add("no rows, sum" + suffix, {0, 4}, labels({}), {-100, smoothing, Reduction::sum})
          ->zero_output = true;
    }
    for (OpCase& c : all) c.zero_gradient |= c.name.find("ignored") != std::string::npos;
  }
  all.push_back(
      loss(false, "one class", uniform({3, 1}), labels({0, 0, 0}), {}).with_zero_output());
  // Gradients of confident wrong answers are finite: exp overflows f32 unless the maximum is
  // subtracted first.
  all.push_back(loss(false, "far apart", values({1, 3}, {-431, 279, 427}), labels({0}), {})
                    .with_gradient(softmax_minus_target(true))
                    .with_ulps(8));
  all.push_back(loss(false, "1e8", values({2, 3}, {1e8, -1e8, 0, -1e8, -1e8, 1e8}), labels({1, 2}),
                     {-100, 0, Reduction::sum})
                    .with_gradient(softmax_minus_target(false))
                    .with_zero_gradient());
  all.push_back(loss(false, "-infinity of another class",
                     values({2, 3}, {1, -kInf, 2, 3, 1, -kInf}), labels({0, 1}), {})
                    .with_gradient(softmax_minus_target(true)));
  all.push_back(loss(false, "NaN", values({2, 3}, {1, NAN, 2, 3, 1, 2}).no_grad(), labels({0, 1}),
                     {-100, 0, Reduction::none}));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op softmax and loss") { run_cases(cases()); }

TEST_CASE("op loss known values") {
  // Worked out by hand: softmax of equal logits is 1/C, so the loss is log C with any smoothing.
  for (const float smoothing : {0.f, 0.3f}) {
    const Tensor loss = ops::cross_entropy(full({2, 4}, 5), tensor({2}, {1, 3}, DType::i64),
                                           {.label_smoothing = smoothing});
    CHECK(loss.item() == Approx(std::log(4.0)).epsilon(1e-6));
  }
  // log(1 + e^-2) for logits (2, 0) and target 0; 2 more for target 1.
  const Tensor logits = tensor({2, 2}, {2, 0, 2, 0}), target = tensor({2}, {0, 1}, DType::i64);
  const auto each =
      ops::cross_entropy(logits, target, {.reduction = Reduction::none}).to_vector<float>();
  CHECK(static_cast<double>(each[0]) == Approx(std::log1p(std::exp(-2.0))).epsilon(1e-6));
  CHECK(static_cast<double>(each[1]) == Approx(2 + std::log1p(std::exp(-2.0))).epsilon(1e-6));
}

TEST_CASE("op loss errors") {
  for (const Device device : test_devices()) {
    for (const auto with_weights : {ops::nll_loss, ops::cross_entropy}) {
      const std::string op = with_weights == ops::nll_loss ? "[nll_loss]" : "[cross_entropy]";
      const auto loss = [&](const Tensor& x, const Tensor& target, const LossAttrs& attrs) {
        return with_weights(x, target, attrs, {});
      };
      const auto weights_of = [&](const Shape& shape, DType dtype) {
        with_weights(full({3, 5}, -1, DType::f32, device),
                     tensor({3}, {0, 1, 2}, DType::i64, device), {}, full(shape, 1, dtype, device));
      };
      check_error([&] { weights_of({4}, DType::f32); }, {op, "f32[5]", "f32[4]"});
      check_error([&] { weights_of({5}, DType::i64); }, {op, "f32[5]", "i64[5]"});
      check_error([&] { weights_of({5, 1}, DType::f32); }, {op, "f32[5]", "f32[5, 1]"});
      const Tensor scores = full({3, 5}, -1, DType::f32, device);
      const auto labels_on = [&](std::vector<double> list) {
        const Shape shape{static_cast<int64_t>(list.size())};
        return tensor(shape, list, DType::i64, device);
      };
      // The device stays usable after a label out of range.
      for (const double label : {5.0, -1.0, 1e15, -101.0}) {
        check_error(
            [&] {
              loss(scores, labels_on({0, label, 1}), {}).item();
            },
            {op, fmt::format("{}", static_cast<int64_t>(label)), "5"});
        CHECK(std::isfinite(loss(scores, labels_on({0, 4, -100}), {}).item()));
      }
      check_error([&] { loss(scores, labels_on({0, 1}), {}); }, {op, "[3, 5]", "i64[2]"});
      check_error(
          [&] {
            loss(scores, tensor({3}, {0, 1, 2}, DType::i32, device), {});
          },
          {op, "[3, 5]", "i32[3]"});
      check_error(
          [&] {
            loss(full({3}, 1, DType::f32, device), labels_on({0, 1, 2}), {});
          },
          {op, "f32[3]", "i64[3]"});
      check_error(
          [&] {
            loss(full({3, 0}, 1, DType::f32, device), labels_on({0, 1, 2}), {});
          },
          {op, "[3, 0]"});
      check_error(
          [&] {
            loss(scores, labels_on({0, 1, 2}), {.label_smoothing = 1.5f});
          },
          {op, "smoothing", "1.5"});
    }
  }
  check_error([] { ops::softmax(full({2, 3}, 1), 2); }, {"[softmax]", "axis", "2"});
  check_error(
      [] {
        ops::log_softmax(full({2, 3}, 1, DType::i32), 1);
      },
      {"[log_softmax]", "i32[2, 3]"});
}

}  // namespace engine::test
