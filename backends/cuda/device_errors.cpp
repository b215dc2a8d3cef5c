// The host's side of device_errors.h.
#include "backends/cuda/check.h"
#include "backends/cuda/runtime.h"
#include "core/error.h"
#include "core/op.h"

namespace engine::cuda {

namespace {

// The record on the device, and a pinned copy that every wait brings up to date.
struct Records {
  DeviceError* on_device = nullptr;
  DeviceError* on_host = nullptr;

  Records() {
    ENGINE_CUDA(cudaMalloc(&on_device, sizeof(DeviceError)));
    ENGINE_CUDA(cudaMallocHost(&on_host, sizeof(DeviceError)));
    clear();
  }
  void clear() { ENGINE_CUDA(cudaMemsetAsync(on_device, 0, sizeof(DeviceError), stream())); }
};

bool used = false;  // no kernel that checks has run yet: nothing to read

Records& records() {
  static Records instance;
  return instance;
}

}  // namespace

DeviceError* device_error() {
  used = true;
  return records().on_device;
}

void throw_device_error() {
  if (!used) return;
  Records& r = records();
  ENGINE_CUDA(cudaMemcpyAsync(r.on_host, r.on_device, sizeof(DeviceError), cudaMemcpyDeviceToHost,
                              stream()));
  ENGINE_CUDA(cudaStreamSynchronize(stream()));
  used = false;
  const DeviceError error = *r.on_host;
  if (error.set == 0) return;
  r.clear();
  fail(op(static_cast<OpId>(error.op)).name, "expected indices in [0, {}), got {} at position {}",
       error.limit, error.value, error.position);
}

}  // namespace engine::cuda
