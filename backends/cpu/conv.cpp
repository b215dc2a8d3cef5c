// conv2d, conv2d_relu and the two backward ops: by oneDNN, or by our own kernels where few channels
// make those faster; these know f32 only, and bf16 comes to them in copies. Images NHWC, weights
// OHWI.
#include <cstring>

#include "backends/cpu/as_f32.h"
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

template <class T>
PrimitiveKey key_of(Kind kind, const ConvGeometry& g, bool bias) {
  return PrimitiveKey(
      kind,
      {g.batch,      g.in_h,       g.in_w,       g.c_in,     g.out_h,
       g.out_w,      g.c_out,      g.kernel_h,   g.kernel_w, g.stride_h,
       g.stride_w,   g.dilation_h, g.dilation_w, g.pad_top,  g.pad_left,
       g.pad_bottom, g.pad_right,  g.groups,     bias,       static_cast<int64_t>(dtype_of<T>)});
}

// oneDNN's names for the same things. `any` lets it choose the layout of the weights.
struct Descriptors {
  memory::desc x, y, weight, weight_any, bias;
  memory::dims stride, dilation, begin, end;
};

template <class T>
Descriptors describe(const ConvGeometry& g, bool bias) {
  constexpr auto type = onednn_type<T>;
  const int64_t in = g.c_in / g.groups, out = g.c_out / g.groups, taps = g.kernel_h * g.kernel_w;
  Descriptors d;
  d.x = memory::desc({g.batch, g.c_in, g.in_h, g.in_w}, type, memory::format_tag::nhwc);
  d.y = memory::desc({g.batch, g.c_out, g.out_h, g.out_w}, type, memory::format_tag::nhwc);
  if (g.groups == 1) {
    const memory::dims dims{out, in, g.kernel_h, g.kernel_w};
    d.weight = memory::desc(dims, type, memory::dims{taps * in, 1, g.kernel_w * in, in});
    d.weight_any = memory::desc(dims, type, memory::format_tag::any);
  } else {
    const memory::dims dims{g.groups, out, in, g.kernel_h, g.kernel_w};
    d.weight =
        memory::desc(dims, type, memory::dims{out * taps * in, taps * in, 1, g.kernel_w * in, in});
    d.weight_any = memory::desc(dims, type, memory::format_tag::any);
  }
  if (bias) d.bias = memory::desc({g.c_out}, type, memory::format_tag::a);
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
template <class T>
class Weights {
 public:
  Weights(KernelArgs& args, const PrimitiveKey& key, const ConvGeometry& g,
          const memory::desc& chosen, bool to_ours)
      : args_(args) {
    const memory::desc ours = describe<T>(g, false).weight;
    if (ours == chosen) return;
    reorder_ = cached_primitive(key.companion(kReorder), [&] {
      const memory::desc from = to_ours ? chosen : ours, to = to_ours ? ours : chosen;
      const auto pd = dnnl::reorder::primitive_desc(onednn_engine(), from, onednn_engine(), to,
                                                    onednn_attributes());
      return Primitive::make(pd, dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    });
    scratch_ = args.scratch.get(chosen.get_size());
  }
  void* chosen(const T* ours) const {
    return reorder_ != nullptr ? scratch_ : const_cast<T*>(ours);
  }
  void import(const T* ours) const {
    if (reorder_ != nullptr) reorder_->run(args_, {const_cast<T*>(ours), scratch_});
  }
  void export_to(T* ours) const {
    if (reorder_ != nullptr) reorder_->run(args_, {scratch_, ours});
  }

 private:
  KernelArgs& args_;
  std::shared_ptr<const Primitive> reorder_;
  void* scratch_ = nullptr;
};

// Whether this pass runs on f32 copies where the tensors are bf16.
bool computes_in_f32(DType dtype, const ConvGeometry& g, ConvPass pass) {
  return dtype == DType::f32 || few_channels_suits(g, pass) || !onednn_computes_bf16();
}

template <class T>
void onednn_forward(KernelArgs& args, const ConvGeometry& g, const T* x, const T* w, const T* bias,
                    bool relu, T* y) {
  const OnednnThreads threads;
  const PrimitiveKey key = key_of<T>(kForward, g, bias != nullptr);
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const Descriptors d = describe<T>(g, bias != nullptr);
    const auto pd = forward_descriptor(d);
    if (bias == nullptr) {
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
  const Weights<T> weights(args, key, g, primitive->desc(1), false);
  weights.import(w);
  if (bias == nullptr)
    primitive->run(args, {const_cast<T*>(x), weights.chosen(w), y});
  else
    primitive->run(args, {const_cast<T*>(x), weights.chosen(w), y, const_cast<T*>(bias)});
  if (relu) relu_in_place(y, g.batch * g.out_h * g.out_w * g.c_out);
}

template <class T>
void onednn_backward_data(KernelArgs& args, const ConvGeometry& g, const T* dy, const T* w, T* dx) {
  const OnednnThreads threads;
  const PrimitiveKey key = key_of<T>(kBackwardData, g, false);
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const Descriptors d = describe<T>(g, false);
    const auto pd =
        onednn::conv_backward_data(d.x, d.weight_any, d.y, d.stride, d.dilation, d.begin, d.end,
                                   onednn_attributes(), forward_descriptor(d));
    return Primitive::make(pd, dnnl::convolution_backward_data(pd),
                           {{DNNL_ARG_DIFF_DST, d.y},
                            {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                            {DNNL_ARG_DIFF_SRC, d.x}});
  });
  const Weights<T> weights(args, key, g, primitive->desc(1), false);
  weights.import(w);
  primitive->run(args, {const_cast<T*>(dy), weights.chosen(w), dx});
}

template <class T>
void onednn_backward_weight(KernelArgs& args, const ConvGeometry& g, const T* x, const T* dy, T* dw,
                            T* db) {
  const OnednnThreads threads;
  const PrimitiveKey key = key_of<T>(kBackwardWeight, g, db != nullptr);
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const Descriptors d = describe<T>(g, db != nullptr);
    const auto pd =
        onednn::conv_backward_weights(d.x, d.weight_any, d.bias, d.y, d.stride, d.dilation, d.begin,
                                      d.end, onednn_attributes(), forward_descriptor(d));
    if (db == nullptr) {
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
  const Weights<T> weights(args, key, g, primitive->desc(1), true);
  if (db == nullptr)
    primitive->run(args, {const_cast<T*>(x), weights.chosen(dw), const_cast<T*>(dy)});
  else
    primitive->run(args, {const_cast<T*>(x), weights.chosen(dw), const_cast<T*>(dy), db});
  const char* implementation = args.implementation;
  weights.export_to(dw);
  args.implementation = implementation;
}

void run_forward(KernelArgs& args, bool relu) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  const ConvGeometry g =
      geometry(x.shape(), weight.shape(), y.shape(), args.attrs.as<Conv2dAttrs>());
  if (!computes_in_f32(y.dtype(), g, ConvPass::forward)) {
    onednn_forward(args, g, x.data<BFloat16>(), weight.data<BFloat16>(),
                   bias.defined() ? bias.data<BFloat16>() : nullptr, relu, y.data<BFloat16>());
    return;
  }
  const float *in = as_f32(args, x), *w = as_f32(args, weight), *b = as_f32(args, bias);
  const F32Output out(args, y);
  if (few_channels_suits(g, ConvPass::forward)) {
    few_channels_forward(g, in, w, b, relu, out.data(),
                         args.scratch.get(few_channels_scratch_bytes(g, ConvPass::forward)));
  } else {
    onednn_forward(args, g, in, w, b, relu, out.data());
  }
  out.store();
}

}  // namespace

void kernels::conv2d(KernelArgs& args) { run_forward(args, false); }
void kernels::conv2d_relu(KernelArgs& args) { run_forward(args, true); }

namespace {

// The gradient of a convolution in its input, of `dy`, and a bias where one is defined, into `dx`.
// With a bias in f32: it is added before the only rounding.
void run_backward_data(KernelArgs& args, const Tensor& dy, const Tensor& weight, const Tensor& bias,
                       const Tensor& dx, const Conv2dAttrs& attrs) {
  if (dx.numel() == 0) return;
  const ConvGeometry g = geometry(dx.shape(), weight.shape(), dy.shape(), attrs);
  if (!bias.defined() && !computes_in_f32(dx.dtype(), g, ConvPass::backward_data)) {
    onednn_backward_data(args, g, dy.data<BFloat16>(), weight.data<BFloat16>(),
                         dx.data<BFloat16>());
    return;
  }
  const float *grad = as_f32(args, dy), *w = as_f32(args, weight), *b = as_f32(args, bias);
  const F32Output out(args, dx);
  if (few_channels_suits(g, ConvPass::backward_data)) {
    few_channels_backward_data(
        g, grad, w, out.data(),
        args.scratch.get(few_channels_scratch_bytes(g, ConvPass::backward_data)));
  } else {
    onednn_backward_data(args, g, grad, w, out.data());
  }
  if (b != nullptr) {
    const int64_t channels = dx.size(3);
    parallel_items(dx.numel() / channels, channels,
                   [=, y = out.data()](int64_t begin, int64_t end) {
                     for (int64_t pixel = begin; pixel < end; ++pixel) {
                       for (int64_t k = 0; k < channels; ++k) y[pixel * channels + k] += b[k];
                     }
                   });
  }
  out.store();
}

}  // namespace

void kernels::conv2d_backward_data(KernelArgs& args) {
  run_backward_data(args, args.inputs[0], args.inputs[1], {}, args.outputs[0],
                    args.attrs.as<Conv2dBackwardAttrs>().conv);
}

// A convolution's gradient in its input, of x, and the bias.
void kernels::conv_transpose2d(KernelArgs& args) {
  run_backward_data(args, args.inputs[0], args.inputs[1], args.inputs[2], args.outputs[0],
                    args.attrs.as<ConvTranspose2dAttrs>().conv);
}

void kernels::conv2d_backward_weight(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &dy = args.inputs[1], &dw = args.outputs[0],
               &db = args.outputs[1];
  if (dy.numel() == 0) {  // no samples: the sums are empty
    for (const Tensor& t : {dw, db}) {
      if (t.defined()) std::memset(t.raw(), 0, t.bytes());
    }
    return;
  }
  const ConvGeometry g =
      geometry(x.shape(), dw.shape(), dy.shape(), args.attrs.as<Conv2dBackwardAttrs>().conv);
  if (!computes_in_f32(dw.dtype(), g, ConvPass::backward_weight)) {
    onednn_backward_weight(args, g, x.data<BFloat16>(), dy.data<BFloat16>(), dw.data<BFloat16>(),
                           db.defined() ? db.data<BFloat16>() : nullptr);
    return;
  }
  const float *in = as_f32(args, x), *grad = as_f32(args, dy);
  const F32Output out(args, dw), out_bias(args, db);
  if (few_channels_suits(g, ConvPass::backward_weight)) {
    few_channels_backward_weight(
        g, in, grad, out.data(),
        args.scratch.get(few_channels_scratch_bytes(g, ConvPass::backward_weight)));
    if (db.defined()) sum_rows(args.scratch, grad, dy.numel() / g.c_out, g.c_out, out_bias.data());
  } else {
    onednn_backward_weight(args, g, in, grad, out.data(), out_bias.data());
  }
  out.store();
  out_bias.store();
}

}  // namespace engine::cpu
