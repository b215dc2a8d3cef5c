// Every status of CUDA and its libraries is looked at. What went wrong names the op whose kernel
// was running, the call, the device and the library's own text: "[relu] cudaLaunchKernel failed on
// cuda:0: ...". (The throwing itself is in check.cpp: nvcc cannot compile fmt's checks of format
// strings.)
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <string>

namespace engine::cuda {

/// Throws Error. `call`: the function's name; what follows a parenthesis is left out.
[[noreturn]] void fail_call(const char* call, const std::string& text);
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

/// The op whose kernel is running, for what is refused on its behalf; "cuda" between kernels.
const char* running_op();

}  // namespace engine::cuda

/// Makes the call and throws engine::Error where it fails.
#define ENGINE_CUDA(call) ::engine::cuda::check_status((call), #call)
