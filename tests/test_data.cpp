// IDX files good and bad, written here byte by byte; the data sets; the loader and its threads.
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/backend.h"
#include "core/error.h"
#include "models/data/dataset.h"
#include "models/data/idx.h"
#include "models/data/loader.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using engine::test::error_of;
using engine::test::TemporaryFolder;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

std::string u32(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string images_header(uint32_t count, uint32_t height, uint32_t width) {
  return std::string("\0\0\x08\x03", 4) + u32(count) + u32(height) + u32(width);
}

std::string labels_file(const std::vector<uint8_t>& labels) {
  return std::string("\0\0\x08\x01", 4) + u32(static_cast<uint32_t>(labels.size())) +
         std::string(labels.begin(), labels.end());
}

std::string gzip(const std::string& bytes) {
  const TemporaryFolder folder;
  const gzFile file = gzopen(folder.file("x").c_str(), "wb9");
  REQUIRE(file != nullptr);
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
  std::ifstream packed(folder.file("x"), std::ios::binary);
  return {std::istreambuf_iterator<char>(packed), {}};
}

// Reads a file that is not right and checks that the Error names it and has `part`.
void check_error(const std::string& path, const std::string& part, bool labels = false) {
  const std::string what =
      error_of([&] { labels ? (void)read_idx_labels(path, 10) : (void)read_idx_images(path); });
  CHECK(what.starts_with("[idx] " + path + ": expected "));
  CHECK_THAT(what, ContainsSubstring("got "));
  CHECK_THAT(what, ContainsSubstring(part));
}
void check_images_error(const std::string& bytes, const std::string& part) {
  const TemporaryFolder folder;
  check_error(folder.write("images", bytes), part);
}
void check_labels_error(const std::string& bytes, const std::string& part) {
  const TemporaryFolder folder;
  check_error(folder.write("labels", bytes), part, true);
}

// Two images of 2 x 3 with the pixels 0, 1, .. 10 and 255.
std::string two_images() {
  return images_header(2, 2, 3) + std::string("\0\1\2\3\4\5\6\7\x08\x09\x0a\xff", 12);
}

void check_two_images(const std::string& path) {
  const IdxImages images = read_idx_images(path);
  CHECK(std::vector{images.count, images.height, images.width} == std::vector<int64_t>{2, 2, 3});
  CHECK(images.pixels == std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255});
}

// Sample i is [[i], [-i]] with the label i mod 3. `on_read` is called before each read.
class NumberedDataset : public Dataset {
 public:
  explicit NumberedDataset(int64_t size, std::function<void(int64_t)> on_read = {})
      : size_(size), on_read_(std::move(on_read)) {}
  int64_t size() const override { return size_; }
  SampleTensor input() const override { return {{2, 1, 1}, DType::f32}; }
  int64_t classes() const override { return 3; }
  void read(int64_t index, const RandomStream&, void* input, void* target) const override {
    if (on_read_) on_read_(index);
    auto* image = static_cast<float*>(input);
    image[0] = static_cast<float>(index);
    image[1] = -static_cast<float>(index);
    *static_cast<int64_t*>(target) = index % 3;
  }

 private:
  int64_t size_;
  std::function<void(int64_t)> on_read_;
};

// The sample numbers of an epoch, a list a batch; checks the batches' form on the way.
using Batches = std::vector<std::vector<int64_t>>;
Batches epoch_of(DataLoader& loader, int64_t epoch) {
  loader.start_epoch(epoch);
  Batches batches;
  while (const std::optional<Batch> batch = loader.next()) {
    const int64_t n = batch->targets.numel();
    REQUIRE(batch->inputs.shape() == Shape{n, 2, 1, 1});
    REQUIRE(batch->targets.shape() == Shape{n});
    const std::vector<float> images = batch->inputs.to_vector<float>();
    const std::vector<int64_t> labels = batch->targets.to_vector<int64_t>();
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < labels.size(); ++i) {
      numbers.push_back(static_cast<int64_t>(images[2 * i]));
      REQUIRE(images[2 * i + 1] == -images[2 * i]);
      REQUIRE(labels[i] == numbers.back() % 3);
    }
    batches.push_back(numbers);
  }
  CHECK_FALSE(loader.next().has_value());  // the end stays the end
  CHECK(loader.batches_per_epoch() == static_cast<int64_t>(batches.size()));
  return batches;
}

// One image, with a check that nothing is written behind it.
std::vector<float> image_of(const Dataset& data, int64_t index, int64_t& label) {
  std::vector<float> image(static_cast<size_t>(data.input().shape.numel()) + 1, 77.0f);
  data.read(index, {}, image.data(), &label);
  REQUIRE(image.back() == 77.0f);
  image.pop_back();
  return image;
}

}  // namespace

TEST_CASE("idx: images and labels plain and gzip whatever the name", "[data]") {
  const TemporaryFolder folder;
  check_two_images(folder.write("plain", two_images()));
  check_two_images(folder.write("packed.gz", gzip(two_images())));
  check_two_images(folder.write("packed-without-suffix", gzip(two_images())));
  // A gzip file may have several members (RFC 1952, 2.2); here the header itself is cut in two.
  check_two_images(
      folder.write("members.gz", gzip(two_images().substr(0, 7)) + gzip(two_images().substr(7))));
  const std::string labels = labels_file({9, 0, 3});
  CHECK(read_idx_labels(folder.write("l", labels), 10) == std::vector<uint8_t>{9, 0, 3});
  CHECK(read_idx_labels(folder.write("l.gz", gzip(labels)), 10) == std::vector<uint8_t>{9, 0, 3});

  // A file larger than every buffer.
  std::string pixels(3 * 1000 * 1001, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i * i % 251);
  const std::string bytes = images_header(3, 1000, 1001) + pixels;
  for (const auto& path : {folder.write("large", bytes), folder.write("large.gz", gzip(bytes))}) {
    const IdxImages images = read_idx_images(path);
    CHECK(std::string(images.pixels.begin(), images.pixels.end()) == pixels);
  }
}

TEST_CASE("idx: wrong magic number and wrong labels", "[data]") {
  check_images_error(labels_file({1, 2, 3}), "magic number 2051 (images), got 2049 (labels)");
  check_labels_error(two_images(), "magic number 2049 (labels), got 2051 (images)");
  check_images_error(std::string(40, 'x'), "got 2021161080");  // 0x78787878
  // f32 instead of u8 values, and the magic number in the wrong byte order.
  check_images_error(std::string("\0\0\x0d\x03", 4) + two_images().substr(4), "got 3331");
  check_images_error(std::string("\x03\x08\0\0", 4) + two_images().substr(4), "got 50855936");
  check_images_error(gzip(gzip(two_images())), "still gzipped");
  check_labels_error(labels_file({9, 0, 10, 11}), "labels in [0, 10), got 10 at position 2");
  check_labels_error(labels_file({255}), "got 255 at position 0");
}

TEST_CASE("idx: missing and empty and strange files", "[data]") {
  const TemporaryFolder folder;
  check_error(folder.write("empty", ""), "got an empty file");
  check_error(folder.write("empty.gz", ""), "got an empty file");
  check_error(folder.write("nothing-packed.gz", gzip("")), "got 0 bytes");
  check_error(folder.path(), "got a directory");
  check_error("/dev/zero", "got a device");
  check_error(folder.file("missing"), "No such file or directory");
  check_error(folder.write("plain.gz", two_images()), "gzip data (first bytes 1f 8b), got 00 00");
  check_error(folder.write("one-byte.gz", "x"), "got 78");

  const std::string what =
      error_of([&] { find_idx_file(folder.path(), "absent", "look in the attic"); });
  CHECK(what == "[idx] " + folder.file("absent") + ": expected this file or " +
                    folder.file("absent.gz") + ", got neither: look in the attic");
  CHECK(find_idx_file(folder.path(), "empty", "") == folder.file("empty"));  // before empty.gz
  CHECK(find_idx_file(folder.path(), "plain", "") == folder.file("plain.gz"));
}

TEST_CASE("idx: every truncation and addition and damage is an error", "[data]") {
  const std::string plain = two_images(), packed = gzip(plain);
  for (const std::string& bytes : {plain, packed}) {
    for (size_t i = 0; i < bytes.size(); ++i) check_images_error(bytes.substr(0, i), "");
  }
  check_images_error(plain.substr(0, plain.size() - 1), "expected 12 values");
  check_images_error(packed.substr(0, packed.size() - 1), "truncated");
  // Intact gzip data of a truncated file.
  check_images_error(gzip(plain.substr(0, plain.size() - 1)), "got 11");

  check_images_error(plain + "x", "expected 12 values, as its header says (2 x 2 x 3), got more");
  check_images_error(gzip(plain + "x"), "got more");
  check_images_error(packed + gzip("x"), "got more");
  check_images_error(packed + "x", "truncated");
  check_images_error(packed + "not gzip at all", "incorrect header check");
  check_labels_error(labels_file({1, 2}) + "\3", "expected 2 values");

  // From the end of gzip's own header, whose bytes are partly without meaning to a reader.
  for (size_t at = 10; at < packed.size(); ++at) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(~damaged[at]);
    INFO("byte " << at << " of " << packed.size());
    check_images_error(damaged, "");
  }
  std::string damaged = packed;
  damaged[packed.size() - 8] ^= 1;  // the CRC-32, of the last 8 bytes the first 4
  check_images_error(damaged, "incorrect data check");
}

TEST_CASE("idx: a header may not claim what is not there", "[data]") {
  const std::string body(1000, '\0');
  // 2^40 bytes, the most that is allowed: to reserve them would fail here with another exception.
  check_images_error(images_header(1u << 20, 1u << 10, 1u << 10) + body,
                     "expected 1099511627776 values");
  check_images_error(gzip(images_header(1u << 20, 1u << 10, 1u << 10) + body), "got 1000");
  check_images_error(images_header((1u << 20) + 1, 1u << 10, 1u << 10) + body, "at most 2^40");
  check_images_error(images_header(~0u, ~0u, ~0u) + body, "at most 2^40");
  check_images_error(images_header(1u << 31, 1u << 31, 4) + body, "at most 2^40");  // 2^64
  check_images_error(images_header(0, 28, 28), "at least 1, got 0 x 28 x 28");
  check_images_error(images_header(1, 0, 28), "at least 1");
  check_images_error(images_header(1, 28, 0), "at least 1");
  check_labels_error(labels_file({}), "at least 1");
  // Data that unpacks to far more than claimed is left after one byte.
  check_images_error(gzip(images_header(1, 2, 2) + std::string(50'000'000, '\0')),
                     "expected 4 values");
}

TEST_CASE("dataset: files of a folder are normalised", "[data]") {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", two_images());
  folder.write("train-labels-idx1-ubyte.gz", gzip(labels_file({7, 0})));
  folder.write("t10k-images-idx3-ubyte.gz", gzip(images_header(1, 2, 3) + std::string(6, '\x80')));
  folder.write("t10k-labels-idx1-ubyte", labels_file({9}));
  struct Row {
    const char* name;
    double black, grey, white;  // of the pixels 0, 128 and 255
  };
  // (0 - 0.2860) / 0.3530, (128/255 - 0.2860) / 0.3530, (1 - 0.2860) / 0.3530; and so with 0.1307
  // and 0.3081.
  for (const Row& row : {Row{"fashion-mnist", -0.81019830, 0.61178692, 2.02266289},
                         Row{"mnist", -0.42421292, 1.20500092, 2.82148653}}) {
    INFO(row.name);
    const DatasetSplits splits = load_dataset(row.name, folder.path(), {}, 0);
    REQUIRE(splits.train->size() == 2);
    REQUIRE(splits.test->size() == 1);
    CHECK(splits.train->input().shape == Shape{2, 3, 1});
    CHECK(splits.test->input().shape == Shape{2, 3, 1});
    CHECK(splits.train->classes() == 10);
    int64_t label = -1;
    CHECK(image_of(*splits.train, 0, label)[0] == Approx(row.black).epsilon(1e-6));
    CHECK(label == 7);
    CHECK(image_of(*splits.train, 1, label)[5] == Approx(row.white).epsilon(1e-6));
    CHECK(label == 0);
    CHECK(image_of(*splits.test, 0, label)[3] == Approx(row.grey).epsilon(1e-6));
    CHECK(label == 9);
  }
}

TEST_CASE("dataset: files that are missing or do not belong together are named", "[data]") {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", two_images());
  folder.write("train-labels-idx1-ubyte", labels_file({1, 2, 3}));
  folder.write("t10k-images-idx3-ubyte", images_header(1, 3, 2) + std::string(6, 'x'));
  folder.write("t10k-labels-idx1-ubyte", labels_file({1}));
  const auto load = [&] { load_dataset("mnist", folder.path(), {}, 0); };
  CHECK(error_of(load) == "[idx] " + folder.file("train-labels-idx1-ubyte") +
                              ": expected 2 labels, one for each image of " +
                              folder.file("train-images-idx3-ubyte") + ", got 3");
  folder.write("train-labels-idx1-ubyte", labels_file({1, 2}));
  CHECK_THAT(error_of(load), ContainsSubstring("one shape, got [2, 3, 1] and [3, 2, 1]"));

  fs::remove(folder.file("train-images-idx3-ubyte"));
  std::string what = error_of([&] { load_dataset("fashion-mnist", folder.path(), {}, 0); });
  CHECK(what.starts_with("[idx] " + folder.file("train-images-idx3-ubyte") + ": expected "));
  CHECK_THAT(what, ContainsSubstring(folder.file("train-images-idx3-ubyte.gz")));
  CHECK_THAT(what, ContainsSubstring("dataset-fashion-mnist"));
  CHECK_THAT(what, ContainsSubstring("--data-dir"));
  what = error_of([&] { load_dataset("mnist", folder.file("no-such-folder"), {}, 0); });
  CHECK_THAT(what, ContainsSubstring("no-such-folder/train-images-idx3-ubyte.gz"));
  CHECK_THAT(error_of([] { load_dataset("mnist", "", {}, 0); }), ContainsSubstring("--data-dir"));
  CHECK(error_of([] { load_dataset("cifar", "", {}, 0); }) ==
        "[dataset] expected one of fashion-mnist, mnist, cifar10, cifar100, images, unpaired, "
        "npz, text, tokens, synthetic, got 'cifar'");

  std::vector<std::string> names;
  for (const DatasetInfo& info : dataset_list()) names.push_back(info.name);
  CHECK(names == std::vector<std::string>{"fashion-mnist", "mnist", "cifar10", "cifar100", "images",
                                          "unpaired", "npz", "text", "tokens", "synthetic"});
}

TEST_CASE("dataset: Fashion-MNIST itself", "[data]") {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
#ifdef SKIP  // Catch2 3
    SKIP("Debian's package dataset-fashion-mnist is not installed");
#else
    WARN("SKIPPED: Debian's package dataset-fashion-mnist is not installed");
    return;
#endif
  }
  // The figures were read from the files with Python's gzip.
  struct Row {
    int64_t size;
    std::vector<int64_t> pixel_sums;  // of the first image, the last one and all
    std::vector<int64_t> first_labels;
  };
  const DatasetSplits splits = load_dataset("fashion-mnist", "", {}, 0);
  const Row rows[] = {{60000, {76247, 16684, 3431114169}, {9, 0, 0, 3, 0, 2, 7, 2, 5, 5}},
                      {10000, {33456, 24390, 573469082}, {9, 2, 1, 1, 6, 1, 4, 6, 5, 7}}};
  for (int split = 0; split < 2; ++split) {
    const Dataset& data = split == 0 ? *splits.train : *splits.test;
    const Row& row = rows[split];
    REQUIRE(data.size() == row.size);
    REQUIRE(data.input().shape == Shape{28, 28, 1});
    int64_t all = 0;
    std::vector<int64_t> labels, sums, counts(10, 0);
    for (int64_t i = 0; i < data.size(); ++i) {
      labels.push_back(-1);
      const std::vector<float> image = image_of(data, i, labels.back());
      ++counts.at(static_cast<size_t>(labels.back()));
      sums.push_back(0);
      for (const double x : image) sums.back() += std::llround((x * 0.3530 + 0.2860) * 255);
      all += sums.back();
    }
    CHECK(std::vector<int64_t>(labels.begin(), labels.begin() + 10) == row.first_labels);
    CHECK(counts == std::vector<int64_t>(10, row.size / 10));
    CHECK(std::vector<int64_t>{sums.front(), sums.back(), all} == row.pixel_sums);
  }
}

TEST_CASE("dataset: synthetic images depend on seed and index and can be learned", "[data]") {
  const Shape shape{9, 7, 3};  // 189 values: no multiple of four in any dimension
  const size_t pixels = 189;
  const DatasetSplits data = load_dataset("synthetic", "", shape, 5);
  REQUIRE(data.train->size() == 10000);
  REQUIRE(data.test->size() == 1000);
  CHECK(data.train->input().shape == shape);
  int64_t label = -1, other_label = -1;
  const std::vector<float> sample = image_of(*data.train, 1234, label);
  const DatasetSplits again = load_dataset("synthetic", "", shape, 5),
                      other = load_dataset("synthetic", "", shape, 6);
  CHECK(image_of(*again.train, 1234, other_label) == sample);
  CHECK(other_label == label);
  CHECK(image_of(*other.train, 1234, other_label) != sample);
  CHECK(image_of(*data.test, 234, other_label) != image_of(*data.train, 234, label));
  CHECK(image_of(*data.train, 1244, other_label) != sample);  // same class
  REQUIRE(other_label == label);

  // The nearest mean of the training samples must tell the classes of the test samples.
  std::vector<std::vector<double>> means(10, std::vector<double>(pixels, 0.0));
  double sum_of_squares = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const std::vector<float> values = image_of(*data.train, i, label);
    for (size_t p = 0; p < pixels; ++p) {
      means.at(static_cast<size_t>(label))[p] += static_cast<double>(values[p]) / 100;
      sum_of_squares += static_cast<double>(values[p]) * values[p];
    }
  }
  CHECK(std::abs(sum_of_squares / (1000.0 * pixels) - 1) < 0.2);
  int right = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const std::vector<float> values = image_of(*data.test, i, label);
    std::vector<double> distance(10, 0.0);
    for (size_t k = 0; k < 10; ++k) {
      for (size_t p = 0; p < pixels; ++p) distance[k] += std::pow(values[p] - means[k][p], 2);
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == label;
  }
  CHECK(right > 950);

  for (const Shape& bad : {Shape{}, Shape{28, 28}, Shape{0, 28, 1}}) {
    CHECK_THAT(error_of([&] { load_dataset("synthetic", "", bad, 0); }),
               ContainsSubstring("[H, W, C]"));
  }
}

TEST_CASE("loader: batches in order with the last one smaller", "[data]") {
  cpu::register_backend();
  for (const int workers : {0, 1, 3}) {
    INFO(workers << " workers");
    const NumberedDataset seven(7);
    DataLoader loader(seven, {.batch_size = 3, .workers = workers});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      CHECK(epoch_of(loader, epoch) == Batches{{0, 1, 2}, {3, 4, 5}, {6}});
    }
    DataLoader whole(seven, {.batch_size = 7, .workers = workers});
    CHECK(epoch_of(whole, 0) == Batches{{0, 1, 2, 3, 4, 5, 6}});
    DataLoader larger(seven, {.batch_size = 8, .workers = workers});
    CHECK(epoch_of(larger, 0) == Batches{{0, 1, 2, 3, 4, 5, 6}});
    const NumberedDataset one(1);
    DataLoader single(one, {.batch_size = INT64_MAX, .workers = workers});
    CHECK(epoch_of(single, 0) == Batches{{0}});
  }
  // Also when later batches are ready first.
  const NumberedDataset uneven(8, [](int64_t index) {
    if (index % 3 == 0) std::this_thread::sleep_for(30ms);
  });
  DataLoader loader(uneven, {.batch_size = 1, .workers = 3});
  CHECK(epoch_of(loader, 0) == Batches{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});
}

TEST_CASE("loader: shuffled epochs depend on seed and epoch but not on the workers", "[data]") {
  cpu::register_backend();
  const NumberedDataset data(1003);
  const auto loader = [&](int workers, uint64_t seed) {
    return std::make_unique<DataLoader>(
        data, LoaderOptions{.batch_size = 10, .workers = workers, .shuffle = true, .seed = seed});
  };
  const auto reference = loader(0, 1);
  const auto first = epoch_of(*reference, 0), second = epoch_of(*reference, 1);
  std::vector<int64_t> all(1003);
  std::iota(all.begin(), all.end(), int64_t{0});
  for (const auto& epoch : {first, second}) {
    REQUIRE(epoch.size() == 101);
    CHECK(epoch.back().size() == 3);
    std::vector<int64_t> sorted;
    for (const auto& batch : epoch) sorted.insert(sorted.end(), batch.begin(), batch.end());
    CHECK(sorted != all);
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == all);
  }
  CHECK(first != second);
  CHECK(epoch_of(*loader(0, 2), 0) != first);
  CHECK(epoch_of(*reference, 0) == first);
  for (const int workers : {1, 3}) {
    INFO(workers << " workers");
    const auto same = loader(workers, 1);
    CHECK(epoch_of(*same, 1) == second);  // without the epoch before
    CHECK(epoch_of(*same, 0) == first);
  }
}

TEST_CASE("loader: the same threads read every epoch and at most two batches each ahead",
          "[data]") {
  cpu::register_backend();
  std::atomic<int> reads = 0;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const NumberedDataset data(50, [&](int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    ++reads;
  });
  DataLoader loader(data, {.batch_size = 1, .workers = 2});
  CHECK(reads == 0);
  loader.start_epoch(0);
  const auto settles_at = [&](int expected) {
    for (int i = 0; i < 1000 && reads < expected; ++i) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(100ms);  // time to go too far
    return reads == expected;
  };
  CHECK(settles_at(4));
  REQUIRE(loader.next().has_value());
  CHECK(settles_at(5));
  for (int64_t epoch = 1; epoch < 4; ++epoch) epoch_of(loader, epoch);
  CHECK(threads.size() <= 2);
  CHECK(threads.count(std::this_thread::get_id()) == 0);

  threads.clear();
  DataLoader here(data, {.batch_size = 1, .workers = 0});
  epoch_of(here, 0);
  CHECK(threads == std::set{std::this_thread::get_id()});
}

TEST_CASE("loader: an exception of the data set reaches the caller of next", "[data]") {
  cpu::register_backend();
  for (const int workers : {0, 1, 3}) {
    INFO(workers << " workers");
    std::atomic<bool> broken = true;
    const NumberedDataset data(40, [&](int64_t index) {
      if (broken && index == 5) fail("test", "sample {} is broken", index);
    });
    DataLoader loader(data, {.batch_size = 2, .workers = workers});
    loader.start_epoch(0);
    REQUIRE(loader.next().has_value());
    REQUIRE(loader.next().has_value());
    CHECK(error_of([&] { loader.next(); }) == "[test] sample 5 is broken");
    CHECK(error_of([&] { loader.next(); }) == "[test] sample 5 is broken");  // never skipped
    loader.start_epoch(1);
    REQUIRE(loader.next().has_value());
    broken = false;
    CHECK(epoch_of(loader, 2).size() == 20);
    broken = true;
    loader.start_epoch(3);  // and is destroyed with the exception unseen
  }
}

TEST_CASE("loader: destroying and restarting in mid-epoch stop the workers promptly", "[data]") {
  cpu::register_backend();
  const NumberedDataset slow(5000, [](int64_t) { std::this_thread::sleep_for(10ms); });
  for (const int workers : {1, 3}) {
    auto loader =
        std::make_unique<DataLoader>(slow, LoaderOptions{.batch_size = 1000, .workers = workers});
    const auto begin = std::chrono::steady_clock::now();
    loader->start_epoch(0);
    std::this_thread::sleep_for(50ms);
    loader->start_epoch(1);
    std::this_thread::sleep_for(50ms);
    loader.reset();
    CHECK(std::chrono::steady_clock::now() - begin < 5s);  // one batch would take 10 s
  }
  const NumberedDataset data(200, [](int64_t) { std::this_thread::sleep_for(1ms); });
  for (const int workers : {0, 1, 3}) {
    const DataLoader never_started(data, {.workers = workers});
    DataLoader loader(data, {.batch_size = 3, .workers = workers, .shuffle = true, .seed = 4});
    const auto expected = epoch_of(loader, 9);
    for (int taken = 0; taken < 10; ++taken) {
      loader.start_epoch(100 + taken);
      for (int i = 0; i < taken; ++i) REQUIRE(loader.next().has_value());
    }
    CHECK(epoch_of(loader, 9) == expected);  // nothing is left of the epochs before
    loader.start_epoch(10);
    REQUIRE(loader.next().has_value());
  }
}

TEST_CASE("loader: batches count as input memory and go with their last owner", "[data]") {
  cpu::register_backend();
  const auto requested = [](MemoryCategory category) {
    return backend(kCpu).allocator().snapshot()[category].requested;
  };
  for (const int workers : {0, 1, 3}) {
    INFO(workers << " workers");
    const int64_t input = requested(MemoryCategory::input),
                  activation = requested(MemoryCategory::activation);
    const NumberedDataset data(10);
    auto loader = std::make_unique<DataLoader>(data, LoaderOptions{.workers = workers});
    loader->start_epoch(0);
    std::optional<Batch> batch = loader->next();
    REQUIRE(batch.has_value());
    CHECK(requested(MemoryCategory::input) - input == 10 * (2 * 4 + 8));  // images and labels
    CHECK(requested(MemoryCategory::activation) == activation);
    loader.reset();
    CHECK(batch->targets.to_vector<int64_t>()[4] == 1);  // outlives its loader
    batch.reset();
    CHECK(requested(MemoryCategory::input) == input);
  }
}

TEST_CASE("loader: wrong use is refused", "[data]") {
  cpu::register_backend();
  const NumberedDataset data(10), none(0);
  const auto error = [](const Dataset& dataset, const LoaderOptions& options) {
    return error_of([&] { DataLoader(dataset, options); });
  };
  CHECK(error(data, {.batch_size = 0}) == "[loader] expected a batch size of at least 1, got 0");
  CHECK_THAT(error(data, {.batch_size = -4}), ContainsSubstring("got -4"));
  CHECK(error(data, {.workers = -1}) == "[loader] expected 0 or more workers, got -1");
  CHECK_THAT(error(none, {}), ContainsSubstring("at least one sample, got 0"));
  for (const int workers : {0, 2}) {
    DataLoader loader(data, {.workers = workers});
    CHECK_THAT(error_of([&] { loader.next(); }), ContainsSubstring("start_epoch() before next()"));
  }
}
