// Ops where semantics could differ, against numbers that PyTorch computed in double:
// tests/data/pytorch_ops.json, made by tests/data/make_pytorch_ops.py, which says what a record
// holds.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/compare.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

using nlohmann::json;

Array array_from(const json& j) {
  Array result(Shape(j.at("shape").get<std::vector<int64_t>>()));
  for (size_t i = 0; i < result.values.size(); ++i) {
    const json& value = j.at("values")[i];
    result.values[i] =
        value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
  }
  return result;
}

// What each record's name stands for here.
const std::map<std::string, std::function<Tensor(const Tensors&)>> kCalls{
    {"conv2d: stride, padding, dilation, groups",
     [](const Tensors& t) {
       return ops::conv2d(t[0], t[1], t[2],
                          {.stride = {2, 1},
                           .padding_begin = {1, 2},
                           .padding_end = {1, 2},
                           .dilation = {1, 2},
                           .groups = 2});
     }},
    {"conv2d: uneven padding",
     [](const Tensors& t) {
       return ops::conv2d(t[0], t[1], {},
                          {.stride = {2, 2}, .padding_begin = {1, 0}, .padding_end = {1, 0}});
     }},
    {"max_pool2d: ceil_mode, padding",
     [](const Tensors& t) {
       return ops::max_pool2d(
           t[0], {.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 0}, .ceil_mode = true});
     }},
    {"avg_pool2d: ceil_mode, count_include_pad true",
     [](const Tensors& t) {
       return ops::avg_pool2d(
           t[0], {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 1}, .ceil_mode = true});
     }},
    {"avg_pool2d: ceil_mode, count_include_pad false",
     [](const Tensors& t) {
       return ops::avg_pool2d(t[0], {.kernel = {3, 2},
                                     .stride = {2, 3},
                                     .padding = {1, 1},
                                     .ceil_mode = true,
                                     .count_include_pad = false});
     }},
    {"cross_entropy: smoothing, ignore_index",
     [](const Tensors& t) {
       return ops::cross_entropy(t[0], t[1], {.ignore_index = 2, .label_smoothing = 0.1f});
     }},
    {"nll_loss: ignore_index, none",
     [](const Tensors& t) { return ops::nll_loss(t[0], t[1], {.reduction = Reduction::none}); }},
    {"max: ties over two axes",
     [](const Tensors& t) {
       return ops::max(t[0], std::vector<int64_t>{0, 2});
     }},
    {"relu: zero", [](const Tensors& t) { return ops::relu(t[0]); }},
    {"abs: zero", [](const Tensors& t) { return ops::abs(t[0]); }},
    {"log_softmax: far apart", [](const Tensors& t) { return ops::log_softmax(t[0], 1); }},
};

// A few roundings of f32, of the largest value that takes part.
Tolerance tolerance_for(const Array& expected) {
  double largest = 0;
  for (const double v : expected.values) largest = std::max(largest, std::abs(v));
  return {1e-6, 1e-6 * largest};
}

}  // namespace

TEST_CASE("pytorch: ops give PyTorch's outputs and gradients") {
  std::ifstream file(ENGINE_TEST_DATA "/pytorch_ops.json");
  REQUIRE(file.good());
  const json data = json::parse(file);
  std::map<std::string, int> seen;
  for (const json& record : data.at("records")) {
    const auto name = record.at("name").get<std::string>();
    CAPTURE(name);
    ++seen[name];
    REQUIRE(kCalls.contains(name));
    for (const Device device : test_devices()) {
      Tensors leaves;
      for (const json& input : record.at("inputs")) {
        const Array values = array_from(input);
        const bool floating = input.at("dtype") == "f32";
        leaves.push_back(
            tensor(values.shape, values.values, floating ? DType::f32 : DType::i64, device));
        if (floating) leaves.back().set_requires_grad(true);
      }
      const Tensor output = kCalls.at(name)(leaves);
      const Array expected = array_from(record.at("output"));
      CHECK(compare(to_array(output), expected, tolerance_for(expected)) == "");
      const Array upstream = array_from(record.at("upstream"));
      output.backward(tensor(upstream.shape, upstream.values, DType::f32, device));
      for (size_t i = 0; i < leaves.size(); ++i) {
        const json& gradient = record.at("gradients")[i];
        CAPTURE(i);
        REQUIRE(leaves[i].grad().defined() == !gradient.is_null());
        if (gradient.is_null()) continue;
        const Array wanted = array_from(gradient);
        CHECK(compare(to_array(leaves[i].grad()), wanted, tolerance_for(wanted)) == "");
      }
    }
  }
  for (const auto& [name, call] : kCalls) {
    CAPTURE(name);
    CHECK(seen[name] == 1);
  }
}

}  // namespace engine::test
