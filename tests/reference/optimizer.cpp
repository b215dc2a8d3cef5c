#include <cmath>

#include "tests/reference/reference.h"

namespace engine::reference {

Arrays sgd_step(const Arrays& inputs, const SgdAttrs& a) {
  Arrays state = inputs;
  const double lr = a.lr, momentum = a.momentum, dampening = a.dampening, decay = a.weight_decay;
  for (int64_t i = 0; i < inputs[0].shape.numel(); ++i) {
    const double p = inputs[0][i];
    const double g = inputs[1][i] + decay * p;
    double step = g;
    if (momentum != 0) {
      const double buffer = a.first_step ? g : momentum * inputs[2][i] + (1 - dampening) * g;
      state[2][i] = buffer;
      step = a.nesterov ? g + momentum * buffer : buffer;
    }
    state[0][i] = p - lr * step;
  }
  state.erase(state.begin() + 1);
  return state;
}

Arrays adam_step(const Arrays& inputs, const AdamAttrs& a) {
  Arrays state = inputs;
  const double lr = a.lr, beta1 = a.beta1, beta2 = a.beta2, eps = a.eps, decay = a.weight_decay;
  for (int64_t i = 0; i < inputs[0].shape.numel(); ++i) {
    double p = inputs[0][i], g = inputs[1][i];
    if (a.decoupled)
      p *= 1 - lr * decay;
    else
      g += decay * p;
    const double m = beta1 * inputs[2][i] + (1 - beta1) * g;
    const double v = beta2 * inputs[3][i] + (1 - beta2) * g * g;
    const double root = std::sqrt(v / static_cast<double>(a.bias_correction2)) + eps;
    state[0][i] = p - lr * (m / static_cast<double>(a.bias_correction1)) / root;
    state[2][i] = m;
    state[3][i] = v;
  }
  state.erase(state.begin() + 1);
  return state;
}

}  // namespace engine::reference
