// Optimizers over flat buffers: all parameters lie side by side, and so do their gradients, so one
// kernel steps everything and one computes the norm.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/tensor.h"

namespace engine {

/// Parameters moved into one buffer, with one buffer of the same layout for their gradients. Each
/// begins at a multiple of 64 bytes; the gaps are zero in both.
class FlatParameters {
 public:
  /// The parameters must be f32 leaves that require gradients, on one device, each given once and
  /// to one optimizer at a time: their gradients go to its buffer until it is destroyed.
  explicit FlatParameters(std::vector<Tensor> parameters);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// A run of neighbouring parameters, in elements, that all have gradients and have taken part in
  /// equally many steps before.
  struct Run {
    int64_t begin;
    int64_t end;
    int64_t steps;
  };
  /// Parameters without a gradient since the last zero_grad are left out, as PyTorch leaves out
  /// those whose grad is None.
  std::vector<Run> runs_with_gradient() const;
  /// Counts a step for each parameter that has a gradient.
  void count_step();
  void zero_grad();
  /// How many steps each parameter has taken part in.
  const std::vector<int64_t>& steps() const { return steps_; }
  void set_steps(std::vector<int64_t> steps);

  int64_t numel() const { return values_.numel(); }
  Device device() const { return values_.device(); }
  Tensor values(Run run) const { return slice(values_, run); }
  Tensor gradients(Run run) const { return slice(gradients_, run); }
  static Tensor slice(const Tensor& buffer, Run run) {
    return buffer.view(Shape{run.end - run.begin}, static_cast<size_t>(run.begin) * sizeof(float));
  }

 private:
  std::vector<Tensor> parameters_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> steps_;
  Tensor values_, gradients_;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes every parameter that has a gradient.
  void step();
  void zero_grad() { flat_.zero_grad(); }
  double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  /// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_,
  /// and returns their norm before. Reads the norm back from the device.
  double clip_grad_norm(double max_norm);

  /// What the optimizer remembers of earlier steps: its own buffers by name, for a checkpoint to
  /// save from and load into, and the parameters' step counts.
  virtual std::vector<std::pair<std::string, Tensor>> state() const = 0;
  const std::vector<int64_t>& steps() const { return flat_.steps(); }
  void set_steps(std::vector<int64_t> steps) { flat_.set_steps(std::move(steps)); }

 protected:
  Optimizer(std::vector<Tensor> parameters, double lr);
  virtual void step_run(FlatParameters::Run run) = 0;
  /// A zeroed buffer of the parameters' layout, counted as optimizer state.
  Tensor zeroed_state() const;

  FlatParameters flat_;
  double lr_;
};

/// Stochastic gradient descent. g += wd p; buf = momentum buf + (1 - dampening) g, where the first
/// buf is g; nesterov: g += momentum buf, else g = buf; p -= lr g.
struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum > 0 and dampening = 0
};
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, double lr, const SgdOptions& options = {});
  std::vector<std::pair<std::string, Tensor>> state() const override;

 protected:
  void step_run(FlatParameters::Run run) override;

 private:
  SgdOptions options_;
  Tensor momentum_;
};

/// Adam (Kingma and Ba, 2015): p -= lr m / bc1 / (sqrt(v / bc2) + eps), with bc = 1 - beta^t. With
/// `decoupled`, AdamW (Loshchilov and Hutter, 2019): p is first multiplied by 1 - lr weight_decay;
/// without, weight_decay p is added to the gradient.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
};
class Adam : public Optimizer {
 public:
  Adam(std::vector<Tensor> parameters, double lr, const AdamOptions& options = {});
  std::vector<std::pair<std::string, Tensor>> state() const override;

 protected:
  void step_run(FlatParameters::Run run) override;

 private:
  AdamOptions options_;
  Tensor m_, v_;
};

}  // namespace engine
