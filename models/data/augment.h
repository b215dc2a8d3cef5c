// Training images moved and mirrored at random, each time they are read.
#pragma once

#include <memory>

#include "models/data/dataset.h"

namespace engine {

struct Augmentation {
  bool pad_crop = false;  ///< a border of 4 zeros, then a part of the old size from anywhere in it
  bool flip = false;      ///< left and right change places, or do not
};

/// The images of `data` so changed (He et al., "Deep Residual Learning for Image Recognition",
/// 2015, section 4.2). A class for each pixel moves along, with 0 in the border; an image as target
/// is changed by chance of its own. Draws from the second half of a sample's random stream. Throws
/// Error unless the inputs are images.
std::unique_ptr<Dataset> augment_images(std::unique_ptr<Dataset> data, Augmentation augmentation);

}  // namespace engine
