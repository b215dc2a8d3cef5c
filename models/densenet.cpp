// densenet121, densenet169: Huang et al., 2017, as torchvision defines, names and initialises them:
// growth 32, bottleneck 4. 7,978,856 and 14,149,480 parameters with 1000 classes.
#include <array>

#include "core/error.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

constexpr int64_t kGrowth = 32;
constexpr int64_t kBottleneck = 4 * kGrowth;

// Appends kGrowth channels to its input.
class DenseLayer : public Module {
 public:
  DenseLayer(int64_t in, Device device) {
    norm1_ = register_module("norm1", std::make_shared<BatchNorm2d>(in, device));
    conv1_ = register_module("conv1", plain_conv(in, kBottleneck, 1, 1, 0, device));
    norm2_ = register_module("norm2", std::make_shared<BatchNorm2d>(kBottleneck, device));
    conv2_ = register_module("conv2", plain_conv(kBottleneck, kGrowth, 3, 1, 1, device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = (*conv1_)(ops::relu((*norm1_)(x)));
    y = (*conv2_)(ops::relu((*norm2_)(y)));
    return ops::concat(std::array{x, y}, 3);
  }

 private:
  std::shared_ptr<BatchNorm2d> norm1_, norm2_;
  std::shared_ptr<Conv2d> conv1_, conv2_;
};

class DenseBlock : public Module {
 public:
  DenseBlock(int64_t in, int layers, Device device) {
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(register_module("denselayer" + std::to_string(i + 1),
                                        std::make_shared<DenseLayer>(in + i * kGrowth, device)));
    }
  }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& layer : layers_) y = (*layer)(y);
    return y;
  }

 private:
  std::vector<std::shared_ptr<DenseLayer>> layers_;
};

// Halves the channels and the image.
class Transition : public Module {
 public:
  Transition(int64_t in, Device device) {
    norm_ = register_module("norm", std::make_shared<BatchNorm2d>(in, device));
    conv_ = register_module("conv", plain_conv(in, in / 2, 1, 1, 0, device));
    pool_ = register_module(
        "pool", std::make_shared<AvgPool2d>(Pool2dAttrs{.kernel = {2, 2}, .stride = {2, 2}}));
  }

 protected:
  Tensor forward(const Tensor& x) override { return (*pool_)((*conv_)(ops::relu((*norm_)(x)))); }

 private:
  std::shared_ptr<BatchNorm2d> norm_;
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<AvgPool2d> pool_;
};

class Features : public Module {
 public:
  Features(int64_t channels, const std::array<int, 4>& blocks, Device device) {
    conv0_ = register_module("conv0", plain_conv(channels, 64, 7, 2, 3, device));
    norm0_ = register_module("norm0", std::make_shared<BatchNorm2d>(64, device));
    pool0_ = register_module("pool0", max_pool(3, 2, 1));
    out_ = 64;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string number = std::to_string(i + 1);
      parts_.push_back(register_module("denseblock" + number,
                                       std::make_shared<DenseBlock>(out_, blocks[i], device)));
      out_ += blocks[i] * kGrowth;
      if (i + 1 == blocks.size()) break;
      parts_.push_back(
          register_module("transition" + number, std::make_shared<Transition>(out_, device)));
      out_ /= 2;
    }
    norm5_ = register_module("norm5", std::make_shared<BatchNorm2d>(out_, device));
  }
  int64_t out() const { return out_; }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = (*pool0_)(ops::relu((*norm0_)((*conv0_)(x))));
    for (const auto& part : parts_) y = (*part)(y);
    return ops::relu((*norm5_)(y));
  }

 private:
  std::shared_ptr<Conv2d> conv0_;
  std::shared_ptr<BatchNorm2d> norm0_, norm5_;
  std::shared_ptr<MaxPool2d> pool0_;
  std::vector<std::shared_ptr<Module>> parts_;
  int64_t out_ = 0;
};

class DenseNet : public Module {
 public:
  DenseNet(const ModelOptions& o, const std::array<int, 4>& blocks) {
    check(o.input[0] >= 29 && o.input[1] >= 29, "densenet",
          "expected images of at least 29x29, got {}x{}", o.input[0], o.input[1]);
    features_ =
        register_module("features", std::make_shared<Features>(o.input[2], blocks, o.device));
    classifier_ = register_module("classifier",
                                  std::make_shared<Linear>(features_->out(), o.classes, o.device));
    init_convolutions_normal(*this, Fan::in);
    init_biases_zero(*this);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    return (*classifier_)(ops::flatten(ops::adaptive_avg_pool2d((*features_)(x), 1, 1), 1));
  }

 private:
  std::shared_ptr<Features> features_;
  std::shared_ptr<Linear> classifier_;
};

}  // namespace

std::unique_ptr<Model> make_densenet121(const ModelOptions& options) {
  return std::make_unique<DenseNet>(options, std::array{6, 12, 24, 16});
}
std::unique_ptr<Model> make_densenet169(const ModelOptions& options) {
  return std::make_unique<DenseNet>(options, std::array{6, 12, 32, 32});
}

}  // namespace engine
