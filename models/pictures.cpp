#include "models/pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace engine {

namespace {

constexpr int64_t kLine = 2;  // pixels between pictures, and around all

uint8_t byte_of(double share) {  // NaN is black
  return static_cast<uint8_t>(std::lround(share > 0 ? 255 * std::min(share, 1.0) : 0.0));
}

Image picture(const float* values, const Shape& shape, double low, double high) {
  const int64_t channels = shape[3];
  Image result{shape[1], shape[2], {}};
  for (int64_t i = 0; i < shape[1] * shape[2]; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      const double value = values[i * channels + std::min(c, channels - 1)];
      result.pixels.push_back(byte_of((value - low) / (high - low)));
    }
  }
  return result;
}

// Hues as far apart as can be, whatever the number of classes: each the golden ratio further.
std::array<uint8_t, 3> colour_of(int64_t number) {
  if (number == 0) return {0, 0, 0};
  const double turn = std::fmod(0.6180339887498949 * static_cast<double>(number), 1.0);
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c) {
    const double at = std::fmod(turn + static_cast<double>(c) / 3, 1.0);
    colour[c] = byte_of(std::abs(6 * at - 3) - 1);
  }
  return colour;
}

}  // namespace

std::vector<Image> pictures(const Tensor& images, double low, double high) {
  const std::vector<float> values = images.to_vector<float>();
  std::vector<Image> result;
  for (int64_t n = 0; n < images.size(0); ++n) {
    const float* image = values.data() + n * (images.numel() / images.size(0));
    result.push_back(picture(image, images.shape(), low, high));
  }
  return result;
}

std::vector<Image> stretched_pictures(const Tensor& images) {
  const std::vector<float> values = images.to_vector<float>();
  std::vector<Image> result;
  for (int64_t n = 0; n < images.size(0); ++n) {
    const int64_t count = images.numel() / images.size(0);
    const float* image = values.data() + n * count;
    const auto [low, high] = std::minmax_element(image, image + count);
    result.push_back(picture(image, images.shape(), *low, *high));
  }
  return result;
}

std::vector<Image> class_pictures(const Tensor& classes) {
  const std::vector<int64_t> numbers = classes.to_vector<int64_t>();
  const auto pixels = static_cast<size_t>(classes.size(1) * classes.size(2));
  std::vector<Image> result;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i % pixels == 0) result.push_back({classes.size(1), classes.size(2), {}});
    for (const uint8_t value : colour_of(numbers[i])) result.back().pixels.push_back(value);
  }
  return result;
}

Image grid(const std::vector<std::vector<Image>>& columns) {
  check(!columns.empty() && !columns[0].empty(), "grid", "expected pictures, got none");
  const size_t rows = columns[0].size();
  const int64_t height = columns[0][0].height, width = columns[0][0].width;
  Image all{kLine + static_cast<int64_t>(rows) * (height + kLine),
            kLine + static_cast<int64_t>(columns.size()) * (width + kLine),
            {}};
  all.pixels.assign(static_cast<size_t>(3 * all.height * all.width), 255);
  for (size_t column = 0; column < columns.size(); ++column) {
    check(columns[column].size() == rows, "grid", "expected columns of {} pictures, got one of {}",
          rows, columns[column].size());
    for (size_t row = 0; row < rows; ++row) {
      const Image& one = columns[column][row];
      check(one.height == height && one.width == width, "grid",
            "expected pictures of {} x {}, got {} x {}", width, height, one.width, one.height);
      const int64_t top = kLine + static_cast<int64_t>(row) * (height + kLine);
      const int64_t left = kLine + static_cast<int64_t>(column) * (width + kLine);
      for (int64_t h = 0; h < height; ++h) {
        std::copy_n(one.pixels.data() + 3 * h * width, 3 * width,
                    all.pixels.data() + 3 * ((top + h) * all.width + left));
      }
    }
  }
  return all;
}

}  // namespace engine
