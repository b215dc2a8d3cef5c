// The gradient of a convolution in its weights, for few channels: output channels are the lanes,
// and a block of taps (kernel row, kernel column, input channel) is summed in registers over the
// pixels of an image. In NHWC the taps of a kernel row are consecutive in x, so each is a broadcast
// from a fixed distance of the pixel.
#include <array>
#include <utility>

#include "backends/cpu/few_channels_blocks.h"

namespace engine::cpu {
namespace {

using namespace few_channels;

/// The pixels of one image that a block of taps is summed over.
struct TapSums {
  const float* in;
  int64_t in_kernel_row;  // floats from one row of the kernel to the next
  int64_t in_pixel, in_row;
  const float* dy;
  int64_t dy_pixel, dy_row;
  int64_t rows, pixels;
};

/// into[kRows][kTaps][kLanes] += sum of in[pixel, tap] * dy[pixel][lane] over the pixels.
template <int kLanes, int kRows, int kTaps>
void sum_taps(const TapSums& sums, float* into) {
  using V = Vector<kLanes>;
  V sum[kRows * kTaps] = {};
  for (int64_t row = 0; row < sums.rows; ++row) {
    const float* dy = sums.dy + row * sums.dy_row;
    const float* in[kRows];
    for (int r = 0; r < kRows; ++r) in[r] = sums.in + row * sums.in_row + r * sums.in_kernel_row;
    for (int64_t pixel = 0; pixel < sums.pixels; ++pixel) {
      V gradient;
      load(gradient, dy);
#pragma GCC unroll 32
      for (int i = 0; i < kRows * kTaps; ++i) sum[i] += in[i / kTaps][i % kTaps] * gradient;
#pragma GCC unroll 5
      for (int r = 0; r < kRows; ++r) {
        in[r] += sums.in_pixel;
        keep_in_register(in[r]);
      }
      dy += sums.dy_pixel;
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kRows * kTaps; ++i) {
    V total;
    load(total, into + i * kLanes);
    total += sum[i];
    store(total, into + i * kLanes);
  }
}

using SumTaps = void (*)(const TapSums&, float*);

template <int kLanes, int kRows, int... kIndex>
constexpr std::array<SumTaps, sizeof...(kIndex)> sum_taps_table(
    std::integer_sequence<int, kIndex...>) {
  return {sum_taps<kLanes, kRows, kIndex + 1>...};
}

template <int kLanes, int kRows>
SumTaps sum_taps_for(int64_t taps) {
  static constexpr auto kBlock =
      sum_taps_table<kLanes, kRows>(std::make_integer_sequence<int, max_sums(kLanes) / kRows>());
  return kBlock[static_cast<size_t>(taps - 1)];
}

struct WeightPlan {
  explicit WeightPlan(const ConvGeometry& g)
      : image(g, g.pad_top, g.pad_bottom),
        lanes(lanes_for(g.c_out)),
        channel_blocks(ceil_div(g.c_out, lanes)),
        kernel_row(g.kernel_w * g.c_in) {
    // Short kernel rows are taken several at a time, or a block would have too few sums to hide
    // the latency of an addition.
    const int64_t sums = max_sums(static_cast<int>(lanes));
    block_rows = 1;
    for (const int64_t rows : {3, 5}) {
      if (g.kernel_h % rows == 0 && rows * kernel_row <= sums) block_rows = rows;
    }
    const int64_t blocks_in_row = ceil_div(kernel_row, sums / block_rows);
    block_taps = ceil_div(kernel_row, blocks_in_row);
    row_blocks = g.kernel_h / block_rows;
    tap_blocks = blocks_in_row;
    gradient = channel_blocks * row_blocks * tap_blocks * block_rows * block_taps * lanes;
    pieces = std::min(ceil_div(g.batch, 4), kMaxPieces);

    const int64_t y_image = g.out_h * g.out_w * g.c_out;
    image_overrun = tap_blocks * block_taps - kernel_row;
    image_floats = round_to_line(image.floats() + image_overrun);
    dy_overrun = channel_blocks * lanes - g.c_out;
    dy_floats = round_to_line(y_image + dy_overrun);
    dy_copies = std::min(g.batch, ceil_div(dy_overrun, y_image));
    images = pieces * round_to_line(gradient);
    dy = images + pieces * image_floats;
    floats = dy + dy_copies * dy_floats;
  }

  PaddedImage image;
  int64_t lanes, channel_blocks;
  int64_t kernel_row;              // taps in a row of the kernel
  int64_t block_rows, block_taps;  // kernel rows, and taps of each, that are summed together
  int64_t row_blocks, tap_blocks;  // such blocks in the kernel and in its rows
  int64_t gradient;                // floats of one piece's dw
  int64_t pieces;
  // Blocks of lanes and taps may read this many floats past an image. The images of which that
  // would leave x or dy are read from copies.
  int64_t image_overrun, dy_overrun;
  int64_t image_floats, dy_floats;
  int64_t dy_copies;  // of the last images
  // Scratch: gradients [pieces][channel_blocks][row_blocks][tap_blocks][block_rows][block_taps]
  // [lanes], then from these floats on:
  int64_t images;  // [pieces][padded image]
  int64_t dy;      // [dy_copies][image of dy]
  int64_t floats;
};

/// Rows of an image are summed in bands of about this many floats of dy: a band stays in the cache
/// while all blocks of taps pass over it, and no float sums up more than a band at a time.
constexpr int64_t kBandFloats = 4096;

template <int kLanes>
void backward_weight(const ConvGeometry& g, const WeightPlan& plan, const float* x, const float* dy,
                     float* dw, float* scratch) {
  const int64_t x_image = g.in_h * g.in_w * g.c_in;
  const int64_t dy_row = g.out_w * g.c_out;
  const int64_t dy_image = g.out_h * dy_row;
  const int64_t band = std::max<int64_t>(1, kBandFloats / dy_row);
  const int64_t piece_floats = round_to_line(plan.gradient);
  const int64_t block_floats = plan.block_rows * plan.block_taps * kLanes;
  const int64_t row_floats = plan.tap_blocks * block_floats;
  const SumTaps sum_block = plan.block_rows == 5   ? sum_taps_for<kLanes, 5>(plan.block_taps)
                            : plan.block_rows == 3 ? sum_taps_for<kLanes, 3>(plan.block_taps)
                                                   : sum_taps_for<kLanes, 1>(plan.block_taps);

#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t piece = 0; piece < plan.pieces; ++piece) {
      float* gradient = scratch + piece * piece_floats;
      float* padded = scratch + plan.images + piece * plan.image_floats;
      std::fill_n(gradient, plan.gradient, 0.0f);
      std::fill_n(padded + plan.image.floats(), plan.image_overrun, 0.0f);
      const int64_t end = piece_begin(piece + 1, plan.pieces, g.batch);
      for (int64_t n = piece_begin(piece, plan.pieces, g.batch); n < end; ++n) {
        const float* image = x + n * x_image;
        if (!plan.image.is_image || (g.batch - 1 - n) * x_image < plan.image_overrun) {
          plan.image.fill(g, image, padded);
          image = padded;
        }
        const float* dy_of_image = dy + n * dy_image;
        if ((g.batch - 1 - n) * dy_image < plan.dy_overrun) {
          float* copy = scratch + plan.dy + (g.batch - 1 - n) * plan.dy_floats;
          std::fill_n(std::copy_n(dy_of_image, dy_image, copy), plan.dy_overrun, 0.0f);
          dy_of_image = copy;
        }
        for (int64_t h = 0; h < g.out_h; h += band) {
          for (int64_t i = 0; i < plan.channel_blocks * plan.row_blocks * plan.tap_blocks; ++i) {
            const int64_t tap_block = i % plan.tap_blocks;
            const int64_t row_block = i / plan.tap_blocks % plan.row_blocks;
            const int64_t channel_block = i / plan.tap_blocks / plan.row_blocks;
            // Of the band, only the rows where the block's kernel rows meet the image.
            const int64_t row = row_block * plan.block_rows;
            const int64_t above = std::max<int64_t>(0, g.pad_top - row - plan.block_rows + 1);
            const int64_t below = std::max<int64_t>(0, g.pad_top + g.in_h - row);
            const int64_t first = std::max(h, ceil_div(above, g.stride_h));
            const int64_t last = std::min({h + band, g.out_h, ceil_div(below, g.stride_h)});
            sum_block({.in = image + (first * g.stride_h + row) * plan.image.row +
                             tap_block * plan.block_taps,
                       .in_kernel_row = plan.image.row,
                       .in_pixel = g.stride_w * g.c_in,
                       .in_row = g.stride_h * plan.image.row,
                       .dy = dy_of_image + first * dy_row + channel_block * kLanes,
                       .dy_pixel = g.c_out,
                       .dy_row = dy_row,
                       .rows = last - first,
                       .pixels = g.out_w},
                      gradient + i * block_floats);
          }
        }
      }
    }

    // The pieces are added in their order, whichever thread does it.
#pragma omp for schedule(static)
    for (int64_t i = 0; i < plan.channel_blocks * g.kernel_h * plan.kernel_row; ++i) {
      const int64_t tap = i % plan.kernel_row;
      const int64_t row = i / plan.kernel_row % g.kernel_h;
      const int64_t channel_block = i / plan.kernel_row / g.kernel_h;
      const float* from =
          scratch + (channel_block * plan.row_blocks + row / plan.block_rows) * row_floats +
          tap / plan.block_taps * block_floats +
          (row % plan.block_rows * plan.block_taps + tap % plan.block_taps) * kLanes;
      Vector<kLanes> sum = {};
      for (int64_t piece = 0; piece < plan.pieces; ++piece) {
        Vector<kLanes> part;
        load(part, from + piece * piece_floats);
        sum += part;
      }
      const int64_t channel = channel_block * kLanes;
      for (int64_t lane = 0; lane < std::min<int64_t>(kLanes, g.c_out - channel); ++lane) {
        dw[((channel + lane) * g.kernel_h + row) * plan.kernel_row + tap] = sum[lane];
      }
    }
  }
}

}  // namespace

int64_t few_channels::backward_weight_scratch(const ConvGeometry& g) {
  return WeightPlan(g).floats;
}

void few_channels_backward_weight(const ConvGeometry& g, const float* x, const float* dy, float* dw,
                                  void* scratch) {
  const WeightPlan plan(g);
  const auto run = plan.lanes == 8 ? backward_weight<8> : backward_weight<16>;
  run(g, plan, x, dy, dw, static_cast<float*>(scratch));
}

}  // namespace engine::cpu
