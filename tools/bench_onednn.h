// oneDNN called directly: the yardstick of the matmul and convolution cases.
#pragma once

#include <functional>

#include "core/op_attrs.h"
#include "core/shape.h"

namespace engine::tools {

/// op(a) op(b) of f32 [m, k] and [k, n].
std::function<void()> onednn_matmul(int64_t m, int64_t n, int64_t k, const MatmulAttrs& attrs);

enum class ConvPass { forward, backward_data, backward_weight };
/// A convolution or one of its gradients, f32, images NHWC. Weights lie as oneDNN likes them best:
/// bringing them there is not timed.
std::function<void()> onednn_conv(ConvPass pass, const Shape& image, const Shape& weight,
                                  const Shape& output, const Conv2dAttrs& attrs);

}  // namespace engine::tools
