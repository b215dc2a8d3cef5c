// Losses of two tensors of one shape: mse_loss, l1_loss, smooth_l1_loss, bce_with_logits, and their
// backward ops, which give the gradients of both.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kMse[] = "mse_loss", kMseBackward[] = "mse_loss_backward", kL1[] = "l1_loss",
               kL1Backward[] = "l1_loss_backward", kSmoothL1[] = "smooth_l1_loss",
               kSmoothL1Backward[] = "smooth_l1_loss_backward", kBce[] = "bce_with_logits",
               kBceBackward[] = "bce_with_logits_backward";

template <const char* kName>
void infer(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kName, in[0]);
  check_like(kName, in[0], in[1]);
  const bool none = attrs.as<PointwiseLossAttrs>().reduction == Reduction::none;
  out.add(none ? in[0].shape() : Shape{}, DType::f32);
}

// inputs dy, x, target -> dx, and dtarget if wanted
void infer_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  out.add(in[1].shape(), in[1].dtype());
  if (attrs.as<PointwiseLossAttrs>().target_gradient)
    out.add(in[1].shape(), in[1].dtype());
  else
    out.add_absent();
}

template <OpId kBackward>
void grad(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  PointwiseLossAttrs attrs = node.attrs<PointwiseLossAttrs>();
  attrs.target_gradient = node.needs(1);
  const Tensor inputs[] = {dy[0], node.input(0), node.input(1)};
  launch(kBackward, attrs, inputs, dx);
}

template <OpId kId, OpId kBackward, const char* kName, int64_t kFlops>
constexpr Op loss() {
  return {
      .id = kId,
      .name = kName,
      .infer = infer<kName>,
      .cost = [](std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) -> Cost {
        return {kFlops * in[0].numel(), bytes_of(in), bytes_of(out)};
      },
      .grad = grad<kBackward>,
      .saved_inputs = bit(0) | bit(1)};
}
template <OpId kId, const char* kName, int64_t kFlops>
constexpr Op backward() {
  return {.id = kId, .name = kName, .infer = infer_backward, .cost = cost_per_element<kFlops>};
}

Tensor run(OpId id, const Tensor& x, const Tensor& target, const PointwiseLossAttrs& attrs) {
  return launch(id, attrs, {x, target});
}
}  // namespace

const Op kOp_mse_loss = loss<OpId::mse_loss, OpId::mse_loss_backward, kMse, 3>();
const Op kOp_mse_loss_backward = backward<OpId::mse_loss_backward, kMseBackward, 3>();
const Op kOp_l1_loss = loss<OpId::l1_loss, OpId::l1_loss_backward, kL1, 3>();
const Op kOp_l1_loss_backward = backward<OpId::l1_loss_backward, kL1Backward, 3>();
const Op kOp_smooth_l1_loss =
    loss<OpId::smooth_l1_loss, OpId::smooth_l1_loss_backward, kSmoothL1, 5>();
const Op kOp_smooth_l1_loss_backward =
    backward<OpId::smooth_l1_loss_backward, kSmoothL1Backward, 4>();
const Op kOp_bce_with_logits =
    loss<OpId::bce_with_logits, OpId::bce_with_logits_backward, kBce, 8>();
const Op kOp_bce_with_logits_backward = backward<OpId::bce_with_logits_backward, kBceBackward, 6>();

namespace ops {
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return run(OpId::mse_loss, x, target, {.reduction = reduction});
}
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return run(OpId::l1_loss, x, target, {.reduction = reduction});
}
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, Reduction reduction) {
  check(beta >= 0, kSmoothL1, "expected beta >= 0, got {}", beta);
  if (beta == 0) return l1_loss(x, target, reduction);
  return run(OpId::smooth_l1_loss, x, target,
             {.reduction = reduction, .beta = static_cast<float>(beta)});
}
Tensor bce_with_logits(const Tensor& x, const Tensor& target, Reduction reduction) {
  return run(OpId::bce_with_logits, x, target, {.reduction = reduction});
}
}  // namespace ops
}  // namespace engine
