#include "models/data/cifar.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "models/data/labelled.h"
#include "models/files/input_file.h"

namespace engine {

namespace {

constexpr const char* kPart = "cifar";
constexpr int64_t kSide = 32, kPixels = kSide * kSide, kChannels = 3;

struct Format {
  const char* folder;  // in the archive
  std::vector<const char*> train;
  const char* test;
  std::vector<int64_t> classes;  // of each label of a record; the last one counts
  Normalization statistics;      // of the training split
};

const Format& format_of(CifarKind kind) {
  static const Format ten{"cifar-10-batches-bin",
                          {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin"},
                          "test_batch.bin",
                          {10},
                          {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}};
  static const Format hundred{"cifar-100-binary",
                              {"train.bin"},
                              "test.bin",
                              {20, 100},
                              {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}}};
  return kind == CifarKind::cifar10 ? ten : hundred;
}

std::unique_ptr<Dataset> load_files(const std::string& folder,
                                    const std::vector<const char*>& names, CifarKind kind,
                                    PixelRange range) {
  CifarImages images;
  for (const char* name : names) {
    const InputFile file(kPart, folder + '/' + name);
    std::vector<std::byte> bytes(file.size());
    file.read(0, bytes.data(), bytes.size());
    decode_cifar(bytes, file.path(), kind, images);
  }
  const Format& format = format_of(kind);
  return labelled_images({kSide, kSide, kChannels}, std::move(images.pixels),
                         std::move(images.labels), format.classes.back(),
                         normalization(range, format.statistics.mean, format.statistics.deviation));
}

}  // namespace

void decode_cifar(std::span<const std::byte> bytes, const std::string& name, CifarKind kind,
                  CifarImages& images) {
  const std::vector<int64_t>& classes = format_of(kind).classes;
  const size_t record = classes.size() + kPixels * kChannels;
  const size_t count = bytes.size() / record;
  check(count > 0 && bytes.size() % record == 0, kPart,
        "{}: expected whole records of {} bytes, got {} bytes", name, record, bytes.size());
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  images.pixels.reserve(images.pixels.size() + count * kPixels * kChannels);
  for (size_t i = 0; i < count; ++i) {
    for (const int64_t most : classes) {
      check(*at < most, kPart, "{}: expected labels in [0, {}), got {} in record {}", name, most,
            *at, i);
      ++at;
    }
    images.labels.push_back(at[-1]);
    for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
      for (int64_t c = 0; c < kChannels; ++c) images.pixels.push_back(at[c * kPixels + pixel]);
    }
    at += kPixels * kChannels;
  }
}

DatasetSplits load_cifar(const std::string& dir, CifarKind kind, PixelRange range) {
  const Format& format = format_of(kind);
  const std::string unpacked = dir + '/' + format.folder;
  std::error_code ignored;
  const std::string folder = std::filesystem::is_directory(unpacked, ignored) ? unpacked : dir;
  return {load_files(folder, format.train, kind, range),
          load_files(folder, {format.test}, kind, range)};
}

}  // namespace engine
