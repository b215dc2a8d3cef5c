// Normalisations: batch_norm, group_norm, instance_norm (statistics of a channel or a group of
// channels), layer_norm, rms_norm (statistics of a row), each with one backward op for the input,
// the weight and the bias. Statistics are f32 whatever the input is; weight and bias may be f32
// beside a bf16 input.
#include "core/context.h"
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kBatch[] = "batch_norm", kBatchBackward[] = "batch_norm_backward",
               kGroup[] = "group_norm", kGroupBackward[] = "group_norm_backward",
               kInstance[] = "instance_norm", kInstanceBackward[] = "instance_norm_backward",
               kLayer[] = "layer_norm", kLayerBackward[] = "layer_norm_backward",
               kRms[] = "rms_norm", kRmsBackward[] = "rms_norm_backward",
               kUpdate[] = "update_running_stats_";

void check_parameter(const char* op, const char* what, const Tensor& p, const Shape& shape,
                     const Tensor& x) {
  if (!p.defined()) return;
  check(p.shape() == shape && (p.dtype() == DType::f32 || p.dtype() == x.dtype()), op,
        "expected {} f32{} for {}, got {}", what, shape, describe(x), describe(p));
}

// x [..., C] with weight and bias [C] as inputs 1 and 2.
void check_channels(const char* op, std::span<const Tensor> in, double eps) {
  check_floating(op, in[0]);
  check(in[0].rank() >= 2 && in[0].size(-1) >= 1, op, "expected x [N, ..., C], got {}",
        describe(in[0]));
  check(eps >= 0, op, "expected eps of at least 0, got {}", eps);
  const Shape channels{in[0].size(-1)};
  check_parameter(op, "weight", in[1], channels, in[0]);
  check_parameter(op, "bias", in[2], channels, in[0]);
}

// inputs x, weight, bias and, in evaluation, running mean and variance -> y and, in training, the
// batch's mean and biased variance [C]
void infer_batch(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<BatchNormAttrs>();
  check_channels(kBatch, in, a.eps);
  const Tensor& x = in[0];
  const Shape channels{x.size(-1)};
  out.add(x.shape(), x.dtype());
  if (a.training) {
    check(
        x.numel() != channels[0], kBatch,
        "expected more than one value for each channel in training, got {}: use a larger batch, or "
        "evaluation mode",
        describe(x));
    out.add(channels, DType::f32);
    out.add(channels, DType::f32);
    return;
  }
  for (int i : {3, 4}) {
    check(in[static_cast<size_t>(i)].defined(), kBatch,
          "expected a running mean and a running variance in evaluation, got none");
    check_parameter(kBatch, "running statistics", in[static_cast<size_t>(i)], channels, x);
  }
  out.add_absent();
  out.add_absent();
}

template <const char* kName>
void infer_group(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<GroupNormAttrs>();
  check_channels(kName, in, a.eps);
  const Tensor& x = in[0];
  check(a.groups >= 1 && x.size(-1) % a.groups == 0, kName,
        "expected groups that divide the channels of {}, got {}", describe(x), a.groups);
  if constexpr (kName == kInstance) {  // one value for each mean: the result would be the bias
    check(x.shape().product(1, x.rank()) > a.groups || x.numel() == 0, kName,
          "expected more than one value for each channel, got {}", describe(x));
  }
  out.add(x.shape(), x.dtype());
  out.add(Shape{x.size(0), a.groups}, DType::f32);
  out.add(Shape{x.size(0), a.groups}, DType::f32);
}

Shape row_shape(const Shape& x, int axes) {
  return Shape(x.dims().last(static_cast<size_t>(axes)));
}
Shape leading_shape(const Shape& x, int axes) {
  return Shape(x.dims().first(static_cast<size_t>(x.rank() - axes)));
}

template <const char* kName, bool kCenter>
void infer_rows(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<RowNormAttrs>();
  const Tensor& x = in[0];
  check_floating(kName, x);
  check(a.axes >= 1 && a.axes <= x.rank(), kName,
        "expected from 1 to {} axes to normalise of {}, got {}", x.rank(), describe(x), a.axes);
  const Shape row = row_shape(x.shape(), a.axes);
  check(row.numel() > 0, kName, "expected rows that are not empty, got {}", describe(x));
  check(a.eps >= 0, kName, "expected eps of at least 0, got {}", a.eps);
  check_parameter(kName, "weight", in[1], row, x);
  if (kCenter) check_parameter(kName, "bias", in[2], row, x);
  out.add(x.shape(), x.dtype());
  if (kCenter) out.add(leading_shape(x.shape(), a.axes), DType::f32);
  out.add(leading_shape(x.shape(), a.axes), DType::f32);
}

// inputs dy, x, weight, statistics -> dx, dweight, dbias; each where the attributes want it
template <class A, int kParameters>
void infer_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<A>();
  const auto add = [&out](bool wanted, const Tensor& like, const Shape& shape) {
    if (wanted)
      out.add(shape, like.dtype());
    else
      out.add_absent();
  };
  const Tensor &x = in[1], &weight = in[2];
  Shape shape{x.size(-1)};
  if constexpr (std::is_same_v<A, RowNormAttrs>) shape = row_shape(x.shape(), a.axes);
  const Tensor& like = weight.defined() ? weight : x;
  add((a.wanted & bit(0)) != 0, x, x.shape());
  for (int i = 1; i <= kParameters; ++i) add((a.wanted & bit(i)) != 0, like, shape);
}

// An element costs two sums and an affine function. Where the statistics are those of columns, x
// (and dy, backward) is read twice, since a channel's elements are far apart and no cache holds
// them all.
Cost cost_columns(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  const int64_t again = out[1].defined() ? bytes_of(in[0]) : 0;
  return {7 * in[0].numel(), bytes_of(in) + again, bytes_of(out)};
}
Cost cost_columns_backward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {10 * in[1].numel(), 2 * bytes_of(in), bytes_of(out)};
}
Cost cost_forward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {7 * in[0].numel(), bytes_of(in), bytes_of(out)};
}
Cost cost_backward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {10 * in[1].numel(), bytes_of(in), bytes_of(out)};
}

// The backward op's outputs are the gradients of inputs 0 .. kInputs, written where they belong.
template <OpId kBackward, class A, int kInputs>
void grad(const Node& node, const Tensor& dy, const Tensor& mean, const Tensor& deviation,
          std::span<Tensor> dx) {
  A attrs = node.attrs<A>();
  attrs.wanted = 0;
  Tensor outputs[kInputs];
  for (int i = 0; i < kInputs; ++i) {
    if (!node.needs(i)) continue;
    attrs.wanted |= bit(i);
    outputs[i] = node.grad_destination(i);
  }
  if (mean.defined()) {
    const Tensor inputs[] = {dy, node.input(0), node.input(1), mean, deviation};
    launch(kBackward, attrs, inputs, outputs);
  } else {
    const Tensor inputs[] = {dy, node.input(0), node.input(1), deviation};
    launch(kBackward, attrs, inputs, outputs);
  }
  for (size_t i = 0; i < kInputs; ++i) dx[i] = outputs[i];
}

void grad_batch(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const bool training = node.attrs<BatchNormAttrs>().training;
  grad<OpId::batch_norm_backward, BatchNormAttrs, 3>(node, dy[0],
                                                     training ? node.output(1) : node.input(3),
                                                     training ? node.output(2) : node.input(4), dx);
}
void grad_group(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad<OpId::group_norm_backward, GroupNormAttrs, 3>(node, dy[0], node.output(1), node.output(2),
                                                     dx);
}
void grad_instance(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad<OpId::instance_norm_backward, GroupNormAttrs, 3>(node, dy[0], node.output(1), node.output(2),
                                                        dx);
}
void grad_layer(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad<OpId::layer_norm_backward, RowNormAttrs, 3>(node, dy[0], node.output(1), node.output(2), dx);
}
void grad_rms(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad<OpId::rms_norm_backward, RowNormAttrs, 2>(node, dy[0], Tensor(), node.output(1), dx);
}

// inputs running mean, running variance, the batch's mean and biased variance, all f32 [C]
void infer_update(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<RunningStatsAttrs>();
  check_f32(kUpdate, in[0]);
  check(a.momentum >= 0 && a.momentum <= 1, kUpdate, "expected a momentum in [0, 1], got {}",
        a.momentum);
  infer_in_place<kUpdate>(in, attrs, out);
}
Cost cost_update(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  return {7 * in[0].numel(), bytes_of(in), 2 * bytes_of(in[0])};
}

Tensor first_of(OpId id, const Attrs& attrs, std::span<const Tensor> inputs,
                std::span<Tensor> outputs) {
  launch(id, attrs, inputs, outputs);
  return outputs[0];
}
}  // namespace

const Op kOp_batch_norm{.id = OpId::batch_norm,
                        .name = kBatch,
                        .infer = infer_batch,
                        .cost = cost_columns,
                        .grad = grad_batch,
                        .saved_inputs = bit(0) | bit(1) | bit(3) | bit(4),
                        .saved_outputs = bit(1) | bit(2)};
const Op kOp_batch_norm_backward{.id = OpId::batch_norm_backward,
                                 .name = kBatchBackward,
                                 .infer = infer_backward<BatchNormAttrs, 2>,
                                 .cost = cost_columns_backward};
const Op kOp_group_norm{.id = OpId::group_norm,
                        .name = kGroup,
                        .infer = infer_group<kGroup>,
                        .cost = cost_columns,
                        .grad = grad_group,
                        .saved_inputs = bit(0) | bit(1),
                        .saved_outputs = bit(1) | bit(2)};
const Op kOp_group_norm_backward{.id = OpId::group_norm_backward,
                                 .name = kGroupBackward,
                                 .infer = infer_backward<GroupNormAttrs, 2>,
                                 .cost = cost_columns_backward};
const Op kOp_instance_norm{.id = OpId::instance_norm,
                           .name = kInstance,
                           .infer = infer_group<kInstance>,
                           .cost = cost_columns,
                           .grad = grad_instance,
                           .saved_inputs = bit(0) | bit(1),
                           .saved_outputs = bit(1) | bit(2)};
const Op kOp_instance_norm_backward{.id = OpId::instance_norm_backward,
                                    .name = kInstanceBackward,
                                    .infer = infer_backward<GroupNormAttrs, 2>,
                                    .cost = cost_columns_backward};
const Op kOp_layer_norm{.id = OpId::layer_norm,
                        .name = kLayer,
                        .infer = infer_rows<kLayer, true>,
                        .cost = cost_forward,
                        .grad = grad_layer,
                        .saved_inputs = bit(0) | bit(1),
                        .saved_outputs = bit(1) | bit(2)};
const Op kOp_layer_norm_backward{.id = OpId::layer_norm_backward,
                                 .name = kLayerBackward,
                                 .infer = infer_backward<RowNormAttrs, 2>,
                                 .cost = cost_backward};
const Op kOp_rms_norm{.id = OpId::rms_norm,
                      .name = kRms,
                      .infer = infer_rows<kRms, false>,
                      .cost = cost_forward,
                      .grad = grad_rms,
                      .saved_inputs = bit(0) | bit(1),
                      .saved_outputs = bit(1)};
const Op kOp_rms_norm_backward{.id = OpId::rms_norm_backward,
                               .name = kRmsBackward,
                               .infer = infer_backward<RowNormAttrs, 1>,
                               .cost = cost_backward};
const Op kOp_update_running_stats_{.id = OpId::update_running_stats_,
                                   .name = kUpdate,
                                   .infer = infer_update,
                                   .cost = cost_update,
                                   .mutated = bit(0) | bit(1)};

namespace ops {
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum, double eps) {
  const BatchNormAttrs attrs{.eps = eps, .training = training};
  if (!training) {
    const Tensor inputs[] = {x, weight, bias, running_mean, running_var};
    Tensor outputs[3];
    return first_of(OpId::batch_norm, attrs, inputs, outputs);
  }
  check(running_mean.defined() == running_var.defined(), kBatch,
        "expected a running mean and a running variance, or neither, got {} and {}",
        describe(running_mean), describe(running_var));
  const Tensor inputs[] = {x, weight, bias, {}, {}};
  Tensor outputs[3];
  const Tensor y = first_of(OpId::batch_norm, attrs, inputs, outputs);
  if (running_mean.defined() && x.numel() > 0) {
    const NoGradScope no_grad;
    const RunningStatsAttrs update{.momentum = momentum, .count = x.numel() / x.size(-1)};
    const Tensor statistics[] = {running_mean, running_var, outputs[1], outputs[2]};
    launch(OpId::update_running_stats_, update, statistics, {});
  }
  return y;
}
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const Tensor inputs[] = {x, weight, bias};
  Tensor outputs[3];
  return first_of(OpId::group_norm, GroupNormAttrs{.eps = eps, .groups = groups}, inputs, outputs);
}
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_defined(kInstance, x);
  const Tensor inputs[] = {x, weight, bias};
  Tensor outputs[3];
  const int64_t channels = x.rank() > 0 ? x.size(-1) : 0;
  return first_of(OpId::instance_norm, GroupNormAttrs{.eps = eps, .groups = channels}, inputs,
                  outputs);
}
Tensor layer_norm(const Tensor& x, int axes, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor inputs[] = {x, weight, bias};
  Tensor outputs[3];
  return first_of(OpId::layer_norm, RowNormAttrs{.eps = eps, .axes = axes}, inputs, outputs);
}
Tensor rms_norm(const Tensor& x, int axes, const Tensor& weight, double eps) {
  const Tensor inputs[] = {x, weight};
  Tensor outputs[2];
  return first_of(OpId::rms_norm, RowNormAttrs{.eps = eps, .axes = axes}, inputs, outputs);
}
}  // namespace ops
}  // namespace engine
