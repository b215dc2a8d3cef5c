// Average pooling over NHWC images: the channels of one position are contiguous and are handled
// together.
#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/pool.h"

namespace engine::cpu {

using pool::Geometry;
using pool::Window;

namespace {

template <class T>
void average_window(const Geometry& g, const Window& w, const T* image, T* y) {
  const float divisor = g.divisor(w);
  sum_pixels(
      g.channels, y,
      [&](auto&& f) {
        for (int64_t h = w.top; h < w.bottom; ++h) {
          for (int64_t c = w.left; c < w.right; ++c) f(image + (h * g.in_w + c) * g.channels, 1.f);
        }
      },
      [divisor](auto& sum) { sum /= divisor; });
}

template <class T>
void forward(const Geometry& g, const T* x, T* y) {
  const int64_t image = g.in_h * g.in_w * g.channels;
  parallel_items(g.batch * g.out_h, g.out_w * g.channels * g.attrs.kernel[0] * g.attrs.kernel[1],
                 [&](int64_t begin, int64_t end) {
                   for (int64_t item = begin; item < end; ++item) {
                     for (int64_t ow = 0; ow < g.out_w; ++ow) {
                       average_window(g, g.window(item % g.out_h, ow), x + item / g.out_h * image,
                                      y + (item * g.out_w + ow) * g.channels);
                     }
                   }
                 });
}

// An image is a thread's own: windows that overlap add up without a race, in a fixed order.
template <class T>
void backward(const Geometry& g, const T* dy, T* dx, float* sums) {
  const int64_t image = g.in_h * g.in_w * g.channels;
  parallel_items(g.batch, image, [&](int64_t begin, int64_t end) {
    std::fill(sums + begin * image, sums + end * image, 0.f);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t oh = 0; oh < g.out_h; ++oh) {
        for (int64_t ow = 0; ow < g.out_w; ++ow) {
          const Window w = g.window(oh, ow);
          const T* from = dy + ((n * g.out_h + oh) * g.out_w + ow) * g.channels;
          const float scale = 1.f / g.divisor(w);
          for (int64_t h = w.top; h < w.bottom; ++h) {
            for (int64_t c = w.left; c < w.right; ++c) {
              float* pixel = sums + ((n * g.in_h + h) * g.in_w + c) * g.channels;
              for (int64_t k = 0; k < g.channels; ++k)
                pixel[k] += static_cast<float>(from[k]) * scale;
            }
          }
        }
      }
    }
    pool::round(sums, dx, begin * image, end * image);
  });
}

}  // namespace

void kernels::avg_pool2d(KernelArgs& args) {
  const Geometry g = pool::geometry(args.inputs[0], args.outputs[0], args.attrs.as<Pool2dAttrs>());
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    forward(g, args.inputs[0].data<T>(), args.outputs[0].data<T>());
  });
}

void kernels::avg_pool2d_backward(KernelArgs& args) {
  const Geometry g =
      pool::geometry(args.outputs[0], args.inputs[0], args.attrs.as<Pool2dBackwardAttrs>().pool);
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    T* dx = args.outputs[0].data<T>();
    backward(g, args.inputs[0].data<T>(), dx, pool::sums_for(args, dx));
  });
}

}  // namespace engine::cpu
