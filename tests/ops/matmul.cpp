// matmul, linear, linear_relu.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

OpCase matmul(const Shape& a, const Shape& b, bool ta = false, bool tb = false) {
  const int64_t depth = a[ta ? -2 : -1];
  const bool nothing = a.numel() == 0 || b.numel() == 0;
  return OpCase{
      .op = "matmul",
      .name = fmt::format("matmul, {}{} by {}{}", to_string(a), ta ? " transposed" : "",
                          to_string(b), tb ? " transposed" : ""),
      .inputs = {uniform(a), uniform(b)},
      .call = [=](const Tensors& t) { return ops::matmul(t[0], t[1], ta, tb); },
      .reference = [=](const Arrays& in) { return reference::matmul(in[0], in[1], ta, tb); },
      .terms = static_cast<double>(std::max<int64_t>(1, depth)),
      .zero_output = depth == 0,
      .zero_gradient = nothing};
}

OpCase linear(const char* op, const Shape& x, const Shape& weight, bool bias) {
  const bool relu = std::string(op) == "linear_relu";
  OpCase c{.op = op,
           .name = fmt::format("{}, {} by {}{}", op, to_string(x), to_string(weight),
                               bias ? " and bias" : ""),
           // Mostly positive results, so that relu passes most of them.
           .inputs = {uniform(x, 0, 1), uniform(weight, -0.5, 1)},
           .call =
               [relu](const Tensors& t) {
                 const Tensor b = t.size() > 2 ? t[2] : Tensor();
                 return (relu ? ops::linear_relu : ops::linear)(t[0], t[1], b);
               },
           .reference =
               [relu](const Arrays& in) {
                 const Array y = reference::linear(in);
                 return relu ? reference::map(y, reference::relu) : y;
               },
           .terms = static_cast<double>(std::max<int64_t>(1, weight[1]))};
  if (bias) c.inputs.push_back(uniform({weight[0]}, -0.2, 0.2));
  return c;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const auto a = [ta](const Shape& batch, int64_t m, int64_t k) {
        std::vector<int64_t> dims(batch.begin(), batch.end());
        dims.insert(dims.end(), {ta ? k : m, ta ? m : k});
        return Shape(dims);
      };
      const auto b = [tb](const Shape& batch, int64_t k, int64_t n) {
        std::vector<int64_t> dims(batch.begin(), batch.end());
        dims.insert(dims.end(), {tb ? n : k, tb ? k : n});
        return Shape(dims);
      };
      const auto add = [&](const Shape& batch_a, const Shape& batch_b, int64_t m, int64_t k,
                           int64_t n) {
        all.push_back(matmul(a(batch_a, m, k), b(batch_b, k, n), ta, tb));
      };
      add({}, {}, 3, 5, 7);
      add({}, {}, 1, 1, 1);
      add({}, {}, 1, 9, 4);
      add({}, {}, 4, 9, 1);
      add({}, {}, 33, 17, 18);
      add({}, {}, 67, 301, 70);
      add({3}, {3}, 2, 5, 4);
      add({3}, {}, 2, 5, 4);
      add({}, {3}, 2, 5, 4);
      add({2, 1}, {1, 3}, 3, 4, 2);
      add({2, 3}, {3}, 3, 2, 5);
      add({1}, {2}, 3, 4, 2);
      add({}, {}, 3, 0, 4);
      add({}, {}, 0, 3, 4);
      add({}, {}, 3, 4, 0);
      add({0}, {0}, 2, 3, 4);
      add({0}, {1}, 2, 3, 4);
      add({2}, {2}, 3, 0, 4);
    }
  }
  all.push_back(without_gradient(matmul({10, 1, 0}, {10, 0, 4320})));
  // f32 in and out means f32 inside: an input rounded to fewer bits gives 1024.
  OpCase precise = without_gradient(matmul({1, 1}, {1, 1}));
  precise.name = "matmul, 1024.5 by 1";
  precise.inputs = {values({1, 1}, {1024.5}).no_grad(), values({1, 1}, {1}).no_grad()};
  precise.ulps = 0;
  all.push_back(precise);
  OpCase special = without_gradient(matmul({4, 3}, {3, 2}));
  special.name = "matmul, NaN and infinities";
  special.inputs = {
      values({4, 3}, {NAN, 1, 2, 1, INFINITY, 2, 1, 2, 3, INFINITY, -INFINITY, 1}).no_grad(),
      values({3, 2}, {1, 2, 3, 4, 5, 6}).no_grad()};
  all.push_back(special);

  for (const char* op : {"linear", "linear_relu"}) {
    for (const bool bias : {true, false}) {
      all.push_back(linear(op, {4, 5}, {3, 5}, bias));
      all.push_back(linear(op, {1, 1}, {1, 1}, bias));
      all.push_back(linear(op, {5}, {3, 5}, bias));
      all.push_back(linear(op, {2, 3, 5}, {7, 5}, bias));
      all.push_back(linear(op, {33, 130}, {19, 130}, bias));
      all.push_back(linear(op, {64, 300}, {70, 300}, bias));
      all.push_back(linear(op, {0, 5}, {3, 5}, bias).with_zero_gradient());
      all.push_back(linear(op, {3, 5}, {0, 5}, bias).with_zero_gradient());
    }
    all.push_back(linear(op, {4, 0}, {3, 0}, true).with_zero_output());
    all.push_back(linear(op, {4, 0}, {3, 0}, false).with_zero_output());
  }
  // NaN gets through relu; results of exactly 0 have no gradient.
  OpCase kinks = linear("linear_relu", {4, 1}, {1, 1}, true);
  kinks.name = "linear_relu, NaN, infinity and zero";
  kinks.inputs = {values({4, 1}, {1, NAN, INFINITY, -2}).no_grad(), values({1, 1}, {1}).no_grad(),
                  values({1}, {-1})};
  kinks.gradient = [](const Arrays&, const Array& up) {
    Array db(Shape{1}, up[1] + up[2]);
    return Arrays{db};
  };
  kinks.zero_output = true;
  all.push_back(kinks);
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op matmul") { run_cases(cases()); }

TEST_CASE("op matmul errors") {
  const Tensor a = full({2, 3}, 1);
  check_error([&] { ops::matmul(a, full({4, 5}, 1)); }, {"[matmul]", "[2, 3]", "[4, 5]", "3", "4"});
  check_error(
      [&] {
        ops::matmul(a, full({3, 5}, 1), true);
      },
      {"[matmul]", "[2, 3]", "transposed", "[3, 5]"});
  check_error([&] { ops::matmul(a, full({3}, 1)); }, {"[matmul]", "[2, 3]", "[3]"});
  check_error(
      [&] {
        ops::matmul(full({2, 2, 3}, 1), full({3, 3, 5}, 1));
      },
      {"[matmul]", "[2]", "[3]"});
  check_error([&] { ops::matmul(a, full({3, 5}, 1, DType::i32)); }, {"[matmul]", "i32[3, 5]"});
  check_error(
      [&] {
        ops::matmul(a, full({3, 5}, 1), false, false, empty({2, 4}));
      },
      {"[matmul]", "[2, 5]", "[2, 4]"});
  for (const auto linear : {ops::linear, ops::linear_relu}) {
    const std::string op = linear == ops::linear ? "[linear]" : "[linear_relu]";
    check_error([&] { linear(a, full({5, 4}, 1), {}); }, {op, "[2, 3]", "[5, 4]"});
    check_error([&] { linear(a, full({3}, 1), {}); }, {op, "[2, 3]", "[3]"});
    check_error(
        [&] {
          linear(a, full({5, 3}, 1), full({4}, 1));
        },
        {op, "[5, 3]", "f32[4]", "f32[5]"});
    check_error([&] { linear(a, full({5, 3}, 1), full({5}, 1, DType::i32)); }, {op, "i32[5]"});
  }
}

}  // namespace engine::test
