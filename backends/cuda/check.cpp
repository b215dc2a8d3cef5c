#include "backends/cuda/check.h"

#include <string_view>

#include "core/context.h"
#include "core/device.h"
#include "core/error.h"

namespace engine::cuda {

namespace {

// Errors after which CUDA refuses all further work of the process. They are those of kernels, told
// by whatever call comes next.
bool ends_the_device(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

}  // namespace

const char* running_op() {
  const char* op = context().op;
  return op != nullptr ? op : "cuda";
}

void fail_call(const char* call, const std::string& text) {
  const std::string_view all = call;
  fail(running_op(), "{} failed on {}: {}", all.substr(0, all.find('(')),
       Device{DeviceKind::cuda, 0}, text);
}

void fail_status(cudaError_t status, const char* call) {
  cudaGetLastError();  // or the next call would report it again
  std::string text = fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  if (ends_the_device(status)) {
    text +=
        "; a kernel that was launched before has failed, perhaps one of another op, and the device "
        "cannot be used again in this process: CUDA_LAUNCH_BLOCKING=1 in the environment shows "
        "which";
  }
  fail_call(call, text);
}

void fail_status(cublasStatus_t status, const char* call) {
  fail_call(call,
            fmt::format("{} ({})", cublasLtGetStatusString(status), cublasLtGetStatusName(status)));
}

}  // namespace engine::cuda
