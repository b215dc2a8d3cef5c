// The bundled networks by name, each with the recipe that its defaults come from.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "layers/module.h"

namespace engine {

struct TrainOptions;

/// A network that classifies images: forward takes f32 [N, H, W, C] and gives logits f32 [N,
/// classes].
using Model = Module;

struct ModelOptions {
  Shape input;  ///< one sample, [H, W, C]
  int64_t classes = 10;
  std::vector<int64_t>
      hidden{};  ///< widths of the hidden layers, for networks that let them be set
  /// The first layers, for networks that have a choice: "imagenet", or "cifar" for small images.
  std::string stem{};
  Device device = kCpu;
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
