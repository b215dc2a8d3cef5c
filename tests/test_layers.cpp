// Modules, initial values, flat parameter buffers, optimizers and schedules.
#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "layers/init.h"
#include "layers/layers.h"
#include "layers/optimizer.h"
#include "layers/schedule.h"
#include "models/model.h"
#include "profiler/profiler.h"
#include "tests/catch.h"

using namespace engine;

namespace {

// A parameter with values of its own.
Tensor leaf(const std::vector<float>& values) {
  Tensor t = from_host(Shape{static_cast<int64_t>(values.size())}, values);
  t.set_requires_grad(true);
  return t;
}

// Makes `gradient` the gradient of the leaf: d(sum(x * g)) / dx = g.
void backward(const Tensor& parameter, const std::vector<float>& gradient) {
  ops::sum(ops::mul(parameter, from_host(parameter.shape(), gradient))).backward();
}

void check_close(const Tensor& actual, const std::vector<double>& expected,
                 double tolerance = 1e-6) {
  const std::vector<float> values = actual.to_vector<float>();
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i, values[i], expected[i]);
    CHECK(std::abs(static_cast<double>(values[i]) - expected[i]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("layers: names, shapes and counts of lenet are PyTorch's") {
  cpu::register_backend();
  const ModelInfo& info = find_model("lenet");
  const auto model = info.make(info.defaults);
  const std::vector<std::pair<std::string, Shape>> expected{
      {"conv1.weight", Shape{6, 5, 5, 1}},  {"conv1.bias", Shape{6}},
      {"conv2.weight", Shape{16, 5, 5, 6}}, {"conv2.bias", Shape{16}},
      {"fc1.weight", Shape{120, 400}},      {"fc1.bias", Shape{120}},
      {"fc2.weight", Shape{84, 120}},       {"fc2.bias", Shape{84}},
      {"fc3.weight", Shape{10, 84}},        {"fc3.bias", Shape{10}}};
  const auto named = model->named_parameters();
  REQUIRE(named.size() == expected.size());
  for (size_t i = 0; i < named.size(); ++i) {
    CHECK(named[i].first == expected[i].first);
    CHECK(named[i].second.shape() == expected[i].second);
    CHECK(named[i].second.requires_grad());
  }
  CHECK(model->parameter_count() == 61706);
  CHECK(find_model("mlp").make(find_model("mlp").defaults)->parameter_count() ==
        784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10);
}

TEST_CASE("layers: widths of the mlp can be set") {
  cpu::register_backend();
  ModelOptions options = find_model("mlp").defaults;
  options.hidden = {7};
  options.classes = 3;
  const auto model = find_model("mlp").make(options);
  CHECK(model->parameter_count() == 784 * 7 + 7 + 7 * 3 + 3);
  CHECK((*model)(full(Shape{2, 28, 28, 1}, 0.5)).shape() == Shape{2, 3});
}

TEST_CASE("layers: initial values fill [-1/sqrt(fan_in), 1/sqrt(fan_in)] evenly") {
  cpu::register_backend();
  Generator generator(7);
  const std::vector<float> values =
      init_uniform_fan_in(Shape{400, 100}, 100, kCpu, generator).to_vector<float>();
  double sum = 0, squares = 0, largest = 0;
  for (const float v : values) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
    largest = std::max(largest, std::abs(static_cast<double>(v)));
  }
  const double n = static_cast<double>(values.size());
  CHECK(largest <= 0.1);
  CHECK(largest > 0.0999);
  // The mean of n such numbers has a deviation of 0.1 / sqrt(3 n) = 0.00029; the variance is 0.1^2
  // / 3.
  CHECK(std::abs(sum / n) < 5 * 0.00029);
  CHECK(std::abs(squares / n - 0.01 / 3) < 0.0001);
}

TEST_CASE("layers: events and errors know the module that an op ran in") {
  cpu::register_backend();
  const auto model = find_model("lenet").make(find_model("lenet").defaults);
  Profiler profiler;
  profiler.begin_step(1, false, true);
  (*model)(full(Shape{1, 28, 28, 1}, 0.5));
  profiler.end_step();
  const std::vector<std::string> paths = all_module_paths();
  std::vector<std::string> convolutions;
  for (const Event& event : profiler.recording().events) {
    if (std::string(event.op) == "conv2d_relu")
      convolutions.push_back(paths[static_cast<size_t>(event.module)]);
  }
  CHECK(convolutions == std::vector<std::string>{"conv1", "conv2"});
}

TEST_CASE("layers: dropout is the identity in evaluation") {
  cpu::register_backend();
  Dropout dropout(0.5);
  const Tensor x = full(Shape{1000}, 1.0);
  const std::vector<float> trained = dropout(x).to_vector<float>();
  const auto zeros = std::count(trained.begin(), trained.end(), 0.f);
  CHECK(zeros > 400);
  CHECK(zeros < 600);
  CHECK(std::count(trained.begin(), trained.end(), 2.f) == 1000 - zeros);
  dropout.train(false);
  CHECK(dropout(x).to_vector<float>() == x.to_vector<float>());
}

TEST_CASE("optimizer: plain SGD uses weight decay, without momentum too") {
  cpu::register_backend();
  Tensor p = leaf({1.f, -2.f});
  Sgd sgd({p}, 0.1, {.weight_decay = 0.5});
  backward(p, {0.2f, 0.4f});
  sgd.step();
  // p - 0.1 (g + 0.5 p)
  check_close(p, {1 - 0.1 * (0.2 + 0.5), -2 - 0.1 * (0.4 - 1.0)});
}

TEST_CASE("optimizer: SGD's first momentum buffer is the gradient, dampening comes after") {
  cpu::register_backend();
  Tensor p = leaf({1.f});
  Sgd sgd({p}, 0.1, {.momentum = 0.9, .dampening = 0.5});
  backward(p, {2.f});
  sgd.step();
  check_close(p, {1 - 0.1 * 2});
  sgd.zero_grad();
  backward(p, {3.f});
  sgd.step();
  check_close(p, {0.8 - 0.1 * (0.9 * 2 + 0.5 * 3)});
}

TEST_CASE("optimizer: Nesterov momentum") {
  cpu::register_backend();
  Tensor p = leaf({1.f});
  Sgd sgd({p}, 0.1, {.momentum = 0.9, .nesterov = true});
  backward(p, {2.f});
  sgd.step();
  check_close(p, {1 - 0.1 * (2 + 0.9 * 2)});
  sgd.zero_grad();
  backward(p, {3.f});
  sgd.step();
  const double buffer = 0.9 * 2 + 3;
  check_close(p, {0.62 - 0.1 * (3 + 0.9 * buffer)});
  CHECK_THROWS_AS(Sgd({p}, 0.1, {.nesterov = true}), Error);
}

TEST_CASE("optimizer: Adam, and AdamW's decay of the parameter before the step") {
  cpu::register_backend();
  for (const bool decoupled : {false, true}) {
    CAPTURE(decoupled);
    Tensor p = leaf({0.5f});
    Adam adam({p}, 0.01, {.weight_decay = 0.1, .decoupled = decoupled});
    double value = 0.5, m = 0, v = 0;
    for (int t = 1; t <= 3; ++t) {
      const double given = 0.3 * t;
      adam.zero_grad();
      backward(p, {static_cast<float>(given)});
      adam.step();
      const double g = decoupled ? given : given + 0.1 * value;
      if (decoupled) value *= 1 - 0.01 * 0.1;
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      value -=
          0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
      check_close(p, {value});
    }
  }
}

TEST_CASE("optimizer: Adam adds eps to the corrected root, so tiny gradients move by its rule") {
  cpu::register_backend();
  Tensor p = leaf({0.f});
  Adam adam({p}, 1.0);
  backward(p, {1e-8f});
  adam.step();
  // m / bc1 = g, sqrt(v / bc2) = g: the step is g / (g + 1e-8) = 0.5. With eps inside the
  // uncorrected root it would be about 0.03.
  check_close(p, {-0.5}, 1e-3);
}

TEST_CASE("optimizer: a parameter without a gradient is left alone, and its steps are its own") {
  cpu::register_backend();
  Tensor a = leaf({1.f}), b = leaf({1.f}), c = leaf({1.f});
  Sgd sgd({a, b, c}, 0.1, {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1});
  backward(a, {1.f});
  backward(c, {1.f});
  sgd.step();
  check_close(a, {1 - 0.1 * 1.1});
  check_close(b, {1.0});
  sgd.zero_grad();
  backward(a, {1.f});
  backward(b, {1.f});
  sgd.step();
  const double ga = 1 + 0.1 * 0.89;
  check_close(a, {0.89 - 0.1 * (0.9 * 1.1 + 0.5 * ga)});
  check_close(b, {1 - 0.1 * 1.1});  // b's first step: its buffer is the gradient, undampened
  check_close(c, {1 - 0.1 * 1.1});
}

TEST_CASE("optimizer: gradients are clipped to a norm over all parameters") {
  cpu::register_backend();
  Tensor a = leaf({0.f, 0.f}), b = leaf({0.f});
  Sgd sgd({a, b}, 1.0);
  backward(a, {2.f, 3.f});
  backward(b, {6.f});
  CHECK(std::abs(sgd.clip_grad_norm(3.5) - 7.0) < 1e-6);  // sqrt(4 + 9 + 36)
  check_close(a.grad(), {1.0, 1.5}, 1e-5);
  check_close(b.grad(), {3.0}, 1e-5);
  CHECK(std::abs(sgd.clip_grad_norm(100) - 3.5) < 1e-5);
  check_close(b.grad(), {3.0}, 1e-5);  // below the limit nothing changes
}

TEST_CASE("optimizer: parameters move into one buffer with their values") {
  cpu::register_backend();
  Tensor a = leaf({1.f, 2.f, 3.f}), b = leaf({4.f});
  const Sgd sgd({a, b}, 0.1);
  check_close(a, {1, 2, 3});
  check_close(b, {4});
  // 3 floats are rounded up to 64 bytes.
  CHECK(static_cast<std::byte*>(b.raw()) - static_cast<std::byte*>(a.raw()) == 64);
}

TEST_CASE("optimizer: parameters and settings that make no sense are refused") {
  cpu::register_backend();
  const auto refuses = [](const std::string& part, const auto& make) {
    CAPTURE(part);
    std::string text;
    try {
      make();
    } catch (const Error& error) {
      text = error.what();
    }
    CHECK_THAT(text, ContainsSubstring(part));
  };
  const Tensor p = leaf({1, 2, 3});
  const Tensor frozen = from_host(Shape{1}, std::vector<float>{1});
  refuses("expected leaves", [&] { Sgd({p, frozen}, 0.1); });
  refuses("expected leaves", [&] { Sgd({ops::neg(p)}, 0.1); });
  refuses("expected leaves", [&] { Sgd({Tensor()}, 0.1); });
  refuses("f32[3] twice", [&] { Sgd({p, p}, 0.1); });
  refuses("learning rate", [&] { Sgd({leaf({1})}, -0.1); });
  refuses("learning rate", [&] { Sgd({leaf({1})}, NAN); });
  refuses("momentum", [&] { Sgd({leaf({1})}, 0.1, {.momentum = -1}); });
  refuses("betas", [&] { Adam({leaf({1})}, 0.1, {.beta1 = 1}); });
  refuses("betas", [&] { Adam({leaf({1})}, 0.1, {.beta2 = -0.5}); });
  refuses("eps", [&] { Adam({leaf({1})}, 0.1, {.eps = -1e-8}); });
  const Tensor q = leaf({4});
  {
    const Sgd first({q}, 0.1);
    refuses("no other optimizer has", [&] { Sgd({q}, 0.1); });
  }
  Sgd second({q}, 0.5);  // after the first one's end
  backward(q, {2});
  second.step();
  check_close(q, {3});
}

TEST_CASE("layers: a module that is there twice has its parameters once, and none is refused") {
  cpu::register_backend();
  Sequential net;
  const auto shared = std::make_shared<Linear>(3, 3, kCpu);
  net.add(shared);
  net.add(std::make_shared<ReLU>());
  net.add(shared);
  CHECK(net.parameter_count() == 12);
  CHECK(net.named_parameters().size() == 2);
  CHECK(net.named_parameters()[0].first == "0.weight");
  CHECK_THROWS_AS(net.add(std::shared_ptr<ReLU>()), Error);
}

TEST_CASE("schedule: warm-up, then constant, step or cosine") {
  const Schedule constant{ScheduleKind::constant, 4, 100, 0};
  CHECK(constant.factor(0) == 0.25);
  CHECK(constant.factor(3) == 1.0);
  CHECK(constant.factor(50) == 1.0);
  const Schedule step{ScheduleKind::step, 0, 30, 10};
  CHECK(step.factor(9) == 1.0);
  CHECK(std::abs(step.factor(10) - 0.1) < 1e-12);
  CHECK(std::abs(step.factor(29) - 0.01) < 1e-12);
  const Schedule cosine{ScheduleKind::cosine, 10, 110, 0};
  CHECK(cosine.factor(9) == 1.0);
  CHECK(cosine.factor(10) == 1.0);
  CHECK(std::abs(cosine.factor(60) - 0.5) < 1e-12);
  CHECK(cosine.factor(110) < 1e-12);
}
