// Average pooling over NHWC images: the channels of one position are contiguous and are handled
// together.
#include "backends/cpu/kernels.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/pool.h"

namespace engine::cpu {

using pool::Geometry;
using pool::Window;

void kernels::avg_pool2d(KernelArgs& args) {
  const Geometry g = pool::geometry(args.inputs[0], args.outputs[0], args.attrs.as<Pool2dAttrs>());
  const float* x = args.inputs[0].data<float>();
  float* y = args.outputs[0].data<float>();
  parallel_items(g.batch * g.out_h, g.out_w * g.channels * g.attrs.kernel[0] * g.attrs.kernel[1],
                 [&](int64_t begin, int64_t end) {
                   for (int64_t item = begin; item < end; ++item) {
                     const int64_t n = item / g.out_h, oh = item % g.out_h;
                     for (int64_t ow = 0; ow < g.out_w; ++ow) {
                       const Window w = g.window(oh, ow);
                       float* sum = y + (item * g.out_w + ow) * g.channels;
                       std::fill(sum, sum + g.channels, 0.f);
                       for (int64_t h = w.top; h < w.bottom; ++h) {
                         for (int64_t c = w.left; c < w.right; ++c) {
                           const float* pixel = x + ((n * g.in_h + h) * g.in_w + c) * g.channels;
                           for (int64_t k = 0; k < g.channels; ++k) sum[k] += pixel[k];
                         }
                       }
                       const float divisor = g.divisor(w);
                       for (int64_t k = 0; k < g.channels; ++k) sum[k] /= divisor;
                     }
                   }
                 });
}

void kernels::avg_pool2d_backward(KernelArgs& args) {
  const Geometry g =
      pool::geometry(args.outputs[0], args.inputs[0], args.attrs.as<Pool2dBackwardAttrs>().pool);
  const float* dy = args.inputs[0].data<float>();
  float* dx = args.outputs[0].data<float>();
  const int64_t image = g.in_h * g.in_w * g.channels;
  parallel_items(g.batch, image, [&](int64_t begin, int64_t end) {
    std::fill(dx + begin * image, dx + end * image, 0.f);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t oh = 0; oh < g.out_h; ++oh) {
        for (int64_t ow = 0; ow < g.out_w; ++ow) {
          const Window w = g.window(oh, ow);
          const float* from = dy + ((n * g.out_h + oh) * g.out_w + ow) * g.channels;
          const float scale = 1.f / g.divisor(w);
          for (int64_t h = w.top; h < w.bottom; ++h) {
            for (int64_t c = w.left; c < w.right; ++c) {
              float* pixel = dx + ((n * g.in_h + h) * g.in_w + c) * g.channels;
              for (int64_t k = 0; k < g.channels; ++k) pixel[k] += from[k] * scale;
            }
          }
        }
      }
    }
  });
}

}  // namespace engine::cpu
