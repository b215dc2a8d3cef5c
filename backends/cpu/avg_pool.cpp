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

// The windows along an axis (0: height) that hold position i: from first to last.
struct Windows {
  int64_t first, last;
};
Windows windows_of(const Geometry& g, size_t axis, int64_t i, int64_t count) {
  const int64_t stride = g.attrs.stride[axis], end = i + g.attrs.padding[axis];
  const int64_t before = end - g.attrs.kernel[axis];  // a window that begins here ends before i
  return {before < 0 ? 0 : before / stride + 1, std::min(count - 1, end / stride)};
}

// Each pixel gathers the gradients of the windows that hold it.
template <class T>
void backward(const Geometry& g, const T* dy, T* dx, float* scale) {
  for (int64_t i = 0; i < g.out_h * g.out_w; ++i)
    scale[i] = 1.f / g.divisor(g.window(i / g.out_w, i % g.out_w));
  const int64_t pooled = g.out_h * g.out_w * g.channels;
  parallel_items(g.batch * g.in_h, g.in_w * g.channels * 4, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const T* from = dy + item / g.in_h * pooled;
      const Windows rows = windows_of(g, 0, item % g.in_h, g.out_h);
      for (int64_t w = 0; w < g.in_w; ++w) {
        const Windows columns = windows_of(g, 1, w, g.out_w);
        sum_pixels(
            g.channels, dx + (item * g.in_w + w) * g.channels,
            [&](auto&& f) {
              for (int64_t oh = rows.first; oh <= rows.last; ++oh) {
                for (int64_t ow = columns.first; ow <= columns.last; ++ow) {
                  const int64_t window = oh * g.out_w + ow;
                  f(from + window * g.channels, scale[window]);
                }
              }
            },
            [](auto&) {});
      }
    }
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
    auto* scale = args.scratch.array<float>(g.out_h * g.out_w);
    backward(g, args.inputs[0].data<T>(), args.outputs[0].data<T>(), scale);
  });
}

}  // namespace engine::cpu
