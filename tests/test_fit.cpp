// Images of a data set made to fit a network.
#include <numeric>

#include "backends/cpu/cpu_backend.h"
#include "core/error.h"
#include "models/data/fit.h"
#include "tests/catch.h"

using namespace engine;

namespace {

// One image whose values count up from 1.
class Counting : public Dataset {
 public:
  explicit Counting(const Shape& shape) : shape_(shape) {}
  int64_t size() const override { return 1; }
  SampleTensor input() const override { return {shape_, DType::f32}; }
  int64_t classes() const override { return 5; }
  void read(int64_t, const RandomStream&, void* input, void* target) const override {
    auto* image = static_cast<float*>(input);
    std::iota(image, image + shape_.numel(), 1.f);
    *static_cast<int64_t*>(target) = 4;
  }

 private:
  Shape shape_;
};

std::vector<float> fitted(const Shape& from, const Shape& to) {
  const auto data = fit_images(std::make_unique<Counting>(from), to);
  REQUIRE(data->input().shape == to);
  REQUIRE(data->size() == 1);
  REQUIRE(data->classes() == 5);
  std::vector<float> image(static_cast<size_t>(to.numel()));
  int64_t label = 0;
  data->read(0, {}, image.data(), &label);
  CHECK(label == 4);
  return image;
}

}  // namespace

TEST_CASE("data: an image gets a border of zeros where it is a little too small") {
  CHECK(fitted({1, 2, 1}, {1, 2, 1}) == std::vector<float>{1, 2});
  CHECK(fitted({1, 2, 1}, {3, 3, 1}) == std::vector<float>{0, 0, 0, 1, 2, 0, 0, 0, 0});
  const std::vector<float> image = fitted({28, 28, 1}, {32, 32, 1});
  CHECK(image[2 * 32 + 1] == 0);
  CHECK(image[2 * 32 + 2] == 1);
  CHECK(image[29 * 32 + 29] == 784);
}

TEST_CASE("data: a grey image becomes a coloured one, and no other change of channels is made") {
  CHECK(fitted({1, 2, 1}, {1, 2, 3}) == std::vector<float>{1, 1, 1, 2, 2, 2});
  CHECK_THROWS_AS(fit_images(std::make_unique<Counting>(Shape{2, 2, 3}), Shape{2, 2, 1}), Error);
  CHECK_THROWS_AS(fit_images(std::make_unique<Counting>(Shape{2, 2, 1}), Shape{2, 0, 1}), Error);
}

TEST_CASE("data: other sizes are interpolated as PyTorch does without aligned corners") {
  // Centres at -0.375, -0.125, 0.125, ... of the first pixel's: held to 0 before it.
  CHECK(fitted({1, 2, 1}, {1, 8, 1}) ==
        std::vector<float>{1, 1, 1.125f, 1.375f, 1.625f, 1.875f, 2, 2});
  CHECK(fitted({4, 4, 1}, {2, 2, 1}) == std::vector<float>{3.5f, 5.5f, 11.5f, 13.5f});
  CHECK(fitted({2, 2, 2}, {1, 1, 2}) == std::vector<float>{4, 5});
}
