#include <cmath>

#include "tests/reference/reference.h"

namespace engine::reference {

// Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3, word for
// word: each round multiplies words 0 and 2, swaps halves and mixes in the key, which then steps.
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> x, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = 0xD2511F53ull * x[0], right = 0xCD9E8D57ull * x[2];
    const auto high = [](uint64_t product) { return static_cast<uint32_t>(product >> 32); };
    const auto low = [](uint64_t product) { return static_cast<uint32_t>(product); };
    x = {high(right) ^ x[1] ^ key[0], low(right), high(left) ^ x[3] ^ key[1], low(left)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return x;
}

namespace {

uint32_t bits_of(const RandomStream& stream, int64_t i) {
  const uint64_t counter = stream.offset + static_cast<uint64_t>(i / 4);
  const auto block =
      philox4x32_10({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                    {static_cast<uint32_t>(stream.seed), static_cast<uint32_t>(stream.seed >> 32)});
  return block[static_cast<size_t>(i % 4)];
}

// The upper 24 bits as a fraction of 1.
double unit(uint32_t bits) { return std::floor(bits / 256.0) / 16777216.0; }

}  // namespace

double normal_quantile(double probability) {
  // Newton's method on log(cdf) in the lower half, where erfc keeps its relative accuracy.
  if (probability > 0.5) return -normal_quantile(1 - probability);
  double x = -std::sqrt(-2 * std::log(probability));
  for (int i = 0; i < 60; ++i) {
    const double cdf = 0.5 * std::erfc(-x / std::sqrt(2.0));
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    x -= std::log(cdf / probability) * cdf / density;
  }
  return x;
}

Array uniform(const Shape& shape, const RandomStream& stream, double low, double high) {
  Array y(shape);
  for (int64_t i = 0; i < shape.numel(); ++i) y[i] = low + (high - low) * unit(bits_of(stream, i));
  return y;
}

Array normal(const Shape& shape, const RandomStream& stream, double mean, double stddev) {
  Array y(shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    y[i] = mean + stddev * normal_quantile((bits_of(stream, i) + 0.5) / 4294967296.0);
  }
  return y;
}

Array dropout(const Array& x, const RandomStream& stream, double p) {
  Array y(x.shape);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    y[i] = unit(bits_of(stream, i)) < p ? 0 : x[i] / (1 - p);
  }
  return y;
}

}  // namespace engine::reference
