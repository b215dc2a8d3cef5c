// Philox for 16 counters side by side, as vector code: the same numbers as core/random.h's, which
// says what they are.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace engine::cpu {

inline constexpr int64_t kPhiloxBlocks = 16;
inline constexpr int64_t kPhiloxNumbers = 4 * kPhiloxBlocks;

/// The numbers of the counters `counter` .. `counter` + 15 of a seed, in order.
inline void philox_blocks(uint64_t seed, uint64_t counter, uint32_t* numbers) {
  uint32_t c0[kPhiloxBlocks], c1[kPhiloxBlocks], c2[kPhiloxBlocks] = {}, c3[kPhiloxBlocks] = {};
  for (int j = 0; j < kPhiloxBlocks; ++j) {
    const uint64_t own = counter + static_cast<uint64_t>(j);
    c0[j] = static_cast<uint32_t>(own);
    c1[j] = static_cast<uint32_t>(own >> 32);
  }
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kPhiloxBlocks; ++j) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[j];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0;
      c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
      c1[j] = static_cast<uint32_t>(p1);
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int j = 0; j < kPhiloxBlocks; ++j) {
    numbers[4 * j] = c0[j];
    numbers[4 * j + 1] = c1[j];
    numbers[4 * j + 2] = c2[j];
    numbers[4 * j + 3] = c3[j];
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
