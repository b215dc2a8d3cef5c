#include <cmath>

#include "tests/reference/reference.h"

namespace engine::reference {

namespace {

using Index = std::function<int64_t(int64_t)>;

// Each element less the mean of its set (if `center`), over the set's root mean square deviation.
Array normalize(const Array& x, const Index& set, int64_t sets, double eps, bool center) {
  std::vector<double> mean(static_cast<size_t>(sets)), square(mean), count(mean);
  const auto at = [&set](int64_t i) { return static_cast<size_t>(set(i)); };
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    count[at(i)] += 1;
    if (center) mean[at(i)] += x[i];
  }
  for (size_t s = 0; s < mean.size(); ++s) mean[s] /= count[s];
  for (int64_t i = 0; i < x.shape.numel(); ++i) square[at(i)] += std::pow(x[i] - mean[at(i)], 2);
  Array y(x.shape);
  for (int64_t i = 0; i < x.shape.numel(); ++i)
    y[i] = (x[i] - mean[at(i)]) / std::sqrt(square[at(i)] / count[at(i)] + eps);
  return y;
}

// y times inputs[1], plus inputs[2], where they are there.
Array affine(Array y, const Arrays& inputs, const Index& parameter) {
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    if (inputs.size() > 1) y[i] *= inputs[1][parameter(i)];
    if (inputs.size() > 2) y[i] += inputs[2][parameter(i)];
  }
  return y;
}

}  // namespace

Array batch_norm(const Arrays& inputs, double eps) {
  const int64_t channels = inputs[0].shape[-1];
  const auto channel = [channels](int64_t i) { return i % channels; };
  return affine(normalize(inputs[0], channel, channels, eps, true), inputs, channel);
}

Array batch_norm_evaluation(const Arrays& inputs, double eps) {
  const int64_t channels = inputs[0].shape[-1];
  Array y = inputs[0];
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t c = i % channels;
    y[i] = (y[i] - inputs[3][c]) / std::sqrt(inputs[4][c] + eps) * inputs[1][c] + inputs[2][c];
  }
  return y;
}

Array group_norm(const Arrays& inputs, int64_t groups, double eps) {
  const Shape& shape = inputs[0].shape;
  const int64_t channels = shape[-1], image = shape.product(1, shape.rank());
  const auto set = [=](int64_t i) {
    return i / image * groups + i % channels / (channels / groups);
  };
  return affine(normalize(inputs[0], set, shape[0] * groups, eps, true), inputs,
                [channels](int64_t i) { return i % channels; });
}

Array layer_norm(const Arrays& inputs, int axes, double eps, bool center) {
  const Shape& shape = inputs[0].shape;
  const int64_t row = shape.product(shape.rank() - axes, shape.rank());
  return affine(
      normalize(
          inputs[0], [row](int64_t i) { return i / row; }, shape.numel() / row, eps, center),
      inputs, [row](int64_t i) { return i % row; });
}

}  // namespace engine::reference
