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

// PyTorch's: with smoothing s a row's loss is (1 - s) times its target's term plus s times the mean
// over all classes; ignored rows are in neither sum nor in the mean's count.
Array nll_loss(const Array& log_probabilities, const Array& target, const LossAttrs& a) {
  const int64_t rows = log_probabilities.shape[0], classes = log_probabilities.shape[1];
  const double s = static_cast<double>(a.label_smoothing);
  Array losses(Shape{rows});
  double total = 0, count = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const auto label = static_cast<int64_t>(target[n]);
    if (label == a.ignore_index) continue;
    double all = 0;
    for (int64_t c = 0; c < classes; ++c) all -= log_probabilities[n * classes + c];
    losses[n] = -log_probabilities[n * classes + label];
    if (s > 0) losses[n] = (1 - s) * losses[n] + s * all / static_cast<double>(classes);
    total += losses[n];
    ++count;
  }
  if (a.reduction == Reduction::none) return losses;
  return Array(Shape{}, a.reduction == Reduction::sum ? total : total / count);
}

Array cross_entropy(const Array& logits, const Array& target, const LossAttrs& attrs) {
  return nll_loss(log_softmax(logits, 1), target, attrs);
}

}  // namespace engine::reference
