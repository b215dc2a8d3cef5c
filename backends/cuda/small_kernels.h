// Kernels that other kernels' host side needs.
#pragma once

#include "core/tensor.h"

namespace engine::cuda {

/// y = relu(y); NaN stays NaN.
void relu_in_place(const Tensor& y);
/// Each row of y [..., n] = row [n].
void repeat_rows(const Tensor& row, const Tensor& y);

}  // namespace engine::cuda
