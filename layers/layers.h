// The layers. Each is PyTorch's of the same name, on NHWC images and OHWI weights.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/ops.h"
#include "layers/module.h"

namespace engine {

/// What follows a layer's sum, in the same kernel where the fusion policy allows it.
enum class Activation : uint8_t { none, relu };

/// x [..., in] -> [..., out]. Parameters weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, Device device, Activation activation = Activation::none,
         bool bias = true);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_;
  Activation activation_;
};

/// Rows of a trainable table: ids i64 [...] -> [..., width]. Parameter weight [rows, width].
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t width, Device device);

 protected:
  Tensor forward(const Tensor& ids) override { return ops::embedding(weight_, ids); }

 private:
  Tensor weight_;
};

struct Conv2dOptions {
  std::array<int32_t, 2> kernel{1, 1};  ///< height, width; as the others below
  std::array<int32_t, 2> stride{1, 1};
  std::array<int32_t, 2> padding{0, 0};
  std::array<int32_t, 2> dilation{1, 1};
  int32_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;
};

/// x [N, H, W, in] -> [N, OH, OW, out]. Parameters weight [out, KH, KW, in / groups], bias [out].
class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, const Conv2dOptions& options, Device device);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_;
  Conv2dAttrs attrs_;
  Activation activation_;
};

struct ConvTranspose2dOptions {
  std::array<int32_t, 2> kernel{1, 1};
  std::array<int32_t, 2> stride{1, 1};
  std::array<int32_t, 2> padding{0, 0};
  std::array<int32_t, 2> output_padding{0, 0};
  std::array<int32_t, 2> dilation{1, 1};
  int32_t groups = 1;
  bool bias = true;
};

/// The transpose of a convolution. Parameters weight [in, KH, KW, out / groups], bias [out].
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(int64_t in, int64_t out, const ConvTranspose2dOptions& options, Device device);

 protected:
  Tensor forward(const Tensor& x) override {
    return ops::conv_transpose2d(x, weight_, bias_, attrs_, output_padding_);
  }

 private:
  Tensor weight_, bias_;
  Conv2dAttrs attrs_;
  std::array<int32_t, 2> output_padding_;
};

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Pool2dAttrs& attrs) : attrs_(attrs) {}

 protected:
  Tensor forward(const Tensor& x) override { return ops::max_pool2d(x, attrs_); }

 private:
  Pool2dAttrs attrs_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(const Pool2dAttrs& attrs) : attrs_(attrs) {}

 protected:
  Tensor forward(const Tensor& x) override { return ops::avg_pool2d(x, attrs_); }

 private:
  Pool2dAttrs attrs_;
};

/// The average of height x width shares of the image, whatever its size.
class AdaptiveAvgPool2d : public Module {
 public:
  AdaptiveAvgPool2d(int64_t height, int64_t width) : height_(height), width_(width) {}

 protected:
  Tensor forward(const Tensor& x) override { return ops::adaptive_avg_pool2d(x, height_, width_); }

 private:
  int64_t height_, width_;
};

/// Mirrors `padding` pixels of the image, fewer than its sides have, around each side.
class ReflectionPad2d : public Module {
 public:
  explicit ReflectionPad2d(int64_t padding) : padding_{0, padding, padding, 0} {}

 protected:
  Tensor forward(const Tensor& x) override {
    return ops::pad(x, padding_, padding_, PadMode::reflect);
  }

 private:
  std::array<int64_t, 4> padding_;
};

class ReLU : public Module {
 protected:
  Tensor forward(const Tensor& x) override { return ops::relu(x); }
};

/// In training mode zeroes elements with probability p; the identity in evaluation.
class Dropout : public Module {
 public:
  explicit Dropout(double p) : p_(p) {}

 protected:
  Tensor forward(const Tensor& x) override { return ops::dropout(x, p_, training()); }

 private:
  double p_;
};

struct LstmOptions {
  int64_t layers = 1;
  double dropout = 0;  ///< in training, between the layers
  bool batch_first = false;
};

/// x [T, N, in] -> the last layer's hidden states [T, N, width]; [N, T, ...] if batch_first. The
/// states begin at zero. Parameters of layer k: weight_ih_lk [4 width, in or width], weight_hh_lk
/// [4 width, width], bias_ih_lk and bias_hh_lk [4 width], gates in the order input, forget, cell,
/// output.
class LSTM : public Module {
 public:
  LSTM(int64_t in, int64_t width, const LstmOptions& options, Device device);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  struct Layer {
    Tensor w_ih, w_hh, b_ih, b_hh;
  };
  std::vector<Layer> layers_;
  double dropout_;
  bool batch_first_;
};

/// [N, ...] -> [N, rest]. An image's features come out in PyTorch's order, channel by channel, so
/// that the columns of the linear layer that follows are PyTorch's too.
class Flatten : public Module {
 protected:
  Tensor forward(const Tensor& x) override;
};

/// Its children in order, named "0", "1", ... after their place.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <class M>
  void add(std::shared_ptr<M> child) {
    steps_.push_back(register_module(std::to_string(place_++), std::move(child)));
  }
  /// Leaves a place empty: that of an activation which the child before it has fused in.
  void skip() { ++place_; }

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::shared_ptr<Module>> steps_;
  int place_ = 0;
};

/// The mean cross-entropy of logits [N, C] against labels i64 [N]: a loss module, with its own path
/// ("loss") and phase in the profile.
Tensor cross_entropy_loss(const Tensor& logits, const Tensor& labels, double label_smoothing = 0);

}  // namespace engine
