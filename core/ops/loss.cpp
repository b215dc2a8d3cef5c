// nll_loss and cross_entropy with their backward ops.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kNll[] = "nll_loss", kNllBackward[] = "nll_loss_backward",
               kCrossEntropy[] = "cross_entropy",
               kCrossEntropyBackward[] = "cross_entropy_backward";

// inputs scores [N, C], target i64 [N], class weights [C] or undefined
void check_scores(const char* op, std::span<const Tensor> in, const LossAttrs& a) {
  const Tensor &scores = in[0], &target = in[1], &weights = in[2];
  check_floating(op, scores);
  check(scores.rank() == 2 && scores.size(1) >= 1 && target.rank() == 1 &&
            target.size(0) == scores.size(0) && target.dtype() == DType::i64,
        op, "expected scores [N, C] and target i64[N], got {} and {}", describe(scores),
        describe(target));
  const bool fits =
      !weights.defined() || (weights.rank() == 1 && weights.size(0) == scores.size(1) &&
                             (weights.dtype() == DType::f32 || weights.dtype() == scores.dtype()));
  check(fits, op, "expected class weights f32[{}] for scores {}, got {}", scores.size(1),
        describe(scores), describe(weights));
  check(a.label_smoothing >= 0 && a.label_smoothing <= 1, op,
        "expected label smoothing in [0, 1], got {}", a.label_smoothing);
}
Shape loss_shape(const Tensor& target, const LossAttrs& a) {
  return a.reduction == Reduction::none ? target.shape() : Shape{};
}

void infer_nll(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<LossAttrs>();
  check_scores(kNll, in, a);
  out.add(loss_shape(in[1], a), DType::f32);
}
// inputs dy, log probabilities (for their shape), target, class weights -> d(log probabilities)
void infer_nll_backward(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  out.add(in[1].shape(), in[1].dtype());
}

Cost cost_nll(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  const bool all = attrs.as<LossAttrs>().label_smoothing > 0;
  const int64_t read = all ? in[0].numel() : in[0].size(0);
  return {read,
          read * static_cast<int64_t>(size_of(in[0].dtype())) + bytes_of(in[1]) + bytes_of(in[2]),
          bytes_of(out[0])};
}
Cost cost_nll_backward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {out[0].numel(), bytes_of(in[0]) + bytes_of(in[2]) + bytes_of(in[3]), bytes_of(out[0])};
}

// Only the shape of the log probabilities matters to the gradient, but an op's input is a tensor:
// it is saved, and costs nothing, as log_softmax has saved it already.
void grad_nll(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::nll_loss_backward, node.attrs(),
                 {dy[0], node.input(0), node.input(1), node.input(2)});
}

// Outputs the loss and, for backward, each row's log-sum-exp: [N] floats instead of the [N, C]
// probabilities that the parts would keep.
void infer_cross_entropy(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<LossAttrs>();
  check_scores(kCrossEntropy, in, a);
  out.add(loss_shape(in[1], a), DType::f32);
  out.add(in[1].shape(), DType::f32);
}
// inputs dy, logits, target, class weights, log-sum-exp -> d(logits)
void infer_cross_entropy_backward(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  out.add(in[1].shape(), in[1].dtype());
}
Cost cost_cross_entropy(std::span<const Tensor> in, std::span<const Tensor> out,
                        const Attrs& attrs) {
  Cost cost = cost_per_element<0>(in, out, attrs);
  cost.flops = 4 * in[0].numel();
  return cost;
}
void grad_cross_entropy(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::cross_entropy_backward, node.attrs(),
                 {dy[0], node.input(0), node.input(1), node.input(2), node.output(1)});
}
void decompose_cross_entropy(std::span<const Tensor> in, const Attrs& attrs,
                             std::span<Tensor> out) {
  out[0] = ops::nll_loss(ops::log_softmax(in[0], 1), in[1], attrs.as<LossAttrs>(), in[2]);
}
}  // namespace

const Op kOp_nll_loss{.id = OpId::nll_loss,
                      .name = kNll,
                      .infer = infer_nll,
                      .cost = cost_nll,
                      .grad = grad_nll,
                      .saved_inputs = bit(0) | bit(1) | bit(2)};
const Op kOp_nll_loss_backward{.id = OpId::nll_loss_backward,
                               .name = kNllBackward,
                               .infer = infer_nll_backward,
                               .cost = cost_nll_backward};
const Op kOp_cross_entropy{.id = OpId::cross_entropy,
                           .name = kCrossEntropy,
                           .infer = infer_cross_entropy,
                           .cost = cost_cross_entropy,
                           .grad = grad_cross_entropy,
                           .decompose = decompose_cross_entropy,
                           .saved_inputs = bit(0) | bit(1) | bit(2),
                           .saved_outputs = bit(1)};
const Op kOp_cross_entropy_backward{.id = OpId::cross_entropy_backward,
                                    .name = kCrossEntropyBackward,
                                    .infer = infer_cross_entropy_backward,
                                    .cost = cost_per_element<4>};

namespace ops {
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const LossAttrs& attrs,
                const Tensor& class_weights) {
  return launch(OpId::nll_loss, attrs, {log_probabilities, target, class_weights});
}
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const LossAttrs& attrs,
                     const Tensor& class_weights) {
  const Tensor inputs[] = {logits, target, class_weights};
  Tensor outputs[2];
  launch(OpId::cross_entropy, attrs, inputs, outputs);
  return outputs[0];
}
}  // namespace ops
}  // namespace engine
