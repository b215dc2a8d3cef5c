// The published networks of CycleGAN: a generator of strided, residual and transposed convolutions
// (Johnson et al., 2016) and the 70x70 PatchGAN discriminator (Isola et al., 2017). Instance norm
// has no parameters, so the convolutions before it keep their biases.
#include "models/cyclegan.h"

#include <algorithm>

#include "core/context.h"
#include "core/error.h"
#include "layers/activations.h"
#include "layers/layers.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

std::shared_ptr<Conv2d> conv(int64_t in, int64_t out, int32_t kernel, int32_t stride,
                             int32_t padding, Device device) {
  return std::make_shared<Conv2d>(
      in, out,
      Conv2dOptions{
          .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}},
      device);
}

// A network that is a list of layers, numbered as published.
class Listed : public Module {
 protected:
  Tensor forward(const Tensor& x) override { return (*model_)(x); }

  void add_norm_relu(int64_t channels, Device device) {
    model_->add(std::make_shared<InstanceNorm2d>(channels, device));
    model_->add(std::make_shared<ReLU>());
  }
  void init() {
    const NoGradScope no_grad;
    for (const Tensor& weight : parameters()) {
      if (weight.rank() == 4) ops::normal_(weight, 0, 0.02);
    }
    init_biases_zero(*this);
  }

  std::shared_ptr<Sequential> model_ = register_module("model", std::make_shared<Sequential>());
};

class ResidualBlock : public Module {
 public:
  ResidualBlock(int64_t channels, Device device) {
    for (const bool first : {true, false}) {
      conv_block_->add(std::make_shared<ReflectionPad2d>(1));
      conv_block_->add(conv(channels, channels, 3, 1, 0, device));
      conv_block_->add(std::make_shared<InstanceNorm2d>(channels, device));
      if (first) conv_block_->add(std::make_shared<ReLU>());
    }
  }

 protected:
  Tensor forward(const Tensor& x) override { return ops::add(x, (*conv_block_)(x)); }

 private:
  std::shared_ptr<Sequential> conv_block_ =
      register_module("conv_block", std::make_shared<Sequential>());
};

class ResnetGenerator : public Listed {
 public:
  ResnetGenerator(int64_t channels, int64_t width, int64_t blocks, Device device) {
    model_->add(std::make_shared<ReflectionPad2d>(3));
    model_->add(conv(channels, width, 7, 1, 0, device));
    add_norm_relu(width, device);
    for (int half = 0; half < 2; ++half, width *= 2) {
      model_->add(conv(width, 2 * width, 3, 2, 1, device));
      add_norm_relu(2 * width, device);
    }
    for (int64_t block = 0; block < blocks; ++block) {
      model_->add(std::make_shared<ResidualBlock>(width, device));
    }
    for (int twice = 0; twice < 2; ++twice, width /= 2) {
      model_->add(std::make_shared<ConvTranspose2d>(
          width, width / 2,
          ConvTranspose2dOptions{
              .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 1}},
          device));
      add_norm_relu(width / 2, device);
    }
    model_->add(std::make_shared<ReflectionPad2d>(3));
    model_->add(conv(width, channels, 7, 1, 0, device));
    model_->add(std::make_shared<Tanh>());
    init();
  }

 protected:
  Tensor forward(const Tensor& x) override {
    check(x.rank() == 4 && x.size(1) % 4 == 0 && x.size(2) % 4 == 0, "cyclegan",
          "expected images [N, H, W, C] whose height and width are multiples of 4, got {}",
          describe(x));
    return Listed::forward(x);
  }
};

class PatchDiscriminator : public Listed {
 public:
  PatchDiscriminator(int64_t channels, int64_t width, Device device) {
    const auto leaky = [&] { model_->add(std::make_shared<LeakyReLU>(0.2)); };
    model_->add(conv(channels, width, 4, 2, 1, device));
    leaky();
    for (const int32_t stride : {2, 2, 1}) {
      model_->add(conv(width, 2 * width, 4, stride, 1, device));
      width *= 2;
      model_->add(std::make_shared<InstanceNorm2d>(width, device));
      leaky();
    }
    model_->add(conv(width, 1, 4, 1, 1, device));
    init();
  }
};

}  // namespace

CycleGan::CycleGan(const ModelOptions& o) {
  const int64_t width = o.width ? o.width : 64, blocks = o.blocks ? o.blocks : 9;
  check(o.input.rank() == 3 && std::min(o.input[0], o.input[1]) >= 24 && o.input[0] % 4 == 0 &&
            o.input[1] % 4 == 0,
        "cyclegan",
        "expected images [H, W, C] of at least 24x24 whose sides are multiples of 4, got {}",
        o.input);
  check(width >= 1 && blocks >= 1, "cyclegan",
        "expected a width and blocks of at least 1, got {} and {}", width, blocks);
  const auto generator = [&] {
    return std::make_shared<ResnetGenerator>(o.input[2], width, blocks, o.device);
  };
  const auto discriminator = [&] {
    return std::make_shared<PatchDiscriminator>(o.input[2], width, o.device);
  };
  generator_a_ = register_module("netG_A", generator());
  generator_b_ = register_module("netG_B", generator());
  discriminator_a_ = register_module("netD_A", discriminator());
  discriminator_b_ = register_module("netD_B", discriminator());
}

std::unique_ptr<Model> make_cyclegan(const ModelOptions& options) {
  return std::make_unique<CycleGan>(options);
}

}  // namespace engine
