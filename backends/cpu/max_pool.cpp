// Max pooling over NHWC images. The maximum and its position in the window travel side by side as
// f32 and i32, lanes of one width, so that comparing and choosing is vector code; the position
// becomes one byte when it is stored. Where a pixel has enough channels to fill vectors its window
// is walked by itself; with fewer, a run of windows is gathered tap by tap first.
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/pool.h"

namespace engine::cpu {

using pool::Geometry;
using pool::Window;

namespace {

constexpr int64_t kFewChannels = 33;  // below this, windows are gathered
constexpr int64_t kVectorChannels =
    64;                          // from this on, backward is vector code: its lanes are bytes
constexpr int64_t kBlock = 256;  // elements that are compared in one go

// The largest elements so far, and where in their windows they were found.
struct Best {
  float value[kBlock];
  int32_t tap[kBlock];
};

// The first of equal values stays; a NaN replaces a number and is never replaced.
template <bool kPosition, class T>
void compare(const T* x, int64_t n, int32_t tap, Best& best) {
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(x[i]);
    const bool wins =
        (value > best.value[i]) | ((value != value) & (best.value[i] == best.value[i]));
    best.value[i] = wins ? value : best.value[i];
    if constexpr (kPosition) best.tap[i] = wins ? tap : best.tap[i];
  }
}

// Index is the type of a stored position; void stores none.
template <class T, class Index>
void store(const Best& best, int64_t n, T* y, Index* position) {
  for (int64_t i = 0; i < n; ++i) y[i] = T(best.value[i]);
  if constexpr (!std::is_void_v<Index>) {
    for (int64_t i = 0; i < n; ++i) position[i] = static_cast<Index>(best.tap[i]);
  }
}

template <class Index>
Index* advance(Index* position, int64_t n) {
  if constexpr (std::is_void_v<Index>)
    return position;
  else
    return position + n;
}

// Calls f(pixel, tap) for the taps of a window inside the image, in order.
template <class T, class F>
void for_taps(const Geometry& g, const Window& w, const T* x, F f) {
  for (int64_t h = w.top; h < w.bottom; ++h) {
    for (int64_t c = w.left; c < w.right; ++c) {
      f(x + (h * g.in_w + c) * g.channels,
        static_cast<int32_t>((h - w.row0) * g.attrs.kernel[1] + (c - w.col0)));
    }
  }
}

// kVectors x 16 channels of one window, from `first`: what compare() does, in registers.
template <int kVectors, class T, class Index>
void pool_lanes(const Geometry& g, const Window& w, const T* x, int64_t first, T* y,
                Index* position) {
  Floats best[kVectors] = {};
  Ints taps[kVectors] = {};
  bool begun = false;
  for_taps(g, w, x, [&](const T* pixel, int32_t tap) {
    for (int i = 0; i < kVectors; ++i) {
      Floats value;
      load_lanes(value, pixel + first + i * kFloatLanes);
      if (!begun) {
        best[i] = value;
        taps[i] = Ints{} + tap;
      } else {
        const Ints wins = (value > best[i]) | ((value != value) & (best[i] == best[i]));
        best[i] = wins ? value : best[i];
        taps[i] = wins ? Ints{} + tap : taps[i];
      }
    }
    begun = true;
  });
  for (int i = 0; i < kVectors; ++i) {
    store_lanes(best[i], y + first + i * kFloatLanes);
    if constexpr (!std::is_void_v<Index>) {
      using Stored [[gnu::vector_size(kFloatLanes * sizeof(Index))]] = Index;
      const Stored stored = __builtin_convertvector(taps[i], Stored);
      std::memcpy(position + first + i * kFloatLanes, &stored, sizeof stored);
    }
  }
}

// One window of many channels. `x` is the image, `y` and `position` the output pixel's.
template <class T, class Index>
void pool_pixel(const Geometry& g, const Window& w, const T* x, T* y, Index* position) {
  int64_t first = 0;
  for (; first + 4 * kFloatLanes <= g.channels; first += 4 * kFloatLanes)
    pool_lanes<4>(g, w, x, first, y, position);
  for (; first + kFloatLanes <= g.channels; first += kFloatLanes)
    pool_lanes<1>(g, w, x, first, y, position);
  const int64_t n = g.channels - first;
  if (n == 0) return;
  Best best;
  bool begun = false;
  for_taps(g, w, x, [&](const T* pixel, int32_t tap) {
    if (begun) return compare<!std::is_void_v<Index>>(pixel + first, n, tap, best);
    for (int64_t i = 0; i < n; ++i) best.value[i] = static_cast<float>(pixel[first + i]);
    std::fill(best.tap, best.tap + n, tap);
    begun = true;
  });
  store(best, n, y + first, advance(position, first));
}

// to[i * kChannels ...] = from[i * stride ...]: a constant number of channels makes the copies
// moves.
template <class T, int kChannels>
void gather(const T* from, int64_t stride, int64_t pixels, T* to) {
  for (int64_t i = 0; i < pixels; ++i)
    std::memcpy(to + i * kChannels, from + i * stride, kChannels * sizeof(T));
}
template <class T>
using Gather = void (*)(const T*, int64_t, int64_t, T*);
template <class T, int... kChannels>
constexpr std::array<Gather<T>, sizeof...(kChannels)> gathers(
    std::integer_sequence<int, kChannels...>) {
  return {gather<T, kChannels>...};
}
template <class T>
constexpr auto kGather = gathers<T>(std::make_integer_sequence<int, kFewChannels>());

// Windows ow0 .. ow0 + count of one output row, few channels.
template <class T, class Index>
void pool_run(const Geometry& g, int64_t oh, int64_t ow0, int64_t count, const T* x, T* y,
              Index* position) {
  Best best;
  T taps[kBlock];
  const T outside(-std::numeric_limits<float>::infinity());
  const int64_t n = count * g.channels;
  // Nothing is larger than the first element inside the image, not even when all are -infinity.
  std::fill(best.value, best.value + n, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < count; ++i) {
    const Window w = g.window(oh, ow0 + i);
    const auto tap = static_cast<int32_t>((w.top - w.row0) * g.attrs.kernel[1] + (w.left - w.col0));
    std::fill(best.tap + i * g.channels, best.tap + (i + 1) * g.channels, tap);
  }
  const Window rows = g.window(oh, ow0);
  const int64_t stride = g.attrs.stride[1], col0 = rows.col0;
  for (int64_t h = rows.top; h < rows.bottom; ++h) {
    for (int64_t k = 0; k < g.attrs.kernel[1]; ++k) {
      // The windows whose column k lies inside the image.
      const int64_t column = col0 + k;
      const int64_t first = column < 0 ? std::min(count, (-column + stride - 1) / stride) : 0;
      const int64_t last =
          column >= g.in_w ? 0 : std::min(count, (g.in_w - 1 - column) / stride + 1);
      if (first >= last) continue;
      std::fill(taps, taps + first * g.channels, outside);
      kGather<T>[static_cast<size_t>(g.channels)](
          x + (h * g.in_w + column + first * stride) * g.channels, stride * g.channels,
          last - first, taps + first * g.channels);
      std::fill(taps + last * g.channels, taps + n, outside);
      compare<!std::is_void_v<Index>>(
          taps, n, static_cast<int32_t>((h - rows.row0) * g.attrs.kernel[1] + k), best);
    }
  }
  store(best, n, y, position);
}

template <class T, class Index>
void max_forward(const Geometry& g, const T* x, T* y, Index* position) {
  const int64_t image = g.in_h * g.in_w * g.channels, row = g.out_w * g.channels;
  if (g.channels == 0) return;
  parallel_items(g.batch * g.out_h, row * g.attrs.kernel[0] * g.attrs.kernel[1],
                 [&](int64_t begin, int64_t end) {
                   for (int64_t item = begin; item < end; ++item) {
                     const int64_t n = item / g.out_h, oh = item % g.out_h;
                     const int64_t run = g.channels < kFewChannels ? kBlock / g.channels : 1;
                     for (int64_t ow = 0; ow < g.out_w; ow += run) {
                       const int64_t at = item * row + ow * g.channels;
                       if (g.channels < kFewChannels) {
                         pool_run(g, oh, ow, std::min(run, g.out_w - ow), x + n * image, y + at,
                                  advance(position, at));
                       } else {
                         pool_pixel(g, g.window(oh, ow), x + n * image, y + at,
                                    advance(position, at));
                       }
                     }
                   }
                 });
}

// dx += dy where the maximum was at this tap. (Without __restrict a byte may alias anything, and
// the loop stays scalar.)
template <class T, class Index>
void add_where(const Index* __restrict position, Index tap, const T* __restrict dy,
               float* __restrict dx, int64_t n) {
  for (int64_t k = 0; k < n; ++k) dx[k] += position[k] == tap ? static_cast<float>(dy[k]) : 0.f;
}

// An image is a thread's own, so windows that overlap add up without a race and in a fixed order.
template <class T, class Index>
void max_backward(const Geometry& g, const T* dy, const Index* position, T* dx, float* sums) {
  const int64_t image = g.in_h * g.in_w * g.channels;
  const int64_t taps = int64_t{g.attrs.kernel[0]} * g.attrs.kernel[1];
  std::vector<int64_t> offset(static_cast<size_t>(taps));  // of a tap from its window's begin
  for (int64_t t = 0; t < taps; ++t) {
    offset[static_cast<size_t>(t)] =
        (t / g.attrs.kernel[1] * g.in_w + t % g.attrs.kernel[1]) * g.channels;
  }
  parallel_items(g.batch, image, [&](int64_t begin, int64_t end) {
    std::fill(sums + begin * image, sums + end * image, 0.f);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t oh = 0; oh < g.out_h; ++oh) {
        for (int64_t ow = 0; ow < g.out_w; ++ow) {
          const Window w = g.window(oh, ow);
          const int64_t at = ((n * g.out_h + oh) * g.out_w + ow) * g.channels;
          float* window = sums + n * image + (w.row0 * g.in_w + w.col0) * g.channels;
          if (g.channels < kVectorChannels) {
            for (int64_t k = 0; k < g.channels; ++k)
              window[offset[position[at + k]] + k] += static_cast<float>(dy[at + k]);
            continue;
          }
          for (int64_t h = w.top; h < w.bottom; ++h) {
            for (int64_t c = w.left; c < w.right; ++c) {
              const int64_t tap = (h - w.row0) * g.attrs.kernel[1] + (c - w.col0);
              add_where(position + at, static_cast<Index>(tap), dy + at,
                        window + offset[static_cast<size_t>(tap)], g.channels);
            }
          }
        }
      }
    }
    pool::round(sums, dx, begin * image, end * image);
  });
}

}  // namespace

void kernels::max_pool2d(KernelArgs& args) {
  const Geometry g = pool::geometry(args.inputs[0], args.outputs[0], args.attrs.as<Pool2dAttrs>());
  const Tensor& position = args.outputs[1];
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    const T* x = args.inputs[0].data<T>();
    T* y = args.outputs[0].data<T>();
    if (!position.defined())
      max_forward<T, void>(g, x, y, nullptr);
    else if (position.dtype() == DType::u8)
      max_forward(g, x, y, position.data<uint8_t>());
    else
      max_forward(g, x, y, position.data<int32_t>());
  });
}

void kernels::max_pool2d_backward(KernelArgs& args) {
  const Geometry g =
      pool::geometry(args.outputs[0], args.inputs[0], args.attrs.as<Pool2dBackwardAttrs>().pool);
  const Tensor& position = args.inputs[1];
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    const T* dy = args.inputs[0].data<T>();
    T* dx = args.outputs[0].data<T>();
    float* sums = pool::sums_for(args, dx);
    if (position.dtype() == DType::u8)
      max_backward(g, dy, position.data<uint8_t>(), dx, sums);
    else
      max_backward(g, dy, position.data<int32_t>(), dx, sums);
  });
}

}  // namespace engine::cpu
