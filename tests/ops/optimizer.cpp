// sgd_step_ and adam_step_. A case's inputs (parameter, gradient, state) are copied into one flat
// tensor and stepped there, as parameters lie in practice; its output is that tensor without the
// gradient.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

// Runs `step` on pieces of a flat buffer of parameter, states and gradient; returns all but the
// gradient. `inputs` are in the op's order: parameter, gradient, states.
template <class Step>
Tensor in_flat_buffer(const Tensors& inputs, Step step) {
  const int64_t n = inputs[0].numel(), parts = static_cast<int64_t>(inputs.size());
  const Tensor flat = empty(Shape{n * parts}, DType::f32, inputs[0].device());
  const auto piece = [&](int64_t i) { return flat.view(Shape{n}, static_cast<size_t>(i * n) * 4); };
  Tensors pieces;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t place = i == 1 ? parts - 1 : std::max<int64_t>(0, i - 1);
    pieces.push_back(piece(place));
    ops::copy_(pieces.back(), inputs[static_cast<size_t>(i)]);
  }
  step(pieces);
  return flat.view(Shape{n * (parts - 1)});
}

OpCase sgd(const std::string& what, std::vector<Input> inputs, const SgdAttrs& attrs) {
  if (attrs.momentum == 0) inputs.resize(2, inputs[0]);
  for (Input& input : inputs) input.differentiable = false;
  return OpCase{.op = "sgd_step_",
                .name = "sgd, " + what,
                .inputs = std::move(inputs),
                .call =
                    [attrs](const Tensors& t) {
                      return in_flat_buffer(t, [&](const Tensors& p) {
                        ops::sgd_step_(p[0], p[1], p.size() > 2 ? p[2] : Tensor(), attrs);
                      });
                    },
                .reference =
                    [attrs](const Arrays& in) {
                      return reference::concatenate(reference::sgd_step(in, attrs));
                    },
                .terms = 1,
                .bf16_roundings = 0};
}

OpCase adam(const std::string& what, std::vector<Input> inputs, const AdamAttrs& attrs) {
  for (Input& input : inputs) input.differentiable = false;
  return OpCase{.op = "adam_step_",
                .name = "adam, " + what,
                .inputs = std::move(inputs),
                .call =
                    [attrs](const Tensors& t) {
                      return in_flat_buffer(t, [&](const Tensors& p) {
                        ops::adam_step_(p[0], p[1], p[2], p[3], attrs);
                      });
                    },
                .reference =
                    [attrs](const Arrays& in) {
                      return reference::concatenate(reference::adam_step(in, attrs));
                    },
                .terms = 1,
                .bf16_roundings = 0};
}

std::vector<Input> sgd_inputs(int64_t n) { return {uniform({n}), uniform({n}), uniform({n})}; }
std::vector<Input> adam_inputs(int64_t n) {
  return {uniform({n}), uniform({n}), uniform({n}), uniform({n}, 0.01, 1)};
}

AdamAttrs adam_attrs(int step, float weight_decay, bool decoupled) {
  const float beta1 = 0.9f, beta2 = 0.999f;
  return {.lr = 0.01f,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = 1e-8f,
          .weight_decay = weight_decay,
          .decoupled = decoupled,
          .bias_correction1 = static_cast<float>(1 - std::pow(0.9, step)),
          .bias_correction2 = static_cast<float>(1 - std::pow(0.999, step))};
}

std::vector<OpCase> cases() {
  //                      lr   momentum dampening decay nesterov first
  const std::pair<const char*, SgdAttrs> sgds[] = {
      {"plain", {0.1f, 0, 0, 0, false, false}},
      {"weight decay without momentum", {0.1f, 0, 0, 0.3f, false, false}},
      {"momentum, first step", {0.1f, 0.9f, 0, 0, false, true}},
      {"momentum", {0.1f, 0.9f, 0, 0, false, false}},
      {"dampening, first step", {0.1f, 0.9f, 0.4f, 0.1f, false, true}},
      {"dampening", {0.1f, 0.9f, 0.4f, 0.1f, false, false}},
      {"nesterov, first step", {0.1f, 0.9f, 0, 0.1f, true, true}},
      {"nesterov", {0.1f, 0.9f, 0, 0.1f, true, false}},
  };
  std::vector<OpCase> all;
  for (const auto& [what, attrs] : sgds) {
    for (const int64_t n : {1, 37, 0, 40007})
      all.push_back(sgd(fmt::format("{}, {}", what, n), sgd_inputs(n), attrs));
  }
  for (const int step : {1, 2, 1000}) {
    for (const float decay : {0.f, 0.1f}) {
      for (const bool decoupled : {false, true}) {
        const std::string what =
            fmt::format("step {}, decay {}{}", step, decay, decoupled ? ", decoupled" : "");
        for (const int64_t n : {1, 37, 0, 40007}) {
          all.push_back(adam(fmt::format("{}, {}", what, n), adam_inputs(n),
                             adam_attrs(step, decay, decoupled)));
        }
      }
    }
  }
  // Gradients near eps show where eps is added: to sqrt(v / bias_correction2).
  all.push_back(adam("tiny gradients",
                     {constant({4}, 1), values({4}, {1e-8, -1e-8, 3e-9, 1e-7}), constant({4}, 0),
                      constant({4}, 0)},
                     AdamAttrs{.lr = 0.5f,
                               .beta1 = 0.9f,
                               .beta2 = 0.999f,
                               .eps = 1e-8f,
                               .weight_decay = 0,
                               .decoupled = false,
                               .bias_correction1 = 0.1f,
                               .bias_correction2 = 0.001f})
                    .with_zero_output());
  // A gradient of 0 with no history leaves the parameter as it is: 0 / (0 + eps).
  all.push_back(adam("zero gradients",
                     {uniform({5}), constant({5}, 0), constant({5}, 0), constant({5}, 0)},
                     adam_attrs(1, 0, false))
                    .with_zero_output());
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op optimizer") { run_cases(cases()); }

TEST_CASE("op optimizer known values") {
  // By hand: p 1, g 0.5, lr 0.1, decay 0.2 decoupled: 1 * (1 - 0.02) - 0.1 * 1, as the first step
  // of Adam is lr * sign(g).
  AdamAttrs attrs = adam_attrs(1, 0.2f, true);
  attrs.lr = 0.1f;
  const Tensor p = full({1}, 1), g = full({1}, 0.5), m = full({1}, 0), v = full({1}, 0);
  ops::adam_step_(p, g, m, v, attrs);
  CHECK(p.item() == Approx(0.88).epsilon(1e-6));
  // Not decoupled, the decay is lost in the sign: 1 - 0.1.
  attrs.decoupled = false;
  for (const Tensor& t : {m, v}) ops::fill_(t, 0);
  ops::fill_(p, 1);
  ops::adam_step_(p, g, m, v, attrs);
  CHECK(p.item() == Approx(0.9).epsilon(1e-6));
  // SGD, momentum 0.5, dampening 0.5: the first buffer is the gradient, undampened.
  const Tensor buffer = full({1}, NAN);
  ops::fill_(p, 1);
  ops::sgd_step_(p, g, buffer,
                 {.lr = 0.1f,
                  .momentum = 0.5f,
                  .dampening = 0.5f,
                  .weight_decay = 0,
                  .nesterov = false,
                  .first_step = true});
  CHECK(buffer.item() == 0.5);
  CHECK(p.item() == Approx(0.95).epsilon(1e-6));
}

TEST_CASE("op optimizer errors") {
  const Tensor p = full({4}, 1), other = full({5}, 1), integers = full({4}, 1, DType::i32);
  const SgdAttrs momentum{0.1f, 0.9f, 0, 0, false, true}, plain{0.1f, 0, 0, 0, false, true};
  check_error([&] { ops::sgd_step_(p, other, {}, plain); }, {"[sgd_step_]", "f32[4]", "f32[5]"});
  check_error([&] { ops::sgd_step_(p, p, {}, momentum); }, {"[sgd_step_]", "momentum", "0.9"});
  check_error([&] { ops::sgd_step_(p, p, p, plain); }, {"[sgd_step_]", "momentum"});
  check_error([&] { ops::sgd_step_(p, integers, {}, plain); }, {"[sgd_step_]", "f32[4]", "i32[4]"});
  check_error([&] { ops::adam_step_(p, p, p, other, adam_attrs(1, 0, false)); },
              {"[adam_step_]", "f32[4]", "f32[5]"});
  check_error(
      [&] { ops::adam_step_(integers, integers, integers, integers, adam_attrs(1, 0, false)); },
      {"[adam_step_]", "i32[4]"});
  check_error([&] { ops::sgd_step_(integers, integers, {}, plain); }, {"[sgd_step_]", "i32[4]"});
}

}  // namespace engine::test
