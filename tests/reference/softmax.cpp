#include <cmath>
#include <limits>

#include "tests/reference/reference.h"

namespace engine::reference {

namespace {
double exponential(double x) { return std::exp(x); }
double logarithm(double x) { return std::log(x); }
double minus(double a, double b) { return a - b; }
}  // namespace

Array log_softmax(const Array& x, int64_t axis) {
  if (x.shape.numel() == 0) return x;
  const Array shifted = map(x, max(x, {axis}, true), minus);
  return map(shifted, map(sum(map(shifted, exponential), {axis}, true), logarithm), minus);
}

Array softmax(const Array& x, int64_t axis) { return map(log_softmax(x, axis), exponential); }

// PyTorch's: each class's term is multiplied by its weight; with smoothing s a row's loss is (1 -
// s) times its target's term plus s times the mean over all classes; a mean divides by the targets'
// weights; ignored rows are in neither sum.
Array nll_loss(const Arrays& inputs, const LossAttrs& a) {
  const Array &log_probabilities = inputs[0], &target = inputs[1];
  const auto weight = [&](int64_t c) { return inputs.size() > 2 ? inputs[2][c] : 1; };
  const int64_t rows = log_probabilities.shape[0], classes = log_probabilities.shape[1];
  const double s = static_cast<double>(a.label_smoothing);
  Array losses(Shape{rows});
  double total = 0, count = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const auto label = static_cast<int64_t>(target[n]);
    if (label == a.ignore_index) continue;
    double all = 0;
    for (int64_t c = 0; c < classes; ++c) all -= weight(c) * log_probabilities[n * classes + c];
    losses[n] = -weight(label) * log_probabilities[n * classes + label];
    if (s > 0) losses[n] = (1 - s) * losses[n] + s * all / static_cast<double>(classes);
    total += losses[n];
    count += weight(label);
  }
  if (a.reduction == Reduction::none) return losses;
  return Array(Shape{}, a.reduction == Reduction::sum ? total : total / count);
}

Array cross_entropy(const Arrays& inputs, const LossAttrs& attrs) {
  Arrays parts = inputs;
  parts[0] = log_softmax(inputs[0], 1);
  return nll_loss(parts, attrs);
}

Array masked_softmax(const Array& x, const Array& mask) {
  Array y(x.shape);
  const int64_t columns = x.shape[-1];
  const Array shown = broadcast_to(mask, x.shape);
  for (int64_t row = 0; row < x.shape.numel() / std::max<int64_t>(1, columns); ++row) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    const auto for_shown = [&](const auto& f) {
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i)
        if (shown[i] != 0) f(i);
    };
    for_shown([&](int64_t i) { top = std::max(top, x[i]); });
    for_shown([&](int64_t i) { sum += std::exp(x[i] - top); });
    for_shown([&](int64_t i) { y[i] = std::exp(x[i] - top) / sum; });
    for (int64_t i = row * columns; std::isnan(sum) && i < (row + 1) * columns; ++i) y[i] = sum;
  }
  return y;
}

}  // namespace engine::reference
