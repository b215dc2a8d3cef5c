// The constructors of the bundled networks, each in a file of its own.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"

namespace engine {

/// Fully connected layers of these widths with ReLU between them, on the flattened image.
std::unique_ptr<Model> make_mlp(const Shape& input, const std::vector<int64_t>& hidden, int64_t classes, Device device);

/// LeNet-5 with ReLU and max pooling, on 28 x 28 or 32 x 32 images.
std::unique_ptr<Model> make_lenet(const Shape& input, int64_t classes, Device device);

}  // namespace engine
