// unet: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation",
// 2015, as it is usually built today: padded convolutions with batch norm, so that the output has
// the input's size. Names are those of the well-known PyTorch implementation (milesial's, with
// transposed convolutions). 31,037,698 parameters with 3 channels, 2 classes and a first width of
// 64.
#include <array>
#include <utility>

#include "core/error.h"
#include "layers/normalization.h"
#include "models/blocks.h"
#include "models/networks.h"

namespace engine {

namespace {

constexpr int64_t kScale = 16;  // four poolings

// Two 3x3 convolutions with batch norm and ReLU.
class DoubleConv : public Module {
 public:
  DoubleConv(int64_t in, int64_t out, Device device) {
    for (const int64_t channels : {in, out}) {
      double_conv_->add(plain_conv(channels, out, 3, 1, 1, device));
      double_conv_->add(std::make_shared<BatchNorm2d>(out, device));
      double_conv_->add(std::make_shared<ReLU>());
    }
  }

 protected:
  Tensor forward(const Tensor& x) override { return (*double_conv_)(x); }

 private:
  std::shared_ptr<Sequential> double_conv_ =
      register_module("double_conv", std::make_shared<Sequential>());
};

class Down : public Module {
 public:
  Down(int64_t in, int64_t out, Device device) {
    maxpool_conv_->add(max_pool(2, 2));
    maxpool_conv_->add(std::make_shared<DoubleConv>(in, out, device));
  }

 protected:
  Tensor forward(const Tensor& x) override { return (*maxpool_conv_)(x); }

 private:
  std::shared_ptr<Sequential> maxpool_conv_ =
      register_module("maxpool_conv", std::make_shared<Sequential>());
};

class Up : public Module {
 public:
  Up(int64_t in, int64_t out, Device device) {
    up_ = register_module(
        "up", std::make_shared<ConvTranspose2d>(
                  in, out, ConvTranspose2dOptions{.kernel = {2, 2}, .stride = {2, 2}}, device));
    conv_ = register_module("conv", std::make_shared<DoubleConv>(2 * out, out, device));
  }
  // A module takes one tensor; the other waits here.
  Tensor join(const Tensor& x, const Tensor& skip) {
    skip_ = skip;
    return (*this)(x);
  }

 protected:
  Tensor forward(const Tensor& x) override {
    const Tensor both[] = {std::exchange(skip_, {}), (*up_)(x)};
    return (*conv_)(ops::concat(both, 3));
  }

 private:
  std::shared_ptr<ConvTranspose2d> up_;
  std::shared_ptr<DoubleConv> conv_;
  Tensor skip_;
};

class UNet : public Module {
 public:
  explicit UNet(const ModelOptions& o) {
    check(o.input.rank() == 3, "unet", "expected an input [H, W, C], got {}", o.input);
    check_size(o.input[0], o.input[1]);
    int64_t width = o.width ? o.width : 64;
    check(width >= 1, "unet", "expected a width of at least 1, got {}", width);
    inc_ = register_module("inc", std::make_shared<DoubleConv>(o.input[2], width, o.device));
    for (size_t i = 0; i < down_.size(); ++i, width *= 2) {
      down_[i] = register_module("down" + std::to_string(i + 1),
                                 std::make_shared<Down>(width, 2 * width, o.device));
    }
    for (size_t i = 0; i < up_.size(); ++i, width /= 2) {
      up_[i] = register_module("up" + std::to_string(i + 1),
                               std::make_shared<Up>(width, width / 2, o.device));
    }
    outc_ = register_module("outc", std::make_shared<OutConv>(width, o.classes, o.device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    check(x.rank() == 4, "unet", "expected x [N, H, W, C], got {}", describe(x));
    check_size(x.size(1), x.size(2));
    std::array<Tensor, 4> skips;
    Tensor y = (*inc_)(x);
    for (size_t i = 0; i < down_.size(); ++i) {
      skips[i] = y;
      y = (*down_[i])(y);
    }
    for (size_t i = 0; i < up_.size(); ++i) {
      y = up_[i]->join(y, skips[skips.size() - 1 - i]);
    }
    return (*outc_)(y);
  }

 private:
  class OutConv : public Module {
   public:
    OutConv(int64_t in, int64_t out, Device device) {
      conv_ = register_module("conv", std::make_shared<Conv2d>(in, out, Conv2dOptions{}, device));
    }

   protected:
    Tensor forward(const Tensor& x) override { return (*conv_)(x); }

   private:
    std::shared_ptr<Conv2d> conv_;
  };

  static void check_size(int64_t height, int64_t width) {
    check(height >= kScale && width >= kScale && height % kScale == 0 && width % kScale == 0,
          "unet",
          "expected images whose height and width are multiples of {}, got {}x{}; pad or resize "
          "them",
          kScale, height, width);
  }

  std::shared_ptr<DoubleConv> inc_;
  std::array<std::shared_ptr<Down>, 4> down_;
  std::array<std::shared_ptr<Up>, 4> up_;
  std::shared_ptr<OutConv> outc_;
};

}  // namespace

std::unique_ptr<Model> make_unet(const ModelOptions& options) {
  return std::make_unique<UNet>(options);
}

}  // namespace engine
