#include "layers/normalization.h"

#include "core/context.h"
#include "core/error.h"
#include "layers/init.h"

namespace engine {

namespace {

void check_image(const char* layer, const Tensor& x, int64_t channels) {
  check(x.rank() == 4 && x.size(3) == channels, layer, "expected x [N, H, W, {}], got {}", channels,
        describe(x));
}

}  // namespace

BatchNorm2d::BatchNorm2d(int64_t channels, Device device, double eps, double momentum)
    : eps_(eps), momentum_(momentum) {
  check(channels >= 1, "BatchNorm2d", "expected at least 1 channel, got {}", channels);
  const Shape shape{channels};
  weight_ = register_parameter("weight", init_constant(shape, 1, device));
  bias_ = register_parameter("bias", init_constant(shape, 0, device));
  running_mean_ = register_buffer("running_mean", init_constant(shape, 0, device));
  running_var_ = register_buffer("running_var", init_constant(shape, 1, device));
  num_batches_tracked_ = register_buffer("num_batches_tracked", full(Shape{}, 0, DType::i64));
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  check_image("BatchNorm2d", x, weight_.size(0));
  Tensor y =
      ops::batch_norm(x, weight_, bias_, running_mean_, running_var_, training(), momentum_, eps_);
  if (training()) ++*num_batches_tracked_.data<int64_t>();
  return y;
}

LayerNorm::LayerNorm(const Shape& shape, Device device, double eps, bool affine)
    : shape_(shape), eps_(eps) {
  check(shape.rank() >= 1 && shape.numel() >= 1, "LayerNorm",
        "expected a shape of at least one value, got {}", shape);
  if (!affine) return;
  weight_ = register_parameter("weight", init_constant(shape, 1, device));
  bias_ = register_parameter("bias", init_constant(shape, 0, device));
}

Tensor LayerNorm::forward(const Tensor& x) {
  bool fits = x.rank() >= shape_.rank();
  for (int i = 0; fits && i < shape_.rank(); ++i) {
    fits = x.size(x.rank() - shape_.rank() + i) == shape_[i];
  }
  check(fits, "LayerNorm", "expected x whose last axes are {}, got {}", shape_, describe(x));
  return ops::layer_norm(x, shape_.rank(), weight_, bias_, eps_);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, Device device, double eps, bool affine)
    : groups_(groups), channels_(channels), eps_(eps) {
  check(groups >= 1 && channels >= 1 && channels % groups == 0, "GroupNorm",
        "expected channels that are a multiple of groups, got {} channels in {} groups", channels,
        groups);
  if (!affine) return;
  weight_ = register_parameter("weight", init_constant(Shape{channels}, 1, device));
  bias_ = register_parameter("bias", init_constant(Shape{channels}, 0, device));
}

Tensor GroupNorm::forward(const Tensor& x) {
  check(x.rank() >= 2 && x.size(x.rank() - 1) == channels_, "GroupNorm",
        "expected x [N, ..., {}], got {}", channels_, describe(x));
  return ops::group_norm(x, groups_, weight_, bias_, eps_);
}

InstanceNorm2d::InstanceNorm2d(int64_t channels, Device device, double eps, bool affine)
    : channels_(channels), eps_(eps) {
  check(channels >= 1, "InstanceNorm2d", "expected at least 1 channel, got {}", channels);
  if (!affine) return;
  weight_ = register_parameter("weight", init_constant(Shape{channels}, 1, device));
  bias_ = register_parameter("bias", init_constant(Shape{channels}, 0, device));
}

Tensor InstanceNorm2d::forward(const Tensor& x) {
  check_image("InstanceNorm2d", x, channels_);
  return ops::instance_norm(x, weight_, bias_, eps_);
}

}  // namespace engine
