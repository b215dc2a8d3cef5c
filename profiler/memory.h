// What a byte of device memory is for, and how many there are: the vocabulary that the allocators,
// the events and the reports share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace engine {

enum class MemoryCategory : uint8_t {
  parameter,
  gradient,
  optimizer_state,
  activation,
  workspace,
  input,
};
inline constexpr int kMemoryCategories = 6;

/// "parameter", "gradient", "optimizer state", "activation", "workspace" or "input".
const char* name(MemoryCategory category);

/// Bytes of one category. `requested` is what was asked for, `allocated` is that rounded up to the
/// blocks handed out; so requested <= allocated. Peaks are each category's own, not simultaneous.
struct MemoryUse {
  int64_t requested = 0;
  int64_t allocated = 0;
  int64_t peak_requested = 0;
  int64_t peak_allocated = 0;
};

/// A device's memory at one moment. `reserved` is what the allocator holds from the system, cached
/// free blocks included; so total.allocated <= reserved.
struct MemorySnapshot {
  std::array<MemoryUse, kMemoryCategories> category;
  MemoryUse total;
  /// The categories' allocated bytes at the moment when total.allocated was at its peak: these add
  /// up to total.peak_allocated.
  std::array<int64_t, kMemoryCategories> at_peak{};
  int64_t reserved = 0;
  int64_t peak_reserved = 0;

  const MemoryUse& operator[](MemoryCategory c) const { return category[static_cast<size_t>(c)]; }
};

/// Resident set size of this process in bytes now, and its highest value so far (Linux; 0 where the
/// system does not tell).
struct ResidentSetSize {
  int64_t current = 0;
  int64_t peak = 0;
};
ResidentSetSize resident_set_size();

}  // namespace engine
