#include "models/blocks.h"

#include <cmath>

#include "core/context.h"

namespace engine {

std::shared_ptr<Conv2d> plain_conv(int64_t in, int64_t out, int32_t kernel, int32_t stride,
                                   int32_t padding, Device device, int32_t groups) {
  return std::make_shared<Conv2d>(in, out,
                                  Conv2dOptions{.kernel = {kernel, kernel},
                                                .stride = {stride, stride},
                                                .padding = {padding, padding},
                                                .groups = groups,
                                                .bias = false},
                                  device);
}

std::shared_ptr<Conv2d> conv_relu(int64_t in, int64_t out, int32_t kernel, int32_t stride,
                                  int32_t padding, Device device) {
  return std::make_shared<Conv2d>(in, out,
                                  Conv2dOptions{.kernel = {kernel, kernel},
                                                .stride = {stride, stride},
                                                .padding = {padding, padding},
                                                .activation = Activation::relu},
                                  device);
}

std::shared_ptr<MaxPool2d> max_pool(int32_t kernel, int32_t stride, int32_t padding,
                                    bool ceil_mode) {
  return std::make_shared<MaxPool2d>(Pool2dAttrs{.kernel = {kernel, kernel},
                                                 .stride = {stride, stride},
                                                 .padding = {padding, padding},
                                                 .ceil_mode = ceil_mode});
}

void init_convolutions_normal(const Module& module, Fan fan) {
  const NoGradScope no_grad;
  for (const Tensor& weight : module.parameters()) {
    if (weight.rank() != 4) continue;
    const int64_t window = weight.size(1) * weight.size(2);
    const int64_t summed = window * (fan == Fan::out ? weight.size(0) : weight.size(3));
    ops::normal_(weight, 0, std::sqrt(2.0 / static_cast<double>(summed)));
  }
}

void init_linears_normal(const Module& module, double stddev) {
  const NoGradScope no_grad;
  for (const Tensor& weight : module.parameters()) {
    if (weight.rank() == 2) ops::normal_(weight, 0, stddev);
  }
}

void init_biases_zero(const Module& module) {
  const NoGradScope no_grad;
  for (const auto& [name, tensor] : module.named_parameters()) {
    if (name.ends_with("bias")) ops::fill_(tensor, 0);
  }
}

}  // namespace engine
