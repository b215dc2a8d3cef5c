// sum, mean, max, min, var, logsumexp over any axes; argmax over one; sum_squares of a flat buffer.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kSum[] = "sum", kMean[] = "mean", kMax[] = "max", kMin[] = "min",
               kExtremumBackward[] = "extremum_backward", kArgmax[] = "argmax",
               kSumSquares[] = "sum_squares", kVar[] = "var", kVarBackward[] = "var_backward",
               kLogSumExp[] = "logsumexp", kLogSumExpBackward[] = "logsumexp_backward";

Shape reduced_shape(const Shape& shape, uint32_t axes, bool keepdim) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((axes & bit(i)) == 0)
      dims.push_back(shape[i]);
    else if (keepdim)
      dims.push_back(1);
  }
  return Shape(dims);
}

template <const char* kName>
void infer(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kName, in[0]);
  const auto& a = attrs.as<ReduceAttrs>();
  out.add(reduced_shape(in[0].shape(), a.axes, a.keepdim), in[0].dtype());
}

template <const char* kName>
void infer_extremum(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  for (int i = 0; i < in[0].rank(); ++i) {
    check((attrs.as<ReduceAttrs>().axes & bit(i)) == 0 || in[0].size(i) > 0, kName,
          "expected no empty axis to reduce, got {} with axis {} empty", describe(in[0]), i);
  }
  infer<kName>(in, attrs, out);
}

Cost cost(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {in[0].numel(), bytes_of(in[0]), bytes_of(out[0])};
}

// A tensor of the reduced shape, with the reduced axes back as 1.
Tensor keep_axes(const Node& node, const Tensor& t) {
  return ops::reshape(t, reduced_shape(node.input_shape(0), node.attrs<ReduceAttrs>().axes, true));
}

void grad_sum(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = ops::broadcast_to(keep_axes(node, dy[0]), node.input_shape(0));
}
void grad_mean(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const double count =
      static_cast<double>(node.input_shape(0).numel()) / static_cast<double>(dy[0].numel());
  dx[0] = ops::broadcast_to(ops::scale(keep_axes(node, dy[0]), 1.0 / count), node.input_shape(0));
}
void grad_extremum(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::extremum_backward, node.attrs(), {dy[0], node.input(0), node.output(0)});
}

// inputs dy, x, y: dx = dy / (number of x equal to y) where x equals y, else 0
void infer_extremum_backward(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_like(kExtremumBackward, in[0], in[2]);
  out.add(in[1].shape(), in[1].dtype());
}

void infer_argmax(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kArgmax, in[0]);
  const auto& a = attrs.as<AxisAttrs>();
  check(in[0].size(a.axis) > 0, kArgmax, "expected a non-empty axis, got {} with axis {} empty",
        describe(in[0]), a.axis);
  out.add(reduced_shape(in[0].shape(), bit(a.axis), a.keepdim), DType::i64);
}

void infer_sum_squares(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_floating(kSumSquares, in[0]);
  out.add(Shape{}, DType::f32);
}
void infer_var(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kVar, in[0]);
  const auto& a = attrs.as<VarAttrs>();
  out.add(reduced_shape(in[0].shape(), a.axes, a.keepdim), in[0].dtype());
}
// dx = dy 2 (x - mean) / (n - correction)
void infer_from_input(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  out.add(in[1].shape(), in[1].dtype());
}
void grad_var(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::var_backward, node.attrs(), {dy[0], node.input(0)});
}
// dx = dy exp(x - y)
void grad_logsumexp(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::logsumexp_backward, node.attrs(), {dy[0], node.input(0), node.output(0)});
}
Cost cost_centered(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {4 * in[0].numel(), bytes_of(in[0]), bytes_of(out[0])};
}

Cost cost_sum_squares(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  return {2 * in[0].numel(), bytes_of(in[0]), 4};
}
}  // namespace

const Op kOp_sum{
    .id = OpId::sum, .name = kSum, .infer = infer<kSum>, .cost = cost, .grad = grad_sum};
const Op kOp_mean{
    .id = OpId::mean, .name = kMean, .infer = infer<kMean>, .cost = cost, .grad = grad_mean};
const Op kOp_max{.id = OpId::max,
                 .name = kMax,
                 .infer = infer_extremum<kMax>,
                 .cost = cost,
                 .grad = grad_extremum,
                 .saved_inputs = bit(0),
                 .saved_outputs = bit(0)};
const Op kOp_min{.id = OpId::min,
                 .name = kMin,
                 .infer = infer_extremum<kMin>,
                 .cost = cost,
                 .grad = grad_extremum,
                 .saved_inputs = bit(0),
                 .saved_outputs = bit(0)};
const Op kOp_extremum_backward{.id = OpId::extremum_backward,
                               .name = kExtremumBackward,
                               .infer = infer_extremum_backward,
                               .cost = cost_per_element<2>};
const Op kOp_argmax{.id = OpId::argmax, .name = kArgmax, .infer = infer_argmax, .cost = cost};
const Op kOp_sum_squares{.id = OpId::sum_squares,
                         .name = kSumSquares,
                         .infer = infer_sum_squares,
                         .cost = cost_sum_squares};
const Op kOp_var{.id = OpId::var,
                 .name = kVar,
                 .infer = infer_var,
                 .cost = cost_centered,
                 .grad = grad_var,
                 .saved_inputs = bit(0)};
const Op kOp_var_backward{.id = OpId::var_backward,
                          .name = kVarBackward,
                          .infer = infer_from_input,
                          .cost = cost_per_element<4>};
const Op kOp_logsumexp{.id = OpId::logsumexp,
                       .name = kLogSumExp,
                       .infer = infer<kLogSumExp>,
                       .cost = cost_centered,
                       .grad = grad_logsumexp,
                       .saved_inputs = bit(0),
                       .saved_outputs = bit(0)};
const Op kOp_logsumexp_backward{.id = OpId::logsumexp_backward,
                                .name = kLogSumExpBackward,
                                .infer = infer_from_input,
                                .cost = cost_per_element<3>};

namespace ops {

namespace {
// The axes as bits, all of them where none is given.
uint32_t mask_of(const char* op, const Tensor& x, std::span<const int64_t> axes) {
  check_defined(op, x);
  uint32_t mask = axes.empty() ? (uint32_t{1} << x.rank()) - 1 : 0;
  for (const int64_t axis : axes) {
    const TensorMask one = bit(axis_of(op, axis, x));
    check((mask & one) == 0, op, "expected each axis once, got axis {} twice", axis);
    mask |= one;
  }
  return mask;
}
Tensor reduce(OpId id, const Tensor& x, std::span<const int64_t> axes, bool keepdim,
              Tensor out = {}) {
  const uint32_t mask = mask_of(engine::op(id).name, x, axes);
  return launch(id, ReduceAttrs{mask, keepdim}, {x}, std::move(out));
}
}  // namespace

Tensor sum(const Tensor& x, std::span<const int64_t> axes, bool keepdim, Tensor out) {
  return reduce(OpId::sum, x, axes, keepdim, std::move(out));
}
Tensor mean(const Tensor& x, std::span<const int64_t> axes, bool keepdim) {
  return reduce(OpId::mean, x, axes, keepdim);
}
Tensor max(const Tensor& x, std::span<const int64_t> axes, bool keepdim) {
  return reduce(OpId::max, x, axes, keepdim);
}
Tensor min(const Tensor& x, std::span<const int64_t> axes, bool keepdim) {
  return reduce(OpId::min, x, axes, keepdim);
}

Tensor var(const Tensor& x, std::span<const int64_t> axes, double correction, bool keepdim) {
  return launch(OpId::var, VarAttrs{mask_of(kVar, x, axes), keepdim, correction}, {x});
}
Tensor logsumexp(const Tensor& x, std::span<const int64_t> axes, bool keepdim) {
  return reduce(OpId::logsumexp, x, axes, keepdim);
}

Tensor argmax(const Tensor& x, int axis, bool keepdim) {
  return launch(OpId::argmax, AxisAttrs{axis_of(kArgmax, axis, x), keepdim}, {x});
}

Tensor sum_squares(const Tensor& x) { return launch(OpId::sum_squares, NoAttrs{}, {x}); }

}  // namespace ops
}  // namespace engine
