// What the convolutional networks share: square convolutions in a line of code, and the initial
// values that torchvision gives whole networks.
#pragma once

#include <memory>

#include "layers/layers.h"
#include "models/model.h"

namespace engine {

/// A convolution with a square kernel and without bias, as before a batch norm.
std::shared_ptr<Conv2d> plain_conv(int64_t in, int64_t out, int32_t kernel, int32_t stride,
                                   int32_t padding, Device device, int32_t groups = 1);
/// One with bias and a ReLU fused in.
std::shared_ptr<Conv2d> conv_relu(int64_t in, int64_t out, int32_t kernel, int32_t stride,
                                  int32_t padding, Device device);
/// Max pooling with a square window.
std::shared_ptr<MaxPool2d> max_pool(int32_t kernel, int32_t stride, int32_t padding = 0,
                                    bool ceil_mode = false);

enum class Fan : uint8_t { in, out };
/// Gives every convolution weight of `module` normal numbers of variance 2 / fan (He et al., 2015).
/// As PyTorch, fan_out does not know of groups.
void init_convolutions_normal(const Module& module, Fan fan);
/// Gives every linear weight normal numbers.
void init_linears_normal(const Module& module, double stddev);
/// Zeroes every bias.
void init_biases_zero(const Module& module);

}  // namespace engine
