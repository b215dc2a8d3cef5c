#include <algorithm>
#include <cstdlib>

#include "tests/reference/index.h"
#include "tests/reference/reference.h"

namespace engine::reference {

namespace {

// The row-major position of coordinates inside a shape.
int64_t position(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    flat = flat * shape[axis] + index[static_cast<size_t>(axis)];
  return flat;
}

}  // namespace

Array remap(const Array& x, const Shape& shape,
            const std::function<bool(std::vector<int64_t>&)>& source, double otherwise) {
  Array y(shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    std::vector<int64_t> at = coordinates(shape, i);
    y[i] = source(at) ? x[position(x.shape, at)] : otherwise;
  }
  return y;
}

Array concat(const Arrays& parts, int axis) {
  int64_t size = 0;
  for (const Array& part : parts) size += part.shape[axis];
  Array y(parts[0].shape.with(axis, size));
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    std::vector<int64_t> at = coordinates(y.shape, i);
    size_t part = 0;
    while (at[static_cast<size_t>(axis)] >= parts[part].shape[axis])
      at[static_cast<size_t>(axis)] -= parts[part++].shape[axis];
    y[i] = parts[part][position(parts[part].shape, at)];
  }
  return y;
}

Array gather(const Array& x, int axis, const Array& index) {
  Array y(index.shape);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    std::vector<int64_t> at = coordinates(y.shape, i);
    at[static_cast<size_t>(axis)] = static_cast<int64_t>(index[i]);
    y[i] = x[position(x.shape, at)];
  }
  return y;
}

Array scatter_add(const Array& x, int axis, const Array& index, const Array& source) {
  Array y = x;
  for (int64_t i = 0; i < index.shape.numel(); ++i) {
    std::vector<int64_t> at = coordinates(index.shape, i);
    at[static_cast<size_t>(axis)] = static_cast<int64_t>(index[i]);
    y[position(y.shape, at)] += source[i];
  }
  return y;
}

}  // namespace engine::reference
