// Where pooling windows lie: shared by max and average pooling. Images NHWC.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/backend.h"
#include "core/op_attrs.h"

namespace engine::cpu::pool {

struct Window {
  int64_t top, bottom, left, right;  // inside the image
  int64_t row0, col0;                // where the kernel begins, maybe outside
};

struct Geometry {
  int64_t batch, in_h, in_w, out_h, out_w, channels;
  Pool2dAttrs attrs;

  Window window(int64_t oh, int64_t ow) const {
    const int64_t row0 = oh * attrs.stride[0] - attrs.padding[0],
                  col0 = ow * attrs.stride[1] - attrs.padding[1];
    return {std::max<int64_t>(row0, 0),
            std::min(row0 + attrs.kernel[0], in_h),
            std::max<int64_t>(col0, 0),
            std::min(col0 + attrs.kernel[1], in_w),
            row0,
            col0};
  }
  // What an average divides by: with padding counted, the window cut at the padded edge (a
  // ceil_mode window may hang over even that).
  float divisor(const Window& w) const {
    if (!attrs.count_include_pad)
      return static_cast<float>((w.bottom - w.top) * (w.right - w.left));
    const int64_t rows = std::min(w.row0 + attrs.kernel[0], in_h + attrs.padding[0]) - w.row0;
    const int64_t cols = std::min(w.col0 + attrs.kernel[1], in_w + attrs.padding[1]) - w.col0;
    return static_cast<float>(rows * cols);
  }
};

// Gradients of windows that overlap add up in f32: in dx itself, or beside it when that is bf16.
template <class T>
float* sums_for(KernelArgs& args, T* dx) {
  if constexpr (std::is_same_v<T, float>)
    return dx;
  else
    return args.scratch.array<float>(args.outputs[0].numel());
}
template <class T>
void round(const float* sums, T* dx, int64_t begin, int64_t end) {
  if constexpr (!std::is_same_v<T, float>) {
    for (int64_t i = begin; i < end; ++i) dx[i] = T(sums[i]);
  }
}

inline Geometry geometry(const Tensor& image, const Tensor& pooled, const Pool2dAttrs& attrs) {
  return {image.size(0),  image.size(1), image.size(2), pooled.size(1),
          pooled.size(2), image.size(3), attrs};
}

}  // namespace engine::cpu::pool
