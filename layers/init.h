// Initial values of parameters: PyTorch's defaults.
#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace engine {

/// A new parameter tensor, uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)]: what PyTorch gives the
/// weights of linear and convolution layers (kaiming_uniform with a = sqrt(5); He et al., 2015) and
/// their biases. fan_in is the number of inputs that one output sums over.
Tensor init_uniform_fan_in(const Shape& shape, int64_t fan_in, Device device,
                           Generator& generator = default_generator());

/// New parameter tensors of one value, and of normal numbers.
Tensor init_constant(const Shape& shape, double value, Device device);
Tensor init_normal(const Shape& shape, double mean, double stddev, Device device,
                   Generator& generator = default_generator());

}  // namespace engine
