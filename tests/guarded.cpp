#include "tests/guarded_cpu.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels.h"

namespace engine::test {

namespace {

constexpr int kPoison = 0xFF;  // as f32 or bf16: NaN
constexpr size_t kGuard = 256;

thread_local std::vector<std::string>* violations_of_scope = nullptr;

// A tensor's bytes between two guards, at the same place in its cache line as the original: kernels
// may choose their path by alignment.
class Guarded {
 public:
  Guarded(const Tensor& original, bool keep_values) : original_(original) {
    const size_t front = kGuard + reinterpret_cast<uintptr_t>(original.raw()) % 64;
    const size_t element = size_of(original.dtype());
    front_ = (front + element - 1) / element * element;
    const auto count = static_cast<int64_t>((front_ + original.bytes() + kGuard) / element);
    whole_ = empty(Shape{count}, original.dtype());
    std::memset(whole_.raw(), kPoison, whole_.bytes());
    copy_ = whole_.view(original.shape(), front_);
    if (keep_values && original.bytes() > 0)
      std::memcpy(copy_.raw(), original.raw(), original.bytes());
  }

  const Tensor& tensor() const { return copy_; }
  void copy_back() const {
    if (original_.bytes() > 0) std::memcpy(original_.raw(), copy_.raw(), original_.bytes());
  }
  bool unchanged() const {
    return original_.bytes() == 0 ||
           std::memcmp(original_.raw(), copy_.raw(), original_.bytes()) == 0;
  }

  void check_guards(const char* op, const std::string& what) const {
    const auto* bytes = static_cast<const unsigned char*>(whole_.raw());
    const size_t end = front_ + original_.bytes();
    size_t before = 0, after = 0;
    for (size_t i = 0; i < front_; ++i) before += bytes[i] != kPoison;
    for (size_t i = end; i < whole_.bytes(); ++i) after += bytes[i] != kPoison;
    if (before > 0) report(op, before, "before", what);
    if (after > 0) report(op, after, "past the end of", what);
  }

 private:
  static void report(const char* op, size_t count, const char* where, const std::string& what) {
    violations_of_scope->push_back(fmt::format("{} wrote {} bytes {} {}", op, count, where, what));
  }

  Tensor original_, whole_, copy_;
  size_t front_ = 0;
};

}  // namespace

void run_guarded(const Op& op, Kernel kernel, KernelArgs& args) {
  std::vector<Guarded> guarded;
  std::vector<Tensor> inputs(args.inputs.begin(), args.inputs.end());
  std::vector<Tensor> outputs(args.outputs.begin(), args.outputs.end());
  const auto replace = [&](std::vector<Tensor>& tensors, bool keep_values) {
    for (Tensor& t : tensors) {
      if (!t.defined()) continue;
      guarded.emplace_back(t, keep_values);
      t = guarded.back().tensor();
    }
  };
  replace(inputs, true);
  replace(outputs, false);

  KernelArgs inner{inputs, outputs, args.attrs, args.scratch};
  kernel(inner);
  args.implementation = inner.implementation;

  size_t next = 0;
  const auto settle = [&](std::span<const Tensor> tensors, const char* kind, TensorMask written) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      const Guarded& g = guarded[next++];
      const std::string what = fmt::format("{} {}", kind, i);
      g.check_guards(op.name, what);
      if ((written & bit(static_cast<int>(i))) != 0) {
        g.copy_back();
      } else if (!g.unchanged()) {
        violations_of_scope->push_back(fmt::format("{} changed {}", op.name, what));
      }
    }
  };
  settle(args.inputs, "input", op.mutated);
  settle(args.outputs, "output", ~TensorMask{0});
}

namespace {

class PoisonedMemory : public RawMemory {
 public:
  void* allocate(size_t bytes) override {
    if (bytes >> 40 != 0) return nullptr;  // asked of malloc, sanitizers would end the program
    void* pointer = std::aligned_alloc(64, bytes);
    if (pointer != nullptr) std::memset(pointer, kPoison, bytes);
    return pointer;
  }
  void release(void* pointer, size_t) override { std::free(pointer); }
  int64_t free_bytes() override { return 0; }
};

class HostTimer : public DeviceTimer {
 public:
  int64_t mark() override { return host_clock_ns(); }
  int64_t nanoseconds(int64_t mark) override { return mark; }
};

template <Kernel kKernel, OpId kId>
void wrapped(KernelArgs& args) {
  if (violations_of_scope != nullptr)
    run_guarded(op(kId), kKernel, args);
  else
    kKernel(args);
}

class GuardedCpu : public Backend {
 public:
  GuardedCpu() {
#define ENGINE_KERNEL_ENTRY(name) \
  kernels_[static_cast<size_t>(OpId::name)] = wrapped<cpu::kernels::name, OpId::name>;
    ENGINE_CPU_KERNELS(ENGINE_KERNEL_ENTRY)
#undef ENGINE_KERNEL_ENTRY
  }
  Device device() const override { return kCpu; }
  CachingAllocator& allocator() override { return allocator_; }
  Kernel kernel(OpId id) const override { return kernels_[static_cast<size_t>(id)]; }
  DeviceTimer& timer() override { return timer_; }
  void synchronize() override {}
  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }

 private:
  PoisonedMemory memory_;
  CachingAllocator allocator_{memory_};
  HostTimer timer_;
  std::array<Kernel, kOps> kernels_{};
};

}  // namespace

void register_guarded_cpu() {
  if (has_backend(DeviceKind::cpu)) return;
  register_backend(std::make_unique<GuardedCpu>());
  cpu::set_num_threads(cpu::default_num_threads());
}

GuardScope::GuardScope() { violations_of_scope = &violations_; }
GuardScope::~GuardScope() { violations_of_scope = nullptr; }

}  // namespace engine::test
