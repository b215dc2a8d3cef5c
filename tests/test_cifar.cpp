// CIFAR's binary files, written here byte by byte.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/data/cifar.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

// The value of pixel (h, w) of channel c in record i.
uint8_t value(size_t i, size_t c, size_t h, size_t w) {
  return static_cast<uint8_t>(50 * i + 70 * c + 7 * h + w);
}

std::string record(size_t i, const std::string& labels) {
  std::string bytes = labels;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t h = 0; h < 32; ++h) {
      for (size_t w = 0; w < 32; ++w) bytes += static_cast<char>(value(i, c, h, w));
    }
  }
  return bytes;
}

CifarImages decode(const std::string& bytes, CifarKind kind) {
  CifarImages images;
  decode_cifar(std::as_bytes(std::span(bytes)), "c.bin", kind, images);
  return images;
}

void check_error(const std::string& bytes, CifarKind kind, const std::string& part) {
  CHECK(error_of([&] { decode(bytes, kind); }) == "[cifar] c.bin: expected " + part);
}

}  // namespace

TEST_CASE("cifar: planes become channels and labels are checked", "[data]") {
  const CifarImages ten =
      decode(record(0, "\x09") + record(1, std::string(1, '\0')), CifarKind::cifar10);
  CHECK(ten.labels == std::vector<int64_t>{9, 0});
  REQUIRE(ten.pixels.size() == 2 * 3072);
  int wrong = 0;
  for (size_t i = 0; i < ten.pixels.size(); ++i) {
    const size_t pixel = i % 3072 / 3;
    wrong += ten.pixels[i] != value(i / 3072, i % 3, pixel / 32, pixel % 32);
  }
  CHECK(wrong == 0);
  const CifarImages hundred = decode(record(3, "\x13\x63"), CifarKind::cifar100);
  CHECK(hundred.labels == std::vector<int64_t>{99});
  CHECK(hundred.pixels[5] == value(3, 2, 0, 1));

  check_error("", CifarKind::cifar10, "whole records of 3073 bytes, got 0 bytes");
  check_error(record(0, "\1") + "\1", CifarKind::cifar10,
              "whole records of 3073 bytes, got 3074 bytes");
  check_error(record(0, "\1"), CifarKind::cifar100, "whole records of 3074 bytes, got 3073 bytes");
  check_error(record(0, "\1") + record(0, "\x0a"), CifarKind::cifar10,
              "labels in [0, 10), got 10 in record 1");
  check_error(record(0, "\x14\1"), CifarKind::cifar100, "labels in [0, 20), got 20 in record 0");
  check_error(record(0, "\1\x64"), CifarKind::cifar100, "labels in [0, 100), got 100 in record 0");
}

TEST_CASE("cifar: the files of a folder or of the one that the archive unpacks to", "[data]") {
  const TemporaryFolder folder;
  for (char i = 1; i <= 5; ++i) {
    folder.write("data_batch_" + std::to_string(i) + ".bin",
                 record(static_cast<size_t>(i), std::string(1, i)));
  }
  folder.write("test_batch.bin", record(9, "\x07") + record(8, "\x06"));
  std::filesystem::create_directory(folder.file("cifar-100-binary"));
  folder.write("cifar-100-binary/train.bin", record(0, "\1\2"));
  folder.write("cifar-100-binary/test.bin", record(1, "\1\3"));

  const DatasetSplits ten = load_dataset("cifar10", folder.path(), {}, 0);
  CHECK(ten.train->size() == 5);
  CHECK(ten.test->size() == 2);
  CHECK(ten.train->classes() == 10);
  CHECK(ten.train->input().shape == Shape{32, 32, 3});
  std::vector<float> image(3072);
  int64_t label = 0;
  ten.train->read(4, {}, image.data(), &label);
  CHECK(label == 5);
  // Row 2, column 3, by the published means and deviations.
  const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
  for (size_t c = 0; c < 3; ++c) {
    CHECK(image[(2 * 32 + 3) * 3 + c] ==
          Approx((value(5, c, 2, 3) / 255.0 - mean[c]) / deviation[c]).epsilon(1e-5));
  }
  load_dataset("cifar10", folder.path(), {}, 0, PixelRange::symmetric)
      .train->read(4, {}, image.data(), &label);
  CHECK(image[(2 * 32 + 3) * 3 + 1] == Approx(value(5, 1, 2, 3) / 127.5 - 1).epsilon(1e-5));

  const DatasetSplits hundred = load_dataset("cifar100", folder.path(), {}, 0);
  CHECK(hundred.train->classes() == 100);
  hundred.test->read(0, {}, image.data(), &label);
  CHECK(label == 3);
  CHECK(image[0] == Approx((value(1, 0, 0, 0) / 255.0 - 0.5071) / 0.2673).epsilon(1e-5));

  folder.write("data_batch_3.bin", record(0, "\x0b"));
  const auto load = [&] { load_dataset("cifar10", folder.path(), {}, 0); };
  CHECK_THAT(error_of(load),
             ContainsSubstring(folder.file("data_batch_3.bin") + ": expected labels"));
  std::filesystem::remove(folder.file("data_batch_3.bin"));
  CHECK_THAT(error_of(load),
             ContainsSubstring(folder.file("data_batch_3.bin") + ": expected a readable"));
  CHECK_THAT(error_of([] { load_dataset("cifar100", "", {}, 0); }),
             ContainsSubstring("--data-dir"));
}
