// matmul (batched, with transposes), linear and linear_relu.
#include <algorithm>

#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kMatmul[] = "matmul", kLinear[] = "linear", kLinearRelu[] = "linear_relu";

void infer_matmul(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& flags = attrs.as<MatmulAttrs>();
  const Tensor &a = in[0], &b = in[1];
  check_floating(kMatmul, a);
  check_one_dtype(kMatmul, a, b);
  check(a.rank() >= 2 && b.rank() >= 2, kMatmul, "expected matrices (rank >= 2), got {} and {}",
        describe(a), describe(b));
  const int64_t m = a.size(flags.transpose_a ? -1 : -2), k = a.size(flags.transpose_a ? -2 : -1);
  const int64_t kb = b.size(flags.transpose_b ? -1 : -2), n = b.size(flags.transpose_b ? -2 : -1);
  check(k == kb, kMatmul, "expected inner sizes that agree, got {}{} and {}{}: {} and {}",
        describe(a), flags.transpose_a ? " transposed" : "", describe(b),
        flags.transpose_b ? " transposed" : "", k, kb);
  const auto batch_of = [](const Tensor& t) {
    return Shape(t.shape().dims().first(static_cast<size_t>(t.rank() - 2)));
  };
  const Shape batch = broadcast(kMatmul, batch_of(a), batch_of(b));
  std::vector<int64_t> dims(batch.begin(), batch.end());
  dims.push_back(m);
  dims.push_back(n);
  out.add(Shape(dims), a.dtype());
}

Cost cost_matmul(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  const int64_t k = in[0].size(attrs.as<MatmulAttrs>().transpose_a ? -2 : -1);
  return {2 * out[0].numel() * k, bytes_of(in), bytes_of(out[0])};
}

// y = op(a) op(b). With A = op(a), B = op(b): dA = dy B^T, dB = A^T dy, each transposed back if
// stored so.
void grad_matmul(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const auto& flags = node.attrs<MatmulAttrs>();
  const Tensor a = node.input(0), b = node.input(1);
  // A gradient of a broadcast batch has another shape than its leaf: the walk sums it first.
  const auto destination = [&](int i) {
    const Shape& shape = node.input_shape(i);
    const Shape& own = dy[0].shape();
    const bool same =
        shape.rank() == own.rank() && std::equal(shape.begin(), shape.end() - 2, own.begin());
    return same ? node.grad_destination(i) : Tensor();
  };
  if (node.needs(0)) {
    dx[0] = flags.transpose_a ? ops::matmul(b, dy[0], flags.transpose_b, true, destination(0))
                              : ops::matmul(dy[0], b, false, !flags.transpose_b, destination(0));
  }
  if (node.needs(1)) {
    dx[1] = flags.transpose_b ? ops::matmul(dy[0], a, true, flags.transpose_a, destination(1))
                              : ops::matmul(a, dy[0], !flags.transpose_a, false, destination(1));
  }
}

template <const char* kName>
void infer_linear(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  const Tensor &x = in[0], &weight = in[1], &bias = in[2];
  check_floating(kName, x);
  check_one_dtype(kName, x, weight);
  check(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1), kName,
        "expected x [..., in] and weight [out, in], got {} and {}", describe(x), describe(weight));
  check(!bias.defined() ||
            (bias.rank() == 1 && bias.size(0) == weight.size(0) && bias.dtype() == x.dtype()),
        kName, "expected bias {}[{}] for weight {}, got {}", name(x.dtype()), weight.size(0),
        describe(weight), describe(bias));
  out.add(x.shape().with(-1, weight.size(0)), x.dtype());
}

// One multiply-add for each weight and row, one addition for each bias.
Cost cost_linear(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  const int64_t bias = in[2].defined() ? out[0].numel() : 0;
  return {2 * out[0].numel() * in[1].size(1) + bias, bytes_of(in), bytes_of(out)};
}

Tensor as_matrix(const Tensor& t) {
  return ops::reshape(t, Shape{t.shape().product(0, t.rank() - 1), t.size(-1)});
}

void grad_linear_of(const Node& node, const Tensor& dy, std::span<Tensor> dx) {
  const Tensor rows = as_matrix(dy);
  if (node.needs(1))
    dx[1] = ops::matmul(rows, as_matrix(node.input(0)), true, false, node.grad_destination(1));
  if (node.needs(2)) {
    const int64_t axis[] = {0};
    dx[2] = ops::sum(rows, axis, false, node.grad_destination(2));
  }
  if (node.needs(0)) dx[0] = ops::reshape(ops::matmul(rows, node.input(1)), node.input_shape(0));
}

void grad_linear(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad_linear_of(node, dy[0], dx);
}

void grad_linear_relu(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad_linear_of(node, launch(OpId::relu_backward, NoAttrs{}, {dy[0], node.output(0)}), dx);
}
void decompose_linear_relu(std::span<const Tensor> in, const Attrs&, std::span<Tensor> out) {
  out[0] = ops::relu(ops::linear(in[0], in[1], in[2]));
}
}  // namespace

const Op kOp_matmul{.id = OpId::matmul,
                    .name = kMatmul,
                    .infer = infer_matmul,
                    .cost = cost_matmul,
                    .grad = grad_matmul,
                    .saved_inputs = bit(0) | bit(1)};
const Op kOp_linear{.id = OpId::linear,
                    .name = kLinear,
                    .infer = infer_linear<kLinear>,
                    .cost = cost_linear,
                    .grad = grad_linear,
                    .saved_inputs = bit(0) | bit(1)};
const Op kOp_linear_relu{.id = OpId::linear_relu,
                         .name = kLinearRelu,
                         .infer = infer_linear<kLinearRelu>,
                         .cost = cost_linear,
                         .grad = grad_linear_relu,
                         .decompose = decompose_linear_relu,
                         .saved_inputs = bit(0) | bit(1),
                         .saved_outputs = bit(0)};

namespace ops {
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b, Tensor out) {
  return launch(OpId::matmul, MatmulAttrs{transpose_a, transpose_b}, {a, b}, std::move(out));
}
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return launch(OpId::linear, NoAttrs{}, {x, weight, bias});
}
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return launch(OpId::linear_relu, NoAttrs{}, {x, weight, bias});
}
}  // namespace ops
}  // namespace engine
