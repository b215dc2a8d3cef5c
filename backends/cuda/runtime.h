// What the host side of the backend shares.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace engine::cuda {

/// The stream that all kernels and copies of a step go to.
cudaStream_t stream();

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
