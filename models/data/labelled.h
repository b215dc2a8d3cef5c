// Labelled images that are held in memory, and how their values become a network's numbers.
#pragma once

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

/// Images [H, W, C] one after the other, and their labels in [0, classes). Bytes stay bytes in
/// memory, a quarter of f32, and one table look-up a value normalises them.
std::unique_ptr<Dataset> labelled_images(const Shape& image, std::vector<uint8_t> values,
                                         std::vector<int64_t> labels, int64_t classes,
                                         const Normalization& normalization);
std::unique_ptr<Dataset> labelled_images(const Shape& image, std::vector<float> values,
                                         std::vector<int64_t> labels, int64_t classes,
                                         const Normalization& normalization);

}  // namespace engine
