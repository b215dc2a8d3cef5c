// squeezenet1_1: Iandola et al., 2016, in its version 1.1, as torchvision defines, names and
// initialises it. 1,235,496 parameters with 1000 classes.
#include <array>
#include <cmath>

#include "core/context.h"
#include "core/error.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

// 1x1 to few channels, then 1x1 and 3x3 side by side, `expand` channels each.
class Fire : public Module {
 public:
  Fire(int64_t in, int64_t squeeze, int64_t expand, Device device) {
    squeeze_ = register_module("squeeze", conv_relu(in, squeeze, 1, 1, 0, device));
    expand1x1_ = register_module("expand1x1", conv_relu(squeeze, expand, 1, 1, 0, device));
    expand3x3_ = register_module("expand3x3", conv_relu(squeeze, expand, 3, 1, 1, device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    const Tensor y = (*squeeze_)(x);
    return ops::concat(std::array{(*expand1x1_)(y), (*expand3x3_)(y)}, 3);
  }

 private:
  std::shared_ptr<Conv2d> squeeze_, expand1x1_, expand3x3_;
};

class SqueezeNet : public Module {
 public:
  explicit SqueezeNet(const ModelOptions& o) {
    check(o.input[0] >= 17 && o.input[1] >= 17, "squeezenet1_1",
          "expected images of at least 17x17, got {}x{}", o.input[0], o.input[1]);
    const auto fire = [&](int64_t in, int64_t squeeze, int64_t expand) {
      features_->add(std::make_shared<Fire>(in, squeeze, expand, o.device));
    };
    const auto pool = [&] { features_->add(max_pool(3, 2, 0, /*ceil_mode=*/true)); };
    features_->add(conv_relu(o.input[2], 64, 3, 2, 0, o.device));
    features_->skip();
    pool();
    fire(64, 16, 64);
    fire(128, 16, 64);
    pool();
    fire(128, 32, 128);
    fire(256, 32, 128);
    pool();
    fire(256, 48, 192);
    fire(384, 48, 192);
    fire(384, 64, 256);
    fire(512, 64, 256);
    classifier_->add(std::make_shared<Dropout>(o.dropout.value_or(0.5)));
    const auto last = conv_relu(512, o.classes, 1, 1, 0, o.device);
    classifier_->add(last);
    classifier_->skip();
    classifier_->add(std::make_shared<AdaptiveAvgPool2d>(1, 1));

    const NoGradScope no_grad;
    for (const Tensor& weight : parameters()) {
      if (weight.rank() != 4) continue;
      const double bound = std::sqrt(6.0 / static_cast<double>(weight.numel() / weight.size(0)));
      ops::uniform_(weight, -bound, bound);
    }
    ops::normal_(last->parameters()[0], 0, 0.01);
    init_biases_zero(*this);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    return ops::flatten((*classifier_)((*features_)(x)), 1);
  }

 private:
  std::shared_ptr<Sequential> features_ =
      register_module("features", std::make_shared<Sequential>());
  std::shared_ptr<Sequential> classifier_ =
      register_module("classifier", std::make_shared<Sequential>());
};

}  // namespace

std::unique_ptr<Model> make_squeezenet1_1(const ModelOptions& options) {
  return std::make_unique<SqueezeNet>(options);
}

}  // namespace engine
