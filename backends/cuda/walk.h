// Where the elements of tensors that broadcast lie, in kernels.
#pragma once

#include "backends/cuda/divider.h"
#include "core/broadcast.h"

namespace engine::cuda {

/// A walk as a kernel takes it, the sizes of its axes as dividers.
template <size_t kOperands, class Divider>
struct DeviceWalk {
  Divider size[Shape::kMaxRank];
  typename Divider::Index stride[Shape::kMaxRank][kOperands];
  int rank;

  explicit DeviceWalk(const BroadcastWalk<kOperands>& walk) : rank(static_cast<int>(walk.rank)) {
    for (size_t axis = 0; axis < walk.rank; ++axis) {
      size[axis] = Divider(walk.size[axis]);
      for (size_t k = 0; k < kOperands; ++k)
        stride[axis][k] = static_cast<typename Divider::Index>(walk.stride[axis][k]);
    }
  }
  /// Where the operands of output element i lie.
  __device__ void offsets(typename Divider::Index i, typename Divider::Index* to) const {
    for (size_t k = 0; k < kOperands; ++k) to[k] = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto index = size[axis].divide(i);
      for (size_t k = 0; k < kOperands; ++k) to[k] += index * stride[axis][k];
    }
  }
};

}  // namespace engine::cuda
