// adaptive_avg_pool2d and interpolate over NHWC images. Along each axis an output position takes a
// few neighbouring input positions with weights. Backward gathers: an input pixel adds up, in
// order, what the outputs that take it give it.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

struct ResampleAxis {
  int64_t in, out;
  ResampleMode mode;
  bool align_corners;

  // What output o takes: positions from first on, of which the first counts `lead` (averages: each)
  // and the second 1 - lead.
  struct Taps {
    int64_t first, count;
    float lead, next;
    __device__ float weight(int64_t i) const { return i == 0 ? lead : next; }
  };
  __device__ Taps taps(int64_t o) const {
    if (mode == ResampleMode::nearest) return {o * in / out, 1, 1.f, 0.f};
    if (mode == ResampleMode::average) {
      const int64_t first = o * in / out, last = ((o + 1) * in + out - 1) / out;
      const auto share = static_cast<float>(1.0 / static_cast<double>(last - first));
      return {first, last - first, share, share};
    }
    const double n = static_cast<double>(in), m = static_cast<double>(out),
                 at = static_cast<double>(o);
    double source =
        align_corners ? (out > 1 ? at * (n - 1) / (m - 1) : 0.0) : (at + 0.5) * n / m - 0.5;
    if (source < 0) source = 0;
    int64_t position = static_cast<int64_t>(source);
    if (position > in - 1) position = in - 1;
    const double part = source - static_cast<double>(position);
    if (position + 1 >= in) return {position, 1, 1.f, 0.f};
    return {position, 2, static_cast<float>(1 - part), static_cast<float>(part)};
  }
  // Outputs outside of [first_output, last_output] do not take input i; those inside may not
  // either.
  __device__ int64_t first_output(int64_t i) const {
    if (i == 0) return 0;
    const int64_t o = reach() == 0 ? 0 : (i - 1) * out / reach() - 2;
    return o > 0 ? o : 0;
  }
  __device__ int64_t last_output(int64_t i) const {
    if (i == in - 1) return out - 1;
    const int64_t o = reach() == 0 ? out - 1 : (i + 2) * out / reach() + 2;
    return o < out - 1 ? o : out - 1;
  }
  // With corners aligned, in - 1 input steps are spread over the outputs.
  __device__ int64_t reach() const { return align_corners ? in - 1 : in; }
};

struct Image {
  ResampleAxis h, w;
  int64_t channels;
};

template <class T>
__global__ void forward_kernel(int64_t n, Image g, const T* x, T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t c = i % g.channels, ow = i / g.channels % g.w.out,
                  oh = i / g.channels / g.w.out % g.h.out, b = i / g.channels / g.w.out / g.h.out;
    const auto rows = g.h.taps(oh), columns = g.w.taps(ow);
    float sum = 0;
    for (int64_t r = 0; r < rows.count; ++r) {
      for (int64_t k = 0; k < columns.count; ++k) {
        const int64_t pixel = (b * g.h.in + rows.first + r) * g.w.in + columns.first + k;
        sum += rows.weight(r) * columns.weight(k) * static_cast<float>(x[pixel * g.channels + c]);
      }
    }
    y[i] = T(sum);
  }
}

// What output o counts input i, 0 if it does not take it.
__device__ float share(const ResampleAxis& a, int64_t o, int64_t i) {
  const auto taps = a.taps(o);
  return i < taps.first || i >= taps.first + taps.count ? 0.f : taps.weight(i - taps.first);
}

template <class T>
__global__ void backward_kernel(int64_t n, Image g, const T* dy, T* dx) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t c = i % g.channels, w = i / g.channels % g.w.in,
                  h = i / g.channels / g.w.in % g.h.in, b = i / g.channels / g.w.in / g.h.in;
    float sum = 0;
    for (int64_t oh = g.h.first_output(h); oh <= g.h.last_output(h); ++oh) {
      const float row = share(g.h, oh, h);
      if (row == 0.f) continue;
      for (int64_t ow = g.w.first_output(w); ow <= g.w.last_output(w); ++ow) {
        const float column = share(g.w, ow, w);
        if (column == 0.f) continue;
        sum += row * column *
               static_cast<float>(dy[((b * g.h.out + oh) * g.w.out + ow) * g.channels + c]);
      }
    }
    dx[i] = T(sum);
  }
}

Image image_of(const Tensor& image, const Tensor& resampled, const ResampleAttrs& a) {
  return {{image.size(1), resampled.size(1), a.mode, a.align_corners},
          {image.size(2), resampled.size(2), a.mode, a.align_corners},
          image.size(3)};
}

void run_forward(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  if (y.numel() == 0) return;
  with_floating(y.dtype(), [&]<class T>(T) {
    launch_kernel(forward_kernel<T>, blocks_for(y.numel()), kThreads, 0, y.numel(),
                  image_of(x, y, args.attrs.as<ResampleAttrs>()), x.data<T>(), y.data<T>());
  });
}
void run_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &dx = args.outputs[0];
  if (dx.numel() == 0) return;
  with_floating(dx.dtype(), [&]<class T>(T) {
    launch_kernel(backward_kernel<T>, blocks_for(dx.numel()), kThreads, 0, dx.numel(),
                  image_of(dx, dy, args.attrs.as<ResampleAttrs>()), dy.data<T>(), dx.data<T>());
  });
}

}  // namespace

void kernels::adaptive_avg_pool2d(KernelArgs& args) { run_forward(args); }
void kernels::adaptive_avg_pool2d_backward(KernelArgs& args) { run_backward(args); }
void kernels::interpolate(KernelArgs& args) { run_forward(args); }
void kernels::interpolate_backward(KernelArgs& args) { run_backward(args); }

}  // namespace engine::cuda
