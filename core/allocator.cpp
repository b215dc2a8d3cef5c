#include "core/allocator.h"

#include <algorithm>

#include "core/error.h"

namespace engine {

size_t CachingAllocator::rounded(size_t bytes) {
  const size_t unit = bytes <= (size_t{1} << 20) ? 512 : size_t{64} << 10;
  return (bytes + unit - 1) / unit * unit;
}

void* CachingAllocator::take_cached(size_t& size) {
  // An emptied list stays in the map: the next step frees a block of its size again.
  const size_t largest = size + size / 4;
  for (auto list = cache_.lower_bound(size); list != cache_.end() && list->first <= largest;
       ++list) {
    if (list->second.empty()) continue;
    void* pointer = list->second.back();
    list->second.pop_back();
    size = list->first;
    cached_ -= static_cast<int64_t>(size);
    return pointer;
  }
  return nullptr;
}

void CachingAllocator::trim(size_t incoming) {
  const int64_t wanted = use_.total.allocated + static_cast<int64_t>(incoming);
  const int64_t limit = std::max(use_.total.peak_allocated, wanted) / 4 * 5;
  while (cached_ > 0 && use_.reserved + static_cast<int64_t>(incoming) > limit) {
    const auto largest = std::prev(cache_.end());
    if (!largest->second.empty()) {
      raw_.release(largest->second.back(), largest->first);
      largest->second.pop_back();
      cached_ -= static_cast<int64_t>(largest->first);
      use_.reserved -= static_cast<int64_t>(largest->first);
    }
    if (largest->second.empty()) cache_.erase(largest);
  }
}

Block CachingAllocator::allocate(size_t bytes, MemoryCategory category) {
  Block block{nullptr, bytes, 0, category};
  if (bytes == 0) return block;
  check(bytes < (size_t{1} << 62), "allocator", "expected a size below 2^62 bytes, got {}", bytes);
  const std::lock_guard lock(mutex_);
  block.size = rounded(bytes);
  block.pointer = take_cached(block.size);
  if (block.pointer == nullptr) {
    trim(block.size);
    block.pointer = raw_.allocate(block.size);
    if (block.pointer == nullptr) {
      flush();
      block.pointer = raw_.allocate(block.size);
    }
    if (block.pointer == nullptr) {
      throw OutOfMemoryError(fmt::format(
          "out of memory: requested {} bytes for {}; allocated {}, reserved {}, free {} bytes. "
          "Use a smaller batch or a smaller input",
          bytes, name(category), use_.total.allocated, use_.reserved, raw_.free_bytes()));
    }
    use_.reserved += static_cast<int64_t>(block.size);
    use_.peak_reserved = std::max(use_.peak_reserved, use_.reserved);
  }
  count(block, 1);
  return block;
}

void CachingAllocator::release(const Block& block) {
  if (block.pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  count(block, -1);
  cache_[block.size].push_back(block.pointer);
  cached_ += static_cast<int64_t>(block.size);
}

void CachingAllocator::count(const Block& block, int sign) {
  const int64_t requested = static_cast<int64_t>(block.requested) * sign;
  const int64_t allocated = static_cast<int64_t>(block.size) * sign;
  const auto apply = [&](MemoryUse& use) {
    use.requested += requested;
    use.allocated += allocated;
    use.peak_requested = std::max(use.peak_requested, use.requested);
    use.peak_allocated = std::max(use.peak_allocated, use.allocated);
  };
  apply(use_.category[static_cast<size_t>(block.category)]);
  const int64_t old_peak = use_.total.peak_allocated;
  apply(use_.total);
  if (use_.total.peak_allocated > old_peak) {
    for (size_t i = 0; i < kMemoryCategories; ++i) use_.at_peak[i] = use_.category[i].allocated;
  }
  if (block.category == MemoryCategory::input) return;  // other threads prepare batches meanwhile
  window_peak_ = std::max(window_peak_, allocated_by_ops());
  (sign > 0 ? flow_.allocated : flow_.freed) += static_cast<int64_t>(block.size);
}

void CachingAllocator::release_cache() {
  const std::lock_guard lock(mutex_);
  flush();
}

void CachingAllocator::flush() {
  for (auto& [size, pointers] : cache_) {
    for (void* pointer : pointers) raw_.release(pointer, size);
    use_.reserved -= static_cast<int64_t>(size * pointers.size());
  }
  cache_.clear();
  cached_ = 0;
}

MemorySnapshot CachingAllocator::snapshot() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void CachingAllocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  const auto restart = [](MemoryUse& use) {
    use.peak_requested = use.requested;
    use.peak_allocated = use.allocated;
  };
  for (MemoryUse& use : use_.category) restart(use);
  restart(use_.total);
  for (size_t i = 0; i < kMemoryCategories; ++i) use_.at_peak[i] = use_.category[i].allocated;
  use_.peak_reserved = use_.reserved;
}

MemoryFlow CachingAllocator::flow() const {
  const std::lock_guard lock(mutex_);
  return flow_;
}

int64_t CachingAllocator::exchange_window_peak() {
  const std::lock_guard lock(mutex_);
  const int64_t outer = window_peak_;
  window_peak_ = allocated_by_ops();
  return outer;
}

int64_t CachingAllocator::merge_window_peak(int64_t outer) {
  const std::lock_guard lock(mutex_);
  const int64_t inner = window_peak_;
  window_peak_ = std::max(inner, outer);
  return inner;
}

}  // namespace engine
