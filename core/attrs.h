// The attributes of an op call: one small plain struct per op, passed by value without allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace engine {

struct NoAttrs {};

/// Holds a trivially copyable struct of at most kCapacity bytes. Reading it as another type than
/// was stored is a defect of the op's own file, caught by the tag.
class Attrs {
 public:
  static constexpr size_t kCapacity = 112;

  Attrs() : Attrs(NoAttrs{}) {}
  template <class T>
  requires(!std::is_same_v<T, Attrs>) Attrs(const T& value)
      : tag_(&kTag<T>) {  // implicit: a call site writes launch(op, SumAttrs{...})
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kCapacity);
    std::memcpy(bytes_.data(), &value, sizeof(T));
  }

  template <class T>
  const T& as() const {
    if (tag_ != &kTag<T>) [[unlikely]]
      wrong_type();
    return *reinterpret_cast<const T*>(bytes_.data());
  }

 private:
  template <class T>
  static constexpr char kTag = 0;
  [[noreturn]] static void wrong_type();

  const void* tag_;
  alignas(8) std::array<std::byte, kCapacity> bytes_;
};

}  // namespace engine
