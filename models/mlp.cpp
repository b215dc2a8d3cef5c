// mlp: fully connected layers with ReLU between them.
#include "layers/layers.h"
#include "models/networks.h"

namespace engine {

namespace {

class Mlp : public Module {
 public:
  explicit Mlp(const ModelOptions& o) {
    int64_t in = o.input.numel();
    for (const int64_t width : o.hidden) {
      layers_->add(std::make_shared<Linear>(in, width, o.device, Activation::relu));
      in = width;
    }
    layers_->add(std::make_shared<Linear>(in, o.classes, o.device));
  }

 protected:
  Tensor forward(const Tensor& x) override { return (*layers_)((*flatten_)(x)); }

 private:
  std::shared_ptr<Flatten> flatten_ = register_module("flatten", std::make_shared<Flatten>());
  std::shared_ptr<Sequential> layers_ = register_module("layers", std::make_shared<Sequential>());
};

}  // namespace

std::unique_ptr<Model> make_mlp(const ModelOptions& options) {
  return std::make_unique<Mlp>(options);
}

}  // namespace engine
