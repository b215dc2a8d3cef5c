// mlp: fully connected layers with ReLU between them.
#include "layers/layers.h"
#include "models/networks.h"

namespace engine {

namespace {

class Mlp : public Module {
 public:
  Mlp(int64_t in, const std::vector<int64_t>& hidden, int64_t classes, Device device) {
    for (const int64_t width : hidden) {
      layers_->add(std::make_shared<Linear>(in, width, device, Activation::relu));
      in = width;
    }
    layers_->add(std::make_shared<Linear>(in, classes, device));
  }

 protected:
  Tensor forward(const Tensor& x) override { return (*layers_)(ops::flatten(x, 1)); }

 private:
  std::shared_ptr<Sequential> layers_ = register_module("layers", std::make_shared<Sequential>());
};

}  // namespace

std::unique_ptr<Model> make_mlp(const Shape& input, const std::vector<int64_t>& hidden, int64_t classes, Device device) {
  return std::make_unique<Mlp>(input.numel(), hidden, classes, device);
}

}  // namespace engine
