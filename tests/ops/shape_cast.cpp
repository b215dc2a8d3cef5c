// reshape, permute, broadcast_to, cast and dropout: ops that move, convert or drop elements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kNaN = NAN, kInf = INFINITY;

OpCase reshape(const Shape& from, const Shape& to) {
  return OpCase{.op = "reshape",
                .name = fmt::format("reshape, {} to {}", to_string(from), to_string(to)),
                .inputs = {uniform(from)},
                .call = [to](const Tensors& t) { return ops::reshape(t[0], to); },
                .reference = [to](const Arrays& a) { return reference::reshape(a[0], to); },
                .ulps = 0};
}

// Sums of gradients are f32: another dtype's gradient is checked through a cast only.
Input any_dtype(const Shape& shape, DType dtype) {
  const Input input = uniform(shape, 1, 200).as(dtype);
  return dtype == DType::f32 ? input : input.no_grad();
}

OpCase permute(const Shape& shape, const std::vector<int64_t>& order, DType dtype = DType::f32) {
  return OpCase{.op = "permute",
                .name = fmt::format("permute, {}{} by {}", name(dtype), to_string(shape),
                                    to_string(Shape(order))),
                .inputs = {any_dtype(shape, dtype)},
                .call = [order](const Tensors& t) { return ops::permute(t[0], order); },
                .reference = [order](const Arrays& a) { return reference::permute(a[0], order); },
                .ulps = 0};
}

OpCase broadcast_to(const Shape& from, const Shape& to, DType dtype = DType::f32) {
  return OpCase{
      .op = "broadcast_to",
      .name = fmt::format("broadcast_to, {}{} to {}", name(dtype), to_string(from), to_string(to)),
      .inputs = {any_dtype(from, dtype)},
      .call = [to](const Tensors& t) { return ops::broadcast_to(t[0], to); },
      .reference = [to](const Arrays& a) { return reference::broadcast_to(a[0], to); },
      .ulps = 0,
      .zero_gradient = to.numel() == 0};
}

OpCase cast(const std::string& what, Input input, DType to) {
  return OpCase{.op = "cast",
                .name = fmt::format("cast, {} {} to {}", what, name(input.dtype), name(to)),
                .inputs = {is_floating(to) ? input : input.no_grad()},
                .call = [to](const Tensors& t) { return ops::cast(t[0], to); },
                .reference = [](const Arrays& a) { return a[0]; },  // rounded by the harness
                .ulps = 0};
}

OpCase dropout(const Shape& shape, double p) {
  const RandomStream stream{99, 5};
  // The probability is an f32 to the op.
  const double used = static_cast<double>(static_cast<float>(p));
  return OpCase{.op = "dropout",
                .name = fmt::format("dropout, {} with {}", to_string(shape), p),
                .inputs = {uniform(shape, 1, 2)},
                .call =
                    [p, stream](const Tensors& t) {
                      Generator g;
                      g.set_state(stream);
                      return ops::dropout(t[0], p, true, g);
                    },
                .reference =
                    [used, stream](const Arrays& a) {
                      return used == 1 ? Array(a[0].shape) : reference::dropout(a[0], stream, used);
                    },
                .ulps = 2,
                .zero_output = p > 0.4,
                .zero_gradient = p > 0.4};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all{
      reshape({2, 3, 4}, {4, 6}), reshape({6}, {6}),       reshape({}, {1, 1}),
      reshape({1}, {}),           reshape({0, 3}, {5, 0}), reshape({2, 1, 3}, {1, 2, 3, 1}),
  };
  for (const auto& [shape, order] : std::vector<std::pair<Shape, std::vector<int64_t>>>{
           {Shape{3, 5}, {1, 0}},
           {Shape{2, 3, 4}, {2, 0, 1}},
           {Shape{2, 3, 4}, {0, 2, 1}},
           {Shape{2, 3, 4}, {0, 1, 2}},
           {Shape{2, 5, 3, 4}, {0, 3, 1, 2}},
           {Shape{2, 4, 5, 3}, {0, 2, 3, 1}},
           {Shape{1, 1, 3}, {2, 1, 0}},
           {Shape{0, 3}, {1, 0}},
           {Shape{7}, {0}},
           {Shape{2, 1, 2, 3, 1, 2, 1, 2}, {7, 3, 5, 1, 0, 2, 4, 6}},
           {Shape{151, 353}, {1, 0}}}) {
    all.push_back(permute(shape, order));
  }
  // Transposes in tiles, with what is left over on both sides.
  all.push_back(permute({37, 45}, {1, 0}));
  all.push_back(permute({3, 70, 33}, {0, 2, 1}));
  all.push_back(permute({2, 9, 5, 41}, {3, 2, 0, 1}));
  all.push_back(permute({}, {}));
  for (const DType dtype : {DType::bf16, DType::i32, DType::i64, DType::u8}) {
    all.push_back(permute({3, 4, 5}, {2, 0, 1}, dtype));
    all.push_back(broadcast_to({3, 1}, {2, 3, 4}, dtype));
    all.push_back(cast("numbers", any_dtype({3, 7}, dtype), DType::f32));
    all.push_back(cast("numbers", uniform({3, 7}, 0, 100), dtype));
  }
  for (const auto& [from, to] :
       std::vector<std::pair<Shape, Shape>>{{Shape{}, Shape{3, 2}},
                                            {Shape{1}, Shape{5}},
                                            {Shape{3, 1}, Shape{3, 4}},
                                            {Shape{4}, Shape{2, 3, 4}},
                                            {Shape{2, 1, 3}, Shape{5, 2, 4, 3}},
                                            {Shape{1, 3}, Shape{0, 3}},
                                            {Shape{0, 1}, Shape{0, 3}},
                                            {Shape{2, 3}, Shape{2, 3}},
                                            {Shape{211, 1}, Shape{211, 307}}}) {
    all.push_back(broadcast_to(from, to));
  }
  all.push_back(cast("signed", uniform({40}, -3, 3), DType::i32));
  all.push_back(cast("signed", uniform({40}, -3e9, 3e9), DType::i64));
  all.push_back(cast("extreme", values({6}, {kNaN, kInf, -kInf, 3.4e38, -0.0, 1e-40}).no_grad(),
                     DType::bf16));
  // Ties go to the even neighbour: 1 + 2^-8 down, 1 + 3 * 2^-8 up.
  all.push_back(cast("ties of", values({4}, {1.00390625, 1.01171875, -1.00390625, -1.01171875}),
                     DType::bf16));
  all.push_back(cast("extreme", values({4}, {kNaN, kInf, -kInf, 1e30}).as(DType::bf16).no_grad(),
                     DType::f32));
  OpCase there_and_back = cast("there and back,", uniform({3, 7}), DType::bf16);
  there_and_back.call = [](const Tensors& t) {
    return ops::cast(ops::cast(t[0], DType::bf16), DType::f32);
  };
  there_and_back.ulps = 0x1p15;  // 2^-8 of the value: bf16 keeps 8 bits
  all.push_back(there_and_back);
  all.push_back(cast("no", uniform({0, 2}), DType::bf16));
  all.push_back(cast("many", uniform({50021}), DType::bf16));
  for (const double p : {0.1, 0.5, 0.9, 1.0}) {
    all.push_back(dropout({7, 9}, p));
    all.push_back(dropout({3, 20001}, p));
  }
  all.push_back(dropout({0, 4}, 0.3));
  all.push_back(dropout({3}, 0));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op shape and cast") { run_cases(cases()); }

TEST_CASE("op reshape infers a dimension and shares memory") {
  const Tensor x = tensor({2, 3, 4}, std::vector<double>(24, 1));
  CHECK(ops::reshape(x, {-1, 6}).shape() == Shape{4, 6});
  CHECK(ops::flatten(x, 1).shape() == Shape{2, 12});
  CHECK(ops::flatten(x).shape() == Shape{24});
  CHECK(ops::flatten(x, 0, 1).shape() == Shape{6, 4});
  CHECK(ops::transpose(x, -1, 0).shape() == Shape{4, 3, 2});
  CHECK(ops::reshape(x, {-1, 6}).raw() == x.raw());
}

TEST_CASE("op shape errors") {
  const Tensor x = full({2, 3}, 1);
  check_error([&] { ops::reshape(x, Shape{4, 2}); }, {"[reshape]", "[2, 3]", "[4, 2]"});
  check_error([&] { ops::reshape(x, {-1, 4}); }, {"[reshape]", "[2, 3]", "4"});
  check_error([&] { ops::reshape(full({0, 3}, 1), {-1, 0}); }, {"[reshape]"});
  CHECK(error_of([&] { ops::reshape(x, {-1, -1}); }) != "");
  const auto permute = [&](std::vector<int64_t> order) { ops::permute(x, order); };
  check_error([&] { permute({0}); }, {"[permute]", "[2, 3]", "1"});
  check_error([&] { permute({0, 0}); }, {"[permute]", "twice"});
  check_error([&] { permute({0, 2}); }, {"[permute]", "2"});
  check_error([&] { ops::broadcast_to(x, {2, 4}); }, {"[broadcast_to]", "[2, 3]", "[2, 4]"});
  check_error([&] { ops::broadcast_to(x, {3}); }, {"[broadcast_to]", "[2, 3]", "[3]"});
  check_error([&] { ops::flatten(x, 1, 0); }, {"[flatten]"});
  check_error([&] { ops::transpose(x, 0, 2); }, {"[transpose]", "2"});
  check_error([&] { ops::dropout(x, 1.5, true); }, {"[dropout]", "1.5"});
  check_error([&] { ops::dropout(x, NAN, true); }, {"[dropout]"});
}

TEST_CASE("op dropout statistics and evaluation") {
  Generator g(11);
  const Tensor x = full({100000}, 1);
  const auto kept = to_array(ops::dropout(x, 0.3, true, g)).values;
  const auto zeros = static_cast<double>(std::count(kept.begin(), kept.end(), 0.0));
  CHECK(std::abs(zeros / 1e5 - 0.3) < 5 * std::sqrt(0.3 * 0.7 / 1e5));
  CHECK(to_array(ops::dropout(x, 0.3, true, g)).values != kept);  // the stream has moved on
  CHECK(ops::dropout(x, 0.3, false, g).raw() == x.raw());
}

}  // namespace engine::test
