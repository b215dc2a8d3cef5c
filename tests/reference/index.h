// Walking over the elements of a shape.
#pragma once

#include <vector>

#include "core/shape.h"

namespace engine::reference {

/// The coordinates of element `flat` of a row-major tensor.
inline std::vector<int64_t> coordinates(const Shape& shape, int64_t flat) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

/// The element of `shape` that these coordinates, of a tensor that it broadcasts to, stand for:
/// missing leading axes are ignored, axes of size 1 repeat.
inline int64_t broadcast_position(const Shape& shape, const std::vector<int64_t>& index) {
  const int extra = static_cast<int>(index.size()) - shape.rank();
  int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t at = index[static_cast<size_t>(axis + extra)];
    flat = flat * shape[axis] + (shape[axis] == 1 ? 0 : at);
  }
  return flat;
}

/// The shape that two shapes broadcast to, which the caller knows to exist.
inline Shape broadcast_shape(const Shape& a, const Shape& b) {
  std::vector<int64_t> dims(static_cast<size_t>(std::max(a.rank(), b.rank())));
  for (size_t i = 1; i <= dims.size(); ++i) {
    const int back = static_cast<int>(i);
    const int64_t da = back <= a.rank() ? a[-back] : 1, db = back <= b.rank() ? b[-back] : 1;
    dims[dims.size() - i] = da == 1 ? db : da;
  }
  return Shape(dims);
}

}  // namespace engine::reference
