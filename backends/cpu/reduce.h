// A reduction that other kernels need a part of their own work: bias gradients.
#pragma once

#include "core/backend.h"

namespace engine::cpu {

/// out[c] = sum over r of x[r, c], accumulated in double; the same for any number of threads.
void sum_rows(Scratch& scratch, const float* x, int64_t rows, int64_t columns, float* out);

}  // namespace engine::cpu
