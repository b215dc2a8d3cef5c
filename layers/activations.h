// Activations as layers, for networks that hold them in a Sequential. Each is PyTorch's.
#pragma once

#include "core/ops.h"
#include "layers/module.h"

namespace engine {

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}

 protected:
  Tensor forward(const Tensor& x) override { return ops::leaky_relu(x, negative_slope_); }

 private:
  double negative_slope_;
};

/// x cut to [0, 6].
class ReLU6 : public Module {
 protected:
  Tensor forward(const Tensor& x) override { return ops::clamp(x, 0, 6); }
};

class Tanh : public Module {
 protected:
  Tensor forward(const Tensor& x) override { return ops::tanh(x); }
};

/// With the normal distribution function, or with GPT-2's approximation of it by tanh.
class GELU : public Module {
 public:
  enum class Approximate : uint8_t { none, tanh };
  explicit GELU(Approximate approximate = Approximate::none) : approximate_(approximate) {}

 protected:
  Tensor forward(const Tensor& x) override {
    return approximate_ == Approximate::tanh ? ops::gelu_tanh(x) : ops::gelu(x);
  }

 private:
  Approximate approximate_;
};

}  // namespace engine
