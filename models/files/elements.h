// The elements of a tensor as a file stores them: in one of the engine's types; as half or double
// precision, which are read as f32; or as u16, which is read as i32.
#pragma once

#include <cstddef>
#include <functional>

#include "core/tensor.h"

namespace engine {

struct ElementType {
  const char* name;  ///< in the file's own words
  DType dtype;       ///< as the engine holds it
  size_t bytes;      ///< as the file holds it: 2 or 8 for half or double, 2 for u16
};

/// A CPU tensor from little-endian elements that `read` delivers in order: it fills the bytes that
/// it is given, or throws.
Tensor read_elements(const ElementType& type, const Shape& shape,
                     const std::function<void(void*, size_t)>& read);

}  // namespace engine
