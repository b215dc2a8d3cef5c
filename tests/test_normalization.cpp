// The layers that networks are built of beyond the first ones: normalisations with their buffers,
// transposed convolution, embedding, activations, and the order in which Flatten gives features.
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "core/error.h"
#include "layers/activations.h"
#include "layers/layers.h"
#include "layers/normalization.h"
#include "tests/catch.h"

using namespace engine;

namespace {

void check_close(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<float> values = actual.to_vector<float>();
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i, values[i], expected[i]);
    CHECK(std::abs(static_cast<double>(values[i]) - expected[i]) <= 1e-5);
  }
}

std::vector<std::string> names_of(const std::vector<std::pair<std::string, Tensor>>& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("layers: batch norm trains by the batch and evaluates by its running statistics") {
  cpu::register_backend();
  BatchNorm2d norm(1, kCpu);
  CHECK(names_of(norm.named_parameters()) == std::vector<std::string>{"weight", "bias"});
  const auto buffers = norm.named_buffers();
  REQUIRE(names_of(buffers) ==
          std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"});
  // Mean 4; squared distances 9 + 1 + 1 + 9: variance 5, unbiased 20 / 3.
  const Tensor x = from_host(Shape{2, 1, 2, 1}, std::vector<float>{1, 3, 5, 7});
  const double root = std::sqrt(5 + 1e-5);
  check_close(norm(x), {-3 / root, -1 / root, 1 / root, 3 / root});
  const double mean = 0.1 * 4, variance = 0.9 + 0.1 * 20 / 3;
  check_close(buffers[0].second, {mean});
  check_close(buffers[1].second, {variance});
  CHECK(buffers[2].second.to_vector<int64_t>() == std::vector<int64_t>{1});

  norm.train(false);
  const double running_root = std::sqrt(variance + 1e-5);
  check_close(norm(x), {(1 - mean) / running_root, (3 - mean) / running_root,
                        (5 - mean) / running_root, (7 - mean) / running_root});
  check_close(buffers[0].second, {mean});
  CHECK(buffers[2].second.to_vector<int64_t>() == std::vector<int64_t>{1});
  CHECK_THROWS_AS(norm(full(Shape{1, 2, 2, 3}, 0)), Error);
}

TEST_CASE("layers: layer, group and instance norm take the axes that are theirs") {
  cpu::register_backend();
  const Tensor x = from_host(Shape{1, 1, 2, 4}, std::vector<float>{1, 3, 10, 30, 5, 7, 50, 70});
  LayerNorm layer(Shape{4}, kCpu, 0);
  const double a = std::sqrt((100. + 64 + 1 + 361) / 4),
               b = std::sqrt((784. + 676 + 289 + 1369) / 4);
  check_close(layer(x), {-10 / a, -8 / a, -1 / a, 19 / a, -28 / b, -26 / b, 17 / b, 37 / b});
  GroupNorm group(2, 4, kCpu, 0);
  const double c = std::sqrt((9. + 1 + 1 + 9) / 4);
  check_close(group(x), {-3 / c, -1 / c, -30 / (10 * c), -10 / (10 * c), 1 / c, 3 / c,
                         10 / (10 * c), 30 / (10 * c)});
  InstanceNorm2d instance(4, kCpu, 0);
  check_close(instance(x), {-1, -1, -1, -1, 1, 1, 1, 1});
  CHECK(instance.parameter_count() == 0);
  CHECK(InstanceNorm2d(4, kCpu, 1e-5, true).parameter_count() == 8);
  CHECK_THROWS_AS(layer(full(Shape{2, 3}, 0)), Error);
  CHECK_THROWS_AS(GroupNorm(3, 4, kCpu), Error);
}

TEST_CASE("layers: Flatten gives an image's features channel by channel") {
  cpu::register_backend();
  Flatten flatten;
  const Tensor x = from_host(Shape{1, 2, 2, 2}, std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13});
  const Tensor y = flatten(x);
  CHECK(y.shape() == Shape{1, 8});
  CHECK(y.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13});
  CHECK(flatten(full(Shape{3, 1, 1, 5}, 0)).shape() == Shape{3, 5});
}

TEST_CASE("layers: a place in a Sequential can stay empty") {
  cpu::register_backend();
  Sequential net;
  net.add(std::make_shared<Linear>(2, 2, kCpu, Activation::relu, false));
  net.skip();
  net.add(std::make_shared<Linear>(2, 1, kCpu, Activation::none, false));
  CHECK(names_of(net.named_parameters()) == std::vector<std::string>{"0.weight", "2.weight"});
}

TEST_CASE("layers: transposed convolution, embedding, adaptive pooling and activations") {
  cpu::register_backend();
  ConvTranspose2d up(4, 6,
                     {.kernel = {3, 3},
                      .stride = {2, 2},
                      .padding = {1, 1},
                      .output_padding = {1, 1},
                      .groups = 2},
                     kCpu);
  CHECK(up(full(Shape{1, 5, 7, 4}, 1)).shape() == Shape{1, 10, 14, 6});
  CHECK(up.named_parameters()[0].second.shape() == Shape{4, 3, 3, 3});
  Embedding table(3, 2, kCpu);
  const std::vector<float> rows = table.parameters()[0].to_vector<float>();
  CHECK(table(from_host(Shape{2}, std::vector<int64_t>{2, 0})).to_vector<float>() ==
        std::vector<float>{rows[4], rows[5], rows[0], rows[1]});
  AdaptiveAvgPool2d pool(1, 1);
  check_close(pool(from_host(Shape{1, 2, 1, 1}, std::vector<float>{1, 4})), {2.5});
  const Tensor x = from_host(Shape{3}, std::vector<float>{-1, 1, 7});
  check_close(LeakyReLU(0.2)(x), {-0.2, 1, 7});
  check_close(ReLU6()(x), {0, 1, 6});
  check_close(Tanh()(x), {std::tanh(-1), std::tanh(1), std::tanh(7)});
  // x times the normal distribution function: 0.1586553 and 0.8413447 at -1 and 1.
  check_close(GELU()(x), {-0.1586553, 0.8413447, 7});
  check_close(GELU(GELU::Approximate::tanh)(x), {-0.1588080, 0.8411920, 7});
}
