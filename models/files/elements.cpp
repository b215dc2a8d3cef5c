#include "models/files/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace engine {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");

namespace {

// IEEE 754 binary16. Every value is exact in f32; a NaN keeps its payload.
float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    return std::copysign(std::ldexp(static_cast<float>(fraction), -24),
                         std::bit_cast<float>(sign | 0x3f800000u));
  }
  const uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <class Stored, class Held, class Convert>
void read_converted(Tensor& tensor, const std::function<void(void*, size_t)>& read,
                    Convert convert) {
  std::vector<Stored> chunk(static_cast<size_t>(std::min<int64_t>(tensor.numel(), 1 << 16)));
  Held* to = tensor.data<Held>();
  for (auto left = static_cast<size_t>(tensor.numel()); left > 0;) {
    const size_t count = std::min(left, chunk.size());
    read(chunk.data(), count * sizeof(Stored));
    to = std::transform(chunk.data(), chunk.data() + count, to, convert);
    left -= count;
  }
}

}  // namespace

Tensor read_elements(const ElementType& type, const Shape& shape,
                     const std::function<void(void*, size_t)>& read) {
  Tensor tensor = empty(shape, type.dtype);
  if (type.bytes == size_of(type.dtype)) {
    read(tensor.raw(), tensor.bytes());
  } else if (type.dtype == DType::i32) {
    read_converted<uint16_t, int32_t>(tensor, read, [](uint16_t value) { return int32_t{value}; });
  } else if (type.bytes == 2) {
    read_converted<uint16_t, float>(tensor, read, half_to_float);
  } else {
    // Rounds to nearest; what is too large becomes infinity.
    read_converted<double, float>(tensor, read,
                                  [](double value) { return static_cast<float>(value); });
  }
  return tensor;
}

}  // namespace engine
