#include "layers/layers.h"

#include <string>

#include "core/context.h"
#include "core/error.h"
#include "layers/init.h"

namespace engine {

Linear::Linear(int64_t in, int64_t out, Device device, Activation activation, bool bias)
    : activation_(activation) {
  check(in >= 1 && out >= 1, "Linear", "expected sizes >= 1, got {} -> {}", in, out);
  weight_ = register_parameter("weight", init_uniform_fan_in(Shape{out, in}, in, device));
  if (bias) bias_ = register_parameter("bias", init_uniform_fan_in(Shape{out}, in, device));
}

Tensor Linear::forward(const Tensor& x) {
  return activation_ == Activation::relu ? ops::linear_relu(x, weight_, bias_)
                                         : ops::linear(x, weight_, bias_);
}

Embedding::Embedding(int64_t rows, int64_t width, Device device) {
  check(rows >= 1 && width >= 1, "Embedding", "expected sizes >= 1, got {} rows of {}", rows,
        width);
  weight_ = register_parameter("weight", init_normal(Shape{rows, width}, 0, 1, device));
}

Conv2d::Conv2d(int64_t in, int64_t out, const Conv2dOptions& o, Device device)
    : activation_(o.activation) {
  check(in >= 1 && out >= 1 && o.groups >= 1 && in % o.groups == 0 && out % o.groups == 0, "Conv2d",
        "expected channels >= 1 that are multiples of groups, got {} -> {} in {} groups", in, out,
        o.groups);
  check(o.kernel[0] >= 1 && o.kernel[1] >= 1, "Conv2d",
        "expected a kernel of at least 1x1, got {}x{}", o.kernel[0], o.kernel[1]);
  const int64_t fan_in = in / o.groups * o.kernel[0] * o.kernel[1];
  weight_ = register_parameter(
      "weight",
      init_uniform_fan_in(Shape{out, o.kernel[0], o.kernel[1], in / o.groups}, fan_in, device));
  if (o.bias) bias_ = register_parameter("bias", init_uniform_fan_in(Shape{out}, fan_in, device));
  attrs_ = {.stride = o.stride,
            .padding_begin = o.padding,
            .padding_end = o.padding,
            .dilation = o.dilation,
            .groups = o.groups};
}

Tensor Conv2d::forward(const Tensor& x) {
  return activation_ == Activation::relu ? ops::conv2d_relu(x, weight_, bias_, attrs_)
                                         : ops::conv2d(x, weight_, bias_, attrs_);
}

ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out, const ConvTranspose2dOptions& o,
                                 Device device)
    : attrs_{.stride = o.stride,
             .padding_begin = o.padding,
             .padding_end = o.padding,
             .dilation = o.dilation,
             .groups = o.groups},
      output_padding_(o.output_padding) {
  check(in >= 1 && out >= 1 && o.groups >= 1 && in % o.groups == 0 && out % o.groups == 0,
        "ConvTranspose2d",
        "expected channels >= 1 that are multiples of groups, got {} -> {} in {} groups", in, out,
        o.groups);
  check(o.kernel[0] >= 1 && o.kernel[1] >= 1, "ConvTranspose2d",
        "expected a kernel of at least 1x1, got {}x{}", o.kernel[0], o.kernel[1]);
  // PyTorch reads the fan-in off the weight's second axis, which here holds the output channels.
  const int64_t fan_in = out / o.groups * o.kernel[0] * o.kernel[1];
  weight_ = register_parameter(
      "weight",
      init_uniform_fan_in(Shape{in, o.kernel[0], o.kernel[1], out / o.groups}, fan_in, device));
  if (o.bias) bias_ = register_parameter("bias", init_uniform_fan_in(Shape{out}, fan_in, device));
}

LSTM::LSTM(int64_t in, int64_t width, const LstmOptions& o, Device device)
    : dropout_(o.dropout), batch_first_(o.batch_first) {
  check(in >= 1 && width >= 1 && o.layers >= 1, "LSTM",
        "expected sizes and layers >= 1, got {} -> {} in {} layers", in, width, o.layers);
  check(o.dropout >= 0 && o.dropout <= 1, "LSTM",
        "expected a dropout probability in [0, 1], got {}", o.dropout);
  for (int64_t k = 0; k < o.layers; ++k) {
    const std::string layer = "_l" + std::to_string(k);
    // PyTorch bounds all of them by the width, whatever they sum over.
    const auto parameter = [&](const std::string& name, const Shape& shape) {
      return register_parameter(name + layer, init_uniform_fan_in(shape, width, device));
    };
    Layer& l = layers_.emplace_back();
    l.w_ih = parameter("weight_ih", Shape{4 * width, k == 0 ? in : width});
    l.w_hh = parameter("weight_hh", Shape{4 * width, width});
    l.b_ih = parameter("bias_ih", Shape{4 * width});
    l.b_hh = parameter("bias_hh", Shape{4 * width});
  }
}

Tensor LSTM::forward(const Tensor& x) {
  check(x.rank() == 3 && x.size(2) == layers_[0].w_ih.size(1), "LSTM",
        "expected x [{}, {}], got {}", batch_first_ ? "N, T" : "T, N", layers_[0].w_ih.size(1),
        describe(x));
  Tensor y = batch_first_ ? ops::transpose(x, 0, 1) : x;
  for (size_t k = 0; k < layers_.size(); ++k) {
    if (k > 0) y = ops::dropout(y, dropout_, training());
    const Layer& l = layers_[k];
    y = ops::lstm(y, l.w_ih, l.w_hh, l.b_ih, l.b_hh).y;
  }
  return batch_first_ ? ops::transpose(y, 0, 1) : y;
}

Tensor Flatten::forward(const Tensor& x) {
  // One pixel or one channel has but one order.
  if (x.rank() != 4 || x.size(3) == 1 || x.size(1) * x.size(2) == 1) return ops::flatten(x, 1);
  return ops::flatten(ops::permute(x, std::array<int64_t, 4>{0, 3, 1, 2}), 1);
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& step : steps_) y = (*step)(y);
  return y;
}

Tensor cross_entropy_loss(const Tensor& logits, const Tensor& labels, double label_smoothing) {
  const ContextScope phase(&Context::phase, Phase::loss);
  const ContextScope module(&Context::module, intern_module_path(0, "loss"));
  LossAttrs attrs;
  attrs.label_smoothing = static_cast<float>(label_smoothing);
  return ops::cross_entropy(logits, labels, attrs);
}

}  // namespace engine
