// The CUDA runtime of the software device: memory, streams, events, errors.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "backends/cuda/device.h"
#include "tests/software_device/software_device.h"

struct CUstream_st {
  std::deque<std::function<void()>> queue;
  uint64_t queued = 0, done = 0;  // pieces of work
};
struct CUevent_st {
  cudaStream_t stream = nullptr;
  uint64_t position = 0;  // of the stream's work that it comes after
};

namespace engine::software_device {

namespace {

constexpr size_t kPage = 4096, kArena = size_t{64} << 30;

// Device memory: one stretch of addresses that nothing else can get, opened for as long as work
// runs.
struct Device {
  std::recursive_mutex mutex;
  std::byte* arena = nullptr;
  size_t next = kPage;
  std::map<const std::byte*, size_t> live;         // allocations, by address
  std::map<size_t, std::vector<std::byte*>> free;  // addresses to use again, by pages
  std::map<const std::byte*, size_t> pinned;
  size_t allocated = 0, capacity = size_t{4} << 30;
  std::set<cudaStream_t> streams;
  bool running = false;
  cudaError_t last = cudaSuccess, sticky = cudaSuccess;
  std::string fault;
  std::string fails_next;  // a function's name

  Device() {
    void* at = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    arena = static_cast<std::byte*>(at);
  }
};
Device& device() {
  static Device* instance = new Device;  // never gone: streams are used until the process ends
  return *instance;
}

size_t pages_of(size_t bytes) { return (bytes + kPage - 1) / kPage; }

// Opens or closes all device memory.
void protect(int how) {
  for (const auto& [at, size] : device().live) {
    const size_t inside = reinterpret_cast<uintptr_t>(at) % kPage;
    mprotect(const_cast<std::byte*>(at) - inside, inside + size, how);
  }
}

struct Fault {
  cudaError_t error;
};

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) device().last = error;
  return error;
}

// A touch of closed memory, by a kernel or by the host, ends the process: there is no going on.
void on_fault(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  const bool ours = at >= device().arena && at < device().arena + kArena;
  const char* text = !ours ? "software device: invalid memory access\n"
                     : device().running
                         ? "software device: a kernel reached outside of its allocations\n"
                         : "software device: the host touched device memory\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  signal(SIGSEGV, SIG_DFL);
  if (ours) _exit(70);
}

// The live allocation that holds a pointer.
const std::pair<const std::byte* const, size_t>* allocation_of(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  auto next = device().live.upper_bound(at);
  if (next == device().live.begin()) return nullptr;
  --next;
  return at < next->first + next->second || at == next->first ? &*next : nullptr;
}

bool in_arena(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  return at >= device().arena && at < device().arena + kArena;
}

// Does a stream's work up to a position.
cudaError_t drain(cudaStream_t stream, uint64_t position) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (d.sticky != cudaSuccess) return remember(d.sticky);
  const bool outermost = !d.running;
  struct sigaction before {};
  if (outermost) {
    before = watch_faults();
    protect(PROT_READ | PROT_WRITE);
  }
  d.running = true;
  try {
    while (stream->done < position) {
      const std::function<void()> work = std::move(stream->queue.front());
      stream->queue.pop_front();
      ++stream->done;
      work();
    }
  } catch (const Fault& fault) {
    if (!outermost) throw;
    d.sticky = fault.error;
    for (cudaStream_t each : d.streams) {
      each->queue.clear();
      each->done = each->queued;
    }
  }
  if (outermost) {
    d.running = false;
    protect(PROT_NONE);
    sigaction(SIGSEGV, &before, nullptr);
  }
  return remember(d.sticky);
}

}  // namespace

struct sigaction watch_faults() {
  static std::byte stack[64 * 1024];  // a fibre's own may be too full for a handler
  const stack_t alternative{stack, 0, sizeof stack};
  sigaltstack(&alternative, nullptr);
  struct sigaction action {
  }, before{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before);
  return before;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(device().mutex);
  stream->queue.push_back(std::move(work));
  ++stream->queued;
}

void fault(cudaError_t error, const std::string& what) {
  device().fault = what;
  throw Fault{error};
}

void expect_device(const void* pointer, size_t bytes, const char* what) {
  if (bytes == 0) return;
  const auto* found = allocation_of(pointer);
  if (found == nullptr) {
    fault(cudaErrorIllegalAddress,
          std::string(what) + (in_arena(pointer) ? ": device memory that is not allocated"
                                                 : ": a host pointer for a device pointer"));
  }
  const auto* end = static_cast<const std::byte*>(pointer) + bytes;
  if (end > found->first + found->second)
    fault(cudaErrorIllegalAddress, std::string(what) + ": past the end of an allocation");
}

void fail_next(const std::string& call) { device().fails_next = call; }
bool is_to_fail(const char* call) {
  if (device().fails_next != call) return false;
  device().fails_next.clear();
  return true;
}
void set_capacity(size_t bytes) { device().capacity = bytes; }

std::string last_fault() { return device().fault; }

void reset() {
  device().sticky = device().last = cudaSuccess;
  device().fault.clear();
}

}  // namespace engine::software_device

using namespace engine::software_device;

namespace engine::cuda::software {

void enqueue(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
             std::vector<const void*> pointers, std::function<void()> thread) {
  const auto over = [](unsigned value, unsigned limit) { return value < 1 || value > limit; };
  if (over(block.x, 1024) || over(block.y, 1024) || over(block.z, 64) ||
      block.x * block.y * block.z > 1024 || over(grid.x, 0x7fffffff) || over(grid.y, 65535) ||
      over(grid.z, 65535) || shared_bytes > 48 * 1024 || is_to_fail("cudaLaunchKernel")) {
    remember(cudaErrorInvalidConfiguration);
    return;
  }
  software_device::enqueue(stream, [=, pointers = std::move(pointers), thread = std::move(thread)] {
    for (const void* pointer : pointers)
      if (pointer != nullptr) expect_device(pointer, 1, "a kernel's argument");
    run_grid(grid, block, shared_bytes, thread);
  });
}

}  // namespace engine::cuda::software

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "software device");
  properties->major = 8;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = device().capacity;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = device().capacity;
  *free = *total - std::min(*total, device().allocated);
  return cudaSuccess;
}

// An allocation ends at the end of a page, as far as its alignment to 256 bytes lets it.
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (d.allocated + bytes > d.capacity) return remember(cudaErrorMemoryAllocation);
  const size_t pages = pages_of(bytes);
  std::byte* base = nullptr;
  if (auto& again = d.free[pages]; !again.empty()) {
    base = again.back();
    again.pop_back();
  } else {
    if (d.next + (pages + 1) * kPage > kArena) return remember(cudaErrorMemoryAllocation);
    base = d.arena + d.next;
    d.next += (pages + 1) * kPage;  // the last stays closed
  }
  std::byte* at = base + (pages * kPage - bytes) / 256 * 256;
  mprotect(base, pages * kPage, PROT_READ | PROT_WRITE);
  std::memset(base, 0xff, pages * kPage);
  if (!d.running) mprotect(base, pages * kPage, PROT_NONE);
  d.live[at] = bytes;
  d.allocated += bytes;
  *pointer = at;
  return cudaSuccess;
}
// Waits for the device, as the real one does.
cudaError_t cudaFree(void* pointer) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (pointer == nullptr) return cudaSuccess;
  const auto found = d.live.find(static_cast<std::byte*>(pointer));
  if (found == d.live.end()) return remember(cudaErrorInvalidValue);
  const cudaError_t status = cudaDeviceSynchronize();
  const size_t pages = pages_of(found->second);
  auto* base = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(pointer) / kPage * kPage);
  madvise(base, pages * kPage, MADV_DONTNEED);
  mprotect(base, pages * kPage, PROT_NONE);
  d.allocated -= found->second;
  d.free[pages].push_back(base);
  d.live.erase(found);
  return status;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::malloc(bytes);
  std::memset(*pointer, 0xff, bytes);
  const std::lock_guard lock(device().mutex);
  device().pinned[static_cast<std::byte*>(*pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(device().mutex);
  device().pinned.erase(static_cast<std::byte*>(pointer));
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (d.sticky != cudaSuccess) return remember(d.sticky);
  if (is_to_fail("cudaMemcpyAsync")) return remember(cudaErrorInvalidValue);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if ((!to_device && !from_device) || (!to_device && in_arena(to)) ||
      (!from_device && in_arena(from)))
    return remember(cudaErrorInvalidValue);
  const auto next = d.pinned.upper_bound(static_cast<const std::byte*>(from));
  const bool pinned =
      next != d.pinned.begin() &&
      static_cast<const std::byte*>(from) < std::prev(next)->first + std::prev(next)->second;
  // What is not pinned has been read when the call returns; what is, is read when the copy runs.
  std::shared_ptr<std::vector<std::byte>> staged;
  if (kind == cudaMemcpyHostToDevice && !pinned) {
    const auto* begin = static_cast<const std::byte*>(from);
    staged = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
  }
  if (kind == cudaMemcpyDeviceToHost) std::memset(to, 0xff, bytes);
  enqueue(stream, [=] {
    if (to_device) expect_device(to, bytes, "the destination of a copy");
    if (from_device) expect_device(from, bytes, "the source of a copy");
    if (bytes > 0) std::memcpy(to, staged ? staged->data() : from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (is_to_fail("cudaMemsetAsync")) return remember(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    expect_device(to, bytes, "the destination of a memset");
    if (bytes > 0) std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(device().mutex);
  *stream = new CUstream_st;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  const cudaError_t status = drain(stream, stream->queued);
  device().streams.erase(stream);
  delete stream;
  return status;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return drain(stream, stream->queued); }
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(device().mutex);
  cudaError_t status = cudaSuccess;
  for (cudaStream_t stream : std::set<cudaStream_t>(device().streams)) {
    const cudaError_t one = drain(stream, stream->queued);
    if (status == cudaSuccess) status = one;
  }
  return status;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  event->stream = stream;
  event->position = stream->queued;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->stream == nullptr ? cudaSuccess : drain(event->stream, event->position);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const CUevent_st waited = *event;
  if (waited.stream == nullptr || waited.stream == stream) return cudaSuccess;
  enqueue(stream, [waited] { drain(waited.stream, waited.position); });
  return cudaSuccess;
}
// Events that have not been waited for have no time; nothing here has a meaningful one.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t event : {begin, end}) {
    if (event->stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
    if (event->stream->done < event->position) return remember(cudaErrorNotReady);
  }
  *milliseconds = 0;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = device().last;
  device().last = device().sticky;
  return error;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaErrorLaunchFailure";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  static std::string text;
  text = std::string("software device: ") +
         (device().fault.empty() ? cudaGetErrorName(error) : device().fault);
  return text.c_str();
}
