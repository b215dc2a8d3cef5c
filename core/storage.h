// A piece of device memory with an owner count and a version.
#pragma once

#include <cstdint>

#include "core/allocator.h"
#include "core/device.h"
#include "core/ref.h"

namespace engine {

/// Returns its block to the allocator when the last tensor lets go. `version` grows with every
/// in-place change: a backward pass compares it to refuse values that are no longer what it saved.
class Storage : public RefCounted {
 public:
  Storage(Device device, CachingAllocator& allocator, size_t bytes, MemoryCategory category)
      : device_(device), allocator_(allocator), block_(allocator.allocate(bytes, category)) {}
  ~Storage() { allocator_.release(block_); }

  Device device() const { return device_; }
  void* data() const { return block_.pointer; }
  size_t bytes() const { return block_.requested; }
  MemoryCategory category() const { return block_.category; }
  uint32_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  Device device_;
  CachingAllocator& allocator_;
  Block block_;
  uint32_t version_ = 0;
};

}  // namespace engine
