// Data sets in NumPy's archives: the names and layouts that are known, and what is refused.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "models/data/npz.h"
#include "tests/archives.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

// n images of 2 x 2 that count up from `first`, a byte a pixel.
std::string pixels(int n, int first, int values = 4) {
  std::string bytes;
  for (int i = 0; i < n * values; ++i) bytes += static_cast<char>(first + i);
  return bytes;
}

DatasetSplits load(const std::vector<Member>& members, PixelRange range = PixelRange::standard) {
  cpu::register_backend();
  const std::string bytes = zip(members);
  return decode_npz_dataset(std::as_bytes(std::span(bytes)), "d.npz", range);
}

struct Sample {
  std::vector<float> image;
  int64_t label = -1;
};
Sample sample(const Dataset& data, int64_t index) {
  Sample result{std::vector<float>(static_cast<size_t>(data.input().shape.numel())), -1};
  data.read(index, {}, result.image.data(), &result.label);
  return result;
}

void check_error(const std::vector<Member>& members, const std::string& part) {
  const std::string what = error_of([&] { load(members); });
  CHECK(what.starts_with("[npz] d.npz: "));
  CHECK_THAT(what, ContainsSubstring(part));
}

const Member kLabels{"y_train.npy", array("|u1", "(2,)", "\x03\x01")};
const Member kTestImages{"x_test.npy", array("|u1", "(1, 2, 2)", pixels(1, 100))};
const Member kTestLabels{"y_test.npy", array("<i8", "(1,)", little_endian(0, 8))};

}  // namespace

TEST_CASE("npz data set: Keras' names and bytes", "[data]") {
  const DatasetSplits data = load({{"x_train.npy", array("|u1", "(2, 2, 2)", pixels(2, 10)), true},
                                   kLabels,
                                   kTestImages,
                                   kTestLabels,
                                   {"notes.npy", array("<f8", "(0,)", "")}});
  REQUIRE(data.train->size() == 2);
  REQUIRE(data.test->size() == 1);
  CHECK(data.train->input().shape == Shape{2, 2, 1});
  CHECK(data.test->classes() == 4);
  // 10 .. 17: mean 13.5, variance (2 (0.5^2 + 1.5^2 + 2.5^2 + 3.5^2)) / 8 = 5.25.
  const Sample second = sample(*data.train, 1);
  CHECK(second.label == 1);
  for (size_t i = 0; i < 4; ++i)
    CHECK(second.image[i] == Approx((14.0 + static_cast<double>(i) - 13.5) / std::sqrt(5.25)));
  CHECK(sample(*data.test, 0).image[2] == Approx((102 - 13.5) / std::sqrt(5.25)));
  CHECK(sample(*data.test, 0).label == 0);
}

TEST_CASE("npz data set: other names and layouts and types", "[data]") {
  // [N, C, H, W] of one 1 x 2 image: red 0 1, green 2 3, blue 4 5; the mean is taken by channel.
  std::vector<Member> members{
      {"train_images.npy", array("<f4", "(1, 3, 1, 2)", floats({0, 1, 2, 3, 4, 5}))},
      {"train_labels.npy", array("<i4", "(1, 1)", little_endian(6, 4))},
      {"test_images.npy", array("<f8", "(1, 1, 2, 3)",
                                [] {
                                  std::string bytes;
                                  for (const double v : {0.0, 2.0, 4.0, 1.0, 3.0, 9.0})
                                    bytes += little_endian(std::bit_cast<uint64_t>(v), 8);
                                  return bytes;
                                }())},
      {"test_labels.npy", array("<u2", "(1,)", little_endian(500, 2))}};
  DatasetSplits data = load(members);
  CHECK(data.train->input().shape == Shape{1, 2, 3});
  CHECK(data.train->classes() == 501);
  CHECK(sample(*data.train, 0).image == std::vector<float>{-1, -1, -1, 1, 1, 1});
  CHECK(sample(*data.test, 0).image == std::vector<float>{-1, -1, -1, 1, 1, 9});
  data = load(members, PixelRange::symmetric);  // here half the range is the deviation
  CHECK(sample(*data.train, 0).image == std::vector<float>{-1, -1, -1, 1, 1, 1});
  // Both layouts could be meant: C is last.
  members[0].bytes = array("|u1", "(1, 3, 1, 3)", pixels(1, 0, 9));
  members[2].bytes = array("|u1", "(1, 3, 1, 3)", std::string("\xff\x00\x33", 3) + pixels(1, 0, 6));
  data = load(members, PixelRange::symmetric);
  CHECK(data.train->input().shape == Shape{3, 1, 3});
  CHECK(sample(*data.test, 0).image[0] == 1);
  CHECK(sample(*data.test, 0).image[1] == -1);
  CHECK(sample(*data.test, 0).image[2] == Approx(-0.6));
}

TEST_CASE("npz data set: without a split every tenth sample is for the test", "[data]") {
  std::string labels;
  for (char i = 0; i < 23; ++i) labels += i;
  const DatasetSplits data = load({{"images.npy", array("|u1", "(23, 1, 1)", pixels(23, 0, 1))},
                                   {"labels.npy", array("|u1", "(23,)", labels)}});
  CHECK(data.train->size() == 21);
  REQUIRE(data.test->size() == 2);
  CHECK(sample(*data.train, 8).label == 8);
  CHECK(sample(*data.train, 9).label == 10);
  CHECK(sample(*data.test, 0).label == 9);
  CHECK(sample(*data.test, 1).label == 19);
  CHECK(sample(*data.test, 1).image[0] > sample(*data.train, 16).image[0]);
  CHECK(data.train->classes() == 23);
  // One value only: no division by 0.
  const DatasetSplits flat = load({{"x.npy", array("|u1", "(10, 1, 1)", std::string(10, 'a'))},
                                   {"y.npy", array("|u1", "(10,)", std::string(10, '\0'))}});
  CHECK(sample(*flat.train, 0).image[0] == 0);
}

TEST_CASE("npz data set: what does not fit is named", "[data]") {
  const auto images = [](const std::string& file) { return Member{"x_train.npy", file}; };
  const Member good = images(array("|u1", "(2, 2, 2)", pixels(2, 0)));
  check_error({}, "got none");
  check_error({{"a.npy", array("|u1", "(1,)", "1")}, good}, "got a, x_train");
  check_error({good, kLabels}, "expected arrays x_train, y_train, x_test, y_test");
  check_error({images(array("|u1", "(2, 4)", pixels(2, 0))), kLabels, kTestImages, kTestLabels},
              "x_train: expected images [N, H, W], [N, H, W, C] or [N, C, H, W]");
  check_error(
      {images(array("|u1", "(2, 2, 1, 2)", pixels(2, 0))), kLabels, kTestImages, kTestLabels},
      "with 1 or 3 channels, got [2, 2, 1, 2]");
  check_error({images(array("|u1", "(0, 2, 2)", "")), kLabels, kTestImages, kTestLabels}, "got [0");
  check_error(
      {images(array("<i8", "(1, 1, 1)", little_endian(1, 8))), kLabels, kTestImages, kTestLabels},
      "bytes or floating-point numbers, got i64");
  check_error({images(array("<f4", "(1, 1, 1)", floats({NAN}))), kLabels, kTestImages, kTestLabels},
              "finite numbers, got nan");
  const auto labels = [&](const std::string& file, const std::string& part) {
    check_error({good, {"y_train.npy", file}, kTestImages, kTestLabels},
                "y_train: expected " + part);
  };
  labels(array("|u1", "(3,)", "\1\1\1"), "2 labels, one for each image, got 3");
  labels(array("|u1", "(2, 2)", "\1\1\1\1"), "labels [N], whole numbers, got u8[2, 2]");
  labels(array("<f4", "(2,)", floats({0, 1})), "labels [N], whole numbers, got f32[2]");
  labels(array("<i4", "(2,)", little_endian(1, 4) + little_endian(0xffffffff, 4)),
         "labels in [0, 65536), got -1 at position 1");
  labels(array("<i8", "(2,)", little_endian(65536, 8) + little_endian(1, 8)),
         "labels in [0, 65536), got 65536 at position 0");
  check_error({good, kLabels, {"x_test.npy", array("|u1", "(1, 1, 2)", "12")}, kTestLabels},
              "one shape and type, got bytes [2, 2, 1] and bytes [1, 2, 1]");
  check_error(
      {good, kLabels, {"x_test.npy", array("<f4", "(1, 2, 2)", floats({1, 2, 3, 4}))}, kTestLabels},
      "got bytes [2, 2, 1] and numbers [2, 2, 1]");
  check_error({{"x.npy", array("|u1", "(9, 1, 1)", pixels(9, 0, 1))},
               {"y.npy", array("|u1", "(9,)", std::string(9, '\0'))}},
              "at least 10 samples");
  const TemporaryFolder folder;
  CHECK_THAT(error_of([&] { load_npz(folder.file("none.npz"), PixelRange::standard); }),
             ContainsSubstring("none.npz: expected a readable file"));
}

TEST_CASE("npz data set: no damage to an archive crashes its reader", "[data]") {
  cpu::register_backend();
  survive_damage(zip({{"x_train.npy", array("|u1", "(2, 2, 2)", pixels(2, 10)), true},
                      kLabels,
                      kTestImages,
                      kTestLabels}),
                 "d.npz: ", [](const std::string& bytes) {
                   decode_npz_dataset(std::as_bytes(std::span(bytes)), "d.npz",
                                      PixelRange::standard);
                 });
}
