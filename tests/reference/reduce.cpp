#include <cmath>
#include <limits>

#include "tests/reference/index.h"
#include "tests/reference/reference.h"

namespace engine::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_reduced(const Shape& shape, const Axes& axes, int axis) {
  for (const int64_t a : axes) {
    if ((a < 0 ? a + shape.rank() : a) == axis) return true;
  }
  return axes.empty();
}

Array reduce(const Array& x, const Axes& axes, bool keepdim, double start,
             const std::function<double(double, double)>& f) {
  Shape kept = x.shape;
  std::vector<int64_t> dims;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    const bool reduced = is_reduced(x.shape, axes, axis);
    if (reduced) kept = kept.with(axis, 1);
    if (!reduced || keepdim) dims.push_back(reduced ? 1 : x.shape[axis]);
  }
  Array y(kept, start);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    double& sum = y[broadcast_position(kept, coordinates(x.shape, i))];
    sum = f(sum, x[i]);
  }
  return reshape(y, Shape(dims));
}

double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }

}  // namespace

Array sum(const Array& x, const Axes& axes, bool keepdim) {
  return reduce(x, axes, keepdim, 0, [](double a, double b) { return a + b; });
}

Array mean(const Array& x, const Axes& axes, bool keepdim) {
  double count = 1;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    if (is_reduced(x.shape, axes, axis)) count *= static_cast<double>(x.shape[axis]);
  }
  return map(sum(x, axes, keepdim), [count](double s) { return s / count; });
}

Array max(const Array& x, const Axes& axes, bool keepdim) {
  return reduce(x, axes, keepdim, -kInfinity, larger);
}
Array min(const Array& x, const Axes& axes, bool keepdim) {
  return reduce(x, axes, keepdim, kInfinity, smaller);
}

Array argmax(const Array& x, int64_t axis, bool keepdim) {
  const int at = static_cast<int>(axis < 0 ? axis + x.shape.rank() : axis);
  const Array best = max(x, {at}, true);
  Array y(best.shape, -1);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const auto index = coordinates(x.shape, i);
    const int64_t row = broadcast_position(best.shape, index);
    const bool found = x[i] == best[row] || (std::isnan(x[i]) && std::isnan(best[row]));
    if (found && y[row] < 0) y[row] = static_cast<double>(index[static_cast<size_t>(at)]);
  }
  return keepdim ? y : reshape(y, sum(x, {at}, false).shape);
}

Array var(const Array& x, const Axes& axes, double correction, bool keepdim) {
  const Array center = mean(x, axes, true);
  const Array squares = map(x, center, [](double a, double b) { return (a - b) * (a - b); });
  const Array total = sum(squares, axes, keepdim);
  const double count =
      static_cast<double>(x.shape.numel()) / static_cast<double>(total.shape.numel());
  const double divisor = count > correction ? count - correction : NAN;
  return map(total, [=](double s) { return s / divisor; });
}

Array logsumexp(const Array& x, const Axes& axes, bool keepdim) {
  const Array top = map(max(x, axes, true), [](double t) { return std::isinf(t) ? 0 : t; });
  const Array e = map(x, top, [](double a, double b) { return std::exp(a - b); });
  const Array total = sum(e, axes, keepdim);
  return map(total, reshape(top, total.shape), [](double s, double t) { return std::log(s) + t; });
}

}  // namespace engine::reference
