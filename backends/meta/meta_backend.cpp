#include "backends/meta/meta_backend.h"

#include "core/backend.h"
#include "core/error.h"

namespace engine::meta {

namespace {

class MadeUpMemory : public RawMemory {
 public:
  // Every block gets addresses of its own, far from zero, which are never read or written.
  void* allocate(size_t bytes) override {
    const uintptr_t address = next_;
    next_ += bytes;
    return reinterpret_cast<void*>(address);
  }
  void release(void*, size_t) override {}
  int64_t free_bytes() override { return INT64_MAX; }

 private:
  uintptr_t next_ = uintptr_t{1} << 32;
};

// There is no time on this device: all marks are the same moment.
class NoTimer : public DeviceTimer {
 public:
  int64_t mark() override { return 0; }
  int64_t nanoseconds(int64_t mark) override { return mark; }
};

class MetaBackend : public Backend {
 public:
  Device device() const override { return kMeta; }
  CachingAllocator& allocator() override { return allocator_; }
  // Every op, fused ones too, has a kernel: the one that does nothing.
  Kernel kernel(OpId) const override {
    return [](KernelArgs& args) { args.implementation = "meta"; };
  }
  DeviceTimer& timer() override { return timer_; }
  void synchronize() override {}
  void copy_from_host(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {
    fail("meta", "expected a device with values, this one has none");
  }

 private:
  MadeUpMemory memory_;
  CachingAllocator allocator_{memory_};
  NoTimer timer_;
};

}  // namespace

void register_backend() {
  if (!has_backend(DeviceKind::meta)) engine::register_backend(std::make_unique<MetaBackend>());
}

}  // namespace engine::meta
