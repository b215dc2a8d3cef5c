// How an elementwise op walks over tensors that broadcast: shared by the backends.
#pragma once

#include <algorithm>
#include <array>

#include "core/shape.h"

namespace engine {

/// The output's axes with the strides of the operands (0 along axes that repeat), neighbours merged
/// where all operands allow it; the last axis is the innermost. At least one axis.
template <size_t kOperands>
struct BroadcastWalk {
  std::array<int64_t, Shape::kMaxRank> size{};
  std::array<std::array<int64_t, kOperands>, Shape::kMaxRank> stride{};
  size_t rank = 0;
};

/// For operands that broadcast to y.
template <size_t kOperands>
BroadcastWalk<kOperands> broadcast_walk(const std::array<Shape, kOperands>& operands,
                                        const Shape& y) {
  BroadcastWalk<kOperands> walk;  // innermost first, until the end
  std::array<int64_t, kOperands> next;
  next.fill(1);
  for (int i = 1; i <= y.rank(); ++i) {
    if (y[-i] == 1) continue;
    std::array<int64_t, kOperands> stride;
    bool continues = walk.rank > 0;
    for (size_t k = 0; k < kOperands; ++k) {
      const Shape& shape = operands[k];
      const int64_t size = i <= shape.rank() ? shape[-i] : 1;
      stride[k] = size == 1 ? 0 : next[k];
      next[k] *= size;
      continues =
          continues && stride[k] == walk.stride[walk.rank - 1][k] * walk.size[walk.rank - 1];
    }
    if (continues) {
      walk.size[walk.rank - 1] *= y[-i];
    } else {
      walk.size[walk.rank] = y[-i];
      walk.stride[walk.rank++] = stride;
    }
  }
  if (walk.rank == 0) walk.size[walk.rank++] = 1;
  std::reverse(walk.size.begin(), walk.size.begin() + walk.rank);
  std::reverse(walk.stride.begin(), walk.stride.begin() + walk.rank);
  return walk;
}

}  // namespace engine
