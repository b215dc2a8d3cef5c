#include "tests/guarded.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels.h"
#include "backends/cuda/cuda_backend.h"

namespace engine::test {

namespace {

constexpr int kPoison = 0xFF;  // as f32 or bf16: NaN
constexpr size_t kGuard = 256;

thread_local std::vector<std::string>* violations_of_scope = nullptr;

// A tensor's bytes between two guards, aligned as the original is, to 256 bytes where the device's
// allocator is: kernels may choose their path by alignment.
class Guarded {
 public:
  Guarded(const Tensor& original, bool keep_values) : original_(original) {
    const size_t front = kGuard + reinterpret_cast<uintptr_t>(original.raw()) % 256;
    const size_t element = size_of(original.dtype());
    front_ = (front + element - 1) / element * element;
    const auto count = static_cast<int64_t>((front_ + original.bytes() + kGuard) / element);
    whole_ = empty(Shape{count}, original.dtype(), original.device());
    copy_ = whole_.view(original.shape(), front_);
    given_.assign(whole_.bytes(), std::byte{kPoison});
    if (keep_values && original.bytes() > 0)
      device().copy_to_host(given_.data() + front_, original.raw(), original.bytes());
    device().copy_from_host(whole_.raw(), given_.data(), given_.size());
  }

  const Tensor& tensor() const { return copy_; }
  /// Waits for the kernel and looks at what it left.
  void read() {
    left_.resize(given_.size());
    device().copy_to_host(left_.data(), whole_.raw(), left_.size());
  }
  void copy_back() const {
    if (original_.bytes() > 0)
      device().copy_from_host(original_.raw(), left_.data() + front_, original_.bytes());
  }
  bool unchanged() const {
    return std::memcmp(given_.data() + front_, left_.data() + front_, original_.bytes()) == 0;
  }

  void check_guards(const char* op, const std::string& what) const {
    const size_t end = front_ + original_.bytes();
    size_t before = 0, after = 0;
    for (size_t i = 0; i < front_; ++i) before += left_[i] != std::byte{kPoison};
    for (size_t i = end; i < left_.size(); ++i) after += left_[i] != std::byte{kPoison};
    if (before > 0) report(op, before, "before", what);
    if (after > 0) report(op, after, "past the end of", what);
  }

 private:
  static void report(const char* op, size_t count, const char* where, const std::string& what) {
    violations_of_scope->push_back(fmt::format("{} wrote {} bytes {} {}", op, count, where, what));
  }

  Backend& device() const { return backend(original_.device()); }

  Tensor original_, whole_, copy_;
  size_t front_ = 0;
  std::vector<std::byte> given_, left_;  // all of it, before and after the kernel
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
      Guarded& g = guarded[next++];
      g.read();
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

// The kernels behind the wall, and the wall: a table for each device.
using Kernels = std::array<Kernel, kOps>;
template <DeviceKind kDevice>
Kernels inner{};

template <DeviceKind kDevice, OpId kId>
void wrapped(KernelArgs& args) {
  const Kernel kernel = inner<kDevice>[static_cast<size_t>(kId)];
  if (violations_of_scope != nullptr)
    run_guarded(op(kId), kernel, args);
  else
    kernel(args);
}

template <DeviceKind kDevice>
Kernel wrapper_of(OpId id) {
  static constexpr Kernels wrappers{
#define ENGINE_WRAPPER(name) wrapped<kDevice, OpId::name>,
      ENGINE_OPS(ENGINE_WRAPPER)
#undef ENGINE_WRAPPER
  };
  const auto i = static_cast<size_t>(id);
  return inner<kDevice>[i] != nullptr ? wrappers[i] : nullptr;
}

class GuardedCpu : public Backend {
 public:
  GuardedCpu() {
#define ENGINE_KERNEL_ENTRY(name) \
  inner<DeviceKind::cpu>[static_cast<size_t>(OpId::name)] = cpu::kernels::name;
    ENGINE_CPU_KERNELS(ENGINE_KERNEL_ENTRY)
#undef ENGINE_KERNEL_ENTRY
  }
  Device device() const override { return kCpu; }
  CachingAllocator& allocator() override { return allocator_; }
  Kernel kernel(OpId id) const override { return wrapper_of<DeviceKind::cpu>(id); }
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
};

class GuardedCuda : public Backend {
 public:
  explicit GuardedCuda(std::unique_ptr<Backend> cuda) : cuda_(std::move(cuda)) {
    for (int i = 0; i < kOps; ++i)
      inner<DeviceKind::cuda>[static_cast<size_t>(i)] = cuda_->kernel(static_cast<OpId>(i));
  }
  Device device() const override { return cuda_->device(); }
  CachingAllocator& allocator() override { return cuda_->allocator(); }
  Kernel kernel(OpId id) const override { return wrapper_of<DeviceKind::cuda>(id); }
  DeviceTimer& timer() override { return cuda_->timer(); }
  void synchronize() override { cuda_->synchronize(); }
  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    cuda_->copy_from_host(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    cuda_->copy_to_host(destination, source, bytes);
  }

 private:
  std::unique_ptr<Backend> cuda_;
};

}  // namespace

void register_guarded() {
  register_backend(std::make_unique<GuardedCpu>());
  cpu::set_num_threads(cpu::default_num_threads());
  if (std::unique_ptr<Backend> found = cuda::make_backend())
    register_backend(std::make_unique<GuardedCuda>(std::move(found)));
}

GuardScope::GuardScope() { violations_of_scope = &violations_; }
GuardScope::~GuardScope() { violations_of_scope = nullptr; }

}  // namespace engine::test
