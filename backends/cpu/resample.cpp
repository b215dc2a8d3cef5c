// adaptive_avg_pool2d and interpolate. Along each axis an output position takes a few neighbouring
// input positions with weights; a pixel is the sum over both axes. Channels are contiguous and are
// handled together.
#include <cmath>
#include <vector>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/pool.h"

namespace engine::cpu {

namespace {

// What output position i takes along an axis: positions first[i], first[i] + 1, ... with the
// weights from begin[i] to begin[i + 1].
struct Taps {
  std::vector<int64_t> first;
  std::vector<size_t> begin{0};
  std::vector<float> weight;

  void add(int64_t position, std::initializer_list<double> weights) {
    first.push_back(position);
    for (const double w : weights) weight.push_back(static_cast<float>(w));
    begin.push_back(weight.size());
  }
  int64_t count(int64_t i) const {
    const auto k = static_cast<size_t>(i);
    return static_cast<int64_t>(begin[k + 1] - begin[k]);
  }
};

Taps taps_of(int64_t in, int64_t out, ResampleMode mode, bool align_corners) {
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    if (mode == ResampleMode::nearest) {
      taps.add(i * in / out, {1.0});
    } else if (mode == ResampleMode::average) {
      const int64_t first = i * in / out, last = ((i + 1) * in + out - 1) / out;
      taps.first.push_back(first);
      taps.weight.insert(taps.weight.end(), static_cast<size_t>(last - first),
                         static_cast<float>(1.0 / static_cast<double>(last - first)));
      taps.begin.push_back(taps.weight.size());
    } else {
      const double n = static_cast<double>(in), m = static_cast<double>(out),
                   at = static_cast<double>(i);
      const double source = !align_corners ? std::max(0.0, (at + 0.5) * n / m - 0.5)
                                           : (out > 1 ? at * (n - 1) / (m - 1) : 0.0);
      const auto position = std::min(in - 1, static_cast<int64_t>(source));
      const double part = source - static_cast<double>(position);
      if (position + 1 < in)
        taps.add(position, {1 - part, part});
      else
        taps.add(position, {1.0});
    }
  }
  return taps;
}

struct Image {
  int64_t batch, in_h, in_w, out_h, out_w, channels;
  Taps rows, columns;

  Image(const Tensor& image, const Tensor& resampled, const ResampleAttrs& a)
      : batch(image.size(0)),
        in_h(image.size(1)),
        in_w(image.size(2)),
        out_h(resampled.size(1)),
        out_w(resampled.size(2)),
        channels(image.size(3)),
        rows(taps_of(in_h, out_h, a.mode, a.align_corners)),
        columns(taps_of(in_w, out_w, a.mode, a.align_corners)) {}

  // Calls f(pixel of the image, weight) for what output pixel (oh, ow) takes.
  template <class F>
  void for_taps(int64_t oh, int64_t ow, F f) const {
    const auto r = static_cast<size_t>(oh), c = static_cast<size_t>(ow);
    for (int64_t i = 0; i < rows.count(oh); ++i) {
      const float row_weight = rows.weight[rows.begin[r] + static_cast<size_t>(i)];
      for (int64_t j = 0; j < columns.count(ow); ++j) {
        f((rows.first[r] + i) * in_w + columns.first[c] + j,
          row_weight * columns.weight[columns.begin[c] + static_cast<size_t>(j)]);
      }
    }
  }
};

template <class T>
void forward(const Image& m, const T* x, T* y) {
  const int64_t image = m.in_h * m.in_w * m.channels;
  const int64_t work = std::max(image, m.out_h * m.out_w * m.channels) / m.out_h;
  parallel_items(m.batch * m.out_h, work, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const T* from = x + item / m.out_h * image;
      for (int64_t ow = 0; ow < m.out_w; ++ow) {
        T* to = y + (item * m.out_w + ow) * m.channels;
        sum_pixels(
            m.channels, to,
            [&](auto&& f) {
              m.for_taps(item % m.out_h, ow, [&](int64_t pixel, float weight) {
                f(from + pixel * m.channels, weight);
              });
            },
            [](auto&) {});
      }
    }
  });
}

// An image is a thread's own: what windows share adds up without a race, in a fixed order.
template <class T>
void backward(const Image& m, const T* dy, T* dx, float* sums) {
  const int64_t image = m.in_h * m.in_w * m.channels;
  parallel_items(m.batch, std::max(image, m.out_h * m.out_w * m.channels),
                 [&](int64_t begin, int64_t end) {
                   std::fill(sums + begin * image, sums + end * image, 0.f);
                   for (int64_t n = begin; n < end; ++n) {
                     for (int64_t i = 0; i < m.out_h * m.out_w; ++i) {
                       const T* from = dy + (n * m.out_h * m.out_w + i) * m.channels;
                       m.for_taps(i / m.out_w, i % m.out_w, [&](int64_t pixel, float weight) {
                         float* to = sums + n * image + pixel * m.channels;
                         for (int64_t k = 0; k < m.channels; ++k)
                           to[k] += weight * static_cast<float>(from[k]);
                       });
                     }
                   }
                   pool::round(sums, dx, begin * image, end * image);
                 });
}

void run_forward(KernelArgs& args) {
  if (args.outputs[0].numel() == 0) return;  // its sides may be of any size
  const Image image(args.inputs[0], args.outputs[0], args.attrs.as<ResampleAttrs>());
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    forward(image, args.inputs[0].data<T>(), args.outputs[0].data<T>());
  });
}
void run_backward(KernelArgs& args) {
  if (args.outputs[0].numel() == 0) return;
  const Image image(args.outputs[0], args.inputs[0], args.attrs.as<ResampleAttrs>());
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    T* dx = args.outputs[0].data<T>();
    backward(image, args.inputs[0].data<T>(), dx, pool::sums_for(args, dx));
  });
}

}  // namespace

void kernels::adaptive_avg_pool2d(KernelArgs& args) { run_forward(args); }
void kernels::adaptive_avg_pool2d_backward(KernelArgs& args) { run_backward(args); }
void kernels::interpolate(KernelArgs& args) { run_forward(args); }
void kernels::interpolate_backward(KernelArgs& args) { run_backward(args); }

}  // namespace engine::cpu
