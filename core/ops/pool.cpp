// max_pool2d and avg_pool2d over NHWC images, with their backward ops.
#include "core/context.h"
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kMaxPool[] = "max_pool2d", kMaxPoolBackward[] = "max_pool2d_backward",
               kAvgPool[] = "avg_pool2d", kAvgPoolBackward[] = "avg_pool2d_backward";

// PyTorch's rule: with ceil_mode a last window may hang over the end, but must begin inside the
// input or its left padding.
int64_t output_size(const Pool2dAttrs& a, size_t axis, int64_t input) {
  const int64_t kernel = a.kernel[axis], stride = a.stride[axis], padding = a.padding[axis];
  const int64_t span = input + 2 * padding - kernel + (a.ceil_mode ? stride - 1 : 0);
  int64_t size = span / stride + 1;
  if (a.ceil_mode && (size - 1) * stride >= input + padding) --size;
  return size;
}

Shape pooled_shape(const char* op, const Tensor& x, const Pool2dAttrs& a) {
  check_floating(op, x);
  check(x.rank() == 4, op, "expected x [N, H, W, C], got {}", describe(x));
  for (size_t i = 0; i < 2; ++i) {
    check(a.kernel[i] >= 1 && a.stride[i] >= 1, op,
          "expected kernel and stride >= 1, got kernel {}x{}, stride {}x{}", a.kernel[0],
          a.kernel[1], a.stride[0], a.stride[1]);
    check(a.padding[i] >= 0 && a.padding[i] <= a.kernel[i] / 2, op,
          "expected padding of at most half the kernel, so that no window lies wholly in it, got "
          "padding {}x{} for kernel {}x{}",
          a.padding[0], a.padding[1], a.kernel[0], a.kernel[1]);
    const int64_t size = x.size(static_cast<int>(i) + 1);
    check(size >= 1 && size + 2 * a.padding[i] >= a.kernel[i], op,
          "expected pixels, and a kernel that fits the padded input, got {} for {}", a.kernel[i],
          describe(x));
  }
  return Shape{x.size(0), output_size(a, 0, x.size(1)), output_size(a, 1, x.size(2)), x.size(3)};
}

// Outputs y and, for backward, the position of the maximum inside its window (row * kernel width +
// column): u8 where the window has at most 256 elements, else i32.
void infer_max(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<Pool2dAttrs>();
  const Shape shape = pooled_shape(kMaxPool, in[0], a);
  out.add(shape, in[0].dtype());
  out.add(shape, int64_t{a.kernel[0]} * a.kernel[1] <= 256 ? DType::u8 : DType::i32);
  if (!context().grad_enabled || !in[0].requires_grad()) out.drop_last();
}
void infer_avg(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  out.add(pooled_shape(kAvgPool, in[0], attrs.as<Pool2dAttrs>()), in[0].dtype());
}

Cost cost_forward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  const auto& a = attrs.as<Pool2dAttrs>();
  Cost cost = cost_per_element<1>(in, out, attrs);
  cost.flops = out[0].numel() * a.kernel[0] * a.kernel[1];
  return cost;
}
Cost cost_max_backward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {in[0].numel(), bytes_of(in), bytes_of(out[0])};
}
Cost cost_avg_backward(std::span<const Tensor> in, std::span<const Tensor> out,
                       const Attrs& attrs) {
  const auto& a = attrs.as<Pool2dBackwardAttrs>().pool;
  return {in[0].numel() * a.kernel[0] * a.kernel[1], bytes_of(in[0]), bytes_of(out[0])};
}

template <const char* kName>
void infer_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& size = attrs.as<Pool2dBackwardAttrs>().size;
  check_floating(kName, in[0]);
  out.add(Shape{in[0].size(0), size[0], size[1], in[0].size(3)}, in[0].dtype());
}

Pool2dBackwardAttrs backward_attrs(const Node& node) {
  const Shape& x = node.input_shape(0);
  return {node.attrs<Pool2dAttrs>(), {x[1], x[2]}};
}
void grad_max(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::max_pool2d_backward, backward_attrs(node), {dy[0], node.output(1)});
}
void grad_avg(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::avg_pool2d_backward, backward_attrs(node), {dy[0]});
}
}  // namespace

const Op kOp_max_pool2d{.id = OpId::max_pool2d,
                        .name = kMaxPool,
                        .infer = infer_max,
                        .cost = cost_forward,
                        .grad = grad_max,
                        .saved_outputs = bit(1)};
const Op kOp_max_pool2d_backward{.id = OpId::max_pool2d_backward,
                                 .name = kMaxPoolBackward,
                                 .infer = infer_backward<kMaxPoolBackward>,
                                 .cost = cost_max_backward};
const Op kOp_avg_pool2d{.id = OpId::avg_pool2d,
                        .name = kAvgPool,
                        .infer = infer_avg,
                        .cost = cost_forward,
                        .grad = grad_avg};
const Op kOp_avg_pool2d_backward{.id = OpId::avg_pool2d_backward,
                                 .name = kAvgPoolBackward,
                                 .infer = infer_backward<kAvgPoolBackward>,
                                 .cost = cost_avg_backward};

namespace ops {
Tensor max_pool2d(const Tensor& x, const Pool2dAttrs& attrs) {
  const Tensor inputs[] = {x};
  Tensor outputs[2];
  launch(OpId::max_pool2d, attrs, inputs, outputs);
  return outputs[0];
}
Tensor avg_pool2d(const Tensor& x, const Pool2dAttrs& attrs) {
  return launch(OpId::avg_pool2d, attrs, {x});
}
}  // namespace ops
}  // namespace engine
