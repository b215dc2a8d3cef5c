// conv2d, conv2d_relu, the two backward ops, and conv_transpose2d. Images NHWC, weights OHWI;
// cross-correlation, as all deep-learning libraries define it.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kConv2d[] = "conv2d", kConv2dRelu[] = "conv2d_relu",
               kBackwardData[] = "conv2d_backward_data",
               kBackwardWeight[] = "conv2d_backward_weight", kTranspose[] = "conv_transpose2d";

void check_attrs(const char* op, const Conv2dAttrs& a) {
  for (size_t i = 0; i < 2; ++i) {
    check(a.stride[i] >= 1 && a.dilation[i] >= 1, op,
          "expected stride and dilation >= 1, got stride {}x{}, dilation {}x{}", a.stride[0],
          a.stride[1], a.dilation[0], a.dilation[1]);
    check(a.padding_begin[i] >= 0 && a.padding_end[i] >= 0, op,
          "expected padding >= 0, got top {}, left {}, bottom {}, right {}", a.padding_begin[0],
          a.padding_begin[1], a.padding_end[0], a.padding_end[1]);
  }
  check(a.groups >= 1, op, "expected groups >= 1, got {}", a.groups);
}

// Axis 0 is the height, 1 the width.
int64_t output_size(const char* op, const Conv2dAttrs& a, size_t axis, int64_t input,
                    int64_t kernel) {
  const int64_t padded = input + a.padding_begin[axis] + a.padding_end[axis];
  const int64_t extent = a.dilation[axis] * (kernel - 1) + 1;
  check(kernel >= 1 && extent <= padded, op,
        "expected a kernel that fits the padded {}, got an extent of {} over {}",
        axis == 0 ? "height" : "width", extent, padded);
  return (padded - extent) / a.stride[axis] + 1;
}

template <const char* kName>
void infer_forward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<Conv2dAttrs>();
  const Tensor &x = in[0], &weight = in[1], &bias = in[2];
  check_floating(kName, x);
  check_one_dtype(kName, x, weight);
  check_attrs(kName, a);
  check(x.rank() == 4 && weight.rank() == 4, kName,
        "expected x [N, H, W, C] and weight [O, KH, KW, C/groups], got {} and {}", describe(x),
        describe(weight));
  check(x.shape().product(1, 4) > 0 && weight.numel() > 0, kName,
        "expected no empty axis but the batch, got {} and {}", describe(x), describe(weight));
  check(
      weight.size(3) * a.groups == x.size(3) && weight.size(0) % a.groups == 0, kName,
      "expected weight [O, KH, KW, {}] with O a multiple of groups, for x {} and groups {}, got {}",
      x.size(3) / a.groups, describe(x), a.groups, describe(weight));
  check(!bias.defined() ||
            (bias.rank() == 1 && bias.size(0) == weight.size(0) && bias.dtype() == x.dtype()),
        kName, "expected bias {}[{}], got {}", name(x.dtype()), weight.size(0), describe(bias));
  out.add(Shape{x.size(0), output_size(kName, a, 0, x.size(1), weight.size(1)),
                output_size(kName, a, 1, x.size(2), weight.size(2)), weight.size(0)},
          x.dtype());
}

// Padding is counted as if it were computed, which is the field's convention.
Cost cost_forward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  const int64_t bias = in[2].defined() ? out[0].numel() : 0;
  return {2 * out[0].numel() * in[1].shape().product(1, 4) + bias, bytes_of(in), bytes_of(out)};
}

// inputs dy [N, OH, OW, O], weight -> dx [N, H, W, C]
void infer_backward_data(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<Conv2dBackwardAttrs>();
  out.add(Shape{in[0].size(0), a.size[0], a.size[1], in[1].size(3) * a.conv.groups}, in[0].dtype());
}
Cost cost_backward_data(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {2 * in[0].numel() * in[1].shape().product(1, 4), bytes_of(in), bytes_of(out)};
}

// inputs x, dy -> dweight [O, KH, KW, C/groups], dbias [O] if wanted
void infer_backward_weight(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<Conv2dBackwardAttrs>();
  out.add(Shape{in[1].size(3), a.size[0], a.size[1], in[0].size(3) / a.conv.groups}, in[0].dtype());
  if (a.bias)
    out.add(Shape{in[1].size(3)}, in[0].dtype());
  else
    out.add_absent();
}
Cost cost_backward_weight(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  const int64_t bias = out[1].defined() ? in[1].numel() : 0;
  return {2 * in[1].numel() * out[0].shape().product(1, 4) + bias, bytes_of(in), bytes_of(out)};
}

void grad_conv_of(const Node& node, const Tensor& dy, std::span<Tensor> dx) {
  const auto& conv = node.attrs<Conv2dAttrs>();
  if (node.needs(1) || node.needs(2)) {
    const Shape& kernel = node.input_shape(1);
    const Conv2dBackwardAttrs attrs{conv, {kernel[1], kernel[2]}, node.needs(2)};
    const Tensor inputs[] = {node.input(0), dy};
    Tensor outputs[] = {node.grad_destination(1),
                        node.needs(2) ? node.grad_destination(2) : Tensor()};
    launch(OpId::conv2d_backward_weight, attrs, inputs, outputs);
    dx[1] = outputs[0];
    dx[2] = outputs[1];
  }
  if (node.needs(0)) {
    const Shape& image = node.input_shape(0);
    dx[0] = launch(OpId::conv2d_backward_data, Conv2dBackwardAttrs{conv, {image[1], image[2]}},
                   {dy, node.input(1)});
  }
}

void grad_conv2d(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad_conv_of(node, dy[0], dx);
}
void grad_conv2d_relu(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  grad_conv_of(node, launch(OpId::relu_backward, NoAttrs{}, {dy[0], node.output(0)}), dx);
}
void decompose_conv2d_relu(std::span<const Tensor> in, const Attrs& attrs, std::span<Tensor> out) {
  out[0] = ops::relu(ops::conv2d(in[0], in[1], in[2], attrs.as<Conv2dAttrs>()));
}

// inputs x [N, H, W, I], weight [I, KH, KW, O / groups], bias [O] -> y: the gradient of the
// convolution with this weight in its input, of x
void infer_transpose(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<ConvTranspose2dAttrs>();
  const Tensor &x = in[0], &weight = in[1], &bias = in[2];
  check_floating(kTranspose, x);
  check_one_dtype(kTranspose, x, weight);
  check(x.shape().product(1, 4) > 0 && weight.numel() > 0, kTranspose,
        "expected no empty axis but the batch, got {} and {}", describe(x), describe(weight));
  check(x.size(3) % a.conv.groups == 0, kTranspose,
        "expected groups that divide the channels of {}, got {}", describe(x), a.conv.groups);
  check(a.size[0] >= 1 && a.size[1] >= 1, kTranspose,
        "expected paddings that leave something of {} by {}, got an output of {}x{}", describe(x),
        describe(weight), a.size[0], a.size[1]);
  const int64_t channels = weight.size(3) * a.conv.groups;
  check(!bias.defined() ||
            (bias.rank() == 1 && bias.size(0) == channels && bias.dtype() == x.dtype()),
        kTranspose, "expected bias {}[{}], got {}", name(x.dtype()), channels, describe(bias));
  out.add(Shape{x.size(0), a.size[0], a.size[1], channels}, x.dtype());
}
Cost cost_transpose(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  const int64_t bias = in[2].defined() ? out[0].numel() : 0;
  return {2 * in[0].numel() * in[1].shape().product(1, 4) + bias, bytes_of(in), bytes_of(out)};
}
void grad_transpose(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const auto& a = node.attrs<ConvTranspose2dAttrs>();
  if (node.needs(0)) dx[0] = launch(OpId::conv2d, a.conv, {dy[0], node.input(1), Tensor()});
  if (node.needs(1)) {
    const Shape& weight = node.input_shape(1);
    const Conv2dBackwardAttrs attrs{a.conv, {weight[1], weight[2]}, false};
    const Tensor inputs[] = {dy[0], node.input(0)};
    Tensor outputs[] = {node.grad_destination(1), Tensor()};
    launch(OpId::conv2d_backward_weight, attrs, inputs, outputs);
    dx[1] = outputs[0];
  }
  if (node.needs(2)) {
    const int64_t pixels[] = {0, 1, 2};
    dx[2] = ops::sum(dy[0], pixels, false, node.grad_destination(2));
  }
}
}  // namespace

const Op kOp_conv2d{.id = OpId::conv2d,
                    .name = kConv2d,
                    .infer = infer_forward<kConv2d>,
                    .cost = cost_forward,
                    .grad = grad_conv2d,
                    .saved_inputs = bit(0) | bit(1)};
const Op kOp_conv2d_relu{.id = OpId::conv2d_relu,
                         .name = kConv2dRelu,
                         .infer = infer_forward<kConv2dRelu>,
                         .cost = cost_forward,
                         .grad = grad_conv2d_relu,
                         .decompose = decompose_conv2d_relu,
                         .saved_inputs = bit(0) | bit(1),
                         .saved_outputs = bit(0)};
const Op kOp_conv2d_backward_data{.id = OpId::conv2d_backward_data,
                                  .name = kBackwardData,
                                  .infer = infer_backward_data,
                                  .cost = cost_backward_data};
const Op kOp_conv2d_backward_weight{.id = OpId::conv2d_backward_weight,
                                    .name = kBackwardWeight,
                                    .infer = infer_backward_weight,
                                    .cost = cost_backward_weight};

const Op kOp_conv_transpose2d{.id = OpId::conv_transpose2d,
                              .name = kTranspose,
                              .infer = infer_transpose,
                              .cost = cost_transpose,
                              .grad = grad_transpose,
                              .saved_inputs = bit(0) | bit(1)};

namespace ops {
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Conv2dAttrs& attrs, std::array<int32_t, 2> output_padding) {
  for (const Tensor* t : {&x, &weight}) check_defined(kTranspose, *t);
  check_attrs(kTranspose, attrs);
  check(x.rank() == 4 && weight.rank() == 4 && x.size(3) == weight.size(0), kTranspose,
        "expected x [N, H, W, I] and weight [I, KH, KW, O/groups], got {} and {}", describe(x),
        describe(weight));
  ConvTranspose2dAttrs transposed{attrs, {}};
  for (size_t i = 0; i < 2; ++i) {
    const int axis = static_cast<int>(i);
    check(
        output_padding[i] >= 0 && output_padding[i] < std::max(attrs.stride[i], attrs.dilation[i]),
        kTranspose,
        "expected an output padding below the stride or the dilation, got {} for stride {} and "
        "dilation {}",
        output_padding[i], attrs.stride[i], attrs.dilation[i]);
    transposed.size[i] =
        (x.size(axis + 1) - 1) * attrs.stride[i] - attrs.padding_begin[i] - attrs.padding_end[i] +
        int64_t{attrs.dilation[i]} * (weight.size(axis + 1) - 1) + output_padding[i] + 1;
  }
  return launch(OpId::conv_transpose2d, transposed, {x, weight, bias});
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dAttrs& attrs) {
  return launch(OpId::conv2d, attrs, {x, weight, bias});
}
Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Conv2dAttrs& attrs) {
  return launch(OpId::conv2d_relu, attrs, {x, weight, bias});
}
}  // namespace ops
}  // namespace engine
