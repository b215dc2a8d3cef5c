#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "backends/cpu/kernels.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/parallel.h"
#include "core/error.h"

namespace engine::cpu {

namespace {

// Large blocks are aligned to huge pages and ask for them: a training step touches hundreds of
// megabytes, and with 4 KiB pages address translation shows.
class HostMemory : public RawMemory {
 public:
  void* allocate(size_t bytes) override {
    constexpr size_t kHugePage = size_t{2} << 20;
    const bool large = bytes >= kHugePage;
    void* pointer = nullptr;
    if (posix_memalign(&pointer, large ? kHugePage : 64, bytes) != 0) return nullptr;
    if (large) madvise(pointer, bytes, MADV_HUGEPAGE);  // a hint: failing changes nothing
    return pointer;
  }
  void release(void* pointer, size_t) override { std::free(pointer); }
  int64_t free_bytes() override {
    return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }
};

// Kernels run inside the call, so host clock readings around one are its device time.
class HostTimer : public DeviceTimer {
 public:
  int64_t mark() override { return host_clock_ns(); }
  int64_t nanoseconds(int64_t mark) override { return mark; }
};

class CpuBackend : public Backend {
 public:
  CpuBackend() {
#define ENGINE_KERNEL_ENTRY(name) kernels_[static_cast<size_t>(OpId::name)] = kernels::name;
    ENGINE_CPU_KERNELS(ENGINE_KERNEL_ENTRY)
#undef ENGINE_KERNEL_ENTRY
  }
  Device device() const override { return kCpu; }
  CachingAllocator& allocator() override { return allocator_; }
  Kernel kernel(OpId op) const override { return kernels_[static_cast<size_t>(op)]; }
  DeviceTimer& timer() override { return timer_; }
  void synchronize() override {}
  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }

 private:
  HostMemory memory_;
  CachingAllocator allocator_{memory_};
  HostTimer timer_;
  std::array<Kernel, kOps> kernels_{};
};

// Quota / period of the cgroup that this process is in, or 0 where there is none (version 2, then
// 1).
double cgroup_cpus() {
  double quota = 0, period = 0;
  std::string path = "/";
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  for (const std::string& file :
       {"/sys/fs/cgroup" + path + "/cpu.max", std::string("/sys/fs/cgroup/cpu.max")}) {
    if (std::ifstream(file) >> quota >> period && period > 0) return quota / period;
  }
  if (std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota &&
      std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period && quota > 0 && period > 0) {
    return quota / period;
  }
  return 0;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

}  // namespace

void register_backend() {
  if (has_backend(DeviceKind::cpu)) return;
  engine::register_backend(std::make_unique<CpuBackend>());
  set_num_threads(default_num_threads());
}

void set_num_threads(int threads) {
  check(threads >= 1, "set_num_threads", "expected at least 1 thread, got {}", threads);
  omp_set_num_threads(threads);
}
int num_threads() { return omp_get_max_threads(); }

int default_num_threads() {
  if (const char* wanted = std::getenv("OMP_NUM_THREADS")) {
    const long threads = std::strtol(wanted, nullptr, 10);  // of a list, the first
    if (threads >= 1 && threads <= 1024) return static_cast<int>(threads);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0
                 ? CPU_COUNT(&set)
                 : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const double quota = cgroup_cpus();
  if (quota > 0) cpus = std::min(cpus, static_cast<int>(std::ceil(quota)));
  return std::max(1, cpus);
}

void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // About 0.1 ms: longer than the gaps between the loops of a step, so that undisturbed runs are as
  // fast as ever. Beside a busy process on 2 CPUs a lenet step then takes 7 ms, not 200.
  setenv("GOMP_SPINCOUNT", "10000", 1);
  // By its own path, so that the process keeps its name; /proc's link is called "exe".
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  execv(path, argv);
  // Where that fails the program goes on as it is.
}

std::string description() {
  return fmt::format("{}, {} thread{}, {}", cpu_model(), num_threads(),
                     num_threads() == 1 ? "" : "s", onednn_description());
}

}  // namespace engine::cpu
