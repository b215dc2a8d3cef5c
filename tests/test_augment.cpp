// Augmentation: what it does to an image, how often, and that chance depends on the sample alone.
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "models/data/augment.h"
#include "models/data/loader.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using engine::test::error_of;

namespace {

constexpr int64_t kHeight = 10, kWidth = 12;

// Every image is 1, 2, 3, ...; in the second channel the same, negative. The target is a label, a
// class for each pixel (1, 2, 3, ...), or an image like the input.
class Counting : public Dataset {
 public:
  explicit Counting(SampleTensor target) : target_(target) {}
  int64_t size() const override { return 64; }
  SampleTensor input() const override { return {{kHeight, kWidth, 2}, DType::f32}; }
  SampleTensor target() const override { return target_; }
  int64_t classes() const override { return 1000; }
  void read(int64_t index, const RandomStream&, void* input, void* target) const override {
    fill(static_cast<float*>(input));
    if (target_.shape.rank() == 3)
      fill(static_cast<float*>(target));
    else if (target_.shape.rank() == 2)
      std::iota(static_cast<int64_t*>(target),
                static_cast<int64_t*>(target) + target_.shape.numel(), int64_t{1});
    else
      *static_cast<int64_t*>(target) = index;
  }

 private:
  static void fill(float* image) {
    for (int64_t i = 0; i < kHeight * kWidth; ++i) {
      image[2 * i] = static_cast<float>(i + 1);
      image[2 * i + 1] = -static_cast<float>(i + 1);
    }
  }
  SampleTensor target_;
};

const SampleTensor kLabel{Shape{}, DType::i64}, kMask{{kHeight, kWidth}, DType::i64},
    kImage{{kHeight, kWidth, 2}, DType::f32};

// How an image of Counting was moved: found from one pixel, then checked on all.
struct Moved {
  int64_t down, right;
  bool flip;
  auto operator<=>(const Moved&) const = default;
};

template <class Value>
Moved moved(const Value& value) {
  // The middle of the image always stays inside.
  const int64_t h = kHeight / 2, w = kWidth / 2;
  const int64_t here = value(h, w) - 1, next = value(h, w + 1) - 1;
  const bool flip = next < here;
  const int64_t row = here / kWidth, column = here % kWidth;
  const Moved result{h - row, (flip ? kWidth - 1 - w : w) - column, flip};
  int wrong = 0;
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      const int64_t r = y - result.down, c = (flip ? kWidth - 1 - x : x) - result.right;
      const bool inside = r >= 0 && r < kHeight && c >= 0 && c < kWidth;
      wrong += value(y, x) != (inside ? r * kWidth + c + 1 : 0);
    }
  }
  CHECK(wrong == 0);
  return result;
}

Moved moved_image(const std::vector<float>& image) {
  int wrong = 0;
  for (size_t i = 0; i < image.size(); i += 2) wrong += image[i + 1] != -image[i];
  CHECK(wrong == 0);
  return moved([&](int64_t h, int64_t w) {
    return std::lround(image[static_cast<size_t>(2 * (h * kWidth + w))]);
  });
}

}  // namespace

TEST_CASE("augment: every place and side comes as often as the other ones", "[data]") {
  const auto data = augment_images(std::make_unique<Counting>(kLabel), {true, true});
  CHECK(data->input() == kImage);
  CHECK(data->target() == kLabel);
  CHECK(data->size() == 64);
  CHECK(data->classes() == 1000);
  std::map<Moved, int> counts;
  std::vector<float> image(240);
  constexpr int kDraws = 16200;  // 100 for each of 9 x 9 x 2
  int64_t label = -1;
  for (int i = 0; i < kDraws; ++i) {
    data->read(i % 64, {7, static_cast<uint64_t>(i) << 20}, image.data(), &label);
    ++counts[moved_image(image)];
    if (label != i % 64) FAIL("label " << label << " of sample " << i);
  }
  REQUIRE(counts.size() == 162);
  double chi_squared = 0;
  for (const auto& [moved, count] : counts) {
    CHECK(std::abs(moved.down) <= 4);
    CHECK(std::abs(moved.right) <= 4);
    chi_squared += (count - 100.0) * (count - 100.0) / 100.0;
  }
  // 161 degrees of freedom: mean 161, deviation 18.
  CHECK(chi_squared > 161 - 5 * 18);
  CHECK(chi_squared < 161 + 5 * 18);
}

TEST_CASE("augment: each kind alone, and none", "[data]") {
  std::vector<float> image(240);
  int64_t label = 0;
  const auto seen = [&](Augmentation augmentation) {
    const auto data = augment_images(std::make_unique<Counting>(kLabel), augmentation);
    std::map<Moved, int> counts;
    for (uint64_t i = 0; i < 2000; ++i) {
      data->read(0, {1, i << 20}, image.data(), &label);
      ++counts[moved_image(image)];
    }
    return counts;
  };
  CHECK(seen({}) == std::map<Moved, int>{{{0, 0, false}, 2000}});
  const std::map<Moved, int> flipped = seen({.flip = true});
  REQUIRE(flipped.size() == 2);
  CHECK(std::abs(flipped.at({0, 0, true}) - 1000) < 5 * 22.4);  // deviation sqrt(2000 / 4)
  const std::map<Moved, int> cropped = seen({.pad_crop = true});
  CHECK(cropped.size() == 81);
  for (const auto& [moved, count] : cropped) CHECK_FALSE(moved.flip);
  class Text : public Counting {
   public:
    Text() : Counting(kLabel) {}
    SampleTensor input() const override { return {Shape{8}, DType::i64}; }
  };
  CHECK_THAT(error_of([] { augment_images(std::make_unique<Text>(), {.flip = true}); }),
             ContainsSubstring("expected images f32 [H, W, C] to augment, got i64 [8]"));
}

TEST_CASE("augment: classes of pixels move along and another image moves by itself", "[data]") {
  const auto masked = augment_images(std::make_unique<Counting>(kMask), {true, true});
  const auto paired = augment_images(std::make_unique<Counting>(kImage), {true, true});
  std::vector<float> image(240), other(240);
  std::vector<int64_t> mask(120);
  int same = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    masked->read(3, {9, i << 20}, image.data(), mask.data());
    const Moved by = moved_image(image);
    CHECK(by ==
          moved([&](int64_t h, int64_t w) { return mask[static_cast<size_t>(h * kWidth + w)]; }));
    paired->read(3, {9, i << 20}, image.data(), other.data());
    CHECK(moved_image(image) == by);  // the same stream, the same chance
    same += moved_image(other) == by;
  }
  CHECK(same < 20);  // 300 / 162 are expected
}

TEST_CASE("augment: an epoch is the same for any number of workers and from any batch on",
          "[data]") {
  cpu::register_backend();
  const auto data = augment_images(std::make_unique<Counting>(kLabel), {true, true});
  const auto epoch = [&](int workers, int64_t number, int64_t first) {
    DataLoader loader(*data, {.batch_size = 5, .workers = workers, .shuffle = true, .seed = 3});
    loader.start_epoch(number, first);
    std::vector<std::vector<float>> batches;
    while (const auto batch = loader.next()) batches.push_back(batch->inputs.to_vector<float>());
    return batches;
  };
  const auto all = epoch(0, 1, 0);
  REQUIRE(all.size() == 13);
  CHECK(epoch(1, 1, 0) == all);
  CHECK(epoch(3, 1, 0) == all);
  CHECK(epoch(3, 1, 9) == std::vector<std::vector<float>>(all.begin() + 9, all.end()));
  CHECK(epoch(0, 2, 0) != all);
}
