// The caching allocator: one per device. It keeps freed blocks for the next step, which asks for
// the same sizes again, and it counts every byte by what it is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "profiler/memory.h"

namespace engine {

/// Where a caching allocator gets its blocks: malloc, cudaMalloc, or made-up addresses (meta).
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  /// At least `bytes` bytes aligned to 64, or null when the device has no more.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* pointer, size_t bytes) = 0;
  /// Bytes that the device could still give, for the out-of-memory message.
  virtual int64_t free_bytes() = 0;
};

/// A piece of device memory on loan from its allocator.
struct Block {
  void* pointer = nullptr;
  size_t requested = 0;
  size_t size = 0;  ///< requested, rounded up
  MemoryCategory category = MemoryCategory::activation;
};

/// Sums that only grow, for the difference between two moments. Batches of input are left out:
/// worker threads prepare them at any time, and they would count as the work of whatever op was
/// running.
struct MemoryFlow {
  int64_t allocated = 0;
  int64_t freed = 0;
};

/// Sizes are rounded up to 512 bytes, above 1 MiB to 64 KiB. A free block serves a request if it is
/// at most a quarter larger than needed. When a new block would lift what is reserved above 1.25
/// times the peak in use, cached blocks go back to the system first; when the device is full, all
/// of them do and the request is tried once more. Safe to call from several threads.
class CachingAllocator {
 public:
  explicit CachingAllocator(RawMemory& raw) : raw_(raw) {}
  ~CachingAllocator() { release_cache(); }
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Throws OutOfMemoryError with what was requested, allocated, reserved and free. 0 bytes give a
  /// block with a null pointer.
  Block allocate(size_t bytes, MemoryCategory category);
  void release(const Block& block);
  /// Gives every cached block back to the system.
  void release_cache();

  MemorySnapshot snapshot() const;
  /// Starts all peaks anew from what is in use now.
  void reset_peaks();

  MemoryFlow flow() const;
  /// A second peak, of the total without batches of input, which may be restarted without touching
  /// the reported ones: nested users save what exchange_window_peak returns and hand it back
  /// through merge_window_peak.
  int64_t exchange_window_peak();
  int64_t merge_window_peak(int64_t outer);

 private:
  static size_t rounded(size_t bytes);
  void* take_cached(size_t& size);
  void trim(size_t incoming);
  void flush();
  void count(const Block& block, int sign);
  int64_t allocated_by_ops() const {
    return use_.total.allocated - use_[MemoryCategory::input].allocated;
  }

  RawMemory& raw_;
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> cache_;  // free blocks by size
  int64_t cached_ = 0;
  MemorySnapshot use_;
  MemoryFlow flow_;
  int64_t window_peak_ = 0;
};

}  // namespace engine
