// The software device catches what it promises to catch: each misuse is committed on purpose.
#include <cublasLt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "backends/cuda/device.h"
#include "core/backend.h"
#include "core/op.h"
#include "core/ops.h"
#include "tests/catch.h"
#include "tests/guarded.h"
#include "tests/software_device/software_device.h"

namespace engine::software_device {
namespace {

using cuda::launch_kernel;

__global__ void write_kernel(float* x, int64_t i, float value) { x[i] = value; }
__global__ void copy_kernel(const float* from, float* to) { to[0] = from[0]; }
__global__ void barrier_kernel(float* x, bool all) {
  if (all || threadIdx.x < 7) __syncthreads();
  if (threadIdx.x == 0) x[0] = 1;
}
__global__ void sum_kernel(const float* x, float* sum) {
  const float total = cuda::reduce_block(x[threadIdx.x], 0.f, cuda::Plus{});
  if (threadIdx.x == 0) sum[0] = total;
}
__global__ void shared_kernel(float* to) {
  float* shared = cuda::dynamic_shared<float>();
  to[threadIdx.x] = shared[threadIdx.x];  // read before anything is written
}

struct Memory {
  float* data = nullptr;
  explicit Memory(size_t floats) {
    REQUIRE(cudaMalloc(&data, floats * sizeof(float)) == cudaSuccess);
  }
  ~Memory() { cudaFree(data); }
};

cudaStream_t stream() { return cuda::stream(); }

// Copies one float back and waits.
float read(const float* from) {
  float value = 0;
  REQUIRE(cudaMemcpyAsync(&value, from, sizeof value, cudaMemcpyDeviceToHost, stream()) ==
          cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream()) == cudaSuccess);
  return value;
}

// The device's error after a wait, and what it said; the device is usable again.
std::string error_after(cudaError_t expected) {
  CHECK(cudaStreamSynchronize(stream()) == expected);
  const std::string said = last_fault();
  reset();
  return said;
}

// What a process that does this writes to its standard error, and that it ends with code 70.
std::string death_of(const std::function<void()>& act) {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    act();
    _exit(0);
  }
  close(pipes[1]);
  std::string text(512, '\0');
  text.resize(
      static_cast<size_t>(std::max<ssize_t>(0, ::read(pipes[0], text.data(), text.size()))));
  close(pipes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 70);
  return text;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("software device: kernels run, and blocks wait for each other") {
  const Memory x(256), sum(1);
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  REQUIRE(cudaMemcpyAsync(x.data, values.data(), 1024, cudaMemcpyHostToDevice, stream()) ==
          cudaSuccess);
  launch_kernel(sum_kernel, 1, 256, 0, x.data, sum.data);
  CHECK(read(sum.data) == 32640);
}

TEST_CASE("software device: nothing is there before it is waited for") {
  const Memory x(1);
  launch_kernel(write_kernel, 1, 1, 0, x.data, int64_t{0}, 5.f);
  float value = 1;
  REQUIRE(cudaMemcpyAsync(&value, x.data, sizeof value, cudaMemcpyDeviceToHost, stream()) ==
          cudaSuccess);
  CHECK(std::isnan(value));
  REQUIRE(cudaStreamSynchronize(stream()) == cudaSuccess);
  CHECK(value == 5);
}

TEST_CASE("software device: a stream does not wait for another unless it is told to") {
  cudaStream_t other = nullptr;
  cudaEvent_t written = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&written, cudaEventDisableTiming) == cudaSuccess);
  for (const bool told : {false, true}) {
    const Memory x(1), y(1);
    const float one = 1;
    REQUIRE(cudaMemcpyAsync(x.data, &one, sizeof one, cudaMemcpyHostToDevice, other) ==
            cudaSuccess);
    REQUIRE(cudaEventRecord(written, other) == cudaSuccess);
    if (told) REQUIRE(cudaStreamWaitEvent(stream(), written, 0) == cudaSuccess);
    launch_kernel(copy_kernel, 1, 1, 0, x.data, y.data);
    CHECK(std::isnan(read(y.data)) == !told);
  }
  cudaEventDestroy(written);
  cudaStreamDestroy(other);
}

TEST_CASE("software device: pinned memory is read when the copy runs") {
  const Memory x(1);
  float* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, sizeof(float)) == cudaSuccess);
  CHECK(std::isnan(*pinned));
  *pinned = 1;
  REQUIRE(cudaMemcpyAsync(x.data, pinned, sizeof(float), cudaMemcpyHostToDevice, stream()) ==
          cudaSuccess);
  *pinned = 2;  // too early
  CHECK(read(x.data) == 2);
  cudaFreeHost(pinned);
}

TEST_CASE("software device: fresh memory and shared memory hold NaN patterns") {
  const Memory x(32), y(32);
  CHECK(std::isnan(read(x.data)));
  launch_kernel(shared_kernel, 1, 32, 32 * sizeof(float), y.data);
  CHECK(std::isnan(read(y.data)));
}

TEST_CASE("software device: wrong pointers are seen") {
  const Memory x(64);
  std::vector<float> host(64);
  launch_kernel(write_kernel, 1, 1, 0, host.data(), int64_t{0}, 1.f);
  CHECK(contains(error_after(cudaErrorIllegalAddress), "a host pointer for a device pointer"));
  CHECK(cudaMemcpyAsync(host.data(), host.data(), 4, cudaMemcpyDeviceToHost, stream()) ==
        cudaSuccess);
  CHECK(contains(error_after(cudaErrorIllegalAddress), "a host pointer for a device pointer"));
  CHECK(cudaMemcpyAsync(x.data, x.data, 4, cudaMemcpyHostToDevice, stream()) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(x.data, host.data(), 257, cudaMemcpyHostToDevice, stream()) == cudaSuccess);
  CHECK(contains(error_after(cudaErrorIllegalAddress), "past the end"));
  float* gone = nullptr;
  REQUIRE(cudaMalloc(&gone, 4) == cudaSuccess);
  REQUIRE(cudaFree(gone) == cudaSuccess);
  launch_kernel(write_kernel, 1, 1, 0, gone, int64_t{0}, 1.f);
  CHECK(contains(error_after(cudaErrorIllegalAddress), "not allocated"));
  CHECK(cudaFree(gone) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(read(x.data) != 1);  // usable
}

TEST_CASE("software device: accesses outside and touches by the host end the process") {
  CHECK(contains(death_of([] {
                   float* x = nullptr;
                   cudaMalloc(&x, 256);
                   launch_kernel(write_kernel, 1, 1, 0, x, int64_t{64}, 1.f);  // one past the end
                   cudaStreamSynchronize(stream());
                 }),
                 "a kernel reached outside"));
  CHECK(contains(death_of([] {
                   float* x = nullptr;
                   cudaMalloc(&x, 256);
                   watch_faults();
                   *x = 1;
                 }),
                 "the host touched device memory"));
}

// A tensor's block is rounded up, so a step past the tensor is inside of its allocation: the guards
// of the harness see it, on this device and on a GPU alike.
TEST_CASE("software device: a kernel that leaves its tensor is seen by the guards") {
  constexpr Device kCuda{DeviceKind::cuda, 0};
  const auto violations = [&](Kernel kernel) {
    const Tensor inputs[] = {full({5}, 1, DType::f32, kCuda)};
    Tensor outputs[] = {full({5}, 0, DType::f32, kCuda)};
    Scratch scratch(backend(kCuda).allocator());
    const Attrs attrs;
    KernelArgs args{inputs, outputs, attrs, scratch};
    const test::GuardScope guards;
    test::run_guarded(op(OpId::neg), kernel, args);
    std::vector<std::string> seen = guards.violations();
    for (const float v : outputs[0].to_vector<float>()) {
      if (std::isnan(v)) seen.push_back("NaN");
    }
    return seen;
  };
  using List = std::vector<std::string>;
  CHECK(violations(backend(kCuda).kernel(OpId::neg)).empty());
  // Elements -1 and 5 beside a whole output; an output of which one element is left out; an input.
  CHECK(violations([](KernelArgs& args) {
          for (int64_t i = -1; i < 6; ++i)
            launch_kernel(write_kernel, 1, 1, 0, args.outputs[0].data<float>(), i, 1.f);
        }) ==
        List{"neg wrote 4 bytes before output 0", "neg wrote 4 bytes past the end of output 0"});
  CHECK(violations([](KernelArgs& args) {
          for (int64_t i = 0; i < 4; ++i)
            launch_kernel(write_kernel, 1, 1, 0, args.outputs[0].data<float>(), i, 1.f);
          launch_kernel(write_kernel, 1, 1, 0, args.inputs[0].data<float>(), int64_t{2}, 3.f);
        }) == List{"neg changed input 0", "NaN"});
}

TEST_CASE("software device: limits of a launch") {
  const Memory x(1);
  const auto status = [&](dim3 grid, dim3 block, size_t shared) {
    cuda::software::enqueue(grid, block, shared, stream(), {}, [] {});
    return cudaGetLastError();
  };
  CHECK(status(1, 1024, 48 * 1024) == cudaSuccess);
  CHECK(status(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(status(1, dim3(32, 64), 0) == cudaErrorInvalidConfiguration);
  CHECK(status(0, 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(status(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(status(1, 32, 48 * 1024 + 1) == cudaErrorInvalidConfiguration);
  CHECK(cudaStreamSynchronize(stream()) == cudaSuccess);
}

TEST_CASE("software device: threads that wait at different places") {
  const Memory x(1);
  launch_kernel(barrier_kernel, 1, 32, 0, x.data, true);
  CHECK(read(x.data) == 1);
  // Seven threads wait; the others have ended and are not waited for, as on a device.
  launch_kernel(barrier_kernel, 1, 32, 0, x.data, false);
  CHECK(cudaStreamSynchronize(stream()) == cudaSuccess);
  // A warp that shuffles while the other waits at a barrier.
  cuda::software::enqueue(1, 64, 0, stream(), {}, [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else if (threadIdx.x < 48)
      __shfl_xor_sync(cuda::kWholeWarp, 1, 1);
    else
      __syncthreads();
  });
  CHECK(contains(error_after(cudaErrorLaunchFailure), "wait for each other"));
}

TEST_CASE("software device: memory is finite, and times are not asked before they are known") {
  void* all = nullptr;
  CHECK(cudaMalloc(&all, size_t{5} << 30) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  cudaEvent_t a = nullptr, b = nullptr;
  REQUIRE(cudaEventCreate(&a) == cudaSuccess);
  REQUIRE(cudaEventCreate(&b) == cudaSuccess);
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  const Memory x(1);
  REQUIRE(cudaEventRecord(a, stream()) == cudaSuccess);
  launch_kernel(write_kernel, 1, 1, 0, x.data, int64_t{0}, 1.f);
  REQUIRE(cudaEventRecord(b, stream()) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaErrorNotReady);
  REQUIRE(cudaEventSynchronize(b) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaSuccess);
  cudaGetLastError();
  cudaEventDestroy(a);
  cudaEventDestroy(b);
}

TEST_CASE("software device: cuBLASLt's descriptors must fit") {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
          CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 2, 3, 2) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 4, 5, 4) ==
          CUBLAS_STATUS_SUCCESS);  // 3 x 5 fits
  REQUIRE(cublasLtMatrixLayoutCreate(&y, CUDA_R_32F, 2, 5, 2) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 1;
  CHECK(cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, y, y, preference, 1, &result,
                                       &found) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(found == 0);
  const Memory x(64);
  const float one = 1, zero = 0;
  CHECK(cublasLtMatmul(handle, product, &one, x.data, a, x.data, b, &zero, x.data, y, x.data, y,
                       &result.algo, nullptr, 0, stream()) == CUBLAS_STATUS_INVALID_VALUE);
  const int wrong_size = 0;
  CHECK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &wrong_size, 1) ==
        CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatmulDescDestroy(product);
  for (cublasLtMatrixLayout_t layout : {a, b, y}) cublasLtMatrixLayoutDestroy(layout);
}

}  // namespace engine::software_device
