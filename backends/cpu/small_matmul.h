// Products of small matrices by Eigen, on the calling thread: oneDNN's call alone costs more than
// their few thousand multiplications.
#pragma once

#include <cstdint>

namespace engine::cpu {

/// y [m, n] = op(a) op(b) + bias, row-major; op(a) is [m, k], stored [k, m] when transposed, and so
/// for b. bias [n] may be null.
void small_matmul(int64_t m, int64_t n, int64_t k, const float* a, bool transpose_a, const float* b,
                  bool transpose_b, const float* bias, float* y);

}  // namespace engine::cpu
