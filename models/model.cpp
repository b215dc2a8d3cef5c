#include "models/model.h"

#include "core/error.h"
#include "models/networks.h"
#include "models/train.h"

namespace engine {

namespace {

void recipe_lenet(TrainOptions& o) {
  o.epochs = 5;
  o.batch_size = 64;
  o.optimizer = OptimizerKind::sgd;
  o.lr = 0.05;
  o.momentum = 0.9;
  o.weight_decay = 5e-4;
  o.schedule = ScheduleKind::cosine;
}

void recipe_mlp(TrainOptions& o) {
  recipe_lenet(o);
  o.lr = 0.05;
}

// The second paper's: Adam at 1e-3 on batches of 64.
void recipe_convolutional(TrainOptions& o) {
  o.epochs = 5;
  o.batch_size = 64;
  o.optimizer = OptimizerKind::adam;
  o.lr = 1e-3;
}

// At 1e-3 vgg16 is still at chance after 60 steps of 16 images of Fashion-MNIST, and the losses of
// alexnet, vgg16_bn and squeezenet1_1 fall more slowly than at 1e-4.
void recipe_small_steps(TrainOptions& o) {
  recipe_convolutional(o);
  o.lr = 1e-4;
}

// The published recipe: batches of one pair, Adam at 2e-4 with beta1 0.5, a rate that is constant
// for half of the epochs and then falls to 0.
void recipe_cyclegan(TrainOptions& o) {
  o.epochs = 200;
  o.batch_size = 1;
  o.optimizer = OptimizerKind::adam;
  o.lr = 2e-4;
  o.adam_beta1 = 0.5;
  o.schedule = ScheduleKind::linear;
}

void recipe_lstm(TrainOptions& o) {
  o.epochs = 20;
  o.batch_size = 32;
  o.optimizer = OptimizerKind::adam;
  o.lr = 2e-3;
  o.clip_grad_norm = 1;
}

// nanoGPT's for characters, but for the batch; GPT-2's paper does not say more.
void recipe_gpt(TrainOptions& o) {
  o.epochs = 20;
  o.batch_size = 8;
  o.optimizer = OptimizerKind::adamw;
  o.lr = 1e-3;
  o.weight_decay = 0.1;
  o.clip_grad_norm = 1;
  o.schedule = ScheduleKind::cosine;
  o.warmup_steps = 100;
}

const ModelOptions kCifar{.input = Shape{32, 32, 3}};
const ModelOptions kCifarHidden{.input = Shape{32, 32, 3}, .hidden = {256, 256}};
const ModelOptions kImageNet{.input = Shape{224, 224, 3}, .classes = 1000};
const ModelOptions kImageNetStem{.input = Shape{224, 224, 3}, .classes = 1000, .stem = "imagenet"};

}  // namespace

const std::vector<ModelInfo>& model_list() {
  static const std::vector<ModelInfo> list{
      {"lenet",
       "LeNet-5 with ReLU and max pooling",
       "fashion-mnist",
       {.input = Shape{28, 28, 1}},
       make_lenet,
       recipe_lenet,
       true},
      {"mlp",
       "fully connected layers with ReLU",
       "fashion-mnist",
       {.input = Shape{28, 28, 1}, .hidden = {512, 256}},
       make_mlp,
       recipe_mlp,
       true},
      {"conv2", "two 3x3 convolutions, three linear layers", "fashion-mnist", kCifarHidden,
       make_conv2, recipe_convolutional},
      {"conv4", "four 3x3 convolutions, three linear layers", "fashion-mnist", kCifarHidden,
       make_conv4, recipe_convolutional},
      {"conv6", "six 3x3 convolutions, three linear layers", "fashion-mnist", kCifarHidden,
       make_conv6, recipe_convolutional},
      {"conv6_small", "a reconstruction of a Conv6 of 397K parameters", "fashion-mnist", kCifar,
       make_conv6_small, recipe_convolutional},
      {"alexnet", "AlexNet, 1000 classes", "fashion-mnist", kImageNet, make_alexnet,
       recipe_small_steps},
      {"vgg11", "VGG of 11 layers, 1000 classes", "fashion-mnist", kImageNetStem, make_vgg11,
       recipe_small_steps},
      {"vgg16", "VGG of 16 layers, 1000 classes", "fashion-mnist", kImageNetStem, make_vgg16,
       recipe_small_steps},
      {"vgg16_bn", "VGG of 16 layers with batch norm, 1000 classes", "fashion-mnist", kImageNetStem,
       make_vgg16_bn, recipe_small_steps},
      {"vgg19", "VGG of 19 layers, 1000 classes", "fashion-mnist", kImageNetStem, make_vgg19,
       recipe_small_steps},
      {"resnet18", "residual network of 18 layers, 1000 classes", "fashion-mnist", kImageNetStem,
       make_resnet18, recipe_convolutional},
      {"resnet34", "residual network of 34 layers, 1000 classes", "fashion-mnist", kImageNetStem,
       make_resnet34, recipe_convolutional},
      {"resnet50", "residual network of 50 layers, 1000 classes", "fashion-mnist", kImageNetStem,
       make_resnet50, recipe_convolutional},
      {"densenet121", "densely connected network of 121 layers, 1000 classes", "fashion-mnist",
       kImageNet, make_densenet121, recipe_convolutional},
      {"densenet169", "densely connected network of 169 layers, 1000 classes", "fashion-mnist",
       kImageNet, make_densenet169, recipe_convolutional},
      {"mobilenet_v2", "inverted residuals, 1000 classes", "fashion-mnist", kImageNet,
       make_mobilenet_v2, recipe_convolutional},
      {"squeezenet1_1", "SqueezeNet 1.1, 1000 classes", "fashion-mnist", kImageNet,
       make_squeezenet1_1, recipe_small_steps},
      {"unet", "U-Net of four levels: a class for each pixel", "fashion-mnist",
       ModelOptions{.input = Shape{32, 32, 1}, .classes = 11, .width = 64}, make_unet,
       recipe_convolutional, false, TaskKind::segment},
      {"cyclegan", "two generators and two 70x70 discriminators", "fashion-mnist",
       ModelOptions{.input = Shape{128, 128, 3}, .classes = 2, .width = 64, .blocks = 9},
       make_cyclegan, recipe_cyclegan, false, TaskKind::translate},
      {"lstm", "LSTM over characters", "text",
       ModelOptions{.input = Shape{128}, .classes = 96, .layers = 2, .width = 256}, make_lstm,
       recipe_lstm, false, TaskKind::predict_next},
      {"gpt", "GPT-2's architecture, small, over characters", "text",
       ModelOptions{.input = Shape{256}, .classes = 96, .layers = 6, .width = 384, .heads = 6},
       make_gpt, recipe_gpt, false, TaskKind::predict_next},
      {"gpt2", "GPT-2 of 124 million parameters", "tokens",
       ModelOptions{
           .input = Shape{1024}, .classes = 50257, .layers = 12, .width = 768, .heads = 12},
       make_gpt, recipe_gpt, false, TaskKind::predict_next},
  };
  return list;
}

const ModelInfo& find_model(std::string_view name) {
  std::string known;
  for (const ModelInfo& info : model_list()) {
    if (info.name == name) return info;
    known += " " + info.name;
  }
  fail("model", "expected a bundled model, got '{}'; there are:{}", name, known);
}

}  // namespace engine
