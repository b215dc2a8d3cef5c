// vgg11, vgg16, vgg16_bn, vgg19: Simonyan and Zisserman, 2015, as torchvision defines, names and
// initialises them. The stem "cifar" leaves the 7x7 pooling out, so that a 32x32 image ends in
// 512-4096-4096-classes.
#include <string_view>

#include "core/error.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

// One digit a convolution: its width is 64 times it. M: a 2x2 max pooling.
constexpr std::string_view kVgg11 = "1M2M44M88M88M";
constexpr std::string_view kVgg16 = "11M22M444M888M888M";
constexpr std::string_view kVgg19 = "11M22M4444M8888M8888M";

class Vgg : public Module {
 public:
  Vgg(const ModelOptions& o, std::string_view layers, bool batch_norm) {
    check(o.input[0] >= 32 && o.input[1] >= 32, "vgg",
          "expected images of at least 32x32, got {}x{}", o.input[0], o.input[1]);
    int64_t in = o.input[2];
    for (const char layer : layers) {
      if (layer == 'M') {
        features_->add(max_pool(2, 2));
        continue;
      }
      const int64_t out = 64 * (layer - '0');
      if (batch_norm) {
        features_->add(std::make_shared<Conv2d>(
            in, out, Conv2dOptions{.kernel = {3, 3}, .padding = {1, 1}}, o.device));
        features_->add(std::make_shared<BatchNorm2d>(out, o.device));
        features_->add(std::make_shared<ReLU>());
      } else {
        features_->add(conv_relu(in, out, 3, 1, 1, o.device));
        features_->skip();
      }
      in = out;
    }
    int64_t pixels = (o.input[0] / 32) * (o.input[1] / 32);
    if (o.stem == "imagenet") {
      pool_ = register_module("avgpool", std::make_shared<AdaptiveAvgPool2d>(7, 7));
      pixels = 7 * 7;
    }
    classifier_ = register_module("classifier", std::make_shared<Sequential>());
    in *= pixels;
    for (int hidden = 0; hidden < 2; ++hidden) {
      classifier_->add(std::make_shared<Linear>(in, 4096, o.device, Activation::relu));
      classifier_->skip();
      classifier_->add(std::make_shared<Dropout>(o.dropout.value_or(0.5)));
      in = 4096;
    }
    classifier_->add(std::make_shared<Linear>(in, o.classes, o.device));
    init_convolutions_normal(*this, Fan::out);
    init_linears_normal(*this, 0.01);
    init_biases_zero(*this);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = (*features_)(x);
    if (pool_) y = (*pool_)(y);
    return (*classifier_)((*flatten_)(y));
  }

 private:
  std::shared_ptr<Sequential> features_ =
      register_module("features", std::make_shared<Sequential>());
  std::shared_ptr<Flatten> flatten_ = register_module("flatten", std::make_shared<Flatten>());
  std::shared_ptr<AdaptiveAvgPool2d> pool_;
  std::shared_ptr<Sequential> classifier_;
};

}  // namespace

std::unique_ptr<Model> make_vgg11(const ModelOptions& options) {
  return std::make_unique<Vgg>(options, kVgg11, false);
}
std::unique_ptr<Model> make_vgg16(const ModelOptions& options) {
  return std::make_unique<Vgg>(options, kVgg16, false);
}
std::unique_ptr<Model> make_vgg16_bn(const ModelOptions& options) {
  return std::make_unique<Vgg>(options, kVgg16, true);
}
std::unique_ptr<Model> make_vgg19(const ModelOptions& options) {
  return std::make_unique<Vgg>(options, kVgg19, false);
}

}  // namespace engine
