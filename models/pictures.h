// Pictures of what a network makes, to look at.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "models/data/image.h"

namespace engine {

/// The images f32 [N, H, W, C] with `low` as black and `high` as white; with C of 1 in grey.
std::vector<Image> pictures(const Tensor& images, double low, double high);
/// Each image's own darkest value is black, its brightest white.
std::vector<Image> stretched_pictures(const Tensor& images);
/// Classes i64 [N, H, W], each in a colour of its own; 0 is black.
std::vector<Image> class_pictures(const Tensor& classes);

/// Columns of as many pictures each, all of one size, side by side with white lines between.
Image grid(const std::vector<std::vector<Image>>& columns);

}  // namespace engine
