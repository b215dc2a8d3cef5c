// Kernels that other kernels' host side needs.
#pragma once

#include "core/backend.h"

namespace engine::cuda {

/// y = relu(y); NaN stays NaN.
void relu_in_place(const Tensor& y);
/// Each row of y [..., n] = row [n].
void repeat_rows(const Tensor& row, const Tensor& y);

/// y [C] = the sums of x [..., C] over all axes but the last.
void sum_over_rows(KernelArgs& args, const Tensor& x, const Tensor& y);

}  // namespace engine::cuda
