// conv2d, conv2d_relu, the two backward ops and conv_transpose2d: by cuDNN where it has a plan,
// else as products with the patches of the images (im2col), for all groups at once. Images NHWC,
// weights OHWI. The patches are made piece by piece: their memory does not grow with the batch.
#include <algorithm>

#include "backends/cuda/check.h"
#include "backends/cuda/cudnn.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/im2col.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/runtime.h"
#include "core/error.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

// Of a piece of patches: as much as this, or, where the device is full, less and less.
constexpr int64_t kPieceBytes = int64_t{64} << 20, kLeastPieceBytes = int64_t{64} << 10;
constexpr char kImplementation[] = "own:im2col";

ConvShape describe(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& a) {
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
          a.groups};
}

// Whether the image itself is the matrix of its patches.
bool patches_are_pixels(const ConvShape& c) {
  return c.taps() == 1 && c.stride_h == 1 && c.stride_w == 1 && c.pad_top == 0 && c.pad_left == 0 &&
         c.in_h == c.out_h && c.in_w == c.out_w;
}

// Rows of `width` elements that one piece has, at least one.
int64_t piece_rows(int64_t piece_bytes, int64_t width, size_t element, int64_t rows) {
  return std::clamp<int64_t>(piece_bytes / (width * static_cast<int64_t>(element)), 1, rows);
}

const std::byte* offset(const void* data, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}
std::byte* offset(void* data, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

// Calls f(piece_bytes), and again with an eighth of them where its scratch memory does not fit: f
// overwrites what it has written before.
template <class F>
void in_pieces_that_fit(KernelArgs& args, F f) {
  for (int64_t bytes = kPieceBytes;; bytes /= 8) {
    try {
      return f(bytes);
    } catch (const OutOfMemoryError&) {
      if (bytes / 8 < kLeastPieceBytes) throw;
      args.scratch.release();
    }
  }
}

// Calls f(first, rows, patches) for pieces of all output pixels of x.
template <class F>
void for_patches(KernelArgs& args, const ConvShape& c, const Tensor& x, int64_t most_rows, F f) {
  const bool direct = patches_are_pixels(c);
  void* columns = nullptr;
  if (!direct) {
    columns = args.scratch.get(static_cast<size_t>(most_rows * c.columns()) * size_of(x.dtype()));
  }
  const int64_t all = c.batch * c.out_pixels();
  for (int64_t first = 0; first < all; first += most_rows) {
    const int64_t rows = std::min(most_rows, all - first);
    if (!direct) im2col(c, x.dtype(), x.raw(), first, rows, columns);
    f(first, rows, direct ? offset(x.raw(), first * c.c_in, x.dtype()) : columns);
  }
}

// A pass by cuDNN, from or into x, w and y, then the bias and relu; false where cuDNN has no plan,
// or none for which there is memory. Where something follows the sums they are f32, so that the
// result is rounded once.
bool run_cudnn_pass(KernelArgs& args, ConvPass pass, const ConvShape& c, void* x, void* w, void* y,
                    const Tensor& result, const Tensor& bias, bool relu) {
  const DType dtype = result.dtype();
  const bool finish = bias.defined() || relu;
  const DType sums = finish ? DType::f32 : dtype;
  const CudnnRun run = prepare_cudnn(args.scratch, {pass, c, dtype, sums, alignment_of({x, w, y})});
  if (run.plan == nullptr) return false;
  void*& out = pass == ConvPass::forward ? y : pass == ConvPass::backward_data ? x : w;
  if (sums != dtype) {
    try {
      out = args.scratch.array<float>(result.numel());
    } catch (const OutOfMemoryError&) {
      args.scratch.release();
      return false;
    }
  }
  run_cudnn(run, x, w, y);
  if (finish) {
    finish_conv(dtype, result.numel(), result.shape()[3], static_cast<const float*>(out),
                bias.defined() ? bias.raw() : nullptr, relu, result.raw());
  }
  args.implementation = "cudnn";
  return true;
}

void run_forward(KernelArgs& args, bool relu) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  const ConvShape c = describe(x.shape(), weight.shape(), y.shape(), args.attrs.as<Conv2dAttrs>());
  if (run_cudnn_pass(args, ConvPass::forward, c, x.raw(), weight.raw(), y.raw(), y, bias, relu))
    return;
  const DType dtype = y.dtype();
  const int64_t out = c.c_out / c.groups, inner = c.columns() / c.groups;
  in_pieces_that_fit(args, [&](int64_t piece_bytes) {
    // A product goes to y where y is f32, else to scratch: rounded once, after the bias.
    const int64_t most_rows = piece_rows(piece_bytes, std::max(c.columns(), c.c_out), sizeof(float),
                                         c.batch * c.out_pixels());
    float* unrounded =
        dtype == DType::f32 ? nullptr : args.scratch.array<float>(most_rows * c.c_out);
    Products products(args);
    for_patches(args, c, x, most_rows, [&](int64_t first, int64_t rows, const void* patches) {
      void* to = offset(y.raw(), first * c.c_out, dtype);
      float* sums = unrounded != nullptr ? unrounded : static_cast<float*>(to);
      Gemm g{c.groups, rows, out, inner, false, true, false, dtype, DType::f32};
      g.a_place = {c.columns(), inner};
      g.y_place = {c.c_out, out};
      products.run(g, patches, weight.raw(), nullptr, sums);
      if (bias.defined() || relu || unrounded != nullptr)
        finish_conv(dtype, rows * c.c_out, c.c_out, sums, bias.defined() ? bias.raw() : nullptr,
                    relu, to);
    });
  });
  args.implementation = kImplementation;
}

// The gradient of a convolution in its input, of `dy`, and a bias where one is defined, into `dx`.
void run_backward_data(KernelArgs& args, const Tensor& dy, const Tensor& weight, const Tensor& bias,
                       const Tensor& dx, const Conv2dAttrs& attrs) {
  if (dx.numel() == 0) return;
  const ConvShape c = describe(dx.shape(), weight.shape(), dy.shape(), attrs);
  if (run_cudnn_pass(args, ConvPass::backward_data, c, dx.raw(), weight.raw(), dy.raw(), dx, bias,
                     false))
    return;
  const DType dtype = dx.dtype();
  const int64_t out = c.c_out / c.groups, inner = c.columns() / c.groups;
  const bool direct = patches_are_pixels(c);
  // Whole images at a time where the patches of one fit a piece, else one image in more pieces.
  const int64_t image = c.in_pixels() * c.c_in;
  in_pieces_that_fit(args, [&](int64_t piece_bytes) {
    const int64_t most_images = piece_rows(
        piece_bytes, std::max(c.out_pixels() * c.columns(), image), sizeof(float), c.batch);
    const int64_t most_rows =
        piece_rows(piece_bytes, c.columns(), sizeof(float), most_images * c.out_pixels());
    float* unrounded =
        dtype == DType::f32 ? nullptr : args.scratch.array<float>(most_images * image);
    float* columns = direct ? nullptr : args.scratch.array<float>(most_rows * c.columns());
    Products products(args);
    for (int64_t begin = 0; begin < c.batch; begin += most_images) {
      const int64_t images = std::min(most_images, c.batch - begin);
      void* to = offset(dx.raw(), begin * image, dtype);
      float* sums = unrounded != nullptr ? unrounded : static_cast<float*>(to);
      const int64_t all = images * c.out_pixels();
      for (int64_t first = 0; first < all; first += most_rows) {
        const int64_t rows = std::min(most_rows, all - first);
        Gemm g{c.groups, rows, inner, out, false, false, false, dtype, DType::f32};
        g.a_place = {c.c_out, out};
        g.y_place = {c.columns(), inner};
        products.run(g, offset(dy.raw(), (begin * c.out_pixels() + first) * c.c_out, dtype),
                     weight.raw(), nullptr, direct ? sums + first * c.c_in : columns);
        if (!direct) col2im(c, columns, first, rows, images, first == 0, sums);
      }
      if (bias.defined() || unrounded != nullptr)
        finish_conv(dtype, images * image, c.c_in, sums, bias.defined() ? bias.raw() : nullptr,
                    false, to);
    }
  });
  args.implementation = kImplementation;
}

void run_backward_weight(KernelArgs& args, const ConvShape& c, const Tensor& x, const Tensor& dy,
                         const Tensor& dw) {
  const DType dtype = dw.dtype();
  const int64_t out = c.c_out / c.groups, inner = c.columns() / c.groups,
                pixels = c.batch * c.out_pixels();
  in_pieces_that_fit(args, [&](int64_t piece_bytes) {
    float* sums = dtype == DType::f32 ? dw.data<float>() : args.scratch.array<float>(dw.numel());
    Products products(args);
    for_patches(args, c, x, piece_rows(piece_bytes, c.columns(), size_of(dtype), pixels),
                [&](int64_t first, int64_t rows, const void* patches) {
                  Gemm g{c.groups, out,   inner, rows,       true,
                         false,    false, dtype, DType::f32, first > 0};
                  g.a_place = {c.c_out, out};
                  g.b_place = {c.columns(), inner};
                  products.run(g, offset(dy.raw(), first * c.c_out, dtype), patches, nullptr, sums);
                });
    if (dtype != DType::f32) finish_conv(dtype, dw.numel(), 1, sums, nullptr, false, dw.raw());
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
  if (dy.numel() == 0) {  // no samples: the sums are empty
    for (const Tensor& t : {dw, db}) {
      if (t.defined()) ENGINE_CUDA(cudaMemsetAsync(t.raw(), 0, t.bytes(), stream()));
    }
    return;
  }
  const ConvShape c =
      describe(x.shape(), dw.shape(), dy.shape(), args.attrs.as<Conv2dBackwardAttrs>().conv);
  if (!run_cudnn_pass(args, ConvPass::backward_filter, c, x.raw(), dw.raw(), dy.raw(), dw, {},
                      false))
    run_backward_weight(args, c, x, dy, dw);
  if (db.defined()) {
    const int64_t pixels = c.batch * c.out_pixels();
    const auto bytes = static_cast<size_t>(partial_sums(pixels) * c.c_out) * sizeof(double);
    sum_columns(dy.dtype(), pixels, c.c_out, dy.raw(),
                static_cast<double*>(args.scratch.get(bytes)), db.raw());
  }
}

}  // namespace engine::cuda
