// Convolutions as matrix products: the pixels under each output pixel are laid out as a row
// (im2col), some images at a time so that the rows' memory stays bounded. Every step is f32, of
// bf16 tensors too, so results are rounded once.
//
// Rows are [groups, pixels, taps * channels of a group], and what goes to or comes from the output
// channels is [groups, pixels, output channels of a group]; a group's weights lie side by side.
#include "backends/cuda/as_f32.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/small_kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

constexpr int64_t kRowBytes = int64_t{64} << 20;  // of the rows of one piece, about
constexpr const char* kImplementation = "own:im2col+cublaslt";

struct ConvAxis {
  int64_t in, out, kernel, stride, padding, dilation;
};
struct Geometry {
  ConvAxis h, w;
  int64_t batch, groups, c_in, c_out;  // channels of a group
  int64_t taps() const { return h.kernel * w.kernel * c_in; }
  int64_t pixels() const { return h.out * w.out; }  // of an output image
  // Images of a piece.
  int64_t images() const {
    const int64_t bytes = groups * pixels() * taps() * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(kRowBytes / std::max<int64_t>(1, bytes), 1,
                               std::max<int64_t>(1, batch));
  }
};
// x [N, H, W, C], weight [O, KH, KW, C / groups], y [N, OH, OW, O]
Geometry geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& a) {
  const auto axis = [&](int i) {
    const auto k = static_cast<size_t>(i);
    return ConvAxis{x[1 + i],    y[1 + i],           weight[1 + i],
                    a.stride[k], a.padding_begin[k], a.dilation[k]};
  };
  return {axis(0), axis(1), x[0], a.groups, weight[3], weight[0] / a.groups};
}

// rows[g][p][kh][kw][c] of the images from `image` on.
template <class T>
__global__ void im2col_kernel(int64_t n, Geometry g, int64_t pixels, int64_t image, const T* x,
                              float* rows) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    int64_t rest = i;
    const int64_t c = rest % g.c_in;
    rest /= g.c_in;
    const int64_t kw = rest % g.w.kernel;
    rest /= g.w.kernel;
    const int64_t kh = rest % g.h.kernel;
    rest /= g.h.kernel;
    const int64_t p = rest % pixels, group = rest / pixels;
    const int64_t ow = p % g.w.out, oh = p / g.w.out % g.h.out, b = image + p / g.w.out / g.h.out;
    const int64_t h = oh * g.h.stride - g.h.padding + kh * g.h.dilation,
                  w = ow * g.w.stride - g.w.padding + kw * g.w.dilation;
    const bool inside = h >= 0 && h < g.h.in && w >= 0 && w < g.w.in;
    rows[i] = inside
                  ? static_cast<float>(
                        x[((b * g.h.in + h) * g.w.in + w) * g.groups * g.c_in + group * g.c_in + c])
                  : 0.f;
  }
}

// The output pixel along an axis that reaches position i by tap k, or -1.
__device__ int64_t source(const ConvAxis& a, int64_t i, int64_t k) {
  const int64_t at = i + a.padding - k * a.dilation;
  if (at < 0 || at % a.stride != 0) return -1;
  const int64_t o = at / a.stride;
  return o < a.out ? o : -1;
}

// dx of the images from `image` on: each pixel adds up its places in the rows, and the bias.
template <class T, class B>
__global__ void col2im_kernel(int64_t n, Geometry g, int64_t pixels, int64_t image,
                              const float* rows, const B* bias, T* dx) {
  const int64_t channels = g.groups * g.c_in;
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t c = i % channels, w = i / channels % g.w.in, h = i / channels / g.w.in % g.h.in,
                  b = i / channels / g.w.in / g.h.in;
    float sum = 0;
    for (int64_t kh = 0; kh < g.h.kernel; ++kh) {
      const int64_t oh = source(g.h, h, kh);
      if (oh < 0) continue;
      for (int64_t kw = 0; kw < g.w.kernel; ++kw) {
        const int64_t ow = source(g.w, w, kw);
        if (ow < 0) continue;
        const int64_t p = (b * g.h.out + oh) * g.w.out + ow;
        sum += rows[(((c / g.c_in * pixels + p) * g.h.kernel + kh) * g.w.kernel + kw) * g.c_in +
                    c % g.c_in];
      }
    }
    if (bias != nullptr) sum += static_cast<float>(bias[c]);
    dx[image * g.h.in * g.w.in * channels + i] = T(sum);
  }
}

// [pixels, groups * width] to [groups, pixels, width] as f32.
template <class T>
__global__ void split_kernel(int64_t n, int64_t pixels, int64_t width, int64_t groups, const T* in,
                             float* out) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t c = i % width, p = i / width % pixels, group = i / width / pixels;
    out[i] = static_cast<float>(in[p * groups * width + group * width + c]);
  }
}
// And back, with a bias and a ReLU where asked for.
template <class T>
__global__ void join_kernel(int64_t n, int64_t pixels, int64_t width, int64_t groups,
                            const float* in, const T* bias, bool relu, T* out) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t c = i % (groups * width), p = i / (groups * width);
    float value = in[(c / width * pixels + p) * width + c % width];
    if (bias != nullptr) value += static_cast<float>(bias[c]);
    out[i] = T(relu ? relu_value(value) : value);
  }
}

// Calls f(first image, images, output pixels of them) for each piece.
template <class F>
void for_pieces(const Geometry& g, F&& f) {
  for (int64_t image = 0; image < g.batch; image += g.images()) {
    const int64_t images = std::min(g.images(), g.batch - image);
    f(image, images, images * g.pixels());
  }
}

void run_forward(KernelArgs& args, bool relu) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  const Geometry g = geometry(x.shape(), weight.shape(), y.shape(), args.attrs.as<Conv2dAttrs>());
  const int64_t most = g.images() * g.pixels();
  const float* w = as_f32(args, weight);
  float *rows = scratch_floats(args, g.groups * most * g.taps()),
        *results = scratch_floats(args, g.groups * most * g.c_out);
  with_floating(y.dtype(), [&]<class T>(T) {
    for_pieces(g, [&](int64_t image, int64_t, int64_t pixels) {
      const int64_t count = g.groups * pixels * g.taps(), outputs = g.groups * pixels * g.c_out;
      launch_kernel(im2col_kernel<T>, blocks_for(count), kThreads, 0, count, g, pixels, image,
                    x.data<T>(), rows);
      gemm(args, {g.groups, pixels, g.c_out, g.taps(), false, true, false, DType::f32}, rows, w,
           nullptr, results);
      launch_kernel(join_kernel<T>, blocks_for(outputs), kThreads, 0, outputs, pixels, g.c_out,
                    g.groups, results, bias.defined() ? bias.data<T>() : nullptr, relu,
                    y.data<T>() + image * g.pixels() * g.groups * g.c_out);
    });
  });
  args.implementation = kImplementation;
}

void run_backward_data(KernelArgs& args, const Tensor& dy, const Tensor& weight, const Tensor& bias,
                       const Tensor& dx, const Conv2dAttrs& attrs) {
  if (dx.numel() == 0) return;
  const Geometry g = geometry(dx.shape(), weight.shape(), dy.shape(), attrs);
  const int64_t most = g.images() * g.pixels(), channels = g.groups * g.c_in;
  const float* w = as_f32(args, weight);
  float *rows = scratch_floats(args, g.groups * most * g.taps()),
        *gradients = scratch_floats(args, g.groups * most * g.c_out);
  with_floating(dx.dtype(), [&]<class T>(T) {
    for_pieces(g, [&](int64_t image, int64_t images, int64_t pixels) {
      const int64_t outputs = g.groups * pixels * g.c_out, n = images * g.h.in * g.w.in * channels;
      launch_kernel(split_kernel<T>, blocks_for(outputs), kThreads, 0, outputs, pixels, g.c_out,
                    g.groups, dy.data<T>() + image * g.pixels() * g.groups * g.c_out, gradients);
      gemm(args, {g.groups, pixels, g.taps(), g.c_out, false, false, false, DType::f32}, gradients,
           w, nullptr, rows);
      launch_kernel(col2im_kernel<T, T>, blocks_for(n), kThreads, 0, n, g, pixels, image, rows,
                    bias.defined() ? bias.data<T>() : nullptr, dx.data<T>());
    });
  });
  args.implementation = kImplementation;
}

}  // namespace

void kernels::conv2d(KernelArgs& args) { run_forward(args, false); }
void kernels::conv2d_relu(KernelArgs& args) { run_forward(args, true); }

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
  if (db.defined()) sum_over_rows(args, dy, db);
  if (dy.numel() == 0) {  // no samples: the sums are empty
    ENGINE_CUDA(cudaMemsetAsync(dw.raw(), 0, dw.bytes(), stream()));
    return;
  }
  const Geometry g =
      geometry(x.shape(), dw.shape(), dy.shape(), args.attrs.as<Conv2dBackwardAttrs>().conv);
  const int64_t most = g.images() * g.pixels();
  float *rows = scratch_floats(args, g.groups * most * g.taps()),
        *gradients = scratch_floats(args, g.groups * most * g.c_out);
  with_floating(dw.dtype(), [&]<class T>(T) {
    float* sums = nullptr;
    if constexpr (std::is_same_v<T, float>)
      sums = dw.data<T>();
    else
      sums = scratch_floats(args, dw.numel());
    for_pieces(g, [&](int64_t image, int64_t, int64_t pixels) {
      const int64_t count = g.groups * pixels * g.taps(), outputs = g.groups * pixels * g.c_out;
      launch_kernel(im2col_kernel<T>, blocks_for(count), kThreads, 0, count, g, pixels, image,
                    x.data<T>(), rows);
      launch_kernel(split_kernel<T>, blocks_for(outputs), kThreads, 0, outputs, pixels, g.c_out,
                    g.groups, dy.data<T>() + image * g.pixels() * g.groups * g.c_out, gradients);
      gemm(args, {g.groups, g.c_out, g.taps(), pixels, true, false, false, DType::f32, image > 0},
           gradients, rows, nullptr, sums);
    });
    if constexpr (!std::is_same_v<T, float>)
      map_elements(dw.numel(), AsFloat{}, dw.data<T>(), static_cast<const float*>(sums));
  });
  args.implementation = kImplementation;
}

}  // namespace engine::cuda
