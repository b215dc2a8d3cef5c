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

}  // namespace

const std::vector<ModelInfo>& model_list() {
  static const std::vector<ModelInfo> list{
      {"lenet",
       "LeNet-5 with ReLU and max pooling",
       "fashion-mnist",
       {.input = Shape{28, 28, 1}},
       make_lenet,
       recipe_lenet},
      {"mlp",
       "fully connected layers with ReLU",
       "fashion-mnist",
       {.input = Shape{28, 28, 1}, .hidden = {512, 256}},
       make_mlp,
       recipe_mlp},
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
