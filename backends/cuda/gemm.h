// Matrix products inside kernels, by cuBLASLt.
#pragma once

#include <compare>

#include "core/backend.h"

namespace engine::cuda {

/// y [batch, m, n] = op(a) op(b) + bias, row-major. `accumulate`: is added to what y holds.
struct Gemm {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b, bias;
  DType dtype;
  bool accumulate = false;

  auto operator<=>(const Gemm&) const = default;
};

/// All sizes at least 1; bias [n] is null where there is none.
void gemm(KernelArgs& args, const Gemm& g, const void* a, const void* b, const void* bias, void* y);

}  // namespace engine::cuda
