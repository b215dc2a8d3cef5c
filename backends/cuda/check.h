// Every status of CUDA and its libraries is looked at: what went wrong names the call and the
// library's own text.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "core/error.h"

namespace engine::cuda {

inline void check_status(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // or the next call would report it again
  fail("cuda", "{} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

inline void check_status(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail("cublasLt", "{} failed: {} ({})", call, cublasLtGetStatusString(status),
       cublasLtGetStatusName(status));
}

}  // namespace engine::cuda

/// Makes the call and throws engine::Error where it fails.
#define ENGINE_CUDA(call) ::engine::cuda::check_status((call), #call)
