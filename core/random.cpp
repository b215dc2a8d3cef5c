#include "core/random.h"

#include <numeric>

namespace engine {

Generator& default_generator() {
  thread_local Generator generator;
  return generator;
}

std::vector<int64_t> random_permutation(int64_t n, RandomStream stream) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i > 0; --i) {
    // 64 bits against a range of at most 2^40 or so: the bias of the remainder is below 1e-7.
    const auto block = philox(stream.seed, stream.offset + static_cast<uint64_t>(i));
    const uint64_t bits = uint64_t{block[0]} << 32 | block[1];
    std::swap(order[static_cast<size_t>(i)], order[bits % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

}  // namespace engine
