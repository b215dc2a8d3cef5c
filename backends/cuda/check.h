// Every status of CUDA and its libraries is looked at: what went wrong names the call and the
// library's own text. (The throwing itself is in check.cpp: nvcc cannot compile fmt's checks of
// format strings.)
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace engine::cuda {

[[noreturn]] void fail_status(cudaError_t status, const char* call);
[[noreturn]] void fail_status(cublasStatus_t status, const char* call);

inline void check_status(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail_status(status, call);
}
inline void check_status(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail_status(status, call);
}

}  // namespace engine::cuda

/// Makes the call and throws engine::Error where it fails.
#define ENGINE_CUDA(call) ::engine::cuda::check_status((call), #call)
