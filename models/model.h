// The bundled networks by name, each with the recipe that its defaults come from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/shape.h"
#include "layers/module.h"

namespace engine {

struct TrainOptions;

/// A network that classifies images: forward takes f32 [N, H, W, C] and gives logits f32 [N, classes].
using Model = Module;

struct ModelInfo {
  std::string name;
  std::string description;
  Shape input;          ///< one sample, [H, W, C]
  int64_t classes;
  std::string dataset;  ///< what it is trained on unless told otherwise
  /// Builds the network with freshly initialised parameters on the given device.
  std::unique_ptr<Model> (*make)(const Shape& input, int64_t classes, Device device);
  /// The defaults to train it with.
  void (*recipe)(TrainOptions& options);
};

const std::vector<ModelInfo>& model_list();
/// Throws Error naming the known models.
const ModelInfo& find_model(const std::string& name);

}  // namespace engine
