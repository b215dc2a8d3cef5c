// The bundled networks by name, each with the recipe that its defaults come from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "layers/module.h"

namespace engine {

struct TrainOptions;

/// A network that takes images f32 [N, H, W, C], or texts as token ids i64 [N, T]. One that
/// classifies gives logits f32 [N, classes]; one that says something of every pixel or token [N, H,
/// W, classes] or [N, T, classes]; one that makes images gives images.
using Model = Module;

struct ModelOptions {
  Shape input;           ///< one sample: an image's [H, W, C], or [T], the longest text
  int64_t classes = 10;  ///< or the tokens of the vocabulary
  std::vector<int64_t>
      hidden{};  ///< widths of the hidden layers, for networks that let them be set
  /// The first layers, for networks that have a choice: "imagenet", or "cifar" for small images.
  std::string stem{};
  Device device = kCpu;
  // Sizes that some networks let be set, with the network's own where they are 0.
  int64_t layers = 0;  ///< of gpt and lstm
  int64_t width = 0;  ///< features of a layer: of gpt and lstm; the first layer's of unet, cyclegan
  int64_t heads = 0;  ///< of gpt's attention
  int64_t embedding = 0;  ///< features of a token: of lstm
  int64_t blocks = 0;     ///< residual blocks of cyclegan's generators
  /// Of the networks that have dropout; the network's own if not given.
  std::optional<double> dropout{};
};

struct ModelInfo {
  std::string name;
  std::string description;
  std::string dataset;  ///< what it is trained on unless told otherwise
  /// What the network is built with unless told otherwise. Empty `hidden` or `stem`: it cannot be
  /// set.
  ModelOptions defaults;
  /// Builds the network with freshly initialised parameters.
  std::unique_ptr<Model> (*make)(const ModelOptions& options);
  /// The defaults to train it with.
  void (*recipe)(TrainOptions& options);
  /// Takes images of the data's own shape, unless told otherwise; else they are made to fit
  /// defaults.input.
  bool any_shape = false;
};

const std::vector<ModelInfo>& model_list();
/// Throws Error naming the known models.
const ModelInfo& find_model(std::string_view name);

}  // namespace engine
