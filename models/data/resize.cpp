#include "models/data/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace engine {

namespace {

// One new row or column: a weighted mean of the old ones from `first` on.
struct Mean {
  int64_t first = 0;
  std::vector<double> weights;
};

// Along one axis: `count` of the `to` pixels that `from` become, from number `begin` on.
std::vector<Mean> means(int64_t from, int64_t to, int64_t begin, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(1.0, scale);
  std::vector<Mean> result;
  for (int64_t i = begin; i < begin + count; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(centre - reach + 0.5));
    const auto end = std::min(from, static_cast<int64_t>(centre + reach + 0.5));
    Mean mean{first, {}};
    double sum = 0;
    for (int64_t at = first; at < end; ++at) {
      const double distance = std::abs(static_cast<double>(at) + 0.5 - centre) / reach;
      mean.weights.push_back(std::max(0.0, 1 - distance));
      sum += mean.weights.back();
    }
    for (double& weight : mean.weights) weight /= sum;
    result.push_back(std::move(mean));
  }
  return result;
}

uint8_t apply(const Mean& mean, const uint8_t* from, int64_t stride) {
  double sum = 0;
  for (const double weight : mean.weights) {
    sum += weight * *from;
    from += stride;
  }
  return static_cast<uint8_t>(sum + 0.5);  // a mean of bytes, so within 0 and 255
}

// The part of height x width from (top, left) on of the image at the size of full_height x
// full_width.
Image resample(const Image& image, int64_t full_height, int64_t full_width, int64_t top,
               int64_t left, int64_t height, int64_t width) {
  const std::vector<Mean> rows = means(image.height, full_height, top, height),
                          columns = means(image.width, full_width, left, width);
  const int64_t first = rows.front().first;
  const int64_t last = rows.back().first + static_cast<int64_t>(rows.back().weights.size());
  const int64_t line = 3 * width;
  std::vector<uint8_t> narrow(static_cast<size_t>((last - first) * line));
  auto to = narrow.begin();
  for (int64_t h = first; h < last; ++h) {
    const uint8_t* from = image.pixels.data() + h * image.width * 3;
    for (const Mean& column : columns) {
      for (int64_t c = 0; c < 3; ++c) *to++ = apply(column, from + column.first * 3 + c, 3);
    }
  }
  Image result{height, width, {}};
  result.pixels.reserve(static_cast<size_t>(height * line));
  for (const Mean& row : rows) {
    const uint8_t* from = narrow.data() + (row.first - first) * line;
    for (int64_t i = 0; i < line; ++i) result.pixels.push_back(apply(row, from + i, line));
  }
  return result;
}

void check_size(int64_t height, int64_t width) {
  check(height >= 1 && width >= 1 && height <= kMaxPixels / width, "image",
        "expected a size of 1 to {} pixels, got {} x {}", kMaxPixels, width, height);
}

// torchvision rounds half of a pixel to an even number.
int64_t middle(int64_t from, int64_t to) { return std::llrint(static_cast<double>(from - to) / 2); }

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width) {
  check_size(height, width);
  if (image.height == height && image.width == width) return image;
  return resample(image, height, width, 0, 0, height, width);
}

Image resize_and_crop(const Image& image, int64_t height, int64_t width) {
  check_size(height, width);
  if (image.height == height && image.width == width) return image;
  // The side that is short for what is asked becomes 8/7 of it, rounded; the other one keeps the
  // proportion, cut off to a whole number.
  const bool by_height = image.height * width <= image.width * height;
  const auto enlarged = [](int64_t side) { return (side * 8 + 3) / 7; };
  const int64_t full_height =
      by_height ? enlarged(height) : image.height * enlarged(width) / image.width;
  const int64_t full_width =
      by_height ? image.width * enlarged(height) / image.height : enlarged(width);
  return resample(image, full_height, full_width, middle(full_height, height),
                  middle(full_width, width), height, width);
}

}  // namespace engine
