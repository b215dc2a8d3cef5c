// Activations and their backward ops: leaky_relu, gelu, gelu_tanh, silu, sigmoid, tanh, softplus,
// elu. sigmoid and tanh keep their output for backward, the others their input. (relu, the
// plainest, is in unary.cpp.)
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kLeakyRelu[] = "leaky_relu", kLeakyReluBackward[] = "leaky_relu_backward",
               kGelu[] = "gelu", kGeluBackward[] = "gelu_backward", kGeluTanh[] = "gelu_tanh",
               kGeluTanhBackward[] = "gelu_tanh_backward", kSilu[] = "silu",
               kSiluBackward[] = "silu_backward", kSigmoid[] = "sigmoid",
               kSigmoidBackward[] = "sigmoid_backward", kTanh[] = "tanh",
               kTanhBackward[] = "tanh_backward", kSoftplus[] = "softplus",
               kSoftplusBackward[] = "softplus_backward", kElu[] = "elu",
               kEluBackward[] = "elu_backward";

// FLOPs an element: the arithmetic of the formula, an exponential counted as one.
template <OpId kId, OpId kBackward, const char* kName, int64_t kFlops>
constexpr Op from_input() {
  return {.id = kId,
          .name = kName,
          .infer = infer_like_input<kName>,
          .cost = cost_per_element<kFlops>,
          .grad = grad_from_input<kBackward>,
          .saved_inputs = bit(0)};
}
template <OpId kId, OpId kBackward, const char* kName, int64_t kFlops>
constexpr Op from_output() {
  return {.id = kId,
          .name = kName,
          .infer = infer_like_input<kName>,
          .cost = cost_per_element<kFlops>,
          .grad = grad_from_output<kBackward>,
          .saved_outputs = bit(0)};
}
// inputs dy and what the forward op kept
template <OpId kId, const char* kName, int64_t kFlops>
constexpr Op backward() {
  return {
      .id = kId, .name = kName, .infer = infer_like_pair<kName>, .cost = cost_per_element<kFlops>};
}
}  // namespace

const Op kOp_leaky_relu = from_input<OpId::leaky_relu, OpId::leaky_relu_backward, kLeakyRelu, 1>();
const Op kOp_leaky_relu_backward = backward<OpId::leaky_relu_backward, kLeakyReluBackward, 1>();
const Op kOp_gelu = from_input<OpId::gelu, OpId::gelu_backward, kGelu, 4>();
const Op kOp_gelu_backward = backward<OpId::gelu_backward, kGeluBackward, 9>();
const Op kOp_gelu_tanh = from_input<OpId::gelu_tanh, OpId::gelu_tanh_backward, kGeluTanh, 8>();
const Op kOp_gelu_tanh_backward = backward<OpId::gelu_tanh_backward, kGeluTanhBackward, 14>();
const Op kOp_silu = from_input<OpId::silu, OpId::silu_backward, kSilu, 4>();
const Op kOp_silu_backward = backward<OpId::silu_backward, kSiluBackward, 8>();
const Op kOp_sigmoid = from_output<OpId::sigmoid, OpId::sigmoid_backward, kSigmoid, 3>();
const Op kOp_sigmoid_backward = backward<OpId::sigmoid_backward, kSigmoidBackward, 3>();
const Op kOp_tanh = from_output<OpId::tanh, OpId::tanh_backward, kTanh, 1>();
const Op kOp_tanh_backward = backward<OpId::tanh_backward, kTanhBackward, 3>();
const Op kOp_softplus = from_input<OpId::softplus, OpId::softplus_backward, kSoftplus, 5>();
const Op kOp_softplus_backward = backward<OpId::softplus_backward, kSoftplusBackward, 5>();
const Op kOp_elu = from_input<OpId::elu, OpId::elu_backward, kElu, 3>();
const Op kOp_elu_backward = backward<OpId::elu_backward, kEluBackward, 3>();

namespace ops {
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return launch(OpId::leaky_relu, ActivationAttrs{.alpha = static_cast<float>(negative_slope)},
                {x});
}
Tensor gelu(const Tensor& x) { return launch(OpId::gelu, ActivationAttrs{}, {x}); }
Tensor gelu_tanh(const Tensor& x) { return launch(OpId::gelu_tanh, ActivationAttrs{}, {x}); }
Tensor silu(const Tensor& x) { return launch(OpId::silu, ActivationAttrs{}, {x}); }
Tensor sigmoid(const Tensor& x) { return launch(OpId::sigmoid, ActivationAttrs{}, {x}); }
Tensor tanh(const Tensor& x) { return launch(OpId::tanh, ActivationAttrs{}, {x}); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  check(beta > 0, kSoftplus, "expected beta > 0, got {}", beta);
  return launch(
      OpId::softplus,
      ActivationAttrs{.beta = static_cast<float>(beta), .threshold = static_cast<float>(threshold)},
      {x});
}
Tensor elu(const Tensor& x, double alpha) {
  return launch(OpId::elu, ActivationAttrs{.alpha = static_cast<float>(alpha)}, {x});
}
}  // namespace ops
}  // namespace engine
