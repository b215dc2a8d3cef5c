// A CUDA device in software, for machines that have the toolkit and no GPU. It stands in at link
// time for the CUDA runtime and for the calls of cuBLASLt and cuDNN that the backend makes, over
// the toolkit's own headers. It is strict where a real device is unforgiving:
//  - nothing runs before it is waited for: work is queued per stream and done in a synchronize, so
//  a
//    result that is read too early holds NaN patterns;
//  - device memory is closed to the host: between waits, touching it is a fault;
//  - each allocation ends at a page that is closed for all: so are accesses past it;
//  - fresh device memory, and host memory that a copy will fill, hold NaN patterns;
//  - pointers are looked up: a host pointer given for a device pointer, or a copy past an
//    allocation, is an error, and so are a block, a grid or shared memory over the limits;
//  - threads that wait at different barriers are an error.
// Nothing that runs on it has a meaningful time.
#pragma once

#include <cuda_runtime.h>
#include <signal.h>

#include <cstdint>
#include <functional>
#include <string>

namespace engine::software_device {

/// Queues work on a stream.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// Ends with this as the device's sticky error, as a fault in a kernel does; from inside queued
/// work.
[[noreturn]] void fault(cudaError_t error, const std::string& what);
/// Faults unless [pointer, pointer + bytes) lies in one live allocation.
void expect_device(const void* pointer, size_t bytes, const char* what);
/// What the last fault said.
std::string last_fault();
/// Forgets the sticky error, which on a real device ends with the process.
void reset();
/// Says what was touched, on standard error, and ends the process with code 70 when closed memory
/// is touched. In force while work runs; returns the handler that it replaces.
struct sigaction watch_faults();
/// The next call of this function fails with an error that says so and changes nothing else:
/// cudaLaunchKernel, cudaMemcpyAsync, cudaMemsetAsync, cublasLtMatmul or cudnnBackendExecute.
void fail_next(const std::string& call);
/// For those functions: whether this call is to fail.
bool is_to_fail(const char* call);
/// Memory that the device has from now on, in bytes; 4 GiB at first.
void set_capacity(size_t bytes);
/// Whether cuDNN is to have no engine for any convolution from now on. At first: whether the
/// environment has SOFTWARE_DEVICE_REFUSES_CONV.
void refuse_convolutions(bool refuse);
/// Runs the threads of each block, as fibres where they wait for each other.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);

}  // namespace engine::software_device
