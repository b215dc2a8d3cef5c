// conv2, conv4, conv6: the lottery-ticket paper's CIFAR-10 networks (Frankle and Carbin, 2019):
// pairs of padded 3x3 convolutions, each pair followed by a 2x2 max pooling, then 256-256-classes.
// conv6 has 2,262,602 parameters at 32x32x3 with 10 classes.
//
// conv6_small: a reconstruction of a Conv6 that is reported to have 397K parameters:
// 8-16-32-64-128- 256 channels with batch norm, a max pooling after each pair, a global average and
// one linear layer: 397,130.
#include "core/error.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

// `features` and `classifier` in order.
class ConvNet : public Module {
 protected:
  Tensor forward(const Tensor& x) override { return (*classifier_)((*features_)(x)); }

  std::shared_ptr<Sequential> features_ =
      register_module("features", std::make_shared<Sequential>());
  std::shared_ptr<Sequential> classifier_ =
      register_module("classifier", std::make_shared<Sequential>());
};

class ConvN : public ConvNet {
 public:
  ConvN(const ModelOptions& o, int pairs) {
    const int64_t scale = int64_t{1} << pairs;
    check(o.input[0] >= scale && o.input[1] >= scale, "convn",
          "expected images of at least {0}x{0} for {1} poolings, got {2}x{3}", scale, pairs,
          o.input[0], o.input[1]);
    int64_t in = o.input[2];
    for (int pair = 0; pair < pairs; ++pair) {
      const int64_t out = int64_t{64} << pair;
      features_->add(conv_relu(in, out, 3, 1, 1, o.device));
      features_->skip();
      features_->add(conv_relu(out, out, 3, 1, 1, o.device));
      features_->skip();
      features_->add(max_pool(2, 2));
      in = out;
    }
    in *= (o.input[0] / scale) * (o.input[1] / scale);
    classifier_->add(std::make_shared<Flatten>());
    for (const int64_t width : o.hidden) {
      classifier_->add(std::make_shared<Linear>(in, width, o.device, Activation::relu));
      classifier_->skip();
      in = width;
    }
    classifier_->add(std::make_shared<Linear>(in, o.classes, o.device));
  }
};

class Conv6Small : public ConvNet {
 public:
  explicit Conv6Small(const ModelOptions& o) {
    check(o.input[0] >= 8 && o.input[1] >= 8, "conv6_small",
          "expected images of at least 8x8, got {}x{}", o.input[0], o.input[1]);
    int64_t in = o.input[2];
    for (int layer = 0; layer < 6; ++layer) {
      const int64_t out = int64_t{8} << layer;
      features_->add(std::make_shared<Conv2d>(
          in, out, Conv2dOptions{.kernel = {3, 3}, .padding = {1, 1}}, o.device));
      features_->add(std::make_shared<BatchNorm2d>(out, o.device));
      features_->add(std::make_shared<ReLU>());
      if (layer % 2 == 1) features_->add(max_pool(2, 2));
      in = out;
    }
    classifier_->add(std::make_shared<AdaptiveAvgPool2d>(1, 1));
    classifier_->add(std::make_shared<Flatten>());
    classifier_->add(std::make_shared<Linear>(in, o.classes, o.device));
  }
};

}  // namespace

std::unique_ptr<Model> make_conv2(const ModelOptions& options) {
  return std::make_unique<ConvN>(options, 1);
}
std::unique_ptr<Model> make_conv4(const ModelOptions& options) {
  return std::make_unique<ConvN>(options, 2);
}
std::unique_ptr<Model> make_conv6(const ModelOptions& options) {
  return std::make_unique<ConvN>(options, 3);
}
std::unique_ptr<Model> make_conv6_small(const ModelOptions& options) {
  return std::make_unique<Conv6Small>(options);
}

}  // namespace engine
