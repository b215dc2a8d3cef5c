// The normalisation layers. Each is PyTorch's of the same name, on NHWC images: parameters weight
// (from 1) and bias (from 0), unless `affine` is false.
#pragma once

#include "core/ops.h"
#include "layers/module.h"

namespace engine {

/// Over each channel of x [N, H, W, C]: in training by the batch's statistics, which move the
/// buffers running_mean and running_var (new = (1 - momentum) old + momentum batch); in evaluation
/// by the buffers. The buffer num_batches_tracked, i64, counts the training batches; no kernel
/// reads it, so it is kept on the CPU.
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(int64_t channels, Device device, double eps = 1e-5, double momentum = 0.1);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_, running_mean_, running_var_, num_batches_tracked_;
  double eps_, momentum_;
};

/// Over the last axes of x, which must have `shape`.
class LayerNorm : public Module {
 public:
  LayerNorm(const Shape& shape, Device device, double eps = 1e-5, bool affine = true);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  Shape shape_;
  Tensor weight_, bias_;
  double eps_;
};

/// Over each image's groups of neighbouring channels of x [N, ..., C].
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t groups, int64_t channels, Device device, double eps = 1e-5, bool affine = true);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  int64_t groups_, channels_;
  Tensor weight_, bias_;
  double eps_;
};

/// Over each image's channels of x [N, H, W, C].
class InstanceNorm2d : public Module {
 public:
  InstanceNorm2d(int64_t channels, Device device, double eps = 1e-5, bool affine = false);

 protected:
  Tensor forward(const Tensor& x) override;

 private:
  int64_t channels_;
  Tensor weight_, bias_;
  double eps_;
};

}  // namespace engine
