// masked_softmax and attention.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

Tensor at(const Tensors& t, size_t i) { return i < t.size() ? t[i] : Tensor(); }

// What a mask, and causality where asked, show of scores [..., Q, K].
Array shown(const Arrays& in, size_t mask, const Shape& scores, bool causal) {
  Array all(scores, 1);
  const int64_t rows = scores[-2], columns = scores[-1];
  if (in.size() > mask) all = reference::broadcast_to(in[mask], scores);
  for (int64_t i = 0; i < scores.numel(); ++i)
    if (causal && i % columns > i / columns % rows) all[i] = 0;
  return all;
}

OpCase masked(const std::string& what, Input x, std::optional<Input> mask, bool causal) {
  OpCase c{.op = "masked_softmax",
           .name = fmt::format("masked softmax, {}{}", what, causal ? ", causal" : ""),
           .inputs = {std::move(x)},
           .call = [=](const Tensors& t) { return ops::masked_softmax(t[0], at(t, 1), causal); },
           .reference =
               [=](const Arrays& in) {
                 return reference::masked_softmax(in[0], shown(in, 1, in[0].shape, causal));
               },
           .terms = 1,
           .term = 0.25,
           .bf16_roundings = 4,
           .zero_output = true,
           .zero_gradient = true};
  if (mask) c.inputs.push_back(*mask);
  return c;
}

struct Form {
  std::string name;
  Shape batch;
  int64_t queries, keys, depth, values;
};

OpCase attention(const Form& f, std::optional<Input> mask, bool causal, double dropout,
                 std::optional<double> scale = {}) {
  const auto shape = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> dims(f.batch.begin(), f.batch.end());
    dims.push_back(rows);
    dims.push_back(columns);
    return Shape(dims);
  };
  const RandomStream stream{7, 3};
  const double used = scale.value_or(1 / std::sqrt(static_cast<double>(f.depth)));
  OpCase c{.op = "attention",
           .name = fmt::format("{}{}{}, dropout {}{}", f.name, mask ? ", mask" : "",
                               causal ? ", causal" : "", dropout,
                               scale ? fmt::format(", scale {}", *scale) : ""),
           .inputs = {uniform(shape(f.queries, f.depth), -2, 2),
                      uniform(shape(f.keys, f.depth), -2, 2), uniform(shape(f.keys, f.values))},
           .call =
               [=](const Tensors& t) {
                 Generator g;
                 g.set_state(stream);
                 return ops::attention(t[0], t[1], t[2], at(t, 3), causal, dropout, scale, g);
               },
           .reference =
               [=](const Arrays& in) {
                 const Array scores = reference::map(reference::matmul(in[0], in[1], false, true),
                                                     [used](double s) { return s * used; });
                 Array weights =
                     reference::masked_softmax(scores, shown(in, 3, scores.shape, causal));
                 if (dropout > 0)
                   weights = reference::dropout(weights, stream,
                                                static_cast<double>(static_cast<float>(dropout)));
                 return reference::matmul(weights, in[2]);
               },
           .ulps = 8,
           .terms = static_cast<double>(f.keys + f.depth),
           .bf16_roundings = 8,  // a score's is as large as the score to its exponential
           .zero_output = mask.has_value(),
           .zero_gradient = mask.has_value() || causal || dropout > 0};
  if (mask) c.inputs.push_back(*mask);
  return c;
}

Input mask_of(const Shape& shape) { return below(shape, 2).as(DType::u8); }

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  const Shape scores{2, 3, 5, 7};
  for (const bool causal : {false, true}) {
    all.push_back(masked("whole mask", uniform(scores, -3, 3), mask_of(scores), causal));
    for (const Shape& mask : {Shape{7}, Shape{5, 7}, Shape{2, 1, 1, 7}, Shape{3, 5, 1}, Shape{}})
      all.push_back(
          masked("mask " + to_string(mask), uniform(scores, -3, 3), mask_of(mask), causal));
    all.push_back(masked("no mask", uniform(scores, -3, 3), {}, causal));
    all.push_back(masked("more queries than keys", uniform({2, 7, 3}, -3, 3), {}, causal));
    all.push_back(
        masked("nothing shown", uniform({3, 4}), constant({3, 4}, 0).as(DType::u8), causal));
    all.push_back(masked("many threads", uniform({9, 61, 130}, -3, 3), mask_of({61, 130}), causal));
    all.push_back(masked("no keys", uniform({3, 0}), {}, causal));
    all.push_back(masked("no queries", uniform({2, 0, 3}), {}, causal));
  }
  // What the mask hides does not count, be it NaN; what it shows does.
  all.push_back(masked("NaN hidden, NaN shown", values({2, 3}, {NAN, 1, 2, NAN, 1, 2}).no_grad(),
                       values({2, 3}, {0, 1, 1, 1, 1, 1}).as(DType::u8), false));
  all.push_back(masked("NaN beside -infinity", values({1, 3}, {NAN, -INFINITY, 2}).no_grad(),
                       values({3}, {1, 1, 0}).as(DType::u8), false));

  const Form small{"small", {}, 3, 5, 4, 6}, heads{"heads", {2, 3}, 5, 7, 8, 3},
      one{"one key", {2}, 4, 1, 3, 2}, large{"many threads", {4}, 65, 70, 33, 17};
  for (const Form& f : {small, heads, large}) {
    for (const bool causal : {false, true}) {
      for (const double dropout : {0.0, 0.4}) {
        all.push_back(attention(f, {}, causal, dropout));
        all.push_back(attention(f, mask_of({f.queries, f.keys}), causal, dropout));
      }
    }
  }
  all.push_back(attention({"keys hidden", {2, 3}, 5, 7, 8, 3}, mask_of({2, 1, 1, 7}), false, 0));
  all.push_back(attention(small, {}, false, 0, 0.3));
  all.push_back(attention(small, {}, false, 1).with_zero_output());
  all.push_back(
      attention({"nothing shown", {}, 3, 5, 4, 6}, constant({3, 5}, 0).as(DType::u8), false, 0));
  all.push_back(attention(one, {}, false, 0).with_zero_gradient());
  all.push_back(attention({"no keys", {}, 3, 0, 4, 2}, {}, false, 0).with_zero_output());
  all.push_back(attention({"no queries", {}, 0, 3, 4, 2}, {}, false, 0).with_zero_output());
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op attention") { run_cases(cases()); }

TEST_CASE("op attention errors") {
  const Tensor q = full({2, 3, 4}, 1), k = full({2, 5, 4}, 1), v = full({2, 5, 6}, 1);
  const auto fails = [&](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& mask,
                         std::vector<std::string> parts) {
    parts.insert(parts.begin(), "[attention]");
    check_error([&] { ops::attention(a, b, c, mask); }, parts);
  };
  fails(q, full({2, 5, 3}, 1), v, {}, {"[2, 3, 4]", "[2, 5, 3]"});
  fails(q, k, full({2, 4, 6}, 1), {}, {"[2, 5, 4]", "[2, 4, 6]"});
  fails(q, full({3, 5, 4}, 1), v, {}, {"[2, 3, 4]", "[3, 5, 4]"});
  fails(full({4}, 1), k, v, {}, {"[4]"});
  fails(full({2, 3, 0}, 1), full({2, 5, 0}, 1), v, {}, {"[2, 3, 0]"});
  fails(q, k, ops::cast(v, DType::bf16), {}, {"bf16"});
  fails(q, k, v, full({3, 5}, 1), {"u8", "f32[3, 5]"});
  fails(q, k, v, full({5, 3}, 1, DType::u8), {"[5, 3]", "[2, 3, 5]"});
  fails(q, k, v, full({4, 2, 3, 5}, 1, DType::u8), {"[4, 2, 3, 5]"});
  check_error([&] { ops::attention(q, k, v, {}, false, 1.5); }, {"[attention]", "1.5"});
  check_error([&] { ops::masked_softmax(full({3}, 1), {}, true); }, {"[masked_softmax]", "f32[3]"});
  check_error([&] { ops::masked_softmax(q, full({2}, 1, DType::u8), false); },
              {"[masked_softmax]", "[2]", "[2, 3, 4]"});
}

}  // namespace engine::test
