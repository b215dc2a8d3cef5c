// What only a kernel can see: an index or a label out of range. The first one is written down on
// the device and thrown on the host when it next waits, so that looking costs no wait of its own.
#pragma once

#include "backends/cuda/device.h"
#include "core/op_list.h"

namespace engine::cuda {

/// Whether index is in [0, limit); if not, writes it down. The caller then leaves the element
/// alone.
__device__ inline bool check_index(DeviceError* error, OpId op, int64_t index, int64_t limit,
                                   int64_t position) {
  if (index >= 0 && index < limit) return true;
  if (atomicCAS(&error->set, 0, 1) == 0) {
    error->op = static_cast<int>(op);
    error->value = index;
    error->limit = limit;
    error->position = position;
  }
  return false;
}

}  // namespace engine::cuda
