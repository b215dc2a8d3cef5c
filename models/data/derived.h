// Data sets made of labelled images, for what needs other answers than a label: a class for each
// pixel, or two unpaired kinds of images.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/data/dataset.h"

namespace engine {

/// The same images; the answer is i64 [H, W]: 0 for the background, and 1 + the image's label where
/// the mean of the channels is nearer to the image's brightest than to its darkest value.
std::unique_ptr<Dataset> segment_images(std::unique_ptr<Dataset> data);

/// Images of class `a`, made to fit `shape`, as inputs, each with an image of class `b` as target
/// that is another one in each epoch; as many samples as the larger class has. Values are cut to
/// [-1, 1]. Throws Error if a class is empty.
std::unique_ptr<Dataset> unpaired_images(std::unique_ptr<Dataset> data, int64_t a, int64_t b,
                                         const Shape& shape);
/// The same of the images with these numbers, as they are; neither list may be empty.
std::unique_ptr<Dataset> unpaired_images(std::unique_ptr<Dataset> data, std::vector<int64_t> a,
                                         std::vector<int64_t> b);

}  // namespace engine
