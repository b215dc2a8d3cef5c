// sum, mean, max, min, var, logsumexp, argmax, sum_squares.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kNaN = NAN, kInf = INFINITY;

using reference::Axes;

struct Function {
  const char* op;
  Tensor (*call)(const Tensor&, std::span<const int64_t>, bool);
  Array (*reference)(const Array&, const Axes&, bool);
  bool extremum;
};

const Function kFunctions[] = {
    {"sum", [](const Tensor& x, std::span<const int64_t> a, bool k) { return ops::sum(x, a, k); },
     reference::sum, false},
    {"mean", ops::mean, reference::mean, false},
    {"max", ops::max, reference::max, true},
    {"min", ops::min, reference::min, true},
};

OpCase make(const Function& f, const std::string& what, Input input, const Axes& axes,
            bool keepdim) {
  const auto call = f.call;
  const auto reference = f.reference;
  return OpCase{.op = f.op,
                .name = fmt::format("{}, {}", f.op, what),
                .inputs = {std::move(input)},
                .call = [=](const Tensors& t) { return call(t[0], axes, keepdim); },
                .reference = [=](const Arrays& a) { return reference(a[0], axes, keepdim); },
                .ulps = f.extremum ? 0.0 : 2.0,
                .zero_gradient = f.extremum};
}

OpCase argmax(const std::string& what, Input input, int axis, bool keepdim, bool zeros = false) {
  return OpCase{
      .op = "argmax",
      .name = "argmax, " + what,
      .inputs = {input.no_grad()},
      .call = [=](const Tensors& t) { return ops::argmax(t[0], axis, keepdim); },
      .reference = [=](const Arrays& a) { return reference::argmax(a[0], axis, keepdim); },
      .ulps = 0,
      .zero_output = zeros};
}

OpCase sum_squares(const Shape& shape, double low, double high) {
  return OpCase{.op = "sum_squares",
                .name = fmt::format("sum_squares, {} from {} to {}", to_string(shape), low, high),
                .inputs = {uniform(shape, low, high).no_grad()},
                .call = [](const Tensors& t) { return ops::sum_squares(t[0]); },
                .reference =
                    [](const Arrays& a) {
                      return reference::sum(reference::map(a[0], [](double x) { return x * x; }));
                    },
                .ulps = 1,
                .zero_output = shape.numel() == 0};
}

OpCase var(const std::string& what, Input input, const Axes& axes, double correction,
           bool keepdim) {
  const auto count = static_cast<double>(input.shape.numel());
  return OpCase{
      .op = "var",
      .name = fmt::format("var, {} over {}, correction {}{}", what, fmt::join(axes, " "),
                          correction, keepdim ? " kept" : ""),
      .inputs = {std::move(input)},
      .call = [=](const Tensors& t) { return ops::var(t[0], axes, correction, keepdim); },
      .reference = [=](const Arrays& a) { return reference::var(a[0], axes, correction, keepdim); },
      .ulps = 2,
      .zero_output = count == 0};
}

OpCase logsumexp(const std::string& what, Input input, const Axes& axes, bool keepdim) {
  return OpCase{
      .op = "logsumexp",
      .name = fmt::format("logsumexp, {} over {}{}", what, fmt::join(axes, " "),
                          keepdim ? " kept" : ""),
      .inputs = {std::move(input)},
      .call = [=](const Tensors& t) { return ops::logsumexp(t[0], axes, keepdim); },
      .reference = [=](const Arrays& a) { return reference::logsumexp(a[0], axes, keepdim); },
      .ulps = 4};
}

// The gradient of an extremum over all elements, shared evenly between equal ones.
OpCase tied(const Function& f) {
  return make(f, "ties share", values({6}, {2, -1, 2, 2, -1, 0}), {}, false)
      .with_gradient([max = f.op == std::string("max")](const Arrays& a, const Array& upstream) {
        const double best = max ? 2 : -1, share = max ? 3 : 2;
        return Arrays{
            reference::map(a[0], [&](double x) { return x == best ? upstream[0] / share : 0; })};
      });
}

// Where the extremum is NaN, the NaNs share.
OpCase tied_nan(const Function& f) {
  return make(f, "NaNs share", values({2, 3}, {kNaN, 1, kNaN, 3, 2, 1}), {1}, false)
      .with_gradient([max = f.op == std::string("max")](const Arrays& a, const Array& upstream) {
        Array dx(a[0].shape, 0);
        dx[0] = dx[2] = upstream[0] / 2;
        dx[max ? 3 : 5] = upstream[1];
        return Arrays{dx};
      });
}

std::vector<OpCase> cases() {
  struct Form {
    Shape shape;
    Axes axes;
  };
  const Form forms[] = {
      {{}, {}},
      {{1}, {0}},
      {{7}, {}},
      {{3, 5}, {0}},
      {{3, 5}, {1}},
      {{3, 5}, {-1}},
      {{3, 5}, {1, 0}},
      {{2, 3, 4}, {1}},
      {{2, 3, 4}, {0, 2}},
      {{2, 3, 4}, {0, 1}},
      {{2, 3, 4}, {1, 2}},
      {{4, 1, 3}, {1}},
      {{0, 3}, {1}},
      {{2, 3, 2, 3, 2}, {1, 3}},
      {{2, 3, 3, 5}, {0, 1, 2}},
      {{257, 129}, {0}},
      {{257, 129}, {1}},
      {{40009}, {}},
      {{3, 100, 71}, {1}},
      {{3, 17000}, {1}},
  };
  std::vector<OpCase> all;
  for (const Function& f : kFunctions) {
    for (const Form& form : forms) {
      for (const bool keepdim : {false, true}) {
        const std::string what = fmt::format("{} over {}{}", to_string(form.shape),
                                             fmt::join(form.axes, " "), keepdim ? " kept" : "");
        const Input input = f.extremum ? apart(form.shape, 0.001) : uniform(form.shape, 0.5, 1.5);
        all.push_back(make(f, what, input, form.axes, keepdim));
        // To bf16, sums of this many numbers are alike, and so many numbers are not all different.
        if (form.shape == Shape{3, 17000}) all.back().bf16_roundings = 0;
      }
    }
    all.push_back(make(
        f, "NaN and infinities",
        values({5, 2}, {1, kNaN, kInf, -kInf, -kInf, 1, kNaN, kInf, 2, -3}).no_grad(), {1}, false));
    all.push_back(make(f, "NaN first and last", values({2, 3}, {kNaN, 1, 2, 1, 2, kNaN}).no_grad(),
                       {1}, false));
    // 1e8 and small numbers: lost unless the sum is accumulated in more than f32.
    all.push_back(
        make(f, "large and small", values({5}, {1e8, 1, 2, -1e8, 0.5}).no_grad(), {}, false));
    all.push_back(make(f, "large mean", uniform({1000}, 9999, 10001).no_grad(), {}, false));
    if (f.extremum) {
      all.push_back(tied(f));
      all.push_back(tied_nan(f));
    }
  }
  // Nothing to add up.
  all.push_back(make(kFunctions[0], "empty axis", uniform({3, 0}), {1}, false).with_zero_output());
  all.push_back(make(kFunctions[0], "all of nothing", uniform({0}), {}, false).with_zero_output());
  all.push_back(make(kFunctions[1], "empty axis is NaN", uniform({3, 0}), {1}, false));

  for (const Form& form : forms) {
    const std::string what = to_string(form.shape);
    for (const bool keepdim : {false, true}) {
      for (const double correction : {0.0, 1.0}) {
        if (form.shape.numel() < 2) continue;
        if (form.shape == Shape{4, 1, 3}) continue;  // one value each: below
        all.push_back(var(what, uniform(form.shape, 0.5, 1.5), form.axes, correction, keepdim));
        if (form.shape.numel() > 10000) {
          all.back().bf16_roundings = 0;  // all alike to bf16
          // Differences of so many squares are less exact than the formula.
          all.back().gradient = [=](const Arrays& a, const Array& upstream) {
            const double n = static_cast<double>(a[0].shape.numel()) /
                             static_cast<double>(upstream.shape.numel());
            const Array mean = reference::mean(a[0], form.axes, true);
            const Array off = reference::map(a[0], mean, std::minus<>());
            const Array scale = reference::map(reference::reshape(upstream, mean.shape),
                                               [=](double u) { return 2 * u / (n - correction); });
            return Arrays{reference::map(off, scale, std::multiplies<>())};
          };
        }
      }
      if (form.shape.numel() == 0) continue;
      all.push_back(logsumexp(what, uniform(form.shape, -6, 6), form.axes, keepdim));
      if (form.shape.numel() > 10000) all.back().bf16_roundings = 0;
    }
  }
  all.push_back(var("one value each", uniform({4, 1, 3}), {1}, 1, false)
                    .with_gradient([](const Arrays& a, const Array&) {
                      return Arrays{Array(a[0].shape, kNaN)};
                    }));
  all.push_back(var("one value each", uniform({4, 1, 3}), {1}, 0, false).with_zero_output());
  all.push_back(var("nothing", uniform({3, 0}), {1}, 1, false));
  all.push_back(var("a mean of 1449", uniform({3, 100}, 1448, 1450).no_grad(), {1}, 1, false)
                    .with_bf16_roundings(0));
  all.push_back(
      var("NaN and infinity", values({3, 2}, {1, kNaN, 1, kInf, 1, 2}).no_grad(), {1}, 1, false));
  all.push_back(logsumexp("far apart", values({2, 3}, {1e4, -1e4, 9999, -431, 279, 427}).no_grad(),
                          {1}, false));
  all.push_back(logsumexp("infinities and NaN",
                          values({4, 2}, {-kInf, -kInf, kInf, 1, kNaN, 1, -kInf, 2}).no_grad(), {1},
                          false));
  // softmax of an infinity beside 50: infinity less infinity, and nothing.
  all.push_back(logsumexp("an infinite largest", values({2, 2}, {kInf, 50, 1, 2}), {1}, false)
                    .with_gradient([](const Arrays& a, const Array& upstream) {
                      Array slope(a[0].shape);
                      slope[0] = kNaN;
                      slope[2] = upstream[1] / (1 + std::exp(1.0));
                      slope[3] = upstream[1] - slope[2];
                      return Arrays{slope};
                    }));

  all.push_back(argmax("rows", apart({4, 7}), 1, false));
  all.push_back(argmax("columns kept", apart({4, 7}), 0, true));
  all.push_back(argmax("middle", apart({3, 5, 4}), -2, false));
  all.push_back(argmax("one class", apart({3, 1}), 1, false, true));
  all.push_back(argmax("no rows", apart({0, 3}), 1, false));
  all.push_back(argmax("the first of equals, and NaN",
                       values({4, 3}, {1, 3, 3, kNaN, 9, 9, 5, 1, kNaN, -kInf, -kInf, -kInf}), 1,
                       false, true));
  all.push_back(argmax("many threads", apart({5003, 11}), 1, false));
  all.push_back(sum_squares({7}, -2, 2));
  all.push_back(sum_squares({0}, -2, 2));
  all.push_back(sum_squares({}, 1, 2));
  all.push_back(sum_squares({60013}, -2, 2));
  all.push_back(sum_squares({1000}, 9999, 10001));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op reduce") { run_cases(cases()); }

TEST_CASE("op reduce errors") {
  const Tensor x = full({2, 3}, 1), none = full({2, 0}, 1);
  const auto sum = [](const Tensor& t, std::vector<int64_t> axes) { ops::sum(t, axes); };
  check_error([&] { sum(x, {2}); }, {"[sum]", "axis", "2"});
  check_error([&] { sum(x, {0, -2}); }, {"[sum]", "twice"});
  check_error([&] { sum(full({2}, 1, DType::i64), {}); }, {"[sum]", "i64[2]"});
  check_error([&] { ops::max(none); }, {"[max]", "[2, 0]", "axis 1"});
  check_error([&] { ops::min(none); }, {"[min]", "[2, 0]", "axis 1"});
  const int64_t beyond[] = {2}, twice[] = {1, -1};
  check_error([&] { ops::var(x, beyond); }, {"[var]", "axis", "2"});
  check_error([&] { ops::var(full({2}, 1, DType::i64)); }, {"[var]", "i64[2]"});
  check_error([&] { ops::logsumexp(x, twice); }, {"[logsumexp]", "twice"});
  check_error([&] { ops::argmax(none, 1); }, {"[argmax]", "[2, 0]"});
  check_error([&] { ops::argmax(x, 2); }, {"[argmax]", "2"});
  check_error([&] { ops::sum_squares(full({2}, 1, DType::i32)); }, {"[sum_squares]", "i32[2]"});
}

}  // namespace engine::test
