// Where our convolution kernels for few channels are the better choice, and the scratch they need.
#include "backends/cpu/few_channels.h"

#include "backends/cpu/few_channels_blocks.h"

namespace engine::cpu {

// Measured on one Zen 4 core against oneDNN 2.6.3, its weights' reorder included: batches of 8 and
// 64, images of 8 to 64 pixels square, kernels of 3 to 7, strides 1 and 2, up to 16 channels in and
// 64 out. The rules keep to that range, and to where the gain is clear. Neither they nor the
// kernels look at the number of threads, so that it never changes a result.
bool few_channels_suits(const ConvGeometry& g, ConvPass pass) {
  const auto measured_kernel = [](int64_t k) { return k >= 3 && k <= 7; };
  if (g.groups != 1 || g.dilation_h != 1 || g.dilation_w != 1 || g.c_in > 16 || g.c_out > 64 ||
      !measured_kernel(g.kernel_h) || !measured_kernel(g.kernel_w) || g.stride_h > 2 ||
      g.stride_w > 2) {
    return false;
  }
  // A smaller batch leaves cores idle here, where oneDNN also splits images; a shorter row leaves
  // too few sums in a block.
  if (g.batch < 8 || g.out_w < 6) return false;

  const bool dense = g.stride_h == 1 && g.stride_w == 1;
  const int64_t kernel_row = g.kernel_w * g.c_in;
  switch (pass) {
    case ConvPass::forward:
      // Up to 8 channels out, 1.1 to 4 times as fast; beyond them 1 to 3 times, while the work of a
      // pixel is small, and in large images, which leave the cache, only if it is smaller still.
      if (g.c_out <= 8) return true;
      return dense && (g.out_w <= 32 || kernel_row <= 7) &&
             ((g.c_out <= 24 && kernel_row <= 30) || (g.c_out <= 32 && kernel_row <= 15));
    case ConvPass::backward_data:  // 1.1 to 15 times, more for larger kernels and c_out
      return g.c_in <= 4 ? g.c_out >= (dense ? 6 : 12) : dense && g.c_in <= 8 && g.c_out >= 12;
    case ConvPass::backward_weight:  // 1 to 3 times; with more channels out they are even
      return g.c_out <= 8 && g.out_w >= 10;
  }
  return false;
}

size_t few_channels_scratch_bytes(const ConvGeometry& g, ConvPass pass) {
  const int64_t floats = pass == ConvPass::forward ? few_channels::forward_scratch(g)
                         : pass == ConvPass::backward_data
                             ? few_channels::backward_data_scratch(g)
                             : few_channels::backward_weight_scratch(g);
  return static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace engine::cpu
