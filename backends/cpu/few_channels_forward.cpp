// Forward convolution of images with few channels, and its gradient in the data. Both sum a block
// of pixels of one row in registers, in [pixel][lane], and broadcast their input to the lanes.
//
// - Forward, the lanes are output channels. In NHWC the kernel_w * c_in inputs that one kernel row
//   needs are consecutive, so the inner loop runs straight through memory.
// - Backward, the lanes are kernel_w * c_in, the part of an image row that one pixel of dy touches,
//   so few input channels still fill them. The sums run over kernel rows and c_out; then each dx
//   pixel adds up the kernel_w sums that fall on it. Unlike a forward convolution with flipped
//   weights, nothing is ever multiplied by padding.
#include <array>
#include <utility>

#include "backends/cpu/few_channels_blocks.h"

namespace engine::cpu {
namespace {

using namespace few_channels;

// ---- Blocks of pixels: forward and backward to the data -----------------------------------------

/// The sums of some pixels of one row: sum of in[row][pixel][i] * w[row][i][lane] over rows and i.
struct PixelSums {
  const float* in;
  int64_t in_pixel, in_row;  // floats from one pixel or row to the next
  const float* w;  // [rows][length][lanes], where a row begins w_row floats after the last
  int64_t w_row;
  int64_t rows, length;
};

/// Where these sums go: one vector a pixel, nothing at or after `end`.
struct PixelStore {
  float* out;
  int64_t out_pixel;
  const float* end;
  const float* bias;  // one vector or null
  bool relu;
};

template <int kLanes, int kPixels>
void sum_pixels(const PixelSums& sums, const PixelStore& to) {
  using V = Vector<kLanes>;
  V sum[kPixels];
  V first = {};
  if (to.bias != nullptr) load(first, to.bias);
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) sum[p] = first;

  // Every fourth pixel has a pointer; x86 addresses the three after it from there.
  constexpr int kGroups = (kPixels + 3) / 4;
  int64_t step = sums.in_pixel, triple_step = 3 * step;
  keep_in_register(step);
  keep_in_register(triple_step);
  for (int64_t row = 0; row < sums.rows; ++row) {
    const float* w = sums.w + row * sums.w_row;
    const float* const w_end = w + sums.length * kLanes;
    const float* in[kGroups];
    for (int j = 0; j < kGroups; ++j) in[j] = sums.in + row * sums.in_row + j * 4 * step;
    for (; w != w_end; w += kLanes) {
      V weight;
      load(weight, w);
#pragma GCC unroll 16
      for (int p = 0; p < kPixels; ++p) {
        sum[p] += in[p / 4][p % 4 == 3 ? triple_step : p % 4 * step] * weight;
      }
#pragma GCC unroll 4
      for (int j = 0; j < kGroups; ++j) {
        ++in[j];
        keep_in_register(in[j]);
      }
    }
  }

  if (to.relu) {
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p) sum[p] = sum[p] < 0.0f ? V{} : sum[p];
  }
  float* out = to.out;
  const int64_t out_pixel = to.out_pixel;
  const float* const end = to.end;
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) store_before(sum[p], out + p * out_pixel, end);
}

using SumPixels = void (*)(const PixelSums&, const PixelStore&);

template <int kLanes, int... kIndex>
constexpr std::array<SumPixels, sizeof...(kIndex)> sum_pixels_table(
    std::integer_sequence<int, kIndex...>) {
  return {sum_pixels<kLanes, kIndex + 1>...};
}

/// The sums of a whole row of pixels, in blocks of nearly equal width, for all lane blocks: w and
/// out of the next lane block come w_block and kLanes floats after.
/// A vector of the last lane block may run into the next pixel, so that one is written later:
/// pixels go upwards, and within a block of them the lane blocks go downwards.
template <int kLanes>
void sum_row(PixelSums sums, PixelStore to, int64_t pixels, int64_t lane_blocks, int64_t w_block) {
  constexpr int kMax = max_pixels(kLanes);
  static constexpr auto kBlock = sum_pixels_table<kLanes>(std::make_integer_sequence<int, kMax>());
  const PixelSums row = sums;
  const PixelStore row_to = to;
  for (int64_t blocks = ceil_div(pixels, kMax), begin = 0; blocks > 0; --blocks) {
    const int64_t width = ceil_div(pixels - begin, blocks);
    sums.in = row.in + begin * row.in_pixel;
    for (int64_t lanes = lane_blocks - 1; lanes >= 0; --lanes) {
      sums.w = row.w + lanes * w_block;
      to.out = row_to.out + begin * row_to.out_pixel + lanes * kLanes;
      if (row_to.bias != nullptr) to.bias = row_to.bias + lanes * kLanes;
      kBlock[static_cast<size_t>(width - 1)](sums, to);
    }
    begin += width;
  }
}

// ---- Forward ------------------------------------------------------------------------------------

struct ForwardPlan {
  explicit ForwardPlan(const ConvGeometry& g)
      : image(g, 0, 0),
        lanes(lanes_for(g.c_out)),
        channel_blocks(ceil_div(g.c_out, lanes)),
        kernel_row(g.kernel_w * g.c_in),
        pieces(std::min(g.batch, kMaxPieces)),
        bias(channel_blocks * g.kernel_h * kernel_row * lanes),
        images(bias + round_to_line(channel_blocks * lanes)),
        floats(images + (image.is_image ? 0 : pieces * round_to_line(image.floats()))) {}

  PaddedImage image;  // only left and right: kernel rows above or below the image are left out
  int64_t lanes, channel_blocks;
  int64_t kernel_row;  // taps in a row of the kernel
  int64_t pieces;
  // Scratch: weights [channel_blocks][kernel_h][kernel_row][lanes], then from these floats on:
  int64_t bias;    // [channel_blocks][lanes]
  int64_t images;  // [pieces][padded image]
  int64_t floats;
};

template <int kLanes>
void forward(const ConvGeometry& g, const ForwardPlan& plan, const float* x, const float* w,
             const float* bias, bool relu, float* y, float* scratch) {
  const int64_t taps = g.kernel_h * plan.kernel_row;
  const int64_t x_image = g.in_h * g.in_w * g.c_in;
  const int64_t y_row = g.out_w * g.c_out;
  const int64_t y_image = g.out_h * y_row;
  float* packed_bias = scratch + plan.bias;
  if (bias != nullptr) {
    std::fill_n(std::copy_n(bias, g.c_out, packed_bias), plan.channel_blocks * kLanes - g.c_out,
                0.0f);
  }

#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < plan.channel_blocks * taps; ++i) {
      const int64_t channel = i / taps * kLanes, tap = i % taps;
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        scratch[i * kLanes + lane] =
            channel + lane < g.c_out ? w[(channel + lane) * taps + tap] : 0.0f;
      }
    }

#pragma omp for schedule(static)
    for (int64_t piece = 0; piece < plan.pieces; ++piece) {
      float* padded = scratch + plan.images + piece * round_to_line(plan.image.floats());
      const int64_t end = piece_begin(piece + 1, plan.pieces, g.batch);
      for (int64_t n = piece_begin(piece, plan.pieces, g.batch); n < end; ++n) {
        const float* image = x + n * x_image;
        if (!plan.image.is_image) {
          plan.image.fill(g, image, padded);
          image = padded;
        }
        for (int64_t h = 0; h < g.out_h; ++h) {
          const int64_t in_row = h * g.stride_h - g.pad_top;
          const int64_t first = std::max<int64_t>(0, -in_row);
          const int64_t rows = std::min(g.kernel_h, g.in_h - in_row) - first;
          sum_row<kLanes>({.in = image + (in_row + first) * plan.image.row,
                           .in_pixel = g.stride_w * g.c_in,
                           .in_row = plan.image.row,
                           .w = scratch + first * plan.kernel_row * kLanes,
                           .w_row = plan.kernel_row * kLanes,
                           .rows = rows,
                           .length = plan.kernel_row},
                          {.out = y + n * y_image + h * y_row,
                           .out_pixel = g.c_out,
                           .end = y + (n + 1) * y_image,
                           .bias = bias != nullptr ? packed_bias : nullptr,
                           .relu = relu},
                          g.out_w, plan.channel_blocks, taps * kLanes);
        }
      }
    }
  }
}

// ---- Backward to the data -----------------------------------------------------------------------

struct DataPlan {
  explicit DataPlan(const ConvGeometry& g)
      : kernel_row(g.kernel_w * g.c_in),
        lanes(lanes_for(kernel_row)),
        tap_blocks(ceil_div(kernel_row, lanes)),
        pieces(std::min(g.batch, kMaxPieces)),
        sums(tap_blocks * g.kernel_h * g.c_out * lanes),
        sums_floats(round_to_line(g.out_w * tap_blocks * lanes + lanes)),
        floats(sums + pieces * sums_floats) {}

  int64_t kernel_row;  // taps in a row of the kernel: a tap is a kernel column and an input channel
  int64_t lanes, tap_blocks;
  int64_t pieces;
  // Scratch: weights [tap_blocks][kernel_h][c_out][lanes], then from these floats on:
  int64_t sums;         // [pieces][out_w][tap_blocks][lanes], and room to load one vector too far
  int64_t sums_floats;  // of a piece
  int64_t floats;
};

/// The output positions, first <= o <= last, of which the kernel covers a position of the padded
/// input. Of the kernel they have position - o * stride there.
struct Cover {
  Cover(int64_t position, int64_t stride, int64_t kernel, int64_t out)
      : first(position < kernel ? 0 : (position - kernel) / stride + 1),
        last(std::min(position / stride, out - 1)) {}
  int64_t first, last;
};

template <int kLanes>
void backward_data(const ConvGeometry& g, const DataPlan& plan, const float* dy, const float* w,
                   float* dx, float* scratch) {
  using V = Vector<8>;  // c_in is small: narrow vectors waste less of the last step
  const int64_t pixel_sums = plan.tap_blocks * kLanes;
  const int64_t dx_row = g.in_w * g.c_in;
  const int64_t dx_image = g.in_h * dx_row;
  const int64_t dy_row = g.out_w * g.c_out;

#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < plan.tap_blocks * g.kernel_h * g.c_out; ++i) {
      const int64_t channel = i % g.c_out;
      const int64_t row = i / g.c_out % g.kernel_h;
      const int64_t tap = i / g.c_out / g.kernel_h * kLanes;
      const int64_t taps = std::min<int64_t>(kLanes, plan.kernel_row - tap);
      float* to = std::copy_n(w + (channel * g.kernel_h + row) * plan.kernel_row + tap, taps,
                              scratch + i * kLanes);
      std::fill_n(to, kLanes - taps, 0.0f);
    }

#pragma omp for schedule(static)
    for (int64_t piece = 0; piece < plan.pieces; ++piece) {
      float* sums = scratch + plan.sums + piece * plan.sums_floats;
      float* sums_end = sums + plan.sums_floats;
      std::fill(sums + g.out_w * pixel_sums, sums_end, 0.0f);
      const int64_t end = piece_begin(piece + 1, plan.pieces, g.batch);
      for (int64_t n = piece_begin(piece, plan.pieces, g.batch); n < end; ++n) {
        const float* dx_end = dx + (n + 1) * dx_image;
        for (int64_t h = 0; h < g.in_h; ++h) {
          const Cover rows(h + g.pad_top, g.stride_h, g.kernel_h, g.out_h);
          const int64_t kernel_row = h + g.pad_top - rows.last * g.stride_h;
          // The columns below begin with the first taps: stored first, they have left the store
          // buffer by then, which gains 5 % over storing them last.
          for (int64_t block = 0; block < plan.tap_blocks; ++block) {
            sum_row<kLanes>({.in = dy + (n * g.out_h + rows.last) * dy_row,
                             .in_pixel = g.c_out,
                             .in_row = -dy_row,
                             .w = scratch + (block * g.kernel_h + kernel_row) * g.c_out * kLanes,
                             .w_row = g.stride_h * g.c_out * kLanes,
                             .rows = rows.last - rows.first + 1,
                             .length = g.c_out},
                            {.out = sums + block * kLanes,
                             .out_pixel = pixel_sums,
                             .end = sums_end,
                             .bias = nullptr,
                             .relu = false},
                            g.out_w, 1, 0);
          }
          // dx goes strictly upwards, so what a store writes past its pixel is written again.
          float* to = dx + n * dx_image + h * dx_row;
          int64_t first = 0, last = -1;  // the cover of the column, followed without divisions
          for (int64_t column = g.pad_left; column < g.pad_left + g.in_w; ++column) {
            while (first * g.stride_w + g.kernel_w <= column) ++first;
            while (last + 1 < g.out_w && (last + 1) * g.stride_w <= column) ++last;
            for (int64_t channel = 0; channel < g.c_in; channel += 8) {
              V sum = {};
              for (int64_t ow = first; ow <= last; ++ow) {
                V part;
                load(part, sums + ow * pixel_sums + (column - ow * g.stride_w) * g.c_in + channel);
                sum += part;
              }
              store_before(sum, to + channel, dx_end);
            }
            to += g.c_in;
          }
        }
      }
    }
  }
}

}  // namespace

int64_t few_channels::forward_scratch(const ConvGeometry& g) { return ForwardPlan(g).floats; }

int64_t few_channels::backward_data_scratch(const ConvGeometry& g) { return DataPlan(g).floats; }

void few_channels_forward(const ConvGeometry& g, const float* x, const float* w, const float* bias,
                          bool relu, float* y, void* scratch) {
  const ForwardPlan plan(g);
  const auto run = plan.lanes == 8 ? forward<8> : forward<16>;
  run(g, plan, x, w, bias, relu, y, static_cast<float*>(scratch));
}

void few_channels_backward_data(const ConvGeometry& g, const float* dy, const float* w, float* dx,
                                void* scratch) {
  const DataPlan plan(g);
  const auto run = plan.lanes == 8 ? backward_data<8> : backward_data<16>;
  run(g, plan, dy, w, dx, static_cast<float*>(scratch));
}

}  // namespace engine::cpu
