// Data sets that are folders of image files, written here.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "models/data/folder.h"
#include "models/data/image.h"
#include "models/data/loader.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

namespace fs = std::filesystem;

// A folder in which images of one colour can be put, and the folders for them made.
class Images : public TemporaryFolder {
 public:
  std::string put(const std::string& name, uint8_t red, uint8_t green, uint8_t blue,
                  int64_t height = 2, int64_t width = 2) const {
    Image image{height, width, {}};
    for (int64_t i = 0; i < height * width; ++i) {
      for (const uint8_t value : {red, green, blue}) image.pixels.push_back(value);
    }
    fs::create_directories(fs::path(file(name)).parent_path());
    write_png(file(name), image);
    return file(name);
  }
};

struct Sample {
  std::vector<float> input, target;
  int64_t label = -1;
};
Sample labelled(const Dataset& data, int64_t index) {
  Sample result{std::vector<float>(static_cast<size_t>(data.input().shape.numel())), {}, -1};
  data.read(index, {}, result.input.data(), &result.label);
  return result;
}

}  // namespace

TEST_CASE("image folder: classes in the order of their names and images of the network's size",
          "[data]") {
  const Images folder;
  folder.put("train/dog/b.png", 255, 0, 0);
  folder.put("train/dog/deep/a.JPG", 0, 255, 0);
  folder.put("train/cat/1.jpeg", 0, 0, 255, 30, 9);
  folder.write("train/cat/notes.txt", "no image");
  folder.write("train/README", "no class");
  folder.put("train/.hidden/x.png", 0, 0, 0);
  folder.put("val/dog/x.png", 128, 128, 128);
  const DatasetSplits data = load_image_folder(folder.path(), 4, 3, PixelRange::standard);
  REQUIRE(data.train->size() == 3);
  REQUIRE(data.test->size() == 1);
  CHECK(data.train->classes() == 2);
  CHECK(data.test->classes() == 2);
  CHECK(data.train->input() == SampleTensor{{4, 3, 3}, DType::f32});
  const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
  const auto check_colour = [&](const Sample& sample, std::vector<double> colour, int64_t label) {
    CHECK(sample.label == label);
    REQUIRE(sample.input.size() == 36);
    for (size_t i = 0; i < 36; ++i)
      CHECK(sample.input[i] == Approx((colour[i % 3] - mean[i % 3]) / deviation[i % 3]));
  };
  check_colour(labelled(*data.train, 0), {0, 0, 1}, 0);
  check_colour(labelled(*data.train, 1), {1, 0, 0}, 1);
  check_colour(labelled(*data.train, 2), {0, 1, 0}, 1);
  const double grey = 128.0 / 255;
  check_colour(labelled(*data.test, 0), {grey, grey, grey}, 1);

  // test/ goes before val/; [-1, 1] for the other range.
  folder.put("test/cat/x.png", 255, 0, 51);
  const DatasetSplits other =
      load_dataset("images", folder.path(), {1, 1, 1}, 0, PixelRange::symmetric);
  CHECK(labelled(*other.test, 0).label == 0);
  CHECK(labelled(*other.test, 0).input[0] == 1);
  CHECK(labelled(*other.test, 0).input[1] == -1);
  CHECK(labelled(*other.test, 0).input[2] == Approx(-0.6));
}

TEST_CASE("image folder: what is missing or wrong is named", "[data]") {
  const Images folder;
  const auto error = [&] {
    return error_of([&] { load_image_folder(folder.path(), 2, 2, PixelRange::standard); });
  };
  const auto has_both = "expected a folder with folders train and test (or val)";
  CHECK_THAT(error(), ContainsSubstring(folder.path() + ": " + has_both));
  fs::create_directory(folder.file("train"));
  CHECK_THAT(error(), ContainsSubstring(has_both));
  fs::create_directory(folder.file("test"));
  CHECK_THAT(error(),
             ContainsSubstring(folder.file("train") + ": expected a folder for each class"));
  fs::create_directory(folder.file("train/a"));
  CHECK_THAT(error(), ContainsSubstring(folder.file("train/a") + ": expected a folder with .png"));
  folder.put("train/a/1.png", 1, 2, 3);
  CHECK_THAT(error(),
             ContainsSubstring(folder.file("test") + ": expected a folder for each class"));
  folder.put("test/b/1.png", 1, 2, 3);
  CHECK_THAT(error(),
             ContainsSubstring(folder.file("test/b") + ": expected a class that is in train"));
}

TEST_CASE("image folder: a file that cannot be decoded stops the loader with its name", "[data]") {
  cpu::register_backend();
  const Images folder;
  folder.put("train/a/1.png", 1, 2, 3);
  fs::create_directory(folder.file("train/b"));
  const std::string bad =
      folder.write("train/b/cut.png", read_bytes(folder.file("train/a/1.png")).substr(0, 60));
  folder.put("test/a/1.png", 1, 2, 3);
  const DatasetSplits data = load_image_folder(folder.path(), 2, 2, PixelRange::standard);
  for (const int workers : {0, 2}) {
    DataLoader loader(*data.train, {.batch_size = 1, .workers = workers});
    loader.start_epoch(0);
    REQUIRE(loader.next().has_value());
    CHECK_THAT(error_of([&] { loader.next(); }),
               ContainsSubstring("[image] " + bad + ": expected an intact PNG file"));
  }
}

TEST_CASE("unpaired folders: an image of each kind and other pairs in other epochs", "[data]") {
  const Images folder;
  for (int i = 0; i < 3; ++i)
    folder.put("trainA/" + std::to_string(i) + ".png", static_cast<uint8_t>(i), 0, 255, 8, 5);
  for (int i = 0; i < 20; ++i)
    folder.put("trainB/" + std::to_string(i) + ".png", static_cast<uint8_t>(100 + i), 255, 0);
  folder.put("testA/x.png", 0, 0, 0);
  CHECK_THAT(error_of([&] { load_unpaired_folders(folder.path(), 4, 4); }),
             ContainsSubstring(folder.file("testB")));
  folder.put("testB/x.png", 255, 255, 255);
  const DatasetSplits data = load_dataset("unpaired", folder.path(), {4, 4, 3}, 0);
  REQUIRE(data.train->size() == 20);
  CHECK(data.test->size() == 1);
  CHECK(data.train->input() == SampleTensor{{4, 4, 3}, DType::f32});
  CHECK(data.train->target() == data.train->input());
  const auto pair = [&](int64_t index, uint64_t seed) {
    Sample result{std::vector<float>(48), std::vector<float>(48), 0};
    data.train->read(index, {seed, 0}, result.input.data(), result.target.data());
    return result;
  };
  std::vector<int64_t> seen;
  for (uint64_t epoch = 0; epoch < 40; ++epoch) {
    const Sample sample = pair(5, epoch);
    CHECK(sample.input[0] == Approx(2 / 127.5 - 1));  // A's number 5 mod 3
    CHECK(sample.input[1] == -1);
    CHECK(sample.input[2] == 1);
    CHECK(sample.target[1] == 1);
    CHECK(sample.target[2] == -1);
    seen.push_back(std::lround((sample.target[0] + 1) * 127.5) - 100);
    CHECK(pair(5, epoch).target == sample.target);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen.front() >= 0);
  CHECK(seen.back() < 20);
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  CHECK(seen.size() > 10);  // of 20; the number expected of 40 draws is 17
}
