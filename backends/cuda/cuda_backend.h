// The CUDA device: cuBLASLt for matrix products, cuDNN for convolutions, our own kernels for the
// rest.
#pragma once

#include <memory>
#include <string>

#include "core/backend.h"

namespace engine::cuda {

/// Makes Device{cuda} usable and returns true, or returns false where there is no CUDA device or
/// this build has no CUDA (unavailable() says which). May be called again.
bool register_backend();

/// The device, for who registers it behind a wall of its own; null where register_backend() would
/// return false.
std::unique_ptr<Backend> make_backend();

/// Why register_backend() returned false: "no CUDA device was found: ...".
std::string unavailable();

/// "NVIDIA H200, CUDA 13.0, cuBLASLt 13.0.2, cuDNN 9.12", of a registered device.
std::string description();

/// Whether what is timed on a registered device is its time: not so on the software device that the
/// tests link in place of a GPU.
bool has_times();

}  // namespace engine::cuda
