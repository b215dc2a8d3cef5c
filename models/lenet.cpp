// lenet: LeNet-5 (LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998) as
// it is built today: ReLU for the sigmoid-like functions, max pooling for the trainable averages. A
// 28 x 28 image is padded to 32 x 32 by the first convolution. 61,706 parameters with one channel
// and 10 classes.
#include "core/error.h"
#include "layers/layers.h"
#include "models/networks.h"

namespace engine {

namespace {

class LeNet : public Module {
 public:
  explicit LeNet(const ModelOptions& o) {
    const Shape& input = o.input;
    const Device device = o.device;
    check((input[0] == 28 || input[0] == 32) && input[1] == input[0], "lenet",
          "expected images of 28x28 or 32x32, got {}x{}", input[0], input[1]);
    const int32_t padding = input[0] == 28 ? 2 : 0;
    conv1_ = register_module("conv1",
                             std::make_shared<Conv2d>(input[2], 6,
                                                      Conv2dOptions{.kernel = {5, 5},
                                                                    .padding = {padding, padding},
                                                                    .activation = Activation::relu},
                                                      device));
    pool1_ = register_module("pool1", std::make_shared<MaxPool2d>(kPool));
    conv2_ = register_module(
        "conv2",
        std::make_shared<Conv2d>(
            6, 16, Conv2dOptions{.kernel = {5, 5}, .activation = Activation::relu}, device));
    pool2_ = register_module("pool2", std::make_shared<MaxPool2d>(kPool));
    flatten_ = register_module("flatten", std::make_shared<Flatten>());
    fc1_ = register_module("fc1", std::make_shared<Linear>(400, 120, device, Activation::relu));
    fc2_ = register_module("fc2", std::make_shared<Linear>(120, 84, device, Activation::relu));
    fc3_ = register_module("fc3", std::make_shared<Linear>(84, o.classes, device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    Tensor y = (*pool1_)((*conv1_)(x));
    y = (*pool2_)((*conv2_)(y));
    return (*fc3_)((*fc2_)((*fc1_)((*flatten_)(y))));
  }

 private:
  static constexpr Pool2dAttrs kPool{.kernel = {2, 2}, .stride = {2, 2}};

  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<MaxPool2d> pool1_, pool2_;
  std::shared_ptr<Flatten> flatten_;
  std::shared_ptr<Linear> fc1_, fc2_, fc3_;
};

}  // namespace

std::unique_ptr<Model> make_lenet(const ModelOptions& options) {
  return std::make_unique<LeNet>(options);
}

}  // namespace engine
