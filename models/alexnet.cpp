// alexnet: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014, as
// torchvision defines and names it. 61,100,840 parameters with 1000 classes.
#include "core/error.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

class AlexNet : public Module {
 public:
  explicit AlexNet(const ModelOptions& o) {
    check(o.input[0] >= 63 && o.input[1] >= 63, "alexnet",
          "expected images of at least 63x63, got {}x{}", o.input[0], o.input[1]);
    const auto conv = [&](int64_t in, int64_t out, int32_t kernel, int32_t stride,
                          int32_t padding) {
      features_->add(conv_relu(in, out, kernel, stride, padding, o.device));
      features_->skip();
    };
    conv(o.input[2], 64, 11, 4, 2);
    features_->add(max_pool(3, 2));
    conv(64, 192, 5, 1, 2);
    features_->add(max_pool(3, 2));
    conv(192, 384, 3, 1, 1);
    conv(384, 256, 3, 1, 1);
    conv(256, 256, 3, 1, 1);
    features_->add(max_pool(3, 2));

    int64_t in = 256 * 6 * 6;
    for (int hidden = 0; hidden < 2; ++hidden) {
      classifier_->add(std::make_shared<Dropout>(o.dropout.value_or(0.5)));
      classifier_->add(std::make_shared<Linear>(in, 4096, o.device, Activation::relu));
      classifier_->skip();
      in = 4096;
    }
    classifier_->add(std::make_shared<Linear>(in, o.classes, o.device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    return (*classifier_)((*flatten_)((*pool_)((*features_)(x))));
  }

 private:
  std::shared_ptr<Sequential> features_ =
      register_module("features", std::make_shared<Sequential>());
  std::shared_ptr<AdaptiveAvgPool2d> pool_ =
      register_module("avgpool", std::make_shared<AdaptiveAvgPool2d>(6, 6));
  std::shared_ptr<Flatten> flatten_ = register_module("flatten", std::make_shared<Flatten>());
  std::shared_ptr<Sequential> classifier_ =
      register_module("classifier", std::make_shared<Sequential>());
};

}  // namespace

std::unique_ptr<Model> make_alexnet(const ModelOptions& options) {
  return std::make_unique<AlexNet>(options);
}

}  // namespace engine
