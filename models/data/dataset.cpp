#include "models/data/dataset.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "models/data/cifar.h"
#include "models/data/folder.h"
#include "models/data/idx.h"
#include "models/data/labelled.h"
#include "models/data/npz.h"
#include "models/data/text.h"

namespace engine {

namespace {

constexpr int64_t kClasses = 10;  // of the data sets of IDX files, and of made-up images

// A data set of four IDX files. Pixels v become (v / 255 - mean) / std, with the mean and standard
// deviation of v / 255 over the training split.
struct IdxSource {
  const char* name;
  const char* description;
  const char* default_dir;
  const char* how_to_get;
  double mean, std;
};

constexpr IdxSource kIdxSources[] = {
    {"fashion-mnist",
     "70000 grey 28x28 images of clothes, 10 classes (Xiao, Rasul and Vollgraf, 2017)",
     "/usr/share/datasets/fashion-mnist",
     "install Debian's package dataset-fashion-mnist, or give the folder of the files with "
     "--data-dir",
     0.2860, 0.3530},
    {"mnist", "70000 grey 28x28 images of handwritten digits, 10 classes (LeCun et al., 1998)", "",
     "give the folder of the files with --data-dir", 0.1307, 0.3081},
};

constexpr const char *kCifar10 = "cifar10", *kCifar100 = "cifar100", *kImages = "images",
                     *kUnpaired = "unpaired", *kNpz = "npz", *kText = "text", *kTokens = "tokens",
                     *kSynthetic = "synthetic";
// The licences that every Debian system has: 300 KB of English.
constexpr const char* kTextDir = "/usr/share/common-licenses";
constexpr int64_t kSyntheticTrain = 10000;
constexpr int64_t kSyntheticTest = 1000;

std::unique_ptr<Dataset> load_idx(const IdxSource& source, const std::string& dir,
                                  const std::string& prefix, PixelRange range) {
  const std::string images_path =
      find_idx_file(dir, prefix + "-images-idx3-ubyte", source.how_to_get);
  const std::string labels_path =
      find_idx_file(dir, prefix + "-labels-idx1-ubyte", source.how_to_get);
  const std::vector<uint8_t> labels = read_idx_labels(labels_path, kClasses);
  IdxImages images = read_idx_images(images_path);
  check(labels.size() == static_cast<size_t>(images.count), "idx",
        "{}: expected {} labels, one for each image of {}, got {}", labels_path, images.count,
        images_path, labels.size());
  return labelled_images({images.height, images.width, 1}, std::move(images.pixels),
                         {labels.begin(), labels.end()}, kClasses,
                         normalization(range, {source.mean}, {source.std}));
}

DatasetSplits load_idx(const IdxSource& source, const std::string& folder, PixelRange range) {
  check(!folder.empty(), "dataset", "{} expected the folder of its IDX files, got none: {}",
        source.name, source.how_to_get);
  DatasetSplits splits{load_idx(source, folder, "train", range),
                       load_idx(source, folder, "t10k", range)};
  const Shape train = splits.train->input().shape, test = splits.test->input().shape;
  check(train == test, "idx", "{}: expected train and test images of one shape, got {} and {}",
        folder, train, test);
  return splits;
}

// Sample i is of class i mod 10: that class's pattern of 4x4 patches (normal numbers) plus uniform
// noise, in equal parts and together of variance 1. Patches rather than pixels, so that a
// convolution finds something to learn. The noise is read from a table: making it anew for each
// sample would take longer than a small network's training step.
class SyntheticDataset : public Dataset {
 public:
  // Samples first .. first + size - 1 of the sequence that `seed` defines.
  SyntheticDataset(const Shape& image_shape, uint64_t seed, int64_t first, int64_t size)
      : shape_(image_shape), seed_(seed), first_(first), size_(size) {
    patterns_.reserve(static_cast<size_t>(kClasses * shape_.numel()));
    const int64_t rows = (shape_[0] + 3) / 4, columns = (shape_[1] + 3) / 4;
    for (int64_t k = 0; k < kClasses; ++k) {
      for (int64_t h = 0; h < shape_[0]; ++h) {
        for (int64_t w = 0; w < shape_[1]; ++w) {
          for (int64_t c = 0; c < shape_[2]; ++c) {
            const int64_t patch = ((k * rows + h / 4) * columns + w / 4) * shape_[2] + c;
            const auto bits = philox(seed, kPatternCounters + static_cast<uint64_t>(patch));
            patterns_.push_back(normal_from_bits(bits[0]) * kPatternScale);
          }
        }
      }
    }
    noise_.reserve(kNoise);
    for (uint64_t counter = 0; noise_.size() < kNoise; ++counter) {
      for (const uint32_t bits : philox(seed, counter)) {
        noise_.push_back((uniform_from_bits(bits) - 0.5f) * kNoiseScale);
      }
    }
  }

  int64_t size() const override { return size_; }
  SampleTensor input() const override { return {shape_, DType::f32}; }
  int64_t classes() const override { return kClasses; }

  void read(int64_t index, const RandomStream&, void* input, void* target) const override {
    auto* image = static_cast<float*>(input);
    const int64_t sample = first_ + index, label = sample % kClasses, pixels = shape_.numel();
    *static_cast<int64_t*>(target) = label;
    const float* pattern = patterns_.data() + label * pixels;
    size_t position = philox(seed_, kSampleCounters + static_cast<uint64_t>(sample))[0] % kNoise;
    for (int64_t begin = 0; begin < pixels;) {
      const int64_t count = std::min(pixels - begin, static_cast<int64_t>(kNoise - position));
      for (int64_t i = 0; i < count; ++i) {
        image[begin + i] = pattern[begin + i] + noise_[position + static_cast<size_t>(i)];
      }
      begin += count;
      position = 0;
    }
  }

 private:
  static constexpr uint64_t kPatternCounters = uint64_t{1} << 63;  // the noise counts from 0
  static constexpr uint64_t kSampleCounters = uint64_t{1} << 62;
  static constexpr size_t kNoise = 65536;
  static constexpr float kPatternScale = 0.70710678f;  // sqrt(1/2)
  static constexpr float kNoiseScale = 2.4494897f;     // sqrt(1/2) / standard deviation of uniform

  Shape shape_;
  uint64_t seed_;
  int64_t first_, size_;
  std::vector<float> patterns_;  // [kClasses, H, W, C]
  std::vector<float> noise_;     // kNoise numbers; a sample's begin at a place of its own
};

void check_image(const std::string& name, const Shape& shape) {
  check(shape.rank() == 3 && shape.numel() > 0, "dataset",
        "{} expected an image shape [H, W, C] of at least one value, got {}", name, shape);
}

}  // namespace

Shape SampleTensor::batched(int64_t n) const {
  std::vector<int64_t> dims{n};
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return Shape(dims);
}

const std::vector<DatasetInfo>& dataset_list() {
  static const std::vector<DatasetInfo> list = [] {
    std::vector<DatasetInfo> result;
    for (const IdxSource& source : kIdxSources) {
      result.push_back({source.name, source.description, source.default_dir});
    }
    result.push_back(
        {kCifar10, "60000 32x32 images, 10 classes (Krizhevsky, 2009): the binary version", ""});
    result.push_back(
        {kCifar100, "60000 32x32 images, 100 classes (Krizhevsky, 2009): the binary version", ""});
    result.push_back({kImages,
                      "PNG and JPEG files: train/ and test/ or val/, and in each a folder a class",
                      ""});
    result.push_back({.name = kUnpaired,
                      .description = "PNG and JPEG files of two kinds: trainA/, trainB/, testA/, "
                                     "testB/; for cyclegan",
                      .default_dir = "",
                      .images = false,
                      .pairs = true});
    result.push_back({kNpz,
                      "a NumPy archive: x_train, y_train, x_test, y_test, or x and y, of which "
                      "every tenth sample is for the test",
                      ""});
    result.push_back({kText,
                      "the bytes of a text file or of a folder's files, the last tenth to test",
                      kTextDir, false, true});
    result.push_back({kTokens, "train.bin and val.bin: tokens as u16", "", false, true});
    result.push_back({kSynthetic, "11000 made-up images of any size, 10 classes; or made-up text",
                      "", true, true, false});
    return result;
  }();
  return list;
}

DatasetSplits load_dataset(const std::string& name, const std::string& dir, const Shape& input,
                           uint64_t seed, PixelRange range) {
  if (name == kText || name == kTokens) {
    check(input.rank() == 1, "dataset", "{} expected an input [T], got {}", name, input);
    if (name == kText) return load_text(dir.empty() ? kTextDir : dir, input[0]);
    check(!dir.empty(), "dataset",
          "{} expected the folder of train.bin and val.bin, got none: give it with --data-dir",
          name);
    return load_tokens(dir, input[0]);
  }
  if (name == kSynthetic && input.rank() == 1) return make_tokens(input[0], seed);
  if (name == kSynthetic) {
    check_image(name, input);
    return {std::make_unique<SyntheticDataset>(input, seed, 0, kSyntheticTrain),
            std::make_unique<SyntheticDataset>(input, seed, kSyntheticTrain, kSyntheticTest)};
  }
  for (const IdxSource& source : kIdxSources) {
    if (name == source.name) return load_idx(source, dir.empty() ? source.default_dir : dir, range);
  }
  const bool known_name = std::any_of(dataset_list().begin(), dataset_list().end(),
                                      [&](const DatasetInfo& info) { return info.name == name; });
  if (known_name) {
    check(!dir.empty(), "dataset", "{} expected its {}, got none: give it with --data-dir", name,
          name == kNpz ? "file" : "folder");
  }
  if (name == kNpz) return load_npz(dir, range);
  if (name == kCifar10) return load_cifar(dir, CifarKind::cifar10, range);
  if (name == kCifar100) return load_cifar(dir, CifarKind::cifar100, range);
  if (name == kImages || name == kUnpaired) {
    check_image(name, input);
    return name == kImages ? load_image_folder(dir, input[0], input[1], range)
                           : load_unpaired_folders(dir, input[0], input[1]);
  }
  std::string known;
  for (const DatasetInfo& info : dataset_list()) known += (known.empty() ? "" : ", ") + info.name;
  fail("dataset", "expected one of {}, got '{}'", known, name);
}

}  // namespace engine
