// Elementwise functions of one tensor: scale, shift, neg, exp, log, sqrt, rsqrt, pow, clamp, abs,
// relu.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kScale[] = "scale", kShift[] = "shift", kNeg[] = "neg", kExp[] = "exp",
               kLog[] = "log", kSqrt[] = "sqrt", kAbs[] = "abs", kAbsBackward[] = "abs_backward",
               kRsqrt[] = "rsqrt", kPowScalar[] = "pow_scalar", kClamp[] = "clamp",
               kClampBackward[] = "clamp_backward", kRelu[] = "relu",
               kReluBackward[] = "relu_backward";

using Dy = std::span<const Tensor>;
using Dx = std::span<Tensor>;

void grad_scale(const Node& n, Dy dy, Dx dx) {
  dx[0] = ops::scale(dy[0], static_cast<double>(n.attrs<ScalarAttrs>().value));
}
void grad_shift(const Node&, Dy dy, Dx dx) { dx[0] = dy[0]; }
void grad_neg(const Node&, Dy dy, Dx dx) { dx[0] = ops::neg(dy[0]); }
void grad_exp(const Node& n, Dy dy, Dx dx) { dx[0] = ops::mul(dy[0], n.output(0)); }
void grad_log(const Node& n, Dy dy, Dx dx) { dx[0] = ops::div(dy[0], n.input(0)); }
void grad_sqrt(const Node& n, Dy dy, Dx dx) {
  dx[0] = ops::div(ops::scale(dy[0], 0.5), n.output(0));
}
// y = x^(-1/2): dx = -dy y^3 / 2
void grad_rsqrt(const Node& n, Dy dy, Dx dx) {
  dx[0] = ops::mul(ops::scale(dy[0], -0.5), ops::pow(n.output(0), 3));
}
// dx = dy e x^(e - 1); exactly 0 for e = 0, where x^(e - 1) may not be finite.
void grad_pow_scalar(const Node& n, Dy dy, Dx dx) {
  const auto e = static_cast<double>(n.attrs<ScalarAttrs>().value);
  dx[0] = ops::scale(e == 0 ? dy[0] : ops::mul(dy[0], ops::pow(n.input(0), e - 1)), e);
}
}  // namespace

const Op kOp_scale{.id = OpId::scale,
                   .name = kScale,
                   .infer = infer_like_input<kScale>,
                   .cost = cost_per_element<1>,
                   .grad = grad_scale};
const Op kOp_shift{.id = OpId::shift,
                   .name = kShift,
                   .infer = infer_like_input<kShift>,
                   .cost = cost_per_element<1>,
                   .grad = grad_shift};
const Op kOp_neg{.id = OpId::neg,
                 .name = kNeg,
                 .infer = infer_like_input<kNeg>,
                 .cost = cost_per_element<1>,
                 .grad = grad_neg};
const Op kOp_exp{.id = OpId::exp,
                 .name = kExp,
                 .infer = infer_like_input<kExp>,
                 .cost = cost_per_element<1>,
                 .grad = grad_exp,
                 .saved_outputs = bit(0)};
const Op kOp_log{.id = OpId::log,
                 .name = kLog,
                 .infer = infer_like_input<kLog>,
                 .cost = cost_per_element<1>,
                 .grad = grad_log,
                 .saved_inputs = bit(0)};
const Op kOp_sqrt{.id = OpId::sqrt,
                  .name = kSqrt,
                  .infer = infer_like_input<kSqrt>,
                  .cost = cost_per_element<1>,
                  .grad = grad_sqrt,
                  .saved_outputs = bit(0)};
const Op kOp_rsqrt{.id = OpId::rsqrt,
                   .name = kRsqrt,
                   .infer = infer_like_input<kRsqrt>,
                   .cost = cost_per_element<2>,
                   .grad = grad_rsqrt,
                   .saved_outputs = bit(0)};
const Op kOp_pow_scalar{.id = OpId::pow_scalar,
                        .name = kPowScalar,
                        .infer = infer_like_input<kPowScalar>,
                        .cost = cost_per_element<1>,
                        .grad = grad_pow_scalar,
                        .saved_inputs = bit(0)};
const Op kOp_clamp{.id = OpId::clamp,
                   .name = kClamp,
                   .infer = infer_like_input<kClamp>,
                   .cost = cost_per_element<2>,
                   .grad = grad_from_input<OpId::clamp_backward>,
                   .saved_inputs = bit(0)};
// dx = dy where low <= x <= high, else 0
const Op kOp_clamp_backward{.id = OpId::clamp_backward,
                            .name = kClampBackward,
                            .infer = infer_like_pair<kClampBackward>,
                            .cost = cost_per_element<2>};
const Op kOp_abs{.id = OpId::abs,
                 .name = kAbs,
                 .infer = infer_like_input<kAbs>,
                 .cost = cost_per_element<1>,
                 .grad = grad_from_input<OpId::abs_backward>,
                 .saved_inputs = bit(0)};
// dx = dy sign(x)
const Op kOp_abs_backward{.id = OpId::abs_backward,
                          .name = kAbsBackward,
                          .infer = infer_like_pair<kAbsBackward>,
                          .cost = cost_per_element<1>};
const Op kOp_relu{.id = OpId::relu,
                  .name = kRelu,
                  .infer = infer_like_input<kRelu>,
                  .cost = cost_per_element<1>,
                  .grad = grad_from_output<OpId::relu_backward>,
                  .saved_outputs = bit(0)};
// dx = dy where y > 0, else 0: reads relu's output, so relu's input need not be kept
const Op kOp_relu_backward{.id = OpId::relu_backward,
                           .name = kReluBackward,
                           .infer = infer_like_pair<kReluBackward>,
                           .cost = cost_per_element<1>};

namespace ops {
Tensor scale(const Tensor& x, double factor) {
  return launch(OpId::scale, ScalarAttrs{static_cast<float>(factor)}, {x});
}
Tensor shift(const Tensor& x, double term) {
  return launch(OpId::shift, ScalarAttrs{static_cast<float>(term)}, {x});
}
Tensor neg(const Tensor& x) { return launch(OpId::neg, NoAttrs{}, {x}); }
Tensor exp(const Tensor& x) { return launch(OpId::exp, NoAttrs{}, {x}); }
Tensor log(const Tensor& x) { return launch(OpId::log, NoAttrs{}, {x}); }
Tensor sqrt(const Tensor& x) { return launch(OpId::sqrt, NoAttrs{}, {x}); }
Tensor rsqrt(const Tensor& x) { return launch(OpId::rsqrt, NoAttrs{}, {x}); }
Tensor pow(const Tensor& x, double exponent) {
  return launch(OpId::pow_scalar, ScalarAttrs{static_cast<float>(exponent)}, {x});
}
Tensor clamp(const Tensor& x, double low, double high) {
  check(low <= high, kClamp, "expected low <= high, got {} and {}", low, high);
  return launch(OpId::clamp, ClampAttrs{static_cast<float>(low), static_cast<float>(high)}, {x});
}
Tensor abs(const Tensor& x) { return launch(OpId::abs, NoAttrs{}, {x}); }
Tensor relu(const Tensor& x) { return launch(OpId::relu, NoAttrs{}, {x}); }
}  // namespace ops
}  // namespace engine
