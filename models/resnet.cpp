// resnet18, resnet34, resnet50: He et al., 2016, as torchvision defines, names and initialises them
// (in resnet50 the 3x3 convolution has the stride). The stem "cifar" is a 3x3 convolution without
// pooling, for small images. 11,689,512, 21,797,672 and 25,557,032 parameters with 1000 classes.
#include <array>

#include "core/error.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

// What both kinds of block share: the shortcut, projected where the shape changes.
class ResidualBlock : public Module {
 protected:
  // Registered last, as in torchvision.
  void add_shortcut(int64_t in, int64_t out, int32_t stride, Device device) {
    if (stride == 1 && in == out) return;
    downsample_ = register_module("downsample", std::make_shared<Sequential>());
    downsample_->add(plain_conv(in, out, 1, stride, 0, device));
    downsample_->add(std::make_shared<BatchNorm2d>(out, device));
  }
  Tensor joined(const Tensor& y, const Tensor& x) const {
    return ops::relu(ops::add(y, downsample_ ? (*downsample_)(x) : x));
  }

 private:
  std::shared_ptr<Sequential> downsample_;
};

class BasicBlock : public ResidualBlock {
 public:
  static constexpr int64_t kExpansion = 1;
  BasicBlock(int64_t in, int64_t width, int32_t stride, Device device) {
    conv1_ = register_module("conv1", plain_conv(in, width, 3, stride, 1, device));
    bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(width, device));
    conv2_ = register_module("conv2", plain_conv(width, width, 3, 1, 1, device));
    bn2_ = register_module("bn2", std::make_shared<BatchNorm2d>(width, device));
    add_shortcut(in, width, stride, device);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    const Tensor y = ops::relu((*bn1_)((*conv1_)(x)));
    return joined((*bn2_)((*conv2_)(y)), x);
  }

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_;
};

class Bottleneck : public ResidualBlock {
 public:
  static constexpr int64_t kExpansion = 4;
  Bottleneck(int64_t in, int64_t width, int32_t stride, Device device) {
    const int64_t out = width * kExpansion;
    conv1_ = register_module("conv1", plain_conv(in, width, 1, 1, 0, device));
    bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(width, device));
    conv2_ = register_module("conv2", plain_conv(width, width, 3, stride, 1, device));
    bn2_ = register_module("bn2", std::make_shared<BatchNorm2d>(width, device));
    conv3_ = register_module("conv3", plain_conv(width, out, 1, 1, 0, device));
    bn3_ = register_module("bn3", std::make_shared<BatchNorm2d>(out, device));
    add_shortcut(in, out, stride, device);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = ops::relu((*bn1_)((*conv1_)(x)));
    y = ops::relu((*bn2_)((*conv2_)(y)));
    return joined((*bn3_)((*conv3_)(y)), x);
  }

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_, conv3_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_, bn3_;
};

template <class Block>
class ResNet : public Module {
 public:
  ResNet(const ModelOptions& o, const std::array<int, 4>& blocks) {
    const bool cifar = o.stem == "cifar";
    conv1_ = register_module("conv1", cifar ? plain_conv(o.input[2], 64, 3, 1, 1, o.device)
                                            : plain_conv(o.input[2], 64, 7, 2, 3, o.device));
    bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(64, o.device));
    if (!cifar) maxpool_ = register_module("maxpool", max_pool(3, 2, 1));
    int64_t in = 64;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int64_t width = int64_t{64} << i;
      layers_[i] = register_module("layer" + std::to_string(i + 1), std::make_shared<Sequential>());
      for (int block = 0; block < blocks[i]; ++block) {
        const int32_t stride = i > 0 && block == 0 ? 2 : 1;
        layers_[i]->add(std::make_shared<Block>(in, width, stride, o.device));
        in = width * Block::kExpansion;
      }
    }
    avgpool_ = register_module("avgpool", std::make_shared<AdaptiveAvgPool2d>(1, 1));
    flatten_ = register_module("flatten", std::make_shared<Flatten>());
    fc_ = register_module("fc", std::make_shared<Linear>(in, o.classes, o.device));
    init_convolutions_normal(*this, Fan::out);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = ops::relu((*bn1_)((*conv1_)(x)));
    if (maxpool_) y = (*maxpool_)(y);
    for (const auto& layer : layers_) y = (*layer)(y);
    return (*fc_)((*flatten_)((*avgpool_)(y)));
  }

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<MaxPool2d> maxpool_;
  std::array<std::shared_ptr<Sequential>, 4> layers_;
  std::shared_ptr<AdaptiveAvgPool2d> avgpool_;
  std::shared_ptr<Flatten> flatten_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace

std::unique_ptr<Model> make_resnet18(const ModelOptions& options) {
  return std::make_unique<ResNet<BasicBlock>>(options, std::array{2, 2, 2, 2});
}
std::unique_ptr<Model> make_resnet34(const ModelOptions& options) {
  return std::make_unique<ResNet<BasicBlock>>(options, std::array{3, 4, 6, 3});
}
std::unique_ptr<Model> make_resnet50(const ModelOptions& options) {
  return std::make_unique<ResNet<Bottleneck>>(options, std::array{3, 4, 6, 3});
}

}  // namespace engine
