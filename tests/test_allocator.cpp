// The caching allocator over a device of made-up memory that keeps books.
#include <map>
#include <thread>

#include "core/allocator.h"
#include "core/error.h"
#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

// Addresses without memory behind them; of at most `capacity` bytes at a time.
class MadeUpMemory : public RawMemory {
 public:
  explicit MadeUpMemory(int64_t capacity = int64_t{1} << 50) : capacity_(capacity) {}

  void* allocate(size_t bytes) override {
    if (used_ + static_cast<int64_t>(bytes) > capacity_) return nullptr;
    used_ += static_cast<int64_t>(bytes);
    void* pointer = reinterpret_cast<void*>(next_);
    next_ += bytes;
    blocks_[pointer] = bytes;
    return pointer;
  }
  void release(void* pointer, size_t bytes) override {
    const auto block = blocks_.find(pointer);
    consistent_ &= block != blocks_.end() && block->second == bytes;
    blocks_.erase(pointer);
    used_ -= static_cast<int64_t>(bytes);
  }
  int64_t free_bytes() override { return capacity_ - used_; }
  int64_t used() const { return used_; }
  /// Whether all that came back had been given, once, with that size.
  bool consistent() const { return consistent_; }

 private:
  int64_t capacity_;
  int64_t used_ = 0;
  bool consistent_ = true;
  uintptr_t next_ = 4096;
  std::map<void*, size_t> blocks_;
};

constexpr MemoryCategory kActivation = MemoryCategory::activation;
constexpr size_t kMiB = size_t{1} << 20, kKiB = 1024;

}  // namespace

TEST_CASE("allocator: sizes are rounded up") {
  MadeUpMemory memory;
  CachingAllocator allocator(memory);
  const std::pair<size_t, size_t> sizes[] = {{1, 512},
                                             {512, 512},
                                             {513, 1024},
                                             {kMiB - 1, kMiB},
                                             {kMiB, kMiB},
                                             {kMiB + 1, kMiB + 64 * kKiB},
                                             {3 * kMiB, 3 * kMiB}};
  for (const auto& [requested, rounded] : sizes) {
    const Block block = allocator.allocate(requested, kActivation);
    CHECK(block.requested == requested);
    CHECK(block.size == rounded);
    const MemorySnapshot s = allocator.snapshot();
    CHECK(s.total.requested == static_cast<int64_t>(requested));
    CHECK(s.total.allocated == static_cast<int64_t>(rounded));
    CHECK(s.total.allocated <= s.reserved);
    CHECK(s.reserved == memory.used());
    allocator.release(block);
    allocator.release_cache();
  }
  CHECK(memory.used() == 0);
  CHECK(memory.consistent());
  const Block nothing = allocator.allocate(0, kActivation);
  CHECK(nothing.pointer == nullptr);
  allocator.release(nothing);
  CHECK(allocator.snapshot().total.allocated == 0);
  check_error([&] { allocator.allocate(size_t{1} << 62, kActivation); }, {"[allocator]", "2^62"});
}

TEST_CASE("allocator: freed blocks are used again, the best fit, with a bound on waste") {
  MadeUpMemory memory;
  CachingAllocator allocator(memory);
  const Block large = allocator.allocate(5 * kKiB, kActivation),
              wide = allocator.allocate(4608, kActivation);
  allocator.release(large);
  allocator.release(wide);
  const Block fit = allocator.allocate(4 * kKiB, kActivation);
  CHECK(fit.pointer == wide.pointer);  // 4608 is closer to 4096 than 5120 is
  CHECK(fit.size == 4608);
  const Block quarter = allocator.allocate(4 * kKiB, kActivation);
  CHECK(quarter.pointer == large.pointer);  // 5120 is exactly a quarter more
  CHECK(memory.used() == 5 * 1024 + 4608);
  allocator.release(quarter);
  const Block smaller = allocator.allocate(3584, kActivation);
  CHECK(smaller.pointer != large.pointer);  // 5120 would waste more than a quarter
  CHECK(smaller.size == 3584);
  for (const Block& block : {fit, smaller}) allocator.release(block);
}

TEST_CASE("allocator: the cache does not grow beyond a quarter of the peak") {
  MadeUpMemory memory;
  CachingAllocator allocator(memory);
  // Sizes that never fit one another, as inputs of changing size would ask for.
  for (size_t size = 64 * kMiB; size >= kMiB; size /= 2)
    allocator.release(allocator.allocate(size, kActivation));
  CHECK(memory.used() <= static_cast<int64_t>(64 * kMiB / 4 * 5));
  CHECK(allocator.snapshot().reserved == memory.used());
  // The same step again and again asks the system for nothing.
  std::vector<int64_t> used;
  for (int step = 0; step < 3; ++step) {
    std::vector<Block> blocks;
    for (const size_t size : {3 * kMiB, 5 * kMiB, 700 * kKiB, kKiB})
      blocks.push_back(allocator.allocate(size, kActivation));
    for (const Block& block : blocks) allocator.release(block);
    used.push_back(memory.used());
  }
  CHECK(used[1] == used[0]);
  CHECK(used[2] == used[0]);
  CHECK(memory.consistent());
}

TEST_CASE("allocator: a full device gets its cache back and is asked once more") {
  MadeUpMemory memory(1024 * kKiB);
  CachingAllocator allocator(memory);
  const Block held = allocator.allocate(256 * kKiB, kActivation);
  allocator.release(allocator.allocate(512 * kKiB, kActivation));
  const Block block = allocator.allocate(700 * kKiB, kActivation);
  CHECK(memory.used() == static_cast<int64_t>(956 * kKiB));
  try {
    allocator.allocate(100 * kKiB, MemoryCategory::workspace);
    FAIL("there was no room");
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    for (const char* part : {"requested 102400 bytes for workspace", "allocated 978944",
                             "reserved 978944", "free 69632"}) {
      CHECK_THAT(text, ContainsSubstring(part));
    }
  }
  // Nothing was lost or counted, and there is room again once something is freed.
  CHECK(allocator.snapshot().total.allocated == static_cast<int64_t>(956 * kKiB));
  allocator.release(held);
  const Block small = allocator.allocate(100 * kKiB, kActivation);
  for (const Block& b : {block, small}) allocator.release(b);
  allocator.release_cache();
  CHECK(memory.used() == 0);
  CHECK(memory.consistent());
}

TEST_CASE("allocator: bytes are counted by category, with peaks") {
  MadeUpMemory memory;
  CachingAllocator allocator(memory);
  const Block weights = allocator.allocate(1000, MemoryCategory::parameter);
  const Block first = allocator.allocate(2000, kActivation),
              second = allocator.allocate(700, kActivation);
  allocator.release(first);
  const Block gradient = allocator.allocate(300, MemoryCategory::gradient);
  const MemorySnapshot s = allocator.snapshot();
  CHECK(s[MemoryCategory::parameter].requested == 1000);
  CHECK(s[MemoryCategory::parameter].allocated == 1024);
  CHECK(s[kActivation].requested == 700);
  CHECK(s[kActivation].allocated == 1024);
  CHECK(s[kActivation].peak_requested == 2700);
  CHECK(s[kActivation].peak_allocated == 3072);
  CHECK(s[MemoryCategory::gradient].allocated == 512);
  CHECK(s.total.requested == 2000);
  CHECK(s.total.allocated == 2560);
  CHECK(s.total.peak_allocated == 4096);
  CHECK(s.total.peak_requested == 3700);
  CHECK(s.peak_reserved >= s.reserved);
  int64_t at_peak = 0;
  for (const int64_t bytes : s.at_peak) at_peak += bytes;
  CHECK(at_peak == s.total.peak_allocated);
  CHECK(s.at_peak[static_cast<size_t>(MemoryCategory::gradient)] == 0);  // came after the peak

  allocator.reset_peaks();
  CHECK(allocator.snapshot().total.peak_allocated == 2560);
  CHECK(allocator.snapshot()[kActivation].peak_requested == 700);

  // The window's peak, nested: an inner window sees its own, the outer one both.
  allocator.exchange_window_peak();
  const int64_t outer = allocator.exchange_window_peak();
  const Block brief = allocator.allocate(5000, MemoryCategory::workspace);
  allocator.release(brief);
  CHECK(allocator.merge_window_peak(outer) == 2560 + 5120);
  const int64_t quiet = allocator.exchange_window_peak();
  CHECK(quiet == 2560 + 5120);
  CHECK(allocator.merge_window_peak(quiet) == 2560);

  const MemoryFlow flow = allocator.flow();
  CHECK(flow.allocated - flow.freed == 2560);
  for (const Block& block : {weights, second, gradient}) allocator.release(block);
  CHECK(allocator.snapshot().total.allocated == 0);
  CHECK(allocator.snapshot().total.requested == 0);
}

TEST_CASE("allocator: several threads at once") {
  MadeUpMemory memory;
  CachingAllocator allocator(memory);
  std::vector<std::thread> threads;
  for (size_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&allocator, t] {
      std::vector<Block> blocks;
      for (size_t i = 0; i < 2000; ++i) {
        blocks.push_back(allocator.allocate((i * t) % 9000 + 1, kActivation));
        if (i % 3 != 0) {
          allocator.release(blocks.back());
          blocks.pop_back();
        }
      }
      for (const Block& block : blocks) allocator.release(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(allocator.snapshot().total.allocated == 0);
  allocator.release_cache();
  CHECK(memory.used() == 0);
  CHECK(memory.consistent());
}

}  // namespace engine::test
