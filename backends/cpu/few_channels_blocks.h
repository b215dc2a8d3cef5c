// What the kernels of few_channels.h share, private to them: vectors and their registers, the
// pieces of a batch, padded images.
//
// Vectors are loaded and stored whole even where fewer channels than lanes remain: what a load
// reads too much ends in lanes that nobody uses, and what a store writes too much is the place of
// pixels that are written later. Only at the end of a buffer is either bounded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/cpu/few_channels.h"

namespace engine::cpu::few_channels {

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
inline int64_t lanes_for(int64_t count) { return round_up(count, 8) % 16 == 0 ? 16 : 8; }

/// Pieces of the batch that are worked on at once, each with its own scratch. Their number never
/// depends on the number of threads, nor do, then, the order of sums and the size of the scratch.
constexpr int64_t kMaxPieces = 32;

/// First image of a piece.
inline int64_t piece_begin(int64_t piece, int64_t pieces, int64_t batch) {
  return batch * piece / pieces;
}

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

/// The scratch of each pass, in floats.
int64_t forward_scratch(const ConvGeometry& geometry);
int64_t backward_data_scratch(const ConvGeometry& geometry);
int64_t backward_weight_scratch(const ConvGeometry& geometry);

}  // namespace engine::cpu::few_channels
