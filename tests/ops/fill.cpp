// fill_, uniform_, normal_, copy_, accumulate_, scale_: ops that write into memory that exists.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/context.h"
#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr uint64_t kSeed = 0x123456789abcdef0;
constexpr uint64_t kOffset = 0xfffffffffffffff0;  // counters of both words

Generator generator() {
  Generator g;
  g.set_state({kSeed, kOffset});
  return g;
}

// A copy of the input to change, since a case's inputs are not to be touched.
Tensor fresh_copy(const Tensor& x) {
  const Tensor copy = empty(x.shape(), x.dtype(), x.device());
  ops::copy_(copy, x);
  return copy;
}

OpCase fill(const Shape& shape, double value, DType dtype) {
  return OpCase{
      .op = "fill_",
      .name = fmt::format("fill_, {} with {} of {}", to_string(shape), value, name(dtype)),
      .inputs = {constant(shape, 7).as(dtype).no_grad()},
      .call =
          [value](const Tensors& t) {
            const Tensor x = fresh_copy(t[0]);
            ops::fill_(x, value);
            return x;
          },
      .reference = [value](const Arrays& a) { return Array(a[0].shape, value); },
      .ulps = 0,
      .zero_output = value == 0};
}

OpCase random(const char* op, const Shape& shape, double low, double high) {
  const bool normal = std::string(op) == "normal_";
  return OpCase{.op = op,
                .name = fmt::format("{}, {}", op, to_string(shape)),
                .inputs = {constant(shape, 7).no_grad()},
                .call =
                    [=](const Tensors& t) {
                      const Tensor x = fresh_copy(t[0]);
                      Generator g = generator();
                      (normal ? ops::normal_ : ops::uniform_)(x, low, high, g);
                      return x;
                    },
                .reference =
                    [=](const Arrays& a) {
                      return (normal ? reference::normal : reference::uniform)(
                          a[0].shape, {kSeed, kOffset}, low, high);
                    },
                .terms = 1,
                .term = std::max(std::abs(low), std::abs(high))};
}

OpCase copy(const Shape& shape, DType dtype) {
  return OpCase{.op = "copy_",
                .name = fmt::format("copy_, {} of {}", to_string(shape), name(dtype)),
                .inputs = {uniform(shape, 0, 100).as(dtype).no_grad()},
                .call = [](const Tensors& t) { return fresh_copy(t[0]); },
                .reference = [](const Arrays& a) { return a[0]; },
                .ulps = 0};
}

OpCase accumulate(const Shape& shape) {
  return OpCase{.op = "accumulate_",
                .name = "accumulate_, " + to_string(shape),
                .inputs = {uniform(shape).no_grad(), uniform(shape).no_grad()},
                .call =
                    [](const Tensors& t) {
                      const Tensor x = fresh_copy(t[0]);
                      ops::accumulate_(x, t[1]);
                      return x;
                    },
                .reference =
                    [](const Arrays& a) {
                      return reference::map(a[0], a[1], [](double x, double y) { return x + y; });
                    },
                .ulps = 1};
}

OpCase scale(const Shape& shape, double factor) {
  return OpCase{.op = "scale_",
                .name = fmt::format("scale_, {} by {}", to_string(shape), factor),
                .inputs = {uniform(shape).no_grad()},
                .call =
                    [factor](const Tensors& t) {
                      const Tensor x = fresh_copy(t[0]);
                      ops::scale_(x, factor);
                      return x;
                    },
                .reference =
                    [factor](const Arrays& a) {
                      return reference::map(a[0], [=](double x) { return x * factor; });
                    },
                .ulps = 2,
                .zero_output = factor == 0};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    all.push_back(fill({3, 5}, 3, dtype));
    all.push_back(copy({3, 7}, dtype));
  }
  for (const double value : {0.0, -0.1, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    all.push_back(fill({5}, value, DType::f32));
  }
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{1}, Shape{40013}}) {
    all.push_back(fill(shape, 1.25, DType::f32));
    all.push_back(copy(shape, DType::f32));
    all.push_back(accumulate(shape));
  }
  all.push_back(copy({300007}, DType::u8));
  all.push_back(accumulate({3, 7}));
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{3, 7}, Shape{40013}})
    all.push_back(scale(shape, -0.3));
  all.push_back(scale({5}, 0));
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 3}, Shape{4}, Shape{3, 20001}}) {
    all.push_back(random("uniform_", shape, -0.5, 2));
    all.push_back(random("normal_", shape, 0.25, 3));
  }
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op fill") { run_cases(cases()); }

TEST_CASE("op fill moments") {
  // Far from any one element's tolerance: the numbers as a whole have the right distribution.
  const int64_t n = 200000;
  const Tensor u = empty({n}), z = empty({n});
  Generator g(7);
  ops::uniform_(u, 0, 1, g);
  ops::normal_(z, 0, 1, g);
  const auto moment = [n](const Tensor& t, int power) {
    double sum = 0;
    for (const double v : to_array(t).values) sum += std::pow(v, power);
    return sum / static_cast<double>(n);
  };
  // Five standard deviations of each estimate.
  CHECK(std::abs(moment(u, 1) - 1.0 / 2) < 5 * std::sqrt(1.0 / 12 / 2e5));
  CHECK(std::abs(moment(u, 2) - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / 2e5));
  CHECK(std::abs(moment(z, 1)) < 5 * std::sqrt(1.0 / 2e5));
  CHECK(std::abs(moment(z, 2) - 1) < 5 * std::sqrt(2.0 / 2e5));
  CHECK(std::abs(moment(z, 3)) < 5 * std::sqrt(15.0 / 2e5));
  CHECK(std::abs(moment(z, 4) - 3) < 5 * std::sqrt(96.0 / 2e5));
  const auto list = to_array(u).values;
  CHECK(*std::min_element(list.begin(), list.end()) >= 0);
  CHECK(*std::max_element(list.begin(), list.end()) < 1);
}

TEST_CASE("op fill draws one stream in pieces") {
  // The same numbers whether drawn at once or, at multiples of 4, in pieces; then new ones.
  Generator whole(3), pieces(3);
  const Tensor all = empty({12}), a = empty({8}), b = empty({4});
  ops::uniform_(all, 0, 1, whole);
  ops::uniform_(a, 0, 1, pieces);
  ops::uniform_(b, 0, 1, pieces);
  auto joined = to_array(a).values;
  const auto rest = to_array(b).values;
  joined.insert(joined.end(), rest.begin(), rest.end());
  CHECK(joined == to_array(all).values);
  ops::uniform_(all, 0, 1, whole);
  CHECK(joined != to_array(all).values);
}

TEST_CASE("op fill errors") {
  const Tensor x = full({2, 3}, 1);
  check_error([&] { ops::copy_(x, full({3, 2}, 1)); }, {"[copy_]", "f32[2, 3]", "f32[3, 2]"});
  check_error(
      [&] {
        ops::copy_(x, full({2, 3}, 1, DType::i32));
      },
      {"[copy_]", "f32[2, 3]", "i32[2, 3]"});
  check_error([&] { ops::accumulate_(x, full({3}, 1)); }, {"[accumulate_]", "f32[2, 3]", "f32[3]"});
  check_error([&] { ops::scale_(full({2}, 1, DType::i32), 2); }, {"[scale_]", "i32[2]"});
  check_error([&] { ops::uniform_(x, 2, 1); }, {"[uniform_]", "2", "1"});
  check_error([&] { ops::normal_(x, 0, -1); }, {"[normal_]", "-1"});
  check_error([&] { ops::uniform_(full({2}, 0, DType::i32), 0, 1); }, {"[uniform_]", "i32[2]"});
  Tensor leaf = full({2}, 1);
  leaf.set_requires_grad(true);
  check_error([&] { ops::fill_(leaf, 0); }, {"[fill_]", "in place", "f32[2]"});
  const NoGradScope no_grad;
  CHECK_NOTHROW(ops::fill_(leaf, 0));
}

TEST_CASE("op accumulate of integers is right or refused") {
  const Tensor x = tensor({2}, {3, 4}, DType::i64);
  const std::string error = error_of([&] { ops::accumulate_(x, x); });
  if (error.empty())
    CHECK(to_array(x).values == std::vector<double>{6, 8});
  else
    CHECK(error.rfind("[accumulate_]", 0) == 0);
}

}  // namespace engine::test
