// Philox for 16 counters side by side, as vector code: the same numbers as core/random.h's, which
// says what they are.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/random.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace engine::cpu {

static_assert(std::endian::native == std::endian::little);

inline constexpr int64_t kPhiloxBlocks = 16;
inline constexpr int64_t kPhiloxNumbers = 4 * kPhiloxBlocks;

// A compiler's vector type, as it unrolls loops of a constant length before it looks for vectors.
// Of each lane only the lower 32 bits count.
using PhiloxLanes [[gnu::vector_size(64)]] = uint64_t;

/// The lower halves of the lanes times a 32-bit number, in full. Processors have just this; the
/// compiler would multiply 64 by 64 bits, which takes them several times as long.
inline void multiply_low(const PhiloxLanes& a, uint32_t by, PhiloxLanes& product) {
#if defined(__AVX512F__)
  // Masked by ones: without the mask GCC 12 warns of its own header.
  product = PhiloxLanes(_mm512_maskz_mul_epu32(0xff, __m512i(a), _mm512_set1_epi64(by)));
#elif defined(__AVX2__)
  __m256i half[2];
  std::memcpy(half, &a, sizeof half);
  for (__m256i& h : half) h = _mm256_mul_epu32(h, _mm256_set1_epi64x(by));
  std::memcpy(&product, half, sizeof half);
#else
  product = (a & 0xffffffffu) * by;
#endif
}

/// The numbers of the counters `counter` .. `counter` + 15 of a seed, in order.
inline void philox_blocks(uint64_t seed, uint64_t counter, uint32_t* numbers) {
  constexpr uint64_t kLow = 0xffffffffu;
  for (uint64_t half = 0; half < kPhiloxBlocks; half += 8) {
    const PhiloxLanes own = counter + half + PhiloxLanes{0, 1, 2, 3, 4, 5, 6, 7};
    PhiloxLanes c0 = own, c1 = own >> 32, c2 = {}, c3 = {};
    uint64_t k0 = seed & kLow, k1 = seed >> 32;
    for (int round = 0; round < 10; ++round) {
      PhiloxLanes p0, p1;
      multiply_low(c0, 0xD2511F53u, p0);
      multiply_low(c2, 0xCD9E8D57u, p1);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1;
      c3 = p0;
      k0 = (k0 + 0x9E3779B9u) & kLow;
      k1 = (k1 + 0xBB67AE85u) & kLow;
    }
    // Counter j's four numbers are two words: c0 below c1, c2 below c3.
    const PhiloxLanes low = (c0 & kLow) | (c1 << 32), high = (c2 & kLow) | (c3 << 32);
    const PhiloxLanes first = __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11),
                      second = __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(numbers + 4 * half, &first, sizeof first);
    std::memcpy(numbers + 4 * half + 16, &second, sizeof second);
  }
}

/// Calls f(first, count, numbers) for stretches of at most 64 of the numbers [begin, end) of a
/// stream whose first number has the counter stream.offset; `begin` is a multiple of 64.
template <class F>
void for_random(const RandomStream& stream, int64_t begin, int64_t end, F f) {
  alignas(64) uint32_t numbers[kPhiloxNumbers];
  for (int64_t first = begin; first < end; first += kPhiloxNumbers) {
    philox_blocks(stream.seed, stream.offset + static_cast<uint64_t>(first / 4), numbers);
    f(first, first + kPhiloxNumbers < end ? kPhiloxNumbers : end - first, numbers);
  }
}

}  // namespace engine::cpu
