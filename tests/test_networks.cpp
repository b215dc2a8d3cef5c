// The bundled networks: parameter counts and names are those of their published definitions, and
// each runs and trains.
#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/meta/meta_backend.h"
#include "core/context.h"
#include "core/error.h"
#include "layers/layers.h"
#include "layers/optimizer.h"
#include "models/cyclegan.h"
#include "models/networks.h"
#include "tests/catch.h"

using namespace engine;

namespace {

std::unique_ptr<Model> make(const std::string& name, int64_t size, int64_t classes, Device device,
                            const std::string& stem = "") {
  const ModelInfo& info = find_model(name);
  ModelOptions options = info.defaults;
  options.input = Shape{size, size, options.input[2]};
  options.classes = classes;
  options.device = device;
  if (!stem.empty()) options.stem = stem;
  return info.make(options);
}

}  // namespace

TEST_CASE("networks: parameter counts are the published ones") {
  cpu::register_backend();
  meta::register_backend();
  const auto count = [](const std::string& name, int64_t size, int64_t classes,
                        const std::string& stem = "") {
    return make(name, size, classes, kMeta, stem)->parameter_count();
  };
  CHECK(count("conv6", 32, 10) == 2'262'602);
  CHECK(count("conv6", 224, 10) == 52'594'250);
  // By hand: convolutions 1,792 + 36,928, linear layers 16 * 16 * 64 * 256 + 256, 65,792, 2,570;
  // conv4 has 73,856 + 147,584 more and 8 * 8 * 128 * 256 + 256.
  CHECK(count("conv2", 32, 10) == 4'301'642);
  CHECK(count("conv4", 32, 10) == 2'425'930);
  CHECK(count("conv6_small", 32, 10) == 397'130);
  CHECK(count("alexnet", 224, 1000) == 61'100'840);
  CHECK(count("vgg11", 224, 1000) == 132'863'336);
  CHECK(count("vgg16", 224, 1000) == 138'357'544);
  CHECK(count("vgg16", 224, 10) == 134'301'514);
  CHECK(count("vgg16_bn", 224, 1000) == 138'365'992);
  CHECK(count("vgg19", 224, 1000) == 143'667'240);
  // Convolutions 14,714,688, then 512-4096-4096-10.
  CHECK(count("vgg16", 32, 10, "cifar") == 14'714'688 + 2'101'248 + 16'781'312 + 40'970);
  CHECK(count("resnet18", 224, 1000) == 11'689'512);
  CHECK(count("resnet18", 224, 10) == 11'181'642);
  // The stem has 64 * 3 * 9 weights in place of 64 * 3 * 49.
  CHECK(count("resnet18", 32, 10, "cifar") == 11'181'642 - 64 * 3 * 40);
  CHECK(count("resnet34", 224, 1000) == 21'797'672);
  CHECK(count("resnet50", 224, 1000) == 25'557'032);
  CHECK(count("densenet121", 224, 1000) == 7'978'856);
  CHECK(count("densenet169", 224, 1000) == 14'149'480);
  CHECK(count("mobilenet_v2", 224, 1000) == 3'504'872);
  CHECK(count("squeezenet1_1", 224, 1000) == 1'235'496);
}

TEST_CASE("networks: names and shapes are torchvision's") {
  cpu::register_backend();
  meta::register_backend();
  struct Key {
    const char* model;
    const char* name;
    Shape shape;
  };
  const std::vector<Key> keys{
      {"alexnet", "features.0.weight", {64, 11, 11, 3}},
      {"alexnet", "features.10.bias", {256}},
      {"alexnet", "classifier.1.weight", {4096, 9216}},
      {"alexnet", "classifier.6.weight", {1000, 4096}},
      {"vgg11", "features.18.weight", {512, 3, 3, 512}},
      {"vgg16", "features.28.weight", {512, 3, 3, 512}},
      {"vgg16", "classifier.0.weight", {4096, 25088}},
      {"vgg16", "classifier.6.bias", {1000}},
      {"vgg16_bn", "features.40.weight", {512, 3, 3, 512}},
      {"vgg16_bn", "features.41.running_var", {512}},
      {"vgg19", "features.34.weight", {512, 3, 3, 512}},
      {"resnet18", "conv1.weight", {64, 7, 7, 3}},
      {"resnet18", "bn1.num_batches_tracked", {}},
      {"resnet18", "layer2.0.downsample.0.weight", {128, 1, 1, 64}},
      {"resnet18", "layer4.1.bn2.running_mean", {512}},
      {"resnet34", "layer3.5.conv2.weight", {256, 3, 3, 256}},
      {"resnet50", "layer1.0.downsample.1.bias", {256}},
      {"resnet50", "layer4.2.conv3.weight", {2048, 1, 1, 512}},
      {"resnet50", "fc.weight", {1000, 2048}},
      {"densenet121", "features.conv0.weight", {64, 7, 7, 3}},
      {"densenet121", "features.denseblock3.denselayer24.conv1.weight", {128, 1, 1, 992}},
      {"densenet121", "features.transition2.conv.weight", {256, 1, 1, 512}},
      {"densenet121", "features.norm5.weight", {1024}},
      {"densenet169", "classifier.weight", {1000, 1664}},
      {"mobilenet_v2", "features.0.0.weight", {32, 3, 3, 3}},
      {"mobilenet_v2", "features.1.conv.0.0.weight", {32, 3, 3, 1}},
      {"mobilenet_v2", "features.1.conv.1.weight", {16, 1, 1, 32}},
      {"mobilenet_v2", "features.2.conv.1.0.weight", {96, 3, 3, 1}},
      {"mobilenet_v2", "features.17.conv.3.running_mean", {320}},
      {"mobilenet_v2", "features.18.0.weight", {1280, 1, 1, 320}},
      {"mobilenet_v2", "classifier.1.weight", {1000, 1280}},
      {"squeezenet1_1", "features.0.weight", {64, 3, 3, 3}},
      {"squeezenet1_1", "features.3.squeeze.weight", {16, 1, 1, 64}},
      {"squeezenet1_1", "features.12.expand3x3.weight", {256, 3, 3, 64}},
      {"squeezenet1_1", "classifier.1.weight", {1000, 1, 1, 512}}};
  for (const Key& key : keys) {
    CAPTURE(key.model, key.name);
    const auto model = make(key.model, 224, 1000, kMeta);
    auto named = model->named_parameters();
    for (const auto& buffer : model->named_buffers()) named.push_back(buffer);
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first == key.name; });
    REQUIRE(found != named.end());
    CHECK(found->second.shape() == key.shape);
  }
  // Entries in torchvision's state dicts.
  const auto entries = [](const std::string& name) {
    const auto model = make(name, 224, 1000, kMeta);
    return model->named_parameters().size() + model->named_buffers().size();
  };
  CHECK(entries("alexnet") == 16);
  CHECK(entries("vgg16") == 32);
  CHECK(entries("resnet18") == 122);
  CHECK(entries("resnet50") == 320);
  CHECK(entries("densenet121") == 727);
  CHECK(entries("mobilenet_v2") == 314);
  CHECK(entries("squeezenet1_1") == 52);
}

TEST_CASE("networks: each takes a training step and then evaluates") {
  cpu::register_backend();
  struct Case {
    const char* model;
    int64_t size;
    const char* stem;
  };
  for (const Case& c : std::vector<Case>{{"conv2", 8, ""},
                                         {"conv4", 9, ""},
                                         {"conv6", 17, ""},
                                         {"conv6_small", 12, ""},
                                         {"alexnet", 64, ""},
                                         {"vgg11", 32, "imagenet"},
                                         {"vgg16", 32, "cifar"},
                                         {"vgg16_bn", 32, "cifar"},
                                         {"vgg19", 32, "cifar"},
                                         {"resnet18", 32, "cifar"},
                                         {"resnet34", 64, "imagenet"},
                                         {"resnet50", 64, "imagenet"},
                                         {"densenet121", 64, ""},
                                         {"densenet169", 64, ""},
                                         {"mobilenet_v2", 64, ""},
                                         {"squeezenet1_1", 32, ""}}) {
    CAPTURE(c.model);
    default_generator() = Generator(3);
    const auto model = make(c.model, c.size, 7, kCpu, c.stem);
    Tensor x = empty(Shape{2, c.size, c.size, 3});
    ops::normal_(x, 0, 1);
    const Tensor labels = from_host(Shape{2}, std::vector<int64_t>{6, 2});
    Sgd sgd(model->parameters(), 1e-3);
    const Tensor logits = (*model)(x);
    REQUIRE(logits.shape() == Shape{2, 7});
    const Tensor loss = cross_entropy_loss(logits, labels);
    loss.backward();
    const double norm = sgd.clip_grad_norm(1);
    sgd.step();
    CHECK(std::isfinite(loss.item()));
    CHECK(std::isfinite(norm));
    CHECK(norm > 0);
    for (const Tensor& parameter : model->parameters()) CHECK(parameter.grad().defined());

    // In evaluation an image's answer does not depend on its neighbours.
    const NoGradScope no_grad;
    model->train(false);
    const std::vector<float> both = (*model)(x).to_vector<float>();
    const std::vector<float> first = (*model)(ops::slice(x, 0, 0, 1)).to_vector<float>();
    double largest = 0;
    for (const float v : first) largest = std::max(largest, std::abs(static_cast<double>(v)));
    for (size_t i = 0; i < first.size(); ++i) {
      CHECK(std::abs(static_cast<double>(first[i] - both[i])) <= 1e-4 * (1 + largest));
    }
  }
}

TEST_CASE("networks: gpt, lstm, unet and cyclegan have the published numbers of parameters") {
  cpu::register_backend();
  meta::register_backend();
  const ModelOptions gpt2{.input = Shape{1024},
                          .classes = 50'257,
                          .device = kMeta,
                          .layers = 12,
                          .width = 768,
                          .heads = 12};
  CHECK(make_gpt(gpt2)->parameter_count() == 124'439'808);
  CHECK(make_gpt(gpt2)->named_parameters().size() == 2 + 12 * 12 + 2);  // the tied weight once
  // Embedding 65 * 64; gates 4 * 256 of 64 + 256 and of 256 + 256 inputs, two biases; 65 outputs.
  CHECK(make_lstm({.input = Shape{100}, .classes = 65, .device = kMeta})->parameter_count() ==
        65 * 64 + 1024 * (64 + 256 + 2) + 1024 * (256 + 256 + 2) + 65 * 257);
  CHECK(make_unet({.input = Shape{64, 64, 3}, .classes = 2, .device = kMeta})->parameter_count() ==
        31'037'698);
  CycleGan gan({.input = Shape{128, 128, 3}, .device = kMeta});
  CHECK(gan.generator_a().parameter_count() == 11'378'179);
  CHECK(gan.generator_b().parameter_count() == 11'378'179);
  CHECK(gan.discriminator_a().parameter_count() == 2'764'737);
  CHECK(gan.discriminator_b().parameter_count() == 2'764'737);
  CHECK(gan.parameter_count() == 2 * (11'378'179 + 2'764'737));
}

TEST_CASE(
    "networks: gpt, lstm, unet and cyclegan give the right shapes and refuse what does not fit") {
  cpu::register_backend();
  const NoGradScope no_grad;
  const auto ids = [](int64_t n, int64_t t) { return full(Shape{n, t}, 1, DType::i64); };
  const auto gpt =
      make_gpt({.input = Shape{8}, .classes = 11, .layers = 1, .width = 12, .heads = 3});
  CHECK((*gpt)(ids(2, 8)).shape() == Shape{2, 8, 11});
  CHECK((*gpt)(ids(2, 3)).shape() == Shape{2, 3, 11});
  CHECK_THROWS_AS((*gpt)(ids(2, 9)), Error);
  CHECK_THROWS_AS((*gpt)(full(Shape{2, 8}, 1)), Error);
  CHECK_THROWS_AS(make_gpt({.input = Shape{8}, .width = 10, .heads = 3}), Error);
  CHECK_THROWS_AS(make_gpt({.input = Shape{8, 8, 3}}), Error);

  const auto lstm =
      make_lstm({.input = Shape{8}, .classes = 11, .layers = 3, .width = 5, .embedding = 4});
  CHECK((*lstm)(ids(2, 20)).shape() == Shape{2, 20, 11});
  CHECK_THROWS_AS((*lstm)(ids(2, 0)), Error);

  const auto unet = make_unet({.input = Shape{32, 16, 3}, .classes = 4, .width = 2});
  CHECK((*unet)(full(Shape{2, 32, 16, 3}, 1)).shape() == Shape{2, 32, 16, 4});
  CHECK_THROWS_AS((*unet)(full(Shape{2, 32, 24, 3}, 1)), Error);
  CHECK_THROWS_AS(make_unet({.input = Shape{28, 28, 1}}), Error);

  CycleGan gan({.input = Shape{32, 24, 3}, .width = 2, .blocks = 1});
  const Tensor image = full(Shape{2, 32, 24, 3}, 0.5);
  CHECK(gan(image).shape() == image.shape());
  CHECK(gan.generator_b()(image).shape() == image.shape());
  // 32 -> 16 -> 8 -> 4 -> 3 -> 2, 24 -> 12 -> 6 -> 3 -> 2 -> 1.
  CHECK(gan.discriminator_a()(image).shape() == Shape{2, 2, 1, 1});
  CHECK_THROWS_AS(gan(full(Shape{2, 30, 24, 3}, 1)), Error);
  CHECK_THROWS_AS(CycleGan({.input = Shape{28, 20, 3}}), Error);
}
