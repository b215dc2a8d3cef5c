// Element types. f32 and bf16 compute; i32 and i64 index; u8 holds images and small codes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/host_device.h"

namespace engine {

enum class DType : uint8_t { f32, bf16, i32, i64, u8 };
inline constexpr int kDTypes = 5;

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

/// "f32", "bf16", "i32", "i64" or "u8".
constexpr const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

/// bfloat16: the upper half of an f32. Conversion from f32 rounds to nearest, ties to even; NaN
/// stays NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  ENGINE_HOST_DEVICE explicit BFloat16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x0040u);  // quiet the NaN: its payload may vanish
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  ENGINE_HOST_DEVICE explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// Calls f(T{}) with the type of an element, so that a kernel is written once, as a template.
template <class F>
void with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::i32:
      return f(int32_t{});
    case DType::i64:
      return f(int64_t{});
    case DType::u8:
      return f(uint8_t{});
  }
}

/// The same for floating dtypes. Kernels read elements as static_cast<float>(x[i]), compute in f32
/// or better, and round once, where they write T(value).
template <class F>
void with_floating(DType dtype, F&& f) {
  if (dtype == DType::bf16)
    f(BFloat16{});
  else
    f(float{});
}

/// Calls f(T{}) with the unsigned integer of an element's size, for kernels that move elements
/// whole.
template <class F>
void with_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

/// A number as an element of another type; to and from bf16 by way of f32.
template <class To, class From>
ENGINE_HOST_DEVICE To convert(From value) {
  if constexpr (std::is_same_v<From, BFloat16>)
    return convert<To>(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, BFloat16>)
    return BFloat16(static_cast<float>(value));
  else
    return static_cast<To>(value);
}

}  // namespace engine
