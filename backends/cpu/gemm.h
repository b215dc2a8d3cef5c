// Matrix products inside kernels.
#pragma once

#include "core/backend.h"

namespace engine::cpu {

/// y [batch, m, n] = op(a) op(b). All row-major; a transposed matrix is the same memory read with
/// exchanged strides.
struct Gemm {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
};

/// All sizes at least 1. Says in args whose code ran.
void gemm(KernelArgs& args, const Gemm& g, const float* a, const float* b, float* y);

}  // namespace engine::cpu
