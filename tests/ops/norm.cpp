// batch_norm, group_norm, instance_norm, layer_norm, rms_norm.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kEps = 1e-5;

Tensor at(const Tensors& t, size_t i) { return i < t.size() ? t[i] : Tensor(); }

// x, and weight and bias of `parameters`, of which `count` are there
std::vector<Input> inputs_of(const Input& x, const Shape& parameters, int count) {
  std::vector<Input> inputs{x};
  if (count > 0) inputs.push_back(uniform(parameters, 0.5, 1.5));
  if (count > 1) inputs.push_back(uniform(parameters));
  return inputs;
}

// A value is a few roundings of numbers of the size of a deviation; gradients are sums over a set.
OpCase finish(OpCase c, int64_t set) {
  c.ulps = 4;
  c.terms = static_cast<double>(set);
  c.term = 1 / std::sqrt(std::max(1.0, c.terms));
  c.bf16_roundings = 3;
  return c;
}

OpCase batch(const std::string& name, const Input& x, int parameters) {
  const int64_t channels = x.shape[-1];
  return finish({.op = "batch_norm",
                 .name = fmt::format("batch, {}, {} parameters", name, parameters),
                 .inputs = inputs_of(x, Shape{channels}, parameters),
                 .call =
                     [](const Tensors& t) {
                       return ops::batch_norm(t[0], at(t, 1), at(t, 2), {}, {}, true, 0.1, kEps);
                     },
                 .reference = [](const Arrays& in) { return reference::batch_norm(in, kEps); }},
                x.shape.numel() / channels);
}

OpCase evaluation(const std::string& name, const Shape& shape) {
  const Shape channels{shape[-1]};
  std::vector<Input> inputs = inputs_of(uniform(shape, -2, 2), channels, 2);
  inputs.push_back(uniform(channels).no_grad());
  inputs.push_back(uniform(channels, 0.25, 2).no_grad());
  return finish(
      {.op = "batch_norm",
       .name = "batch, evaluation, " + name,
       .inputs = inputs,
       .call =
           [](const Tensors& t) {
             return ops::batch_norm(t[0], t[1], t[2], t[3], t[4], false, 0.1, kEps);
           },
       .reference = [](const Arrays& in) { return reference::batch_norm_evaluation(in, kEps); }},
      shape.numel() / std::max<int64_t>(1, shape[-1]));
}

OpCase group(const std::string& name, const Input& x, int64_t groups, int parameters) {
  const int64_t channels = x.shape[-1];
  const bool instance = groups == 0;
  const int64_t sets = instance ? channels : groups;
  return finish(
      {.op = instance ? "instance_norm" : "group_norm",
       .name = fmt::format("{} {}, {}, {} parameters", instance ? "instance" : "group", groups,
                           name, parameters),
       .inputs = inputs_of(x, Shape{channels}, parameters),
       .call =
           [=](const Tensors& t) {
             return instance ? ops::instance_norm(t[0], at(t, 1), at(t, 2), kEps)
                             : ops::group_norm(t[0], groups, at(t, 1), at(t, 2), kEps);
           },
       .reference = [=](const Arrays& in) { return reference::group_norm(in, sets, kEps); }},
      x.shape.product(1, x.shape.rank()) / sets);
}

OpCase rows(bool center, const std::string& name, const Input& x, int axes, int parameters) {
  const Shape row(x.shape.dims().last(static_cast<size_t>(axes)));
  return finish(
      {.op = center ? "layer_norm" : "rms_norm",
       .name = fmt::format("{} norm, {}, {} axes, {} parameters", center ? "layer" : "rms", name,
                           axes, parameters),
       .inputs = inputs_of(x, row, parameters),
       .call =
           [=](const Tensors& t) {
             return center ? ops::layer_norm(t[0], axes, at(t, 1), at(t, 2), kEps)
                           : ops::rms_norm(t[0], axes, at(t, 1), kEps);
           },
       .reference =
           [=](const Arrays& in) { return reference::layer_norm(in, axes, kEps, center); }},
      std::max(row.numel(), x.shape.numel() / std::max<int64_t>(1, row.numel())));
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const int parameters : {0, 1, 2}) {
    all.push_back(batch("2 values a channel", uniform({2, 3}), parameters));
    all.push_back(batch("images", uniform({2, 5, 3, 7}, -2, 2), parameters));
    all.push_back(group("images", uniform({3, 4, 5, 6}, -2, 2), 3, parameters));
    all.push_back(group("images", uniform({2, 4, 5, 3}, -2, 2), 0, parameters));
    all.push_back(rows(true, "matrix", uniform({5, 7}, -2, 2), 1, parameters));
  }
  for (const int parameters : {0, 1})
    all.push_back(rows(false, "matrix", uniform({5, 7}), 1, parameters));
  all.push_back(batch("one channel", uniform({40, 1}), 2));
  all.push_back(batch("16 channels", uniform({9, 2, 3, 16}), 2));
  all.push_back(batch("67 channels", uniform({11, 3, 67}), 2));
  all.push_back(batch("many threads", uniform({7, 31, 33, 13}), 2));
  all.push_back(batch("many threads, wide", uniform({130, 600}), 2));
  all.push_back(batch("empty", uniform({0, 3}), 2).with_zero_output());
  all.push_back(evaluation("images", {2, 5, 3, 7}));
  all.push_back(evaluation("one value", {1, 3}));
  all.push_back(evaluation("empty", {0, 3}).with_zero_output());
  all.push_back(evaluation("many threads", {7, 31, 33, 13}));
  all.push_back(group("one group", uniform({2, 3, 3, 4}), 1, 2));
  all.push_back(group("a channel each", uniform({2, 3, 3, 4}), 4, 2));
  all.push_back(group("no images between", uniform({5, 12}), 3, 2));
  all.push_back(group("many threads", uniform({3, 61, 33, 18}), 6, 2));
  // No deviation, whose rounding is divided by the root of eps.
  all.push_back(group("one value each", uniform({3, 4}), 4, 2)
                    .with_zero_gradient()
                    .with_terms(1, 1 / std::sqrt(kEps)));
  all.push_back(group("empty", uniform({0, 2, 2, 4}), 2, 2).with_zero_output());
  all.push_back(group("many threads", uniform({3, 61, 33, 18}), 0, 2));
  all.push_back(group("empty", uniform({0, 2, 2, 4}), 0, 2).with_zero_output());
  for (const bool center : {true, false}) {
    all.push_back(rows(center, "images", uniform({2, 3, 4, 5}), 3, 1));
    all.push_back(rows(center, "all axes", uniform({3, 4}), 2, 1));
    all.push_back(rows(center, "64 wide", uniform({3, 5, 64}), 1, 1));
    all.push_back(rows(center, "many threads", uniform({613, 101}), 1, 1));
    all.push_back(rows(center, "empty", uniform({0, 5}), 1, 1).with_zero_output());
  }
  // A large mean: what the spread is made of is in the last bits of the values.
  const Input shifted = uniform({6, 9, 8}, 1448, 1450).no_grad();
  for (OpCase c : {batch("mean 1449", shifted, 0), group("mean 1449", shifted, 2, 0),
                   group("mean 1449", shifted, 0, 0), rows(true, "mean 1449", shifted, 1, 0)}) {
    all.push_back(c.with_bf16_roundings(0));
  }
  // f32 parameters beside bf16 images.
  OpCase mixed = batch("bf16 with f32 parameters", uniform({4, 5, 6}).as(DType::bf16), 2);
  all.push_back(mixed);
  return all;
}

OpCase update(int64_t n, double momentum) {
  return OpCase{
      .op = "update_running_stats_",
      .name = fmt::format("update, {} channels, momentum {}", n, momentum),
      .inputs = {uniform({3, n}, -2, 2).no_grad(), uniform({n}).no_grad(),
                 uniform({n}, 0.5, 2).no_grad()},
      .call =
          [momentum](const Tensors& t) {
            const int64_t channels = t[1].numel();
            const Tensor state = empty(Shape{2, channels}, DType::f32, t[1].device());
            const Tensor mean = state.view(Shape{channels}),
                         variance = state.view(Shape{channels}, static_cast<size_t>(channels) * 4);
            ops::copy_(mean, t[1]);
            ops::copy_(variance, t[2]);
            ops::batch_norm(t[0], {}, {}, mean, variance, true, momentum);
            return state;
          },
      .reference =
          [momentum](const Arrays& in) {
            const int64_t channels = in[1].shape[0];
            Array state(Shape{2, channels});
            for (int64_t c = 0; c < channels; ++c) {
              const double a = in[0][c], b = in[0][channels + c], d = in[0][2 * channels + c];
              const double mean = (a + b + d) / 3;
              const double unbiased =
                  (std::pow(a - mean, 2) + std::pow(b - mean, 2) + std::pow(d - mean, 2)) / 2;
              state[c] = (1 - momentum) * in[1][c] + momentum * mean;
              state[channels + c] = (1 - momentum) * in[2][c] + momentum * unbiased;
            }
            return state;
          },
      .terms = 1,
      .bf16_roundings = 0};
}

std::vector<OpCase> update_cases() { return {update(1, 0.1), update(7, 0.25), update(129, 1)}; }

const CaseFile kFile(cases), kUpdateFile(update_cases);

}  // namespace

TEST_CASE("op norm") { run_cases(cases()); }
TEST_CASE("op norm running statistics") {
  run_cases(update_cases());
  // A batch of nothing leaves them as they are.
  const Tensor mean = full({3}, 2), variance = full({3}, 5);
  ops::batch_norm(empty({0, 3}), {}, {}, mean, variance, true);
  CHECK(to_array(mean).values == std::vector<double>{2, 2, 2});
  CHECK(to_array(variance).values == std::vector<double>{5, 5, 5});
}

TEST_CASE("op norm errors") {
  const Tensor x = full({2, 3, 4}, 1), three = full({3}, 1), four = full({4}, 1);
  check_error(
      [&] {
        ops::batch_norm(full({1, 4}, 1), {}, {}, {}, {}, true);
      },
      {"[batch_norm]", "more than one value", "f32[1, 4]"});
  check_error([&] { ops::batch_norm(x, three, {}, {}, {}, true); },
              {"[batch_norm]", "weight", "f32[4]", "f32[3]"});
  check_error([&] { ops::batch_norm(x, {}, {}, {}, {}, false); }, {"[batch_norm]", "running mean"});
  check_error([&] { ops::batch_norm(x, {}, {}, four, {}, true); },
              {"[batch_norm]", "running variance", "undefined"});
  check_error([&] { ops::batch_norm(x, {}, {}, three, three, true); },
              {"[update_running_stats_]", "f32[3]", "f32[4]"});
  check_error([&] { ops::group_norm(x, 3); }, {"[group_norm]", "f32[2, 3, 4]", "3"});
  check_error(
      [&] {
        ops::instance_norm(full({2, 4}, 1));
      },
      {"[instance_norm]", "more than one value", "f32[2, 4]"});
  check_error([&] { ops::layer_norm(x, 4); }, {"[layer_norm]", "f32[2, 3, 4]", "4"});
  check_error([&] { ops::layer_norm(x, 1, three); }, {"[layer_norm]", "weight", "f32[3]"});
  check_error([&] { ops::rms_norm(full({2, 0}, 1), 1); }, {"[rms_norm]", "not empty"});
  check_error([&] { ops::rms_norm(full({2}, 1, DType::i32), 1); }, {"[rms_norm]", "i32[2]"});
}

}  // namespace engine::test
