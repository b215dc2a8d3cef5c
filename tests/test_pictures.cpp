// Pictures of what networks make, and the file that training writes after each epoch.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/context.h"
#include "core/ops.h"
#include "models/data/derived.h"
#include "models/data/fit.h"
#include "models/data/image.h"
#include "models/pictures.h"
#include "models/train.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

// The pixel at (h, w) as 0xrrggbb.
uint32_t pixel(const Image& image, int64_t h, int64_t w) {
  const uint8_t* at = image.pixels.data() + 3 * (h * image.width + w);
  return uint32_t{at[0]} << 16 | uint32_t{at[1]} << 8 | at[2];
}

struct Silent : TrainObserver {
  std::vector<double> losses;
  void on_step(const StepReport& report) override { losses.push_back(report.loss); }
};

// Trains for two epochs of two steps on the first made-up images; the losses.
std::vector<double> train_small(const std::string& name, const Shape& shape,
                                const std::string& folder, std::unique_ptr<Model>& model,
                                DatasetSplits& data) {
  cpu::register_backend();
  const ModelInfo& info = find_model(name);
  TrainOptions options;
  info.recipe(options);
  options.epochs = 2;
  options.max_steps = 4;
  options.batch_size = 2;
  options.log_interval = 1;
  options.eval_interval = 0;
  options.samples = folder;
  options.schedule = ScheduleKind::constant;
  ModelOptions model_options = info.defaults;
  model_options.input = shape;
  model_options.width = 2;
  if (info.task == TaskKind::translate) model_options.blocks = 1;
  class First : public Dataset {
   public:
    First(std::unique_ptr<Dataset> all, int64_t size) : all_(std::move(all)), size_(size) {}
    int64_t size() const override { return size_; }
    SampleTensor input() const override { return all_->input(); }
    SampleTensor target() const override { return all_->target(); }
    int64_t classes() const override { return all_->classes(); }
    void read(int64_t i, const RandomStream& random, void* input, void* target) const override {
      all_->read(i, random, input, target);
    }

   private:
    std::unique_ptr<Dataset> all_;
    int64_t size_;
  };
  data = load_dataset("synthetic", "", shape, 1);
  for (auto* split : {&data.train, &data.test}) {
    *split = info.task == TaskKind::translate ? unpaired_images(std::move(*split), 7, 9, shape)
                                              : segment_images(std::move(*split));
    *split = std::make_unique<First>(std::move(*split), split == &data.train ? 4 : 3);
  }
  model_options.classes = data.train->classes();
  default_generator() = Generator(1);
  model = info.make(model_options);
  Profiler profiler;
  Silent observer;
  const std::atomic<bool> stop{false};
  train(*model, data, options, kCpu, profiler, observer, stop);
  return observer.losses;
}

}  // namespace

TEST_CASE("pictures: values become bytes and classes colours") {
  cpu::register_backend();
  // Two images of 1 x 2 in [-1, 1], the second beyond it.
  const std::vector<Image> grey =
      pictures(from_host(Shape{2, 1, 2, 1}, std::vector<float>{-1, 0, -7, NAN}), -1, 1);
  REQUIRE(grey.size() == 2);
  CHECK(pixel(grey[0], 0, 0) == 0x000000);
  CHECK(pixel(grey[0], 0, 1) == 0x808080);
  CHECK(pixel(grey[1], 0, 0) == 0x000000);
  CHECK(pixel(grey[1], 0, 1) == 0x000000);
  const std::vector<Image> coloured =
      pictures(from_host(Shape{1, 1, 2, 3}, std::vector<float>{1, -1, 0.2f, 9, 0.6f, -1}), -1, 1);
  CHECK(pixel(coloured[0], 0, 0) == 0xff0099);
  CHECK(pixel(coloured[0], 0, 1) == 0xffcc00);
  const std::vector<Image> stretched =
      stretched_pictures(from_host(Shape{2, 1, 3, 1}, std::vector<float>{2, 4, 3, 5, 5, 5}));
  CHECK(pixel(stretched[0], 0, 0) == 0x000000);
  CHECK(pixel(stretched[0], 0, 1) == 0xffffff);
  CHECK(pixel(stretched[0], 0, 2) == 0x808080);
  CHECK(pixel(stretched[1], 0, 0) == 0x000000);  // no division by 0
  std::vector<int64_t> numbers(21);
  for (size_t i = 0; i < 21; ++i) numbers[i] = static_cast<int64_t>(i);
  const std::vector<Image> classes = class_pictures(from_host(Shape{1, 1, 21}, numbers));
  REQUIRE(classes.size() == 1);
  CHECK(pixel(classes[0], 0, 0) == 0);
  for (int64_t i = 0; i < 21; ++i) {
    for (int64_t j = 0; j < i; ++j) CHECK(pixel(classes[0], 0, i) != pixel(classes[0], 0, j));
  }
}

TEST_CASE("pictures: a grid has them in columns with lines between") {
  const auto one = [](uint8_t value) { return Image{1, 2, std::vector<uint8_t>(6, value)}; };
  const Image all = grid({{one(10), one(20)}, {one(30), one(40)}, {one(50), one(60)}});
  CHECK(all.height == 2 + 2 * 3);
  CHECK(all.width == 2 + 3 * 4);
  const uint32_t expected[2][3] = {{0x0a0a0a, 0x1e1e1e, 0x323232}, {0x141414, 0x282828, 0x3c3c3c}};
  for (int64_t h = 0; h < all.height; ++h) {
    for (int64_t w = 0; w < all.width; ++w) {
      const bool line = h % 3 < 2 || w % 4 < 2;
      CHECK(pixel(all, h, w) == (line ? 0xffffff : expected[h / 3][w / 4]));
    }
  }
  CHECK_THROWS_AS(grid({}), Error);
  CHECK_THROWS_AS(grid({{one(1)}, {one(1), one(2)}}), Error);
  CHECK_THROWS_AS(grid({{one(1)}, {Image{2, 1, std::vector<uint8_t>(6)}}}), Error);
}

TEST_CASE("pictures: unet's after each epoch show image and classes and answers") {
  const TemporaryFolder folder;
  std::unique_ptr<Model> model;
  DatasetSplits data;
  const std::vector<double> losses = train_small("unet", {16, 16, 1}, folder.path(), model, data);
  CHECK(losses.size() == 4);
  // Three test samples below each other, three columns.
  CHECK(std::filesystem::exists(folder.file("epoch-0001.png")));
  const Image image = read_image(folder.file("epoch-0002.png"));
  CHECK(image.height == 2 + 3 * 18);
  CHECK(image.width == 2 + 3 * 18);
  model->train(false);
  std::vector<float> input(256);
  std::vector<int64_t> target(256);
  data.test->read(2, {}, input.data(), target.data());
  const Tensor x = from_host(Shape{1, 16, 16, 1}, input);
  const std::vector<Image> expected{stretched_pictures(x)[0],
                                    class_pictures(from_host(Shape{1, 16, 16}, target))[0],
                                    class_pictures(ops::argmax((*model)(x), 3))[0]};
  int wrong = 0;
  for (int64_t column = 0; column < 3; ++column) {
    for (int64_t h = 0; h < 16; ++h) {
      for (int64_t w = 0; w < 16; ++w) {
        wrong += pixel(image, 2 + 2 * 18 + h, 2 + column * 18 + w) !=
                 pixel(expected[static_cast<size_t>(column)], h, w);
      }
    }
  }
  CHECK(wrong == 0);
  // Drawing them changes nothing in the run.
  CHECK(train_small("unet", {16, 16, 1}, "", model, data) == losses);
}

TEST_CASE("pictures: cyclegan's after each epoch are six to a row, the same samples each time") {
  const TemporaryFolder folder;
  std::unique_ptr<Model> model;
  DatasetSplits data;
  const std::vector<double> losses =
      train_small("cyclegan", {24, 24, 3}, folder.path(), model, data);
  const Image first = read_image(folder.file("epoch-0001.png")),
              second = read_image(folder.file("epoch-0002.png"));
  CHECK(first.height == 2 + 3 * 26);
  CHECK(first.width == 2 + 6 * 26);
  int same[6] = {};
  for (int64_t column = 0; column < 6; ++column) {
    for (int64_t h = 0; h < 24; ++h) {
      for (int64_t w = 0; w < 24; ++w) {
        const int64_t y = 2 + 26 + h, x = 2 + column * 26 + w;
        same[column] += pixel(first, y, x) == pixel(second, y, x);
      }
    }
  }
  for (const int column : {0, 3}) CHECK(same[column] == 576);       // A and B
  for (const int column : {1, 2, 4, 5}) CHECK(same[column] < 576);  // what is made
  CHECK(train_small("cyclegan", {24, 24, 3}, "", model, data) == losses);
}
