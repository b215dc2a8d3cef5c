// conv2d, conv2d_relu and the two backward ops: by oneDNN, or by our own kernels where few channels
// make those faster. Images NHWC, weights OHWI.
#include "backends/cpu/elementwise.h"
#include "backends/cpu/few_channels.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/reduce.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

using dnnl::memory;

enum Kind : int { kForward = 16, kBackwardData, kBackwardWeight, kReorder };

ConvGeometry geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& a) {
  return {x[0],
          x[1],
          x[2],
          x[3],
          y[1],
          y[2],
          y[3],
          weight[1],
          weight[2],
          a.stride[0],
          a.stride[1],
          a.dilation[0],
          a.dilation[1],
          a.padding_begin[0],
          a.padding_begin[1],
          a.padding_end[0],
          a.padding_end[1],
          a.groups};
}

PrimitiveKey key_of(Kind kind, const ConvGeometry& g, bool bias) {
  return PrimitiveKey(kind, {g.batch, g.in_h, g.in_w, g.c_in, g.out_h, g.out_w, g.c_out, g.kernel_h,
                             g.kernel_w, g.stride_h, g.stride_w, g.dilation_h, g.dilation_w,
                             g.pad_top, g.pad_left, g.pad_bottom, g.pad_right, g.groups, bias});
}

// oneDNN's names for the same things. `any` lets it choose the layout of the weights.
struct Descriptors {
  memory::desc x, y, weight, weight_any, bias;
  memory::dims stride, dilation, begin, end;
};

Descriptors describe(const ConvGeometry& g, bool bias) {
  constexpr auto f32 = memory::data_type::f32;
  const int64_t in = g.c_in / g.groups, out = g.c_out / g.groups, taps = g.kernel_h * g.kernel_w;
  Descriptors d;
  d.x = memory::desc({g.batch, g.c_in, g.in_h, g.in_w}, f32, memory::format_tag::nhwc);
  d.y = memory::desc({g.batch, g.c_out, g.out_h, g.out_w}, f32, memory::format_tag::nhwc);
  if (g.groups == 1) {
    const memory::dims dims{out, in, g.kernel_h, g.kernel_w};
    d.weight = memory::desc(dims, f32, memory::dims{taps * in, 1, g.kernel_w * in, in});
    d.weight_any = memory::desc(dims, f32, memory::format_tag::any);
  } else {
    const memory::dims dims{g.groups, out, in, g.kernel_h, g.kernel_w};
    d.weight =
        memory::desc(dims, f32, memory::dims{out * taps * in, taps * in, 1, g.kernel_w * in, in});
    d.weight_any = memory::desc(dims, f32, memory::format_tag::any);
  }
  if (bias) d.bias = memory::desc({g.c_out}, f32, memory::format_tag::a);
  d.stride = {g.stride_h, g.stride_w};
  d.dilation = {g.dilation_h - 1, g.dilation_w - 1};  // 0 means none
  d.begin = {g.pad_top, g.pad_left};
  d.end = {g.pad_bottom, g.pad_right};
  return d;
}

dnnl::convolution_forward::primitive_desc forward_descriptor(const Descriptors& d) {
  return onednn::conv_forward(d.x, d.weight_any, d.bias, d.y, d.stride, d.dilation, d.begin, d.end,
                              onednn_attributes());
}

// Weights between our layout and the one that oneDNN chose, in scratch. Where both are the same,
// the tensor's own memory serves.
class Weights {
 public:
  Weights(KernelArgs& args, const PrimitiveKey& key, const ConvGeometry& g,
          const memory::desc& chosen, bool to_ours)
      : args_(args) {
    const memory::desc ours = describe(g, false).weight;
    if (ours == chosen) return;
    reorder_ = cached_primitive(key.companion(kReorder), [&] {
      const memory::desc from = to_ours ? chosen : ours, to = to_ours ? ours : chosen;
      const auto pd = dnnl::reorder::primitive_desc(onednn_engine(), from, onednn_engine(), to,
                                                    onednn_attributes());
      return Primitive::make(pd, dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    });
    scratch_ = args.scratch.get(chosen.get_size());
  }
  void* chosen(const float* ours) const {
    return reorder_ != nullptr ? scratch_ : const_cast<float*>(ours);
  }
  void import(const float* ours) const {
    if (reorder_ != nullptr) reorder_->run(args_, {const_cast<float*>(ours), scratch_});
  }
  void export_to(float* ours) const {
    if (reorder_ != nullptr) reorder_->run(args_, {scratch_, ours});
  }

 private:
  KernelArgs& args_;
  std::shared_ptr<const Primitive> reorder_;
  void* scratch_ = nullptr;
};

void run_forward(KernelArgs& args, bool relu) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  const ConvGeometry g =
      geometry(x.shape(), weight.shape(), y.shape(), args.attrs.as<Conv2dAttrs>());
  const float *in = x.data<float>(), *w = weight.data<float>(),
              *b = bias.defined() ? bias.data<float>() : nullptr;
  float* out = y.data<float>();
  if (few_channels_suits(g, ConvPass::forward)) {
    few_channels_forward(g, in, w, b, relu, out,
                         args.scratch.get(few_channels_scratch_bytes(g, ConvPass::forward)));
    return;
  }
  const OnednnThreads threads;
  const PrimitiveKey key = key_of(kForward, g, b != nullptr);
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const Descriptors d = describe(g, b != nullptr);
    const auto pd = forward_descriptor(d);
    if (b == nullptr) {
      return Primitive::make(
          pd, dnnl::convolution_forward(pd),
          {{DNNL_ARG_SRC, d.x}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, d.y}});
    }
    return Primitive::make(pd, dnnl::convolution_forward(pd),
                           {{DNNL_ARG_SRC, d.x},
                            {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                            {DNNL_ARG_DST, d.y},
                            {DNNL_ARG_BIAS, d.bias}});
  });
  const Weights weights(args, key, g, primitive->desc(1), false);
  weights.import(w);
  if (b == nullptr)
    primitive->run(args, {const_cast<float*>(in), weights.chosen(w), out});
  else
    primitive->run(args, {const_cast<float*>(in), weights.chosen(w), out, const_cast<float*>(b)});
  if (relu) relu_in_place(out, y.numel());
}

}  // namespace

void kernels::conv2d(KernelArgs& args) { run_forward(args, false); }
void kernels::conv2d_relu(KernelArgs& args) { run_forward(args, true); }

void kernels::conv2d_backward_data(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &weight = args.inputs[1], &dx = args.outputs[0];
  if (dx.numel() == 0) return;
  const ConvGeometry g =
      geometry(dx.shape(), weight.shape(), dy.shape(), args.attrs.as<Conv2dBackwardAttrs>().conv);
  const float *grad = dy.data<float>(), *w = weight.data<float>();
  float* out = dx.data<float>();
  if (few_channels_suits(g, ConvPass::backward_data)) {
    few_channels_backward_data(
        g, grad, w, out, args.scratch.get(few_channels_scratch_bytes(g, ConvPass::backward_data)));
    return;
  }
  const OnednnThreads threads;
  const PrimitiveKey key = key_of(kBackwardData, g, false);
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const Descriptors d = describe(g, false);
    const auto pd =
        onednn::conv_backward_data(d.x, d.weight_any, d.y, d.stride, d.dilation, d.begin, d.end,
                                   onednn_attributes(), forward_descriptor(d));
    return Primitive::make(pd, dnnl::convolution_backward_data(pd),
                           {{DNNL_ARG_DIFF_DST, d.y},
                            {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                            {DNNL_ARG_DIFF_SRC, d.x}});
  });
  const Weights weights(args, key, g, primitive->desc(1), false);
  weights.import(w);
  primitive->run(args, {const_cast<float*>(grad), weights.chosen(w), out});
}

void kernels::conv2d_backward_weight(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &dy = args.inputs[1], &dw = args.outputs[0],
               &db = args.outputs[1];
  float* out = dw.data<float>();
  float* out_bias = db.defined() ? db.data<float>() : nullptr;
  const float *in = x.data<float>(), *grad = dy.data<float>();
  const int64_t channels = dy.size(3);
  if (dy.numel() == 0) {  // no samples: the sums are empty
    std::fill(out, out + dw.numel(), 0.f);
    if (out_bias != nullptr) std::fill(out_bias, out_bias + channels, 0.f);
    return;
  }
  const ConvGeometry g =
      geometry(x.shape(), dw.shape(), dy.shape(), args.attrs.as<Conv2dBackwardAttrs>().conv);
  if (few_channels_suits(g, ConvPass::backward_weight)) {
    few_channels_backward_weight(
        g, in, grad, out,
        args.scratch.get(few_channels_scratch_bytes(g, ConvPass::backward_weight)));
    if (out_bias != nullptr)
      sum_rows(args.scratch, grad, dy.numel() / channels, channels, out_bias);
    return;
  }
  const OnednnThreads threads;
  const PrimitiveKey key = key_of(kBackwardWeight, g, out_bias != nullptr);
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const Descriptors d = describe(g, out_bias != nullptr);
    const auto pd =
        onednn::conv_backward_weights(d.x, d.weight_any, d.bias, d.y, d.stride, d.dilation, d.begin,
                                      d.end, onednn_attributes(), forward_descriptor(d));
    if (out_bias == nullptr) {
      return Primitive::make(pd, dnnl::convolution_backward_weights(pd),
                             {{DNNL_ARG_SRC, d.x},
                              {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()},
                              {DNNL_ARG_DIFF_DST, d.y}});
    }
    return Primitive::make(pd, dnnl::convolution_backward_weights(pd),
                           {{DNNL_ARG_SRC, d.x},
                            {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()},
                            {DNNL_ARG_DIFF_DST, d.y},
                            {DNNL_ARG_DIFF_BIAS, d.bias}});
  });
  const Weights weights(args, key, g, primitive->desc(1), true);
  if (out_bias == nullptr)
    primitive->run(args, {const_cast<float*>(in), weights.chosen(out), const_cast<float*>(grad)});
  else
    primitive->run(
        args, {const_cast<float*>(in), weights.chosen(out), const_cast<float*>(grad), out_bias});
  const char* implementation = args.implementation;
  weights.export_to(out);
  args.implementation = implementation;
}

}  // namespace engine::cpu
