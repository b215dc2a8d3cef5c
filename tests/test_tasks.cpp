// Data sets of text, masks and pairs of images; CycleGAN's pool of images and its losses.
#include <algorithm>
#include <cmath>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "core/ops.h"
#include "models/data/derived.h"
#include "models/data/text.h"
#include "models/translation.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using engine::test::error_of;
using engine::test::TemporaryFolder;

namespace {

// Image i of 2 x 2 x 2: channels (0, 0), (2, 0), (0, 3), (i, i), label i mod 3.
class FourPixels : public Dataset {
 public:
  int64_t size() const override { return 5; }
  SampleTensor input() const override { return {{2, 2, 2}, DType::f32}; }
  int64_t classes() const override { return 3; }
  void read(int64_t index, const RandomStream&, void* input, void* target) const override {
    const auto i = static_cast<float>(index);
    const float values[] = {0, 0, 2, 0, 0, 3, i, i};
    std::copy_n(values, 8, static_cast<float*>(input));
    *static_cast<int64_t*>(target) = index % 3;
  }
};

struct Stretch {
  std::vector<int64_t> input, target;
};
Stretch stretch(const Dataset& data, int64_t index, const RandomStream& random = {}) {
  const auto length = static_cast<size_t>(data.input().shape[0]);
  Stretch s{std::vector<int64_t>(length), std::vector<int64_t>(length)};
  data.read(index, random, s.input.data(), s.target.data());
  return s;
}

}  // namespace

TEST_CASE("text: bytes are numbered in their order, and each is answered by the next") {
  const TemporaryFolder folder;
  // 50 bytes of c, a, b by turns: a = 0, b = 1, c = 2. The last 5 test.
  std::string text;
  for (int i = 0; i < 50; ++i) text += "cab"[i % 3];
  const DatasetSplits data = load_text(folder.write("t.txt", text), 4);
  CHECK(data.train->classes() == 3);
  CHECK(data.train->size() == 11);  // 45 tokens: 11 stretches of 4 and their answers
  CHECK(data.test->size() == 1);
  CHECK(data.train->input() == SampleTensor{Shape{4}, DType::i64});
  CHECK(data.train->target() == data.train->input());
  const Stretch test = stretch(*data.test, 0);  // bytes 45 on: c a b c, answered by a b c a
  CHECK(test.input == std::vector<int64_t>{2, 0, 1, 2});
  CHECK(test.target == std::vector<int64_t>{0, 1, 2, 0});
  std::set<int64_t> first;
  for (uint64_t offset = 0; offset < 60; ++offset) {
    const Stretch s = stretch(*data.train, 0, {1, offset});
    first.insert(s.input[0]);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(s.target[i] == (s.input[i] + 1) % 3);  // c -> a -> b -> c
      if (i > 0) CHECK(s.input[i] == s.target[i - 1]);
    }
  }
  CHECK(first.size() == 3);  // it begins anywhere

  // A folder's files one after the other, by name.
  const TemporaryFolder two;
  two.write("2", std::string(20, 'z'));
  two.write("1", std::string(20, 'y'));
  const DatasetSplits both = load_text(two.path(), 1);
  CHECK(both.train->classes() == 2);
  CHECK(stretch(*both.test, 0).input == std::vector<int64_t>{1});
}

TEST_CASE("text: tokens of two bytes, and what is no text") {
  const TemporaryFolder folder;
  std::string bytes;
  for (const int token : {1, 513, 50300, 7}) bytes += test::little_endian(token, 2);
  folder.write("train.bin", bytes);
  folder.write("val.bin", bytes);
  const DatasetSplits data = load_tokens(folder.path(), 3);
  CHECK(data.train->classes() == 50301);
  CHECK(stretch(*data.test, 0).input == std::vector<int64_t>{1, 513, 50300});
  CHECK(stretch(*data.test, 0).target == std::vector<int64_t>{513, 50300, 7});
  CHECK_THAT(error_of([&] { load_tokens(folder.path(), 4); }),
             ContainsSubstring("more than 4 tokens"));
  folder.write("val.bin", bytes + "x");
  CHECK_THAT(error_of([&] { load_tokens(folder.path(), 3); }), ContainsSubstring("val.bin"));
  CHECK_THAT(error_of([&] { load_text(folder.file("absent"), 3); }), ContainsSubstring("absent"));
  CHECK_THAT(error_of([&] { load_text(folder.write("empty", ""), 3); }),
             ContainsSubstring("got 0"));
  const TemporaryFolder none;
  CHECK_THAT(error_of([&] { load_text(none.path(), 3); }), ContainsSubstring("empty"));
}

TEST_CASE("data: a mask is the label where the image is bright") {
  const auto data = segment_images(std::make_unique<FourPixels>());
  CHECK(data->classes() == 4);
  CHECK(data->target() == SampleTensor{Shape{2, 2}, DType::i64});
  std::vector<float> image(8);
  std::vector<int64_t> mask(4);
  data->read(1, {}, image.data(), mask.data());  // means 0, 1, 1.5, 1; the middle is 0.75
  CHECK(mask == std::vector<int64_t>{0, 2, 2, 2});
  data->read(4, {}, image.data(), mask.data());  // means 0, 1, 1.5, 4; the middle is 2
  CHECK(mask == std::vector<int64_t>{0, 0, 0, 2});
}

TEST_CASE("data: unpaired images are of two classes, within -1 and 1") {
  const auto data =
      unpaired_images(std::make_unique<FourPixels>(), 0, 1, {2, 2, 2});  // 0, 3 and 1, 4
  CHECK(data->size() == 2);
  std::vector<float> a(8), b(8);
  std::set<float> seen;
  for (uint64_t offset = 0; offset < 20; ++offset) {
    data->read(0, {1, offset}, a.data(), b.data());
    CHECK(a == std::vector<float>{0, 0, 1, 0, 0, 1, 0, 0});
    CHECK(b[6] == 1);  // 1 or 4, cut
  }
  CHECK_THAT(error_of([] {
               unpaired_images(std::make_unique<FourPixels>(), 0, 9, {2, 2, 2});
             }),
             ContainsSubstring("0 and 9, got 2 and 0"));
}

TEST_CASE("cyclegan: the pool shows new images until it is full, then old ones half of the time") {
  cpu::register_backend();
  default_generator() = Generator(3);
  ImagePool pool(3, {1, 1, 1}, kCpu);
  const auto show = [&](double value) { return pool.exchange(full({1, 1, 1, 1}, value)).item(); };
  for (const double value : {1.0, 2.0, 3.0}) CHECK(show(value) == value);
  CHECK(pool.count().to_vector<int64_t>() == std::vector<int64_t>{3});
  std::multiset<double> stored{1, 2, 3};
  int old = 0;
  for (int i = 4; i < 204; ++i) {
    const double shown = show(i);
    if (shown == i) continue;
    ++old;
    REQUIRE(stored.erase(shown) == 1);  // it was there, and is no more
    stored.insert(i);
  }
  CHECK(std::abs(old - 100) < 30);
  const std::vector<float> images = pool.images().to_vector<float>();
  CHECK(std::multiset<double>(images.begin(), images.end()) == stored);
  // A batch is exchanged image by image.
  CHECK(pool.exchange(full({2, 1, 1, 1}, 5)).shape() == Shape{2, 1, 1, 1});
}

TEST_CASE("cyclegan: losses and who learns from them") {
  cpu::register_backend();
  default_generator() = Generator(1);
  CycleGan model({.input = Shape{24, 24, 1}, .width = 2, .blocks = 1});
  TranslationTask task(model, {24, 24, 1}, kCpu);
  const Tensor a = empty({1, 24, 24, 1}), b = empty({1, 24, 24, 1});
  ops::uniform_(a, -1, 1);
  ops::uniform_(b, -1, 1);
  // From the networks' own outputs, in double.
  const auto values = [](const Tensor& t) { return t.to_vector<float>(); };
  const auto l1 = [&](const Tensor& x, const Tensor& y) {
    double sum = 0;
    for (size_t i = 0; i < values(x).size(); ++i) sum += std::abs(values(x)[i] - values(y)[i]);
    return sum / static_cast<double>(x.numel());
  };
  const auto square = [&](const Tensor& x, double target) {
    double sum = 0;
    for (const float v : values(x)) sum += (v - target) * (v - target);
    return sum / static_cast<double>(x.numel());
  };
  const Tensor fake_b = model.generator_a()(a), fake_a = model.generator_b()(b);
  const std::vector<std::pair<std::string, double>> expected{
      {"G_A", square(model.discriminator_a()(fake_b), 1)},
      {"G_B", square(model.discriminator_b()(fake_a), 1)},
      {"cycle_A", 10 * l1(model.generator_b()(fake_b), a)},
      {"cycle_B", 10 * l1(model.generator_a()(fake_a), b)},
      {"idt_A", 5 * l1(model.generator_a()(b), b)},
      {"idt_B", 5 * l1(model.generator_b()(a), a)}};
  const std::vector<Loss> losses = task.forward_backward(0, {a, b}, 1);
  REQUIRE(losses.size() == 7);
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    CHECK(losses[i + 1].name == expected[i].first);
    CHECK(losses[i + 1].value.item() == Approx(expected[i].second).epsilon(1e-5));
    sum += expected[i].second;
  }
  CHECK(losses[0].value.item() == Approx(sum).epsilon(1e-5));
  const auto groups = task.parameter_groups();
  for (const Tensor& p : groups[0]) CHECK(p.grad().defined());
  for (const Tensor& p : groups[1]) CHECK_FALSE(p.grad().defined());

  const std::vector<Loss> judged = task.forward_backward(1, {a, b}, 1);
  REQUIRE(judged.size() == 2);
  CHECK(judged[0].name == "D_A");
  CHECK(judged[0].value.item() == Approx(0.5 * (square(model.discriminator_a()(b), 1) +
                                                square(model.discriminator_a()(fake_b), 0)))
                                      .epsilon(1e-5));
  CHECK(judged[1].value.item() == Approx(0.5 * (square(model.discriminator_b()(a), 1) +
                                                square(model.discriminator_b()(fake_a), 0)))
                                      .epsilon(1e-5));
  for (const Tensor& p : groups[1]) CHECK(p.grad().defined());
}
