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

template <int64_t kHeight, int64_t kWidth, bool kCorners>
Tensor bilinear(const Tensors& t) {
  return ops::interpolate(t[0], kHeight, kWidth, ResampleMode::bilinear, kCorners);
}
template <PadMode kMode>
Tensor padded(const Tensors& t) {
  const int64_t begin[] = {0, 1, 2, 0}, end[] = {0, 3, 1, 0};
  return ops::pad(t[0], begin, end, kMode);
}
Tensor causal_attention(const Tensors& t) { return ops::attention(t[0], t[1], t[2], {}, true); }

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
    {"cross_entropy: class weights, smoothing, ignore_index",
     [](const Tensors& t) {
       return ops::cross_entropy(t[0], t[1], {.ignore_index = 2, .label_smoothing = 0.2f}, t[2]);
     }},
    {"smooth_l1_loss: beta", [](const Tensors& t) { return ops::smooth_l1_loss(t[0], t[1], 0.3); }},
    {"l1_loss: sum", [](const Tensors& t) { return ops::l1_loss(t[0], t[1], Reduction::sum); }},
    {"mse_loss", [](const Tensors& t) { return ops::mse_loss(t[0], t[1]); }},
    {"binary_cross_entropy_with_logits",
     [](const Tensors& t) { return ops::bce_with_logits(t[0], t[1]); }},
    {"gelu", [](const Tensors& t) { return ops::gelu(t[0]); }},
    {"gelu_tanh", [](const Tensors& t) { return ops::gelu_tanh(t[0]); }},
    {"silu", [](const Tensors& t) { return ops::silu(t[0]); }},
    {"elu: alpha", [](const Tensors& t) { return ops::elu(t[0], 0.7); }},
    {"leaky_relu", [](const Tensors& t) { return ops::leaky_relu(t[0], 0.2); }},
    {"softplus: beta, threshold", [](const Tensors& t) { return ops::softplus(t[0], 2, 3); }},
    {"clamp: at its edges", [](const Tensors& t) { return ops::clamp(t[0], -1, 2); }},
    {"pow: zero to a power", [](const Tensors& t) { return ops::pow(t[0], t[1]); }},
    {"maximum: ties", [](const Tensors& t) { return ops::maximum(t[0], t[1]); }},
    {"batch_norm: training",
     [](const Tensors& t) { return ops::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-3); }},
    {"batch_norm: running statistics",
     [](const Tensors& t) {
       const Tensor both[] = {ops::shift(t[1].detach(), 0), ops::shift(t[2].detach(), 0)};
       ops::batch_norm(t[0].detach(), {}, {}, both[0], both[1], true, 0.3);
       return ops::add(ops::stack(both), ops::scale(ops::sum(t[0]), 0));
     }},
    {"group_norm", [](const Tensors& t) { return ops::group_norm(t[0], 3, t[1], t[2]); }},
    {"instance_norm", [](const Tensors& t) { return ops::instance_norm(t[0], t[1], t[2]); }},
    {"layer_norm: two axes", [](const Tensors& t) { return ops::layer_norm(t[0], 2, t[1], t[2]); }},
    {"rms_norm", [](const Tensors& t) { return ops::rms_norm(t[0], 1, t[1], 1e-3); }},
    {"var: correction 2",
     [](const Tensors& t) {
       return ops::var(t[0], std::vector<int64_t>{0, 2}, 2);
     }},
    {"logsumexp",
     [](const Tensors& t) {
       return ops::logsumexp(t[0], std::vector<int64_t>{0, 2});
     }},
    {"conv_transpose2d: stride, padding, output_padding, dilation, groups",
     [](const Tensors& t) {
       return ops::conv_transpose2d(t[0], t[1], t[2],
                                    {.stride = {3, 2},
                                     .padding_begin = {1, 2},
                                     .padding_end = {1, 2},
                                     .dilation = {1, 2},
                                     .groups = 2},
                                    {2, 1});
     }},
    {"adaptive_avg_pool2d", [](const Tensors& t) { return ops::adaptive_avg_pool2d(t[0], 3, 4); }},
    {"interpolate: nearest to 7x3", [](const Tensors& t) { return ops::interpolate(t[0], 7, 3); }},
    {"interpolate: nearest to 2x9", [](const Tensors& t) { return ops::interpolate(t[0], 2, 9); }},
    {"interpolate: bilinear to 7x3, align_corners false", bilinear<7, 3, false>},
    {"interpolate: bilinear to 7x3, align_corners true", bilinear<7, 3, true>},
    {"interpolate: bilinear to 2x9, align_corners false", bilinear<2, 9, false>},
    {"interpolate: bilinear to 2x9, align_corners true", bilinear<2, 9, true>},
    {"pad: reflect", padded<PadMode::reflect>},
    {"pad: replicate", padded<PadMode::replicate>},
    {"pad: constant",
     [](const Tensors& t) {
       const int64_t begin[] = {0, 2}, end[] = {3, 1};
       return ops::pad(t[0], begin, end, PadMode::constant, 0.5);
     }},
    {"attention: causal, 5 queries, 3 keys", causal_attention},
    {"attention: causal, 3 queries, 5 keys", causal_attention},
    {"lstm",
     [](const Tensors& t) {
       const ops::LstmOutputs out = ops::lstm(t[0], t[1], t[2], t[3], t[4], t[5], t[6]);
       const Tensor both[] = {out.y, ops::slice(out.cells, 0, -1, out.cells.size(0))};
       return ops::concat(both);
     }},
    {"gru", [](const Tensors& t) { return ops::gru(t[0], t[1], t[2], t[3], t[4], t[5]); }},
    {"embedding: repeated ids", [](const Tensors& t) { return ops::embedding(t[0], t[1]); }},
    {"gather",
     [](const Tensors& t) {
       return ops::gather(t[0], 1, ops::reshape(t[1], {2, 3}));
     }},
    {"scatter_add",
     [](const Tensors& t) {
       return ops::scatter_add(t[0], 1, ops::reshape(t[1], {2, 3}), t[2]);
     }},
    {"repeat",
     [](const Tensors& t) {
       return ops::repeat(t[0], std::vector<int64_t>{2, 1, 3});
     }},
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
