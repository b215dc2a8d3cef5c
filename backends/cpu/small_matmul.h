// Products of small matrices on the calling thread: oneDNN's call alone costs more than their few
// thousand multiplications. Where b fits into the first cache by a loop of our own, else by Eigen.
#pragma once

#include <cstdint>

namespace engine::cpu {

/// y [m, n] = op(a) op(b) + bias, row-major; op(a) is [m, k], stored [k, m] when transposed, and so
/// for b. bias [n] may be null. Returns whose code ran, as KernelArgs::implementation.
const char* small_matmul(int64_t m, int64_t n, int64_t k, const float* a, bool transpose_a,
                         const float* b, bool transpose_b, const float* bias, float* y);

}  // namespace engine::cpu
