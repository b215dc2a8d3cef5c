// Pooling over NHWC images: the channels of one position are contiguous and are handled together.
#include <limits>

#include "backends/cpu/kernels.h"
#include "backends/cpu/parallel.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

struct Window {
  int64_t top, bottom, left, right;  // inside the image
  int64_t row0, col0;                // where the kernel begins, maybe outside
};

struct Geometry {
  int64_t batch, in_h, in_w, out_h, out_w, channels;
  Pool2dAttrs attrs;

  Window window(int64_t oh, int64_t ow) const {
    const int64_t row0 = oh * attrs.stride[0] - attrs.padding[0], col0 = ow * attrs.stride[1] - attrs.padding[1];
    return {std::max<int64_t>(row0, 0), std::min(row0 + attrs.kernel[0], in_h), std::max<int64_t>(col0, 0),
            std::min(col0 + attrs.kernel[1], in_w), row0, col0};
  }
  // What an average divides by: with padding counted, the window cut at the padded edge (a ceil_mode
  // window may hang over even that).
  float divisor(const Window& w) const {
    if (!attrs.count_include_pad) return static_cast<float>((w.bottom - w.top) * (w.right - w.left));
    const int64_t rows = std::min(w.row0 + attrs.kernel[0], in_h + attrs.padding[0]) - w.row0;
    const int64_t cols = std::min(w.col0 + attrs.kernel[1], in_w + attrs.padding[1]) - w.col0;
    return static_cast<float>(rows * cols);
  }
};

Geometry geometry(const Tensor& image, const Tensor& pooled, const Pool2dAttrs& attrs) {
  return {image.size(0), image.size(1), image.size(2), pooled.size(1), pooled.size(2), image.size(3), attrs};
}

// Index is the type of a position inside the window; Index = void keeps none.
template <class Index>
void max_forward(const Geometry& g, const float* x, float* y, Index* position) {
  parallel_items(g.batch * g.out_h, g.out_w * g.channels * g.attrs.kernel[0] * g.attrs.kernel[1], [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t n = item / g.out_h, oh = item % g.out_h;
      for (int64_t ow = 0; ow < g.out_w; ++ow) {
        const Window w = g.window(oh, ow);
        const int64_t at = (item * g.out_w + ow) * g.channels;
        float* best = y + at;
        bool first = true;
        for (int64_t h = w.top; h < w.bottom; ++h) {
          for (int64_t c = w.left; c < w.right; ++c) {
            const float* pixel = x + ((n * g.in_h + h) * g.in_w + c) * g.channels;
            const auto tap = (h - w.row0) * g.attrs.kernel[1] + (c - w.col0);
            if (first) {
              std::copy(pixel, pixel + g.channels, best);
              if constexpr (!std::is_void_v<Index>) std::fill(position + at, position + at + g.channels, static_cast<Index>(tap));
              first = false;
              continue;
            }
            for (int64_t k = 0; k < g.channels; ++k) {
              // The first of equal values stays; a NaN replaces a number and is never replaced.
              const bool wins = pixel[k] > best[k] || (pixel[k] != pixel[k] && best[k] == best[k]);
              best[k] = wins ? pixel[k] : best[k];
              if constexpr (!std::is_void_v<Index>) position[at + k] = wins ? static_cast<Index>(tap) : position[at + k];
            }
          }
        }
      }
    }
  });
}

// An image is a thread's own, so windows that overlap add up without a race and in a fixed order.
template <class Index>
void max_backward(const Geometry& g, const float* dy, const Index* position, float* dx) {
  const int64_t image = g.in_h * g.in_w * g.channels;
  parallel_items(g.batch, image, [&](int64_t begin, int64_t end) {
    std::fill(dx + begin * image, dx + end * image, 0.f);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t oh = 0; oh < g.out_h; ++oh) {
        for (int64_t ow = 0; ow < g.out_w; ++ow) {
          const Window w = g.window(oh, ow);
          const int64_t at = ((n * g.out_h + oh) * g.out_w + ow) * g.channels;
          for (int64_t k = 0; k < g.channels; ++k) {
            const int64_t tap = position[at + k];
            const int64_t h = w.row0 + tap / g.attrs.kernel[1], c = w.col0 + tap % g.attrs.kernel[1];
            dx[((n * g.in_h + h) * g.in_w + c) * g.channels + k] += dy[at + k];
          }
        }
      }
    }
  });
}

}  // namespace

void kernels::max_pool2d(KernelArgs& args) {
  const Geometry g = geometry(args.inputs[0], args.outputs[0], args.attrs.as<Pool2dAttrs>());
  const float* x = args.inputs[0].data<float>();
  float* y = args.outputs[0].data<float>();
  const Tensor& position = args.outputs[1];
  if (!position.defined()) max_forward<void>(g, x, y, nullptr);
  else if (position.dtype() == DType::u8) max_forward(g, x, y, position.data<uint8_t>());
  else max_forward(g, x, y, position.data<int32_t>());
}

void kernels::max_pool2d_backward(KernelArgs& args) {
  const Geometry g = geometry(args.outputs[0], args.inputs[0], args.attrs.as<Pool2dBackwardAttrs>().pool);
  const float* dy = args.inputs[0].data<float>();
  float* dx = args.outputs[0].data<float>();
  const Tensor& position = args.inputs[1];
  if (position.dtype() == DType::u8) max_backward(g, dy, position.data<uint8_t>(), dx);
  else max_backward(g, dy, position.data<int32_t>(), dx);
}

void kernels::avg_pool2d(KernelArgs& args) {
  const Geometry g = geometry(args.inputs[0], args.outputs[0], args.attrs.as<Pool2dAttrs>());
  const float* x = args.inputs[0].data<float>();
  float* y = args.outputs[0].data<float>();
  parallel_items(g.batch * g.out_h, g.out_w * g.channels * g.attrs.kernel[0] * g.attrs.kernel[1], [&](int64_t begin, int64_t end) {
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
  const Geometry g = geometry(args.outputs[0], args.inputs[0], args.attrs.as<Pool2dBackwardAttrs>().pool);
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
