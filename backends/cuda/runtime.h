// What the host side of the backend shares.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

namespace engine::cuda {

/// The stream that all kernels and copies of a step go to.
cudaStream_t stream();

/// The largest power of two, at most 256, that all of them are multiples of.
inline uint32_t alignment_of(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 256;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(bits & (~bits + 1));
}

/// An index or label out of range, as a kernel wrote it down (device_errors.h).
struct DeviceError {
  int set = 0;
  int op = 0;  ///< OpId
  int64_t value = 0, limit = 0, position = 0;
};
/// Device memory for the record.
DeviceError* device_error();
/// Throws what a kernel wrote down (device_errors.h) since the last call and forgets it. The stream
/// has been waited for.
void throw_device_error();

}  // namespace engine::cuda
