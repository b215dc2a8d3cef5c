// The constructors of the bundled networks, each in a file of its own.
#pragma once

#include <memory>

#include "models/model.h"

namespace engine {

/// Fully connected layers with ReLU between them, on the flattened image.
std::unique_ptr<Model> make_mlp(const ModelOptions& options);

/// LeNet-5 with ReLU and max pooling, on 28 x 28 or 32 x 32 images.
std::unique_ptr<Model> make_lenet(const ModelOptions& options);

/// The lottery-ticket paper's convolutional networks, on images of any size.
std::unique_ptr<Model> make_conv2(const ModelOptions& options);
std::unique_ptr<Model> make_conv4(const ModelOptions& options);
std::unique_ptr<Model> make_conv6(const ModelOptions& options);
std::unique_ptr<Model> make_conv6_small(const ModelOptions& options);

/// torchvision's networks: the keys of its state dicts are the names here.
std::unique_ptr<Model> make_alexnet(const ModelOptions& options);
std::unique_ptr<Model> make_vgg11(const ModelOptions& options);
std::unique_ptr<Model> make_vgg16(const ModelOptions& options);
std::unique_ptr<Model> make_vgg16_bn(const ModelOptions& options);
std::unique_ptr<Model> make_vgg19(const ModelOptions& options);
std::unique_ptr<Model> make_resnet18(const ModelOptions& options);
std::unique_ptr<Model> make_resnet34(const ModelOptions& options);
std::unique_ptr<Model> make_resnet50(const ModelOptions& options);
std::unique_ptr<Model> make_densenet121(const ModelOptions& options);
std::unique_ptr<Model> make_densenet169(const ModelOptions& options);
std::unique_ptr<Model> make_mobilenet_v2(const ModelOptions& options);
std::unique_ptr<Model> make_squeezenet1_1(const ModelOptions& options);

/// GPT-2: ids i64 [N, T] -> logits [N, T, classes], T at most input[0].
std::unique_ptr<Model> make_gpt(const ModelOptions& options);

/// An LSTM over characters: ids i64 [N, T] -> logits [N, T, classes].
std::unique_ptr<Model> make_lstm(const ModelOptions& options);

/// U-Net: images whose sides are multiples of 16 -> logits [N, H, W, classes].
std::unique_ptr<Model> make_unet(const ModelOptions& options);

/// CycleGAN's four networks as one module: see models/cyclegan.h.
std::unique_ptr<Model> make_cyclegan(const ModelOptions& options);

}  // namespace engine
