// Images of a data set at the shape that a network takes.
#pragma once

#include <memory>

#include "models/data/dataset.h"

namespace engine {

/// The data set with its images made to fit `shape`, [H, W, C], each as it is read, so in the
/// loader's threads. A single channel is repeated; any other change of channels throws Error. A
/// size that is larger by at most 4 pixels a side of the image is reached by a border of zeros; any
/// other by bilinear interpolation, PyTorch's with align_corners = false.
std::unique_ptr<Dataset> fit_images(std::unique_ptr<Dataset> data, const Shape& shape);

}  // namespace engine
