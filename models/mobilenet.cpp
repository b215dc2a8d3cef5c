// mobilenet_v2: Sandler et al., 2018, as torchvision defines, names and initialises it: inverted
// residuals around depthwise convolutions. 3,504,872 parameters with 1000 classes.
#include "layers/activations.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

// Convolution, batch norm, ReLU6; the padding keeps the size at stride 1.
std::shared_ptr<Sequential> conv_bn_relu6(int64_t in, int64_t out, int32_t kernel, int32_t stride,
                                          Device device, int32_t groups = 1) {
  auto block = std::make_shared<Sequential>();
  block->add(plain_conv(in, out, kernel, stride, (kernel - 1) / 2, device, groups));
  block->add(std::make_shared<BatchNorm2d>(out, device));
  block->add(std::make_shared<ReLU6>());
  return block;
}

// 1x1 to the wide hidden layer, depthwise 3x3, 1x1 back without activation.
class InvertedResidual : public Module {
 public:
  InvertedResidual(int64_t in, int64_t out, int32_t stride, int64_t expansion, Device device)
      : shortcut_(stride == 1 && in == out) {
    const int64_t hidden = in * expansion;
    if (expansion != 1) conv_->add(conv_bn_relu6(in, hidden, 1, 1, device));
    conv_->add(conv_bn_relu6(hidden, hidden, 3, stride, device, static_cast<int32_t>(hidden)));
    conv_->add(plain_conv(hidden, out, 1, 1, 0, device));
    conv_->add(std::make_shared<BatchNorm2d>(out, device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    const Tensor y = (*conv_)(x);
    return shortcut_ ? ops::add(x, y) : y;
  }

 private:
  std::shared_ptr<Sequential> conv_ = register_module("conv", std::make_shared<Sequential>());
  bool shortcut_;
};

struct Stage {
  int64_t expansion;
  int64_t channels;
  int blocks;
  int32_t stride;  // of the first block
};
constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                             {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

class MobileNetV2 : public Module {
 public:
  explicit MobileNetV2(const ModelOptions& o) {
    features_->add(conv_bn_relu6(o.input[2], 32, 3, 2, o.device));
    int64_t in = 32;
    for (const Stage& stage : kStages) {
      for (int block = 0; block < stage.blocks; ++block) {
        features_->add(std::make_shared<InvertedResidual>(
            in, stage.channels, block == 0 ? stage.stride : 1, stage.expansion, o.device));
        in = stage.channels;
      }
    }
    features_->add(conv_bn_relu6(in, 1280, 1, 1, o.device));
    classifier_->add(std::make_shared<Dropout>(o.dropout.value_or(0.2)));
    classifier_->add(std::make_shared<Linear>(1280, o.classes, o.device));
    init_convolutions_normal(*this, Fan::out);
    init_linears_normal(*this, 0.01);
    init_biases_zero(*this);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    return (*classifier_)(ops::flatten(ops::adaptive_avg_pool2d((*features_)(x), 1, 1), 1));
  }

 private:
  std::shared_ptr<Sequential> features_ =
      register_module("features", std::make_shared<Sequential>());
  std::shared_ptr<Sequential> classifier_ =
      register_module("classifier", std::make_shared<Sequential>());
};

}  // namespace

std::unique_ptr<Model> make_mobilenet_v2(const ModelOptions& options) {
  return std::make_unique<MobileNetV2>(options);
}

}  // namespace engine
