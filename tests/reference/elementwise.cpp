#include <cmath>

#include "tests/reference/index.h"
#include "tests/reference/reference.h"

namespace engine::reference {

Array map(const Array& x, const std::function<double(double)>& f) {
  Array y(x.shape);
  for (size_t i = 0; i < x.values.size(); ++i) y.values[i] = f(x.values[i]);
  return y;
}

Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  Array y(broadcast_shape(a.shape, b.shape));
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const auto index = coordinates(y.shape, i);
    y[i] = f(a[broadcast_position(a.shape, index)], b[broadcast_position(b.shape, index)]);
  }
  return y;
}

Array reshape(const Array& x, const Shape& shape) {
  Array y = x;
  y.shape = shape;
  return y;
}

Array permute(const Array& x, const Axes& order) {
  Shape shape = x.shape;
  for (int i = 0; i < shape.rank(); ++i) {
    shape = shape.with(i, x.shape[static_cast<int>(order[static_cast<size_t>(i)])]);
  }
  Array y(shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const auto to = coordinates(shape, i);
    auto from = to;
    for (size_t axis = 0; axis < to.size(); ++axis)
      from[static_cast<size_t>(order[axis])] = to[axis];
    y[i] = x[broadcast_position(x.shape, from)];
  }
  return y;
}

Array broadcast_to(const Array& x, const Shape& shape) {
  Array y(shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    y[i] = x[broadcast_position(x.shape, coordinates(shape, i))];
  }
  return y;
}

Array concatenate(const Arrays& parts) {
  std::vector<double> all;
  for (const Array& part : parts) all.insert(all.end(), part.values.begin(), part.values.end());
  Array y(Shape{static_cast<int64_t>(all.size())});
  y.values = std::move(all);
  return y;
}

double relu(double x) { return x < 0 ? 0 : x; }

double round_to_bf16(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  // 8 significant bits down to 2^-126, then a fixed step of 2^-133.
  const int exponent = std::max(std::ilogb(x), -126);
  const double step = std::ldexp(1.0, exponent - 7);
  const double nearest = std::nearbyint(x / step) * step;
  return std::abs(nearest) < 0x1p128 ? nearest : std::copysign(INFINITY, x);
}

}  // namespace engine::reference
