// Philox for 16 counters side by side, as vector code: the same numbers as core/random.h's, which
// says what they are.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/random.h"

namespace engine::cpu {

static_assert(std::endian::native == std::endian::little);

inline constexpr int64_t kPhiloxBlocks = 16;
inline constexpr int64_t kPhiloxNumbers = 4 * kPhiloxBlocks;

/// The numbers of the counters `counter` .. `counter` + 15 of a seed, in order.
inline void philox_blocks(uint64_t seed, uint64_t counter, uint32_t* numbers) {
  // A compiler's vector type, as it unrolls loops of a constant length before it looks for vectors.
  // Of each lane only the lower 32 bits count.
  using Lanes [[gnu::vector_size(64)]] = uint64_t;
  constexpr uint64_t kLow = 0xffffffffu;
  for (uint64_t half = 0; half < kPhiloxBlocks; half += 8) {
    const Lanes own = counter + half + Lanes{0, 1, 2, 3, 4, 5, 6, 7};
    Lanes c0 = own, c1 = own >> 32, c2 = {}, c3 = {};
    uint64_t k0 = seed & kLow, k1 = seed >> 32;
    for (int round = 0; round < 10; ++round) {
      const Lanes p0 = (c0 & kLow) * 0xD2511F53u, p1 = (c2 & kLow) * 0xCD9E8D57u;
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1;
      c3 = p0;
      k0 = (k0 + 0x9E3779B9u) & kLow;
      k1 = (k1 + 0xBB67AE85u) & kLow;
    }
    // Counter j's four numbers are two words: c0 below c1, c2 below c3.
    const Lanes low = (c0 & kLow) | (c1 << 32), high = (c2 & kLow) | (c3 << 32);
    for (size_t j = 0; j < 8; ++j) {
      const uint64_t words[] = {low[j], high[j]};
      std::memcpy(numbers + 4 * (half + j), words, sizeof words);
    }
  }
}

/// Calls f(first, count, numbers) for stretches of at most 64 of the numbers [begin, end) of a
/// stream whose first number has the counter stream.offset; `begin` is a multiple of 64.
template <class F>
void for_random(const RandomStream& stream, int64_t begin, int64_t end, F f) {
  uint32_t numbers[kPhiloxNumbers];
  for (int64_t first = begin; first < end; first += kPhiloxNumbers) {
    philox_blocks(stream.seed, stream.offset + static_cast<uint64_t>(first / 4), numbers);
    f(first, first + kPhiloxNumbers < end ? kPhiloxNumbers : end - first, numbers);
  }
}

}  // namespace engine::cpu
