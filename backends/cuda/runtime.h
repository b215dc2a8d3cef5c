// What the host side of the backend shares.
#pragma once

#include <cuda_runtime.h>

namespace engine::cuda {

/// The stream that all kernels and copies of a step go to.
cudaStream_t stream();

/// Throws what a kernel wrote down (device_errors.h) since the last call and forgets it. The stream
/// has been waited for.
void throw_device_error();

}  // namespace engine::cuda
