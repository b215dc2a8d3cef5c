// What each op computes, in double and in plain loops: the yardstick of every device. Nothing here
// is shared with a backend or with an op's decomposition; of `core` it uses shapes and attribute
// structs. Layouts are the engine's: row-major, images NHWC, convolution weights OHWI.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/op_attrs.h"
#include "core/shape.h"

namespace engine::reference {

/// A tensor of any dtype, its values held in double.
struct Array {
  Shape shape;
  std::vector<double> values;

  Array() = default;
  explicit Array(const Shape& s, double value = 0)
      : shape(s), values(static_cast<size_t>(s.numel()), value) {}
  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
};
using Arrays = std::vector<Array>;
using Axes = std::vector<int64_t>;

// elementwise.cpp
Array map(const Array& x, const std::function<double(double)>& f);
/// Broadcasts by NumPy's rule.
Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f);
Array reshape(const Array& x, const Shape& shape);
Array permute(const Array& x, const Axes& order);
Array broadcast_to(const Array& x, const Shape& shape);
/// All values of several arrays, one after the other, as one axis.
Array concatenate(const Arrays& parts);
double relu(double x);
/// The nearest bfloat16, ties to even; infinity beyond its range.
double round_to_bf16(double x);

// reduce.cpp; no axes means all of them
Array sum(const Array& x, const Axes& axes = {}, bool keepdim = false);
Array mean(const Array& x, const Axes& axes = {}, bool keepdim = false);
Array max(const Array& x, const Axes& axes = {}, bool keepdim = false);
Array min(const Array& x, const Axes& axes = {}, bool keepdim = false);
Array argmax(const Array& x, int64_t axis, bool keepdim = false);
Array var(const Array& x, const Axes& axes, double correction, bool keepdim = false);
Array logsumexp(const Array& x, const Axes& axes, bool keepdim = false);

// matmul.cpp
Array matmul(const Array& a, const Array& b, bool transpose_a = false, bool transpose_b = false);
/// inputs: x, weight and, where there is one, bias
Array linear(const Arrays& inputs);

// images.cpp
Array conv2d(const Arrays& inputs, const Conv2dAttrs& attrs);
Array max_pool2d(const Array& x, const Pool2dAttrs& attrs);
Array avg_pool2d(const Array& x, const Pool2dAttrs& attrs);
Array conv_transpose2d(const Arrays& inputs, const Conv2dAttrs& attrs,
                       std::array<int32_t, 2> output_padding);
Array adaptive_avg_pool2d(const Array& x, int64_t height, int64_t width);
Array interpolate(const Array& x, int64_t height, int64_t width, ResampleMode mode,
                  bool align_corners);

// indexing.cpp
/// y[at] = x[source(at)], where `source` changes the coordinates; it returns false for `otherwise`.
Array remap(const Array& x, const Shape& shape,
            const std::function<bool(std::vector<int64_t>&)>& source, double otherwise = 0);
Array concat(const Arrays& parts, int axis);
Array gather(const Array& x, int axis, const Array& index);
Array scatter_add(const Array& x, int axis, const Array& index, const Array& source);

// norm.cpp; inputs x and, where they are there, weight and bias (evaluation: all, and the running
// mean and variance); without `center`, layer_norm is rms_norm
Array batch_norm(const Arrays& inputs, double eps);
Array batch_norm_evaluation(const Arrays& inputs, double eps);
Array group_norm(const Arrays& inputs, int64_t groups, double eps);
Array layer_norm(const Arrays& inputs, int axes, double eps, bool center);

// softmax.cpp
Array softmax(const Array& x, int64_t axis);
Array log_softmax(const Array& x, int64_t axis);
/// Of the columns where the mask is not 0; a row of none is zeros.
Array masked_softmax(const Array& x, const Array& mask);
/// inputs: scores, target and, where they are there, class weights
Array nll_loss(const Arrays& inputs, const LossAttrs& attrs);
Array cross_entropy(const Arrays& inputs, const LossAttrs& attrs);

// recurrent.cpp; inputs x, w_ih, w_hh, b_ih, b_hh, h0 and, for LSTM, c0; the states of all steps,
// for LSTM followed by all cells along the last axis
Array lstm(const Arrays& inputs);
Array gru(const Arrays& inputs);

// random.cpp; element i is lane i % 4 of the Philox block with counter offset + i / 4
Array uniform(const Shape& shape, const RandomStream& stream, double low, double high);
Array normal(const Shape& shape, const RandomStream& stream, double mean, double stddev);
Array dropout(const Array& x, const RandomStream& stream, double p);
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);
/// The x at which the standard normal distribution function is `probability`.
double normal_quantile(double probability);

// optimizer.cpp; parameter, gradient and state in, parameter and state out
Arrays sgd_step(const Arrays& inputs, const SgdAttrs& attrs);
Arrays adam_step(const Arrays& inputs, const AdamAttrs& attrs);

}  // namespace engine::reference
