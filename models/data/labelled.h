// Labelled images that are held in memory, and how their values become a network's numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/data/dataset.h"

namespace engine {

/// For each channel, a value v of an image becomes (v - mean) / deviation; of bytes, v is a 255th.
struct Normalization {
  std::vector<double> mean, deviation;
};

/// Mean 0 and deviation 1 with these figures of the data; or [-1, 1] for values in [0, 1].
Normalization normalization(PixelRange range, const std::vector<double>& mean,
                            const std::vector<double>& deviation);

/// Normalises bytes, by one look-up each.
class PixelTable {
 public:
  explicit PixelTable(const Normalization& normalization);
  float operator()(size_t channel, uint8_t value) const { return tables_[channel][value]; }

 private:
  std::vector<std::array<float, 256>> tables_;
};

/// Images [H, W, C] one after the other, and their labels in [0, classes). Bytes stay bytes in
/// memory, a quarter of f32.
std::unique_ptr<Dataset> labelled_images(const Shape& image, std::vector<uint8_t> values,
                                         std::vector<int64_t> labels, int64_t classes,
                                         const Normalization& normalization);
std::unique_ptr<Dataset> labelled_images(const Shape& image, std::vector<float> values,
                                         std::vector<int64_t> labels, int64_t classes,
                                         const Normalization& normalization);

}  // namespace engine
