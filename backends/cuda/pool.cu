// Max and average pooling over NHWC images: a thread for each element, so that neighbouring threads
// read neighbouring channels. Backward gathers: a pixel adds up, in order, what the windows that
// hold it give it, so nothing races.
#include "backends/cuda/divider.h"
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

// The windows along one axis.
struct PoolAxis {
  int64_t in, out, kernel, stride, padding;

  __device__ int64_t begin(int64_t o) const { return o * stride - padding; }
  // Inside the image.
  __device__ int64_t first(int64_t o) const { return begin(o) > 0 ? begin(o) : 0; }
  __device__ int64_t last(int64_t o) const {
    const int64_t end = begin(o) + kernel;
    return end < in ? end : in;
  }
  // What an average counts: a window is cut where the padding ends, if padding counts at all.
  __device__ int64_t counted(int64_t o, bool include_padding) const {
    if (!include_padding) return last(o) - first(o);
    const int64_t end = begin(o) + kernel, edge = in + padding;
    return (end < edge ? end : edge) - begin(o);
  }
  // The windows that hold position i: from first_window to last_window.
  __device__ int64_t first_window(int64_t i) const {
    const int64_t before = i + padding - kernel;  // a window that begins here ends before i
    return before < 0 ? 0 : before / stride + 1;
  }
  __device__ int64_t last_window(int64_t i) const {
    const int64_t w = (i + padding) / stride;
    return w < out - 1 ? w : out - 1;
  }
};

struct Geometry {
  PoolAxis h, w;
  int64_t channels;
  bool count_include_pad;
};

Geometry geometry(const Tensor& image, const Tensor& pooled, const Pool2dAttrs& a) {
  const auto axis = [&](int i) {
    const auto k = static_cast<size_t>(i);
    return PoolAxis{image.size(1 + i), pooled.size(1 + i), a.kernel[k], a.stride[k], a.padding[k]};
  };
  return {axis(0), axis(1), image.size(3), a.count_include_pad};
}

// Element i of an NHWC tensor.
struct Place {
  int64_t n, h, w, c;
};
template <class Divider>
struct Places {
  Divider channels, width, height;

  explicit Places(const Shape& s) : channels(s[3]), width(s[2]), height(s[1]) {}
  __device__ Place operator()(int64_t i) const {
    auto rest = static_cast<typename Divider::Index>(i);
    Place p;
    p.c = channels.divide(rest);
    p.w = width.divide(rest);
    p.h = height.divide(rest);
    p.n = rest;
    return p;
  }
};

// The first of equal elements wins; a NaN replaces a number and is never replaced. `position` may
// be null.
template <class Divider, class T, class Index>
__global__ void max_kernel(int64_t count, Places<Divider> places, Geometry g, const T* x, T* y,
                           Index* position) {
  for (int64_t i = grid_index(); i < count; i += grid_step()) {
    const Place p = places(i);
    float best = 0;
    int64_t tap = -1;
    for (int64_t h = g.h.first(p.h); h < g.h.last(p.h); ++h) {
      for (int64_t w = g.w.first(p.w); w < g.w.last(p.w); ++w) {
        const float value =
            static_cast<float>(x[((p.n * g.h.in + h) * g.w.in + w) * g.channels + p.c]);
        if (tap < 0 || value > best || (value != value && best == best)) {
          best = value;
          tap = (h - g.h.begin(p.h)) * g.w.kernel + (w - g.w.begin(p.w));
        }
      }
    }
    y[i] = T(best);
    if (position != nullptr) position[i] = static_cast<Index>(tap);
  }
}

template <class Divider, class T, class Index>
__global__ void max_backward_kernel(int64_t count, Places<Divider> places, Geometry g, const T* dy,
                                    const Index* position, T* dx) {
  for (int64_t i = grid_index(); i < count; i += grid_step()) {
    const Place p = places(i);
    float sum = 0;
    for (int64_t oh = g.h.first_window(p.h); oh <= g.h.last_window(p.h); ++oh) {
      for (int64_t ow = g.w.first_window(p.w); ow <= g.w.last_window(p.w); ++ow) {
        const int64_t at = ((p.n * g.h.out + oh) * g.w.out + ow) * g.channels + p.c;
        const int64_t tap = (p.h - g.h.begin(oh)) * g.w.kernel + (p.w - g.w.begin(ow));
        if (static_cast<int64_t>(position[at]) == tap) sum += static_cast<float>(dy[at]);
      }
    }
    dx[i] = T(sum);
  }
}

template <class Divider, class T>
__global__ void avg_kernel(int64_t count, Places<Divider> places, Geometry g, const T* x, T* y) {
  for (int64_t i = grid_index(); i < count; i += grid_step()) {
    const Place p = places(i);
    float sum = 0;
    for (int64_t h = g.h.first(p.h); h < g.h.last(p.h); ++h) {
      for (int64_t w = g.w.first(p.w); w < g.w.last(p.w); ++w)
        sum += static_cast<float>(x[((p.n * g.h.in + h) * g.w.in + w) * g.channels + p.c]);
    }
    y[i] = T(sum / static_cast<float>(g.h.counted(p.h, g.count_include_pad) *
                                      g.w.counted(p.w, g.count_include_pad)));
  }
}

template <class Divider, class T>
__global__ void avg_backward_kernel(int64_t count, Places<Divider> places, Geometry g, const T* dy,
                                    T* dx) {
  for (int64_t i = grid_index(); i < count; i += grid_step()) {
    const Place p = places(i);
    float sum = 0;
    for (int64_t oh = g.h.first_window(p.h); oh <= g.h.last_window(p.h); ++oh) {
      for (int64_t ow = g.w.first_window(p.w); ow <= g.w.last_window(p.w); ++ow) {
        const float share = 1.f / static_cast<float>(g.h.counted(oh, g.count_include_pad) *
                                                     g.w.counted(ow, g.count_include_pad));
        sum += share *
               static_cast<float>(dy[((p.n * g.h.out + oh) * g.w.out + ow) * g.channels + p.c]);
      }
    }
    dx[i] = T(sum);
  }
}

// Calls f<T, Divider>(T{}, places) for the elements of a tensor.
template <class F>
void for_elements(const Tensor& t, F&& f) {
  if (t.numel() == 0) return;
  with_floating(t.dtype(), [&]<class T>(T) {
    with_divider(t.numel(), [&]<class Divider>(Divider) { f(T{}, Places<Divider>(t.shape())); });
  });
}

}  // namespace

// Outputs y and, for backward, each maximum's position in its window: u8, or i32 for large windows.
void kernels::max_pool2d(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0], &position = args.outputs[1];
  const Geometry g = geometry(x, y, args.attrs.as<Pool2dAttrs>());
  for_elements(y, [&]<class T, class Divider>(T, const Places<Divider>& places) {
    const auto run = [&]<class Index>(Index* positions) {
      launch_kernel(max_kernel<Divider, T, Index>, blocks_for(y.numel()), kThreads, 0, y.numel(),
                    places, g, x.data<T>(), y.data<T>(), positions);
    };
    if (!position.defined())
      run(static_cast<uint8_t*>(nullptr));
    else if (position.dtype() == DType::u8)
      run(position.data<uint8_t>());
    else
      run(position.data<int32_t>());
  });
}
// inputs dy, position
void kernels::max_pool2d_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &position = args.inputs[1], &dx = args.outputs[0];
  const Geometry g = geometry(dx, dy, args.attrs.as<Pool2dBackwardAttrs>().pool);
  for_elements(dx, [&]<class T, class Divider>(T, const Places<Divider>& places) {
    const auto run = [&]<class Index>(const Index* positions) {
      launch_kernel(max_backward_kernel<Divider, T, Index>, blocks_for(dx.numel()), kThreads, 0,
                    dx.numel(), places, g, dy.data<T>(), positions, dx.data<T>());
    };
    if (position.dtype() == DType::u8)
      run(static_cast<const uint8_t*>(position.data<uint8_t>()));
    else
      run(static_cast<const int32_t*>(position.data<int32_t>()));
  });
}

void kernels::avg_pool2d(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const Geometry g = geometry(x, y, args.attrs.as<Pool2dAttrs>());
  for_elements(y, [&]<class T, class Divider>(T, const Places<Divider>& places) {
    launch_kernel(avg_kernel<Divider, T>, blocks_for(y.numel()), kThreads, 0, y.numel(), places, g,
                  x.data<T>(), y.data<T>());
  });
}
void kernels::avg_pool2d_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &dx = args.outputs[0];
  const Geometry g = geometry(dx, dy, args.attrs.as<Pool2dBackwardAttrs>().pool);
  for_elements(dx, [&]<class T, class Divider>(T, const Places<Divider>& places) {
    launch_kernel(avg_backward_kernel<Divider, T>, blocks_for(dx.numel()), kThreads, 0, dx.numel(),
                  places, g, dy.data<T>(), dx.data<T>());
  });
}

}  // namespace engine::cuda
