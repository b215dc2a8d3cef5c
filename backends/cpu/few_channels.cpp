// Convolutions of images with few channels. Three ideas carry all of it:
//
// - Forward, the output channels are the lanes of a vector. A block of pixels of one output row is
//   summed in registers; each input value is broadcast to them. In NHWC the kernel_w * c_in inputs
//   that one kernel row needs are consecutive, so the inner loop runs straight through memory.
// - Backward to the data, the lanes are kernel_w * c_in, the part of an image row that one pixel of
//   dy touches, so few input channels still fill them. The same block of registers sums over
//   kernel rows and c_out; then each dx pixel adds up the kernel_w sums that fall on it. Unlike a
//   forward convolution with flipped weights, nothing is ever multiplied by padding.
// - Backward to the weights, a block of taps is summed in registers over all pixels of an image.
//
// Vectors are loaded and stored whole even where fewer channels than lanes remain: what a load
// reads too much ends in lanes that nobody uses, and what a store writes too much is the place of
// pixels that are written later. Only at the end of a buffer is either bounded.
#include "backends/cpu/few_channels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace engine::cpu {
namespace {

// Register blocking. A vector of 8 or 16 lanes takes one register with AVX-512 and up to four
// without; the sums of a block must leave some registers for weights and broadcasts.
#if defined(__AVX512F__) && defined(__AVX512VL__)
constexpr int kRegisters = 32, kRegisterLanes = 16;
#elif defined(__AVX__)
constexpr int kRegisters = 16, kRegisterLanes = 8;
#else
constexpr int kRegisters = 16, kRegisterLanes = 4;
#endif

constexpr int registers_per_vector(int lanes) {
  return lanes > kRegisterLanes ? lanes / kRegisterLanes : 1;
}

/// Sums that stay in registers.
constexpr int max_sums(int lanes) { return (kRegisters - 4) / registers_per_vector(lanes); }

/// Pixels in a block. More than 16 measured no faster.
constexpr int max_pixels(int lanes) { return std::min(16, max_sums(lanes)); }

template <int kLanes>
struct VectorOf;
template <>
struct VectorOf<8> {
  typedef float Type __attribute__((vector_size(32)));
};
template <>
struct VectorOf<16> {
  typedef float Type __attribute__((vector_size(64)));
};
template <int kLanes>
using Vector = typename VectorOf<kLanes>::Type;

// Vectors go by reference: passing them by value has no stable ABI where registers are narrower.
template <class V>
inline void load(V& v, const float* from) {
  std::memcpy(&v, from, sizeof(V));
}
template <class V>
inline void store(const V& v, float* to) {
  std::memcpy(to, &v, sizeof(V));
}
/// Stores what fits before `end`.
template <class V>
inline void store_before(const V& v, float* to, const float* end) {
  const int64_t room = end - to;
  if (room * static_cast<int64_t>(sizeof(float)) >= static_cast<int64_t>(sizeof(V))) {
    store(v, to);
  } else {
    const V copy = v;  // or the address taken here would keep v itself out of a register
    std::memcpy(to, &copy, static_cast<size_t>(room) * sizeof(float));
  }
}

/// Hides from the compiler where an address or stride comes from. Left to itself it gives each of
/// a block's addresses a register of its own, runs out of them, and moves them to and fro between
/// the FMAs.
template <class T>
inline void keep_in_register(T& value) {
  asm("" : "+r"(value));
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
/// Parts of the scratch start on a cache line.
constexpr int64_t round_to_line(int64_t floats) { return round_up(floats, 16); }

/// The lanes for `count` channels: 16, but 8 where that leaves fewer of them idle.
int64_t lanes_for(int64_t count) { return round_up(count, 8) % 16 == 0 ? 16 : 8; }

/// Pieces of the batch that are worked on at once, each with its own scratch. Their number never
/// depends on the number of threads, nor do, then, the order of sums and the size of the scratch.
constexpr int64_t kMaxPieces = 32;

/// First image of a piece.
int64_t piece_begin(int64_t piece, int64_t pieces, int64_t batch) { return batch * piece / pieces; }

// ---- Blocks of pixels: forward and backward to the data -----------------------------------------

/// The sums of some pixels of one row: sum of in[row][pixel][i] * w[row][i][lane] over rows and i.
struct PixelSums {
  const float* in;
  int64_t in_pixel, in_row;  // floats from one pixel or row to the next
  const float* w;            // [rows][length][lanes], where a row begins w_row floats after the last
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
#pragma GCC unroll 32
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
/// A vector of the last lane block may run into the next pixel, so that one is written later: pixels
/// go upwards, and within a block of them the lane blocks go downwards.
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

// ---- Padded images ------------------------------------------------------------------------------

/// The padded form of an image: `rows` rows of `row` floats.
struct PaddedImage {
  PaddedImage(const ConvGeometry& g, int64_t rows_above, int64_t rows_below)
      : above(rows_above),
        rows(rows_above + g.in_h + rows_below),
        row((g.in_w + g.pad_left + g.pad_right) * g.c_in),
        is_image(rows == g.in_h && row == g.in_w * g.c_in) {}

  int64_t floats() const { return rows * row; }

  /// Copies one image between zeros.
  void fill(const ConvGeometry& g, const float* x, float* padded) const {
    const int64_t in_row = g.in_w * g.c_in;
    const int64_t left = g.pad_left * g.c_in;
    float* to = std::fill_n(padded, above * row, 0.0f);
    for (int64_t h = 0; h < g.in_h; ++h) {
      to = std::fill_n(to, left, 0.0f);
      to = std::copy_n(x + h * in_row, in_row, to);
      to = std::fill_n(to, row - left - in_row, 0.0f);
    }
    std::fill(to, padded + floats(), 0.0f);
  }

  int64_t above, rows, row;
  bool is_image;  // without padding an image is its own padded form
};

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

// ---- Backward to the weights --------------------------------------------------------------------

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

bool few_channels_suits(const ConvGeometry& g, ConvPass pass) {
  (void)pass;
  return g.groups == 1 && g.dilation_h == 1 && g.dilation_w == 1;
}

size_t few_channels_scratch_bytes(const ConvGeometry& g, ConvPass pass) {
  const int64_t floats = pass == ConvPass::forward         ? ForwardPlan(g).floats
                         : pass == ConvPass::backward_data ? DataPlan(g).floats
                                                           : WeightPlan(g).floats;
  return static_cast<size_t>(floats) * sizeof(float);
}

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

void few_channels_backward_weight(const ConvGeometry& g, const float* x, const float* dy, float* dw,
                                  void* scratch) {
  const WeightPlan plan(g);
  const auto run = plan.lanes == 8 ? backward_weight<8> : backward_weight<16>;
  run(g, plan, x, dy, dw, static_cast<float*>(scratch));
}

}  // namespace engine::cpu
