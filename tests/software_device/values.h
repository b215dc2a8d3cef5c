// Reading and writing the values of the libraries' data types, f32 and bf16.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace engine::software_device {

inline size_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

inline double load(const void* data, cudaDataType_t type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<double>(static_cast<const float*>(data)[i]);
  return static_cast<double>(static_cast<float>(static_cast<const engine::BFloat16*>(data)[i]));
}
inline void store(void* data, cudaDataType_t type, int64_t i, double value) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = static_cast<float>(value);
  else
    static_cast<engine::BFloat16*>(data)[i] = engine::BFloat16(static_cast<float>(value));
}

}  // namespace engine::software_device
