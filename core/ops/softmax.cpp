// softmax and log_softmax over one axis, with their backward ops.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kSoftmax[] = "softmax", kSoftmaxBackward[] = "softmax_backward",
               kLogSoftmax[] = "log_softmax", kLogSoftmaxBackward[] = "log_softmax_backward";
}  // namespace

// FLOPs an element: compare, subtract, exponential, add, divide (or subtract).
const Op kOp_softmax{.id = OpId::softmax,
                     .name = kSoftmax,
                     .infer = infer_like_input<kSoftmax>,
                     .cost = cost_per_element<5>,
                     .grad = grad_from_output<OpId::softmax_backward>,
                     .saved_outputs = bit(0)};
// dx = y (dy - sum(dy y))
const Op kOp_softmax_backward{.id = OpId::softmax_backward,
                              .name = kSoftmaxBackward,
                              .infer = infer_like_pair<kSoftmaxBackward>,
                              .cost = cost_per_element<4>};
const Op kOp_log_softmax{.id = OpId::log_softmax,
                         .name = kLogSoftmax,
                         .infer = infer_like_input<kLogSoftmax>,
                         .cost = cost_per_element<5>,
                         .grad = grad_from_output<OpId::log_softmax_backward>,
                         .saved_outputs = bit(0)};
// dx = dy - exp(y) sum(dy)
const Op kOp_log_softmax_backward{.id = OpId::log_softmax_backward,
                                  .name = kLogSoftmaxBackward,
                                  .infer = infer_like_pair<kLogSoftmaxBackward>,
                                  .cost = cost_per_element<4>};

namespace ops {
Tensor softmax(const Tensor& x, int axis) {
  return launch(OpId::softmax, AxisAttrs{axis_of(kSoftmax, axis, x)}, {x});
}
Tensor log_softmax(const Tensor& x, int axis) {
  return launch(OpId::log_softmax, AxisAttrs{axis_of(kLogSoftmax, axis, x)}, {x});
}
}  // namespace ops
}  // namespace engine
