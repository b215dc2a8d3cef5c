// Convolution kernels of our own for images of few channels.
//
// A general library blocks its convolutions over 16 or more channels on both sides. The first
// layers of image networks (1 or 3 channels in) and small networks like LeNet-5 fill a fraction of
// such a block, and run several times slower than the machine allows. These kernels put the output
// channels (or, backward, a kernel row) in the vector lanes instead. Every kernel is right for
// every geometry with groups = 1 and dilation = 1; few_channels_suits() says where it is also
// faster.
//
// Images are NHWC, weights OHWI, everything f32 and contiguous. The functions neither allocate nor
// throw, run in parallel over the batch (OpenMP), and give bitwise the same result for every number
// of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace engine::cpu {

/// Geometry of one convolution: x [batch, in_h, in_w, c_in], w [c_out, kernel_h, kernel_w,
/// c_in / groups], y [batch, out_h, out_w, c_out]. Padding is with zeros and may differ by side;
/// out_h = (in_h + pad_top + pad_bottom - dilation_h * (kernel_h - 1) - 1) / stride_h + 1, and the
/// like for out_w.
struct ConvGeometry {
  int64_t batch, in_h, in_w, c_in;
  int64_t out_h, out_w, c_out;
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t dilation_h, dilation_w;
  int64_t pad_top, pad_left, pad_bottom, pad_right;
  int64_t groups;
};

enum class ConvPass { forward, backward_data, backward_weight };

/// True where the kernel below computes this pass and measured faster than oneDNN.
bool few_channels_suits(const ConvGeometry& geometry, ConvPass pass);

/// Bytes of scratch memory, aligned to 64, that the pass needs from its caller.
size_t few_channels_scratch_bytes(const ConvGeometry& geometry, ConvPass pass);

/// y = conv(x, w) + bias, then max(y, 0) if `relu` (a NaN stays one). `bias` is [c_out] or null.
/// Padding above and below is skipped; padding left and right is multiplied, so that an infinite
/// weight makes a NaN there, as 0 * infinity does.
void few_channels_forward(const ConvGeometry& geometry, const float* x, const float* w,
                          const float* bias, bool relu, float* y, void* scratch);

/// dx = the gradient of the loss in x, from dy, its gradient in y. Overwrites dx.
void few_channels_backward_data(const ConvGeometry& geometry, const float* dy, const float* w,
                                float* dx, void* scratch);

/// dw = the gradient of the loss in w. Overwrites dw; exactly 0 for an empty batch.
void few_channels_backward_weight(const ConvGeometry& geometry, const float* x, const float* dy,
                                  float* dw, void* scratch);

}  // namespace engine::cpu
