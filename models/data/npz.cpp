#include "models/data/npz.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
#include "models/data/labelled.h"
#include "models/files/npy.h"

namespace engine {

namespace {

constexpr const char* kPart = "npz";
constexpr int64_t kMostClasses = 65536;
constexpr int64_t kTestEvery = 10;

using Arrays = std::vector<std::pair<std::string, Tensor>>;

// One split: images [N, H, W, C] as bytes or, where the array has other numbers, as floats.
struct Split {
  Shape image;
  bool floats = false;
  std::vector<uint8_t> bytes;
  std::vector<float> numbers;
  std::vector<int64_t> labels;
};

// The array that has one of the names, alone or with `split` before or after it.
const std::pair<std::string, Tensor>* array_named(const Arrays& arrays,
                                                  const std::vector<std::string>& names,
                                                  const std::string& split) {
  for (const std::string& name : names) {
    for (const auto& array : arrays) {
      const bool found =
          split.empty() ? array.first == name
                        : array.first == name + '_' + split || array.first == split + '_' + name;
      if (found) return &array;
    }
  }
  return nullptr;
}

// `from` as it is, or from [N, C, H, W] to [N, H, W, C].
template <class From, class To>
std::vector<To> channels_last(const Tensor& tensor, bool channels_first) {
  const From* from = tensor.data<From>();
  std::vector<To> to(from, from + tensor.numel());
  if (!channels_first) return to;
  const int64_t channels = tensor.size(1), pixels = tensor.size(2) * tensor.size(3);
  for (int64_t n = 0; n < tensor.size(0); ++n) {
    To* image = to.data() + n * channels * pixels;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < pixels; ++i) image[i * channels + c] = static_cast<To>(*from++);
    }
  }
  return to;
}

void read_images(const std::string& where, const Tensor& tensor, Split& split) {
  const Shape& shape = tensor.shape();
  const auto colours = [&](int axis) { return shape[axis] == 1 || shape[axis] == 3; };
  const bool grey = shape.rank() == 3, last = shape.rank() == 4 && colours(3);
  const bool first = shape.rank() == 4 && !last && colours(1);
  check((grey || last || first) && shape.numel() > 0, kPart,
        "{}: expected images [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels, got {}",
        where, shape);
  split.image = grey    ? Shape{shape[1], shape[2], 1}
                : first ? Shape{shape[2], shape[3], shape[1]}
                        : Shape{shape[1], shape[2], shape[3]};
  split.floats = tensor.dtype() != DType::u8;
  switch (tensor.dtype()) {
    case DType::u8:
      split.bytes = channels_last<uint8_t, uint8_t>(tensor, first);
      return;
    case DType::i32:
      split.numbers = channels_last<int32_t, float>(tensor, first);
      return;
    case DType::f32:
      split.numbers = channels_last<float, float>(tensor, first);
      break;
    default:
      fail(kPart, "{}: expected images of bytes or floating-point numbers, got {}", where,
           describe(tensor));
  }
  for (const float number : split.numbers)
    check(std::isfinite(number), kPart, "{}: expected finite numbers, got {}", where, number);
}

std::vector<int64_t> read_labels(const std::string& where, const Tensor& tensor, int64_t count) {
  const Shape& shape = tensor.shape();
  const bool list = shape.rank() == 1 || (shape.rank() == 2 && shape[1] == 1);
  check(list && tensor.dtype() != DType::f32, kPart,
        "{}: expected labels [N], whole numbers, got {}: argmax() makes them of one-hot rows, "
        "astype(int) of floating-point numbers",
        where, describe(tensor));
  check(shape[0] == count, kPart, "{}: expected {} labels, one for each image, got {}", where,
        count, shape[0]);
  std::vector<int64_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < labels.size(); ++i) {
    switch (tensor.dtype()) {
      case DType::u8:
        labels[i] = tensor.data<uint8_t>()[i];
        break;
      case DType::i32:
        labels[i] = tensor.data<int32_t>()[i];
        break;
      default:
        labels[i] = tensor.data<int64_t>()[i];
    }
    check(labels[i] >= 0 && labels[i] < kMostClasses, kPart,
          "{}: expected labels in [0, {}), got {} at position {}", where, kMostClasses, labels[i],
          i);
  }
  return labels;
}

// The samples whose number is one of every kTestEvery, or the others.
Split part_of(const Split& all, bool test) {
  Split part{all.image, all.floats, {}, {}, {}};
  const auto values = static_cast<size_t>(all.image.numel());
  const auto take = [&](const auto& from, auto& to, size_t sample) {
    if (from.empty()) return;
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(sample * values);
    to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(values));
  };
  for (size_t i = 0; i < all.labels.size(); ++i) {
    if ((i % kTestEvery == kTestEvery - 1) != test) continue;
    take(all.bytes, part.bytes, i);
    take(all.numbers, part.numbers, i);
    part.labels.push_back(all.labels[i]);
  }
  return part;
}

// By channel: the mean and deviation, or the middle and half the range.
template <class Value>
Normalization measure(const std::vector<Value>& values, size_t channels, double unit,
                      PixelRange range) {
  Normalization result;
  const double count = static_cast<double>(values.size() / channels);
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
    for (size_t i = c; i < values.size(); i += channels) {
      const double value = values[i] / unit;
      sum += value;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    const double mean = sum / count;
    for (size_t i = c; i < values.size(); i += channels) {
      const double distance = values[i] / unit - mean;
      squares += distance * distance;
    }
    const bool standard = range == PixelRange::standard;
    const double deviation = standard ? std::sqrt(squares / count) : 0.5 * (most - least);
    result.mean.push_back(standard ? mean : 0.5 * (least + most));
    result.deviation.push_back(deviation > 0 ? deviation : 1);  // a channel of one value
  }
  return result;
}

Split read_split(const std::string& name, const Arrays& arrays, const std::string& split) {
  const auto* images = array_named(arrays, {"x", "images"}, split);
  const auto* labels = array_named(arrays, {"y", "labels"}, split);
  std::vector<std::string> names;
  for (const auto& array : arrays) names.push_back(array.first);
  check(images != nullptr && labels != nullptr, kPart,
        "{}: expected arrays x_train, y_train, x_test, y_test, or train_images, train_labels, "
        "test_images, test_labels, or x and y, got {:.300}",
        name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  Split result;
  read_images(name + ": " + images->first, images->second, result);
  result.labels = read_labels(name + ": " + labels->first, labels->second, images->second.size(0));
  return result;
}

std::unique_ptr<Dataset> make(Split split, int64_t classes, const Normalization& normalization) {
  if (split.floats) {
    return labelled_images(split.image, std::move(split.numbers), std::move(split.labels), classes,
                           normalization);
  }
  return labelled_images(split.image, std::move(split.bytes), std::move(split.labels), classes,
                         normalization);
}

DatasetSplits make_splits(const std::string& name, const Arrays& arrays, PixelRange range) {
  Split train, test;
  if (array_named(arrays, {"x", "images"}, "") != nullptr) {
    const Split all = read_split(name, arrays, "");
    check(all.labels.size() >= static_cast<size_t>(kTestEvery), kPart,
          "{}: expected at least {} samples, of which every tenth is for the test, got {}", name,
          kTestEvery, all.labels.size());
    train = part_of(all, false);
    test = part_of(all, true);
  } else {
    train = read_split(name, arrays, "train");
    test = read_split(name, arrays, "test");
  }
  check(train.image == test.image && train.floats == test.floats, kPart,
        "{}: expected train and test images of one shape and type, got {} {} and {} {}", name,
        train.floats ? "numbers" : "bytes", train.image, test.floats ? "numbers" : "bytes",
        test.image);
  int64_t classes = 0;
  for (const Split* split : {&train, &test}) {
    for (const int64_t label : split->labels) classes = std::max(classes, label + 1);
  }
  const auto channels = static_cast<size_t>(train.image[2]);
  Normalization n;
  if (train.floats) {
    n = measure(train.numbers, channels, 1, range);
  } else {
    n = measure(train.bytes, channels, 255, PixelRange::standard);
    n = normalization(range, n.mean, n.deviation);
  }
  std::unique_ptr<Dataset> first = make(std::move(train), classes, n);
  return {std::move(first), make(std::move(test), classes, n)};
}

}  // namespace

DatasetSplits load_npz(const std::string& path, PixelRange range) {
  return make_splits(path, read_npz(path), range);
}

DatasetSplits decode_npz_dataset(std::span<const std::byte> bytes, const std::string& name,
                                 PixelRange range) {
  return make_splits(name, decode_npz(bytes, name), range);
}

}  // namespace engine
