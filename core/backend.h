// What a device must offer. Narrow on purpose: one lookup gives the kernel of an op or nothing, so
// a new op changes no interface.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/allocator.h"
#include "core/attrs.h"
#include "core/op_list.h"
#include "core/tensor.h"
#include "profiler/profiler.h"

namespace engine {

/// Workspace of one kernel call; it dies with the call.
class Scratch {
 public:
  explicit Scratch(CachingAllocator& allocator) : allocator_(allocator) {}
  ~Scratch() { release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// 64-byte aligned, contents unspecified; null for 0 bytes.
  void* get(size_t bytes) {
    blocks_.push_back(allocator_.allocate(bytes, MemoryCategory::workspace));
    total_ += static_cast<int64_t>(blocks_.back().size);
    return blocks_.back().pointer;
  }
  /// Memory for `count` values.
  template <class T>
  T* array(int64_t count) {
    return static_cast<T*>(get(static_cast<size_t>(count) * sizeof(T)));
  }
  /// Gives back all that was got, for another try with less.
  void release() {
    for (const Block& block : blocks_) allocator_.release(block);
    blocks_.clear();
    total_ = 0;
  }
  int64_t total() const { return total_; }

 private:
  CachingAllocator& allocator_;
  std::vector<Block> blocks_;
  int64_t total_ = 0;
};

/// What a kernel gets: checked inputs, allocated outputs. An input may be undefined where the op
/// has an optional argument; an output may be undefined where the op does not need it.
struct KernelArgs {
  std::span<const Tensor> inputs;
  std::span<Tensor> outputs;
  const Attrs& attrs;
  Scratch& scratch;
  /// Whose code ran, set by the kernel: "own", "onednn:<impl>", "eigen". Must outlive the run.
  const char* implementation = "own";
};

using Kernel = void (*)(KernelArgs&);

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual CachingAllocator& allocator() = 0;
  /// The kernel of an op, or null when this device has none.
  virtual Kernel kernel(OpId op) const = 0;
  virtual DeviceTimer& timer() = 0;
  /// Waits until all kernels have finished.
  virtual void synchronize() = 0;
  virtual void copy_from_host(void* destination, const void* source, size_t bytes) = 0;
  virtual void copy_to_host(void* destination, const void* source, size_t bytes) = 0;
};

/// Makes a device usable. Called once, before any tensor is made on it.
void register_backend(std::unique_ptr<Backend> backend);
/// Throws Error when the device's backend was not registered.
Backend& backend(Device device);
bool has_backend(DeviceKind kind);

}  // namespace engine
