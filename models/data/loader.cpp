#include "models/data/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/context.h"
#include "core/error.h"
#include "core/random.h"

namespace engine {

DataLoader::DataLoader(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset), options_(options) {
  check(options.batch_size >= 1, "loader", "expected a batch size of at least 1, got {}",
        options.batch_size);
  check(options.workers >= 0, "loader", "expected 0 or more workers, got {}", options.workers);
  const int64_t size = dataset.size();
  check(size >= 1, "loader", "expected a data set of at least one sample, got {}", size);
  batches_ = (size - 1) / options.batch_size + 1;
  claimed_ = taken_ = batches_;  // nothing to do before the first epoch
  slots_.resize(2 * static_cast<size_t>(options.workers));
  workers_.reserve(static_cast<size_t>(options.workers));
  for (int i = 0; i < options.workers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

DataLoader::~DataLoader() {
  // All at once; the threads' own destructors would stop and await one after the other.
  for (std::jthread& worker : workers_) worker.request_stop();
}

void DataLoader::start_epoch(int64_t epoch, int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= batches_, "loader",
        "expected one of {} batches to begin with, got {}", batches_, first_batch);
  const int64_t size = dataset_.size();
  // Keys of its own for each epoch: counters within (seed) belong to other users of the seed.
  const auto key = philox(options_.seed, static_cast<uint64_t>(epoch));
  std::vector<int64_t> order;
  if (options_.shuffle) {
    order = random_permutation(size, {uint64_t{key[0]} << 32 | key[1], 0});
  } else {
    order.resize(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), int64_t{0});
  }

  std::unique_lock lock(mutex_);
  claimed_ = batches_;
  cancel_ = true;
  done_.wait(lock, [this] { return busy_ == 0; });
  cancel_ = false;
  order_ = std::move(order);
  sample_seed_ = uint64_t{key[2]} << 32 | key[3];
  std::fill(slots_.begin(), slots_.end(), Slot{});
  claimed_ = taken_ = first_batch;
  work_.notify_all();
}

std::optional<Batch> DataLoader::next() {
  check(!order_.empty(), "loader", "expected start_epoch() before next(), got next() first");
  if (taken_ == batches_) return std::nullopt;
  if (workers_.empty()) {
    std::optional<Batch> batch = make(taken_, {});
    ++taken_;
    return batch;
  }
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(taken_) % slots_.size()];
  done_.wait(lock, [&slot] { return slot.batch || slot.error; });
  if (slot.error) std::rethrow_exception(slot.error);
  std::optional<Batch> batch = std::exchange(slot.batch, std::nullopt);
  ++taken_;
  work_.notify_one();
  return batch;
}

// Nothing when it was told to stop.
std::optional<Batch> DataLoader::make(int64_t batch, const std::stop_token& stop) const {
  const int64_t first = batch * options_.batch_size;
  const int64_t count = std::min(options_.batch_size, static_cast<int64_t>(order_.size()) - first);
  const SampleTensor input = dataset_.input(), target = dataset_.target();
  const ContextScope memory(&Context::memory, MemoryCategory::input);
  Batch result{empty(input.batched(count), input.dtype),
               empty(target.batched(count), target.dtype)};
  auto* inputs = static_cast<std::byte*>(result.inputs.raw());
  auto* targets = static_cast<std::byte*>(result.targets.raw());
  for (int64_t i = 0; i < count; ++i) {
    if (cancel_.load(std::memory_order_relaxed) || stop.stop_requested()) return std::nullopt;
    const int64_t index = order_[static_cast<size_t>(first + i)];
    dataset_.read(index, {sample_seed_, static_cast<uint64_t>(index) * kCountersOfASample},
                  inputs + i * input.bytes(), targets + i * target.bytes());
  }
  return result;
}

void DataLoader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto may_claim = [this] {
    return claimed_ < batches_ && claimed_ < taken_ + static_cast<int64_t>(slots_.size());
  };
  while (work_.wait(lock, stop, may_claim) && !stop.stop_requested()) {
    const int64_t batch = claimed_++;
    ++busy_;
    lock.unlock();
    Slot made;
    try {
      made.batch = make(batch, stop);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    --busy_;
    // If start_epoch is waiting for this worker, it empties the slot next.
    slots_[static_cast<size_t>(batch) % slots_.size()] = std::move(made);
    done_.notify_one();
  }
}

}  // namespace engine
