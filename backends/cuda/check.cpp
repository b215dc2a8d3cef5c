#include "backends/cuda/check.h"

#include "core/error.h"

namespace engine::cuda {

void fail_status(cudaError_t status, const char* call) {
  cudaGetLastError();  // or the next call would report it again
  fail("cuda", "{} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

void fail_status(cublasStatus_t status, const char* call) {
  fail("cublasLt", "{} failed: {} ({})", call, cublasLtGetStatusString(status),
       cublasLtGetStatusName(status));
}

}  // namespace engine::cuda
