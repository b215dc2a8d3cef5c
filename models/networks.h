// The constructors of the bundled networks, each in a file of its own.
#pragma once

#include <memory>

#include "models/model.h"

namespace engine {

/// Fully connected layers with ReLU between them, on the flattened image.
std::unique_ptr<Model> make_mlp(const ModelOptions& options);

/// LeNet-5 with ReLU and max pooling, on 28 x 28 or 32 x 32 images.
std::unique_ptr<Model> make_lenet(const ModelOptions& options);

}  // namespace engine
