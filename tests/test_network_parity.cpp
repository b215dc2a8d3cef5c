// Whole networks in training against PyTorch: outputs, the norm of every gradient and ten losses
// under SGD, from tests/data/network_parity.json. tests/data/make_network_parity.py made it, and
// says by what formula both sides make parameters, inputs and targets.
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "core/context.h"
#include "layers/layers.h"
#include "layers/optimizer.h"
#include "models/cyclegan.h"
#include "models/networks.h"
#include "tests/catch.h"

using namespace engine;

namespace {

using nlohmann::json;

uint32_t seed_of(const std::string& name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}
uint32_t bits(uint32_t seed, int64_t i) {
  uint32_t x = seed + static_cast<uint32_t>(i) * 0x9E3779B9u;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

// The tensors of the formula, in PyTorch's layout.
Tensor uniform(const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  const uint32_t seed = seed_of(name);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(bits(seed, static_cast<int64_t>(i)) >> 8) * 0x1p-23f - 1;
  }
  return from_host(shape, values);
}
Tensor integers(const std::string& name, const Shape& shape, int64_t below) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  const uint32_t seed = seed_of(name);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = bits(seed, static_cast<int64_t>(i)) % below;
  }
  return from_host(shape, values);
}

Tensor nhwc(const Tensor& x) { return ops::permute(x, std::array<int64_t, 4>{0, 2, 3, 1}); }
Tensor nchw(const Tensor& x) { return ops::permute(x, std::array<int64_t, 4>{0, 3, 1, 2}); }

// GPT-2's linear layers, whose weights PyTorch's side holds transposed.
bool is_conv1d(const std::string& name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

void fill(const Module& module) {
  const NoGradScope no_grad;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const Shape& s = parameter.shape();
    const Shape shape = s.rank() == 4     ? Shape{s[0], s[3], s[1], s[2]}
                        : is_conv1d(name) ? Shape{s[1], s[0]}
                                          : s;
    Tensor value = uniform(name, shape);
    if (shape.rank() > 1) {
      int length = 0;
      for (int64_t fan_in = shape.numel() / shape[0]; fan_in > 0; fan_in /= 2) ++length;
      value = ops::scale(value, std::ldexp(1.0, 1 - length / 2));
    } else {
      value = name.ends_with("weight") ? ops::shift(ops::scale(value, 0.25), 1)
                                       : ops::scale(value, 0.125);
    }
    if (s.rank() == 4) value = nhwc(value);
    if (is_conv1d(name)) value = ops::transpose(value, 0, 1);
    ops::copy_(parameter, value);
  }
}

double norm_of(const Tensor& x) {
  double squares = 0;
  for (const float v : x.to_vector<float>())
    squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares);
}

struct Network {
  int64_t classes;  // 0: the loss is the squared distance
  std::function<std::shared_ptr<Module>()> make;
};

// A part of a network, which keeps the whole alive.
std::shared_ptr<Module> part_of_gan(Module& (CycleGan::*part)()) {
  const auto gan =
      std::make_shared<CycleGan>(ModelOptions{.input = Shape{32, 32, 3}, .width = 8, .blocks = 2});
  return {gan, &((*gan).*part)()};
}

const std::map<std::string, Network> kNetworks{
    {"gpt",
     {11,
      [] {
        return make_gpt({.input = Shape{16}, .classes = 11, .layers = 2, .width = 24, .heads = 3});
      }}},
    {"lstm",
     {11,
      [] {
        return make_lstm(
            {.input = Shape{12}, .classes = 11, .layers = 2, .width = 20, .embedding = 6});
      }}},
    {"unet",
     {4,
      [] {
        return make_unet({.input = Shape{32, 32, 3}, .classes = 4, .width = 8});
      }}},
    {"cyclegan generator", {0, [] { return part_of_gan(&CycleGan::generator_a); }}},
    {"cyclegan discriminator", {0, [] { return part_of_gan(&CycleGan::discriminator_a); }}},
};

void check_near(double got, double expected, double floor) {
  CAPTURE(got, expected);
  CHECK(std::abs(got - expected) <= 1e-4 * std::abs(expected) + floor);
}

}  // namespace

TEST_CASE("pytorch: whole networks train as PyTorch's do") {
  cpu::register_backend();
  std::ifstream file(ENGINE_TEST_DATA "/network_parity.json");
  REQUIRE(file.good());
  std::map<std::string, int> seen;
  for (const json& record : json::parse(file)) {
    const auto name = record.at("name").get<std::string>();
    CAPTURE(name);
    ++seen[name];
    const Network& network = kNetworks.at(name);
    const std::shared_ptr<Module> module = network.make();
    fill(*module);
    Sgd sgd(module->parameters(), record.at("lr").get<double>());
    const Shape input(record.at("input").get<std::vector<int64_t>>());
    const bool image = input.rank() == 4;
    const Tensor x =
        image ? nhwc(uniform("input", input)) : integers("input", input, network.classes);
    const json& gradients = record.at("gradients");
    double whole = 0;
    for (const auto& [key, norm] : gradients.items()) whole += std::pow(norm.get<double>(), 2);
    whole = std::sqrt(whole);
    const json& losses = record.at("losses");
    for (size_t step = 0; step < losses.size(); ++step) {
      CAPTURE(step);
      sgd.zero_grad();
      const Tensor y = (*module)(x);
      Tensor loss;
      if (network.classes > 0) {
        const int64_t rows = y.numel() / network.classes;
        loss = cross_entropy_loss(ops::reshape(y, {rows, network.classes}),
                                  integers("target", Shape{rows}, network.classes));
      } else {
        const Tensor target = uniform("target", nchw(y.detach()).shape());
        loss = ops::mse_loss(y, nhwc(target));
      }
      loss.backward();
      check_near(loss.item(), losses[step].get<double>(), 0);
      if (step == 0) {
        const std::vector<float> outputs =
            (image ? nchw(y.detach()) : y.detach()).to_vector<float>();
        const json& expected = record.at("outputs");
        const size_t stride = std::max<size_t>(1, outputs.size() / 20);
        REQUIRE(expected.size() == (outputs.size() + stride - 1) / stride);
        double largest = 0;
        for (const json& value : expected)
          largest = std::max(largest, std::abs(value.get<double>()));
        for (size_t i = 0; i < expected.size(); ++i) {
          check_near(static_cast<double>(outputs[i * stride]), expected[i].get<double>(),
                     1e-5 * largest);
        }
        const auto parameters = module->named_parameters();
        REQUIRE(gradients.size() == parameters.size());
        for (const auto& [key, parameter] : parameters) {
          CAPTURE(key);
          REQUIRE(gradients.contains(key));
          // The floor is for biases before a norm, whose gradients are zero but for rounding.
          check_near(norm_of(parameter.grad()), gradients.at(key).get<double>(), 1e-6 * whole);
        }
      }
      sgd.step();
    }
  }
  for (const auto& [name, network] : kNetworks) {
    CAPTURE(name);
    CHECK(seen[name] == 1);
  }
}
