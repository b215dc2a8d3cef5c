#include "backends/cuda/cuda_backend.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/cudnn.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/runtime.h"
#include "core/backend.h"
#include "core/error.h"

namespace engine::cuda {

namespace {

// The outcome of looking for a device, once for the process.
struct Found {
  cudaStream_t stream = nullptr;
  cudaDeviceProp properties{};
  std::string why_not;
};

Found find_device() {
  Found found;
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count == 0) status = cudaErrorNoDevice;
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&found.properties, 0);
  if (status == cudaSuccess)
    status = cudaStreamCreateWithFlags(&found.stream, cudaStreamNonBlocking);
  if (status != cudaSuccess) {
    cudaGetLastError();
    found.stream = nullptr;
    found.why_not = fmt::format("no CUDA device can be used: {} ({})", cudaGetErrorString(status),
                                cudaGetErrorName(status));
  }
  return found;
}
const Found& device() {
  static const Found instance = find_device();
  return instance;
}

class DeviceMemory : public RawMemory {
 public:
  void* allocate(size_t bytes) override {
    void* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;  // the allocator frees its cache and asks again
    }
    check_status(status, "cudaMalloc");
    return pointer;
  }
  // Also at the end of the process, when the driver may be gone: nothing can be done about a
  // failure.
  void release(void* pointer, size_t) override { cudaFree(pointer); }
  int64_t free_bytes() override {
    size_t free = 0, total = 0;
    ENGINE_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }
};

// Marks are events in the stream; a number is an event's place in the pool until it is asked for.
// Times are counted from an event whose moment on the host's clock is known.
class EventTimer : public DeviceTimer {
 public:
  int64_t mark() override {
    if (start_ == nullptr) {
      ENGINE_CUDA(cudaEventCreate(&start_));
      ENGINE_CUDA(cudaEventRecord(start_, stream()));
      ENGINE_CUDA(cudaEventSynchronize(start_));
      start_ns_ = host_clock_ns();
    }
    if (free_.empty()) {
      cudaEvent_t event = nullptr;
      ENGINE_CUDA(cudaEventCreate(&event));
      free_.push_back(events_.size());
      events_.push_back(event);
    }
    const size_t place = free_.back();
    free_.pop_back();
    ENGINE_CUDA(cudaEventRecord(events_[place], stream()));
    return static_cast<int64_t>(place);
  }
  int64_t nanoseconds(int64_t mark) override {
    const auto place = static_cast<size_t>(mark);
    float milliseconds = 0;
    ENGINE_CUDA(cudaEventElapsedTime(&milliseconds, start_, events_[place]));
    free_.push_back(place);
    return start_ns_ + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  cudaEvent_t start_ = nullptr;
  int64_t start_ns_ = 0;
  std::vector<cudaEvent_t> events_;
  std::vector<size_t> free_;
};

class CudaBackend : public Backend {
 public:
  CudaBackend() {
#define ENGINE_KERNEL_ENTRY(name) kernels_[static_cast<size_t>(OpId::name)] = kernels::name;
    ENGINE_CUDA_KERNELS(ENGINE_KERNEL_ENTRY)
#undef ENGINE_KERNEL_ENTRY
  }
  Device device() const override { return {DeviceKind::cuda, 0}; }
  CachingAllocator& allocator() override { return allocator_; }
  Kernel kernel(OpId op) const override { return kernels_[static_cast<size_t>(op)]; }
  DeviceTimer& timer() override { return timer_; }
  void synchronize() override {
    ENGINE_CUDA(cudaStreamSynchronize(stream()));
    throw_device_error();
  }
  // From memory that is not pinned: the runtime has read it when the call returns.
  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    ENGINE_CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream()));
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    ENGINE_CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, stream()));
    synchronize();
  }

 private:
  DeviceMemory memory_;
  CachingAllocator allocator_{memory_};
  EventTimer timer_;
  std::array<Kernel, kOps> kernels_{};
};

std::string version(int number, int major, int minor) {
  return fmt::format("{}.{}", number / major, number % major / minor);
}

}  // namespace

cudaStream_t stream() { return device().stream; }

bool register_backend() {
  if (has_backend(DeviceKind::cuda)) return true;
  std::unique_ptr<Backend> made = make_backend();
  if (made == nullptr) return false;
  engine::register_backend(std::move(made));
  return true;
}

std::unique_ptr<Backend> make_backend() {
  return device().stream == nullptr ? nullptr : std::make_unique<CudaBackend>();
}

std::string unavailable() { return device().why_not; }

std::string description() {
  int runtime = 0;
  ENGINE_CUDA(cudaRuntimeGetVersion(&runtime));
  return fmt::format("{}, CUDA {}, cuBLASLt {}, {}", device().properties.name,
                     version(runtime, 1000, 10), cublasLtGetVersion(), cudnn_version());
}

bool has_times() { return std::string_view(device().properties.name) != "software device"; }

}  // namespace engine::cuda
