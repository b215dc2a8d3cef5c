// Batches for training: a shuffled pass over a data set, prepared ahead by worker threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/tensor.h"
#include "models/data/dataset.h"

namespace engine {

/// n samples on the CPU, under MemoryCategory::input.
struct Batch {
  Tensor inputs;   ///< [n, ...]: the data set's input()
  Tensor targets;  ///< [n, ...]: its target()
};

struct LoaderOptions {
  int64_t batch_size = 64;
  int workers = 1;  ///< threads that prepare batches; 0: the caller of next() does
  bool shuffle = false;
  uint64_t seed = 0;
};

/// The batches of an epoch are a function of (seed, epoch) alone, whatever the number of workers,
/// which live as long as the loader. One thread at a time may call start_epoch and next. At most
/// 2 x workers batches are prepared or being prepared at any time. Needs the CPU backend.
class DataLoader {
 public:
  /// `dataset` must outlive the loader. Throws Error unless batch_size >= 1, workers >= 0 and the
  /// data set has a sample.
  DataLoader(const Dataset& dataset, LoaderOptions options);
  /// Waits for the samples that are being read, not for their batches.
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Starts over with this epoch's order, also in mid-epoch, at the batch of this number.
  void start_epoch(int64_t epoch, int64_t first_batch = 0);
  /// The next batch, or nothing at the epoch's end; the last batch may be smaller. What the data
  /// set threw while the batch was made is thrown here; the loader goes on with start_epoch.
  std::optional<Batch> next();
  /// Batches of an epoch, the smaller one included; at least 1.
  int64_t batches_per_epoch() const { return batches_; }

 private:
  // Where a batch waits for its turn; both empty while it is not ready.
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  std::optional<Batch> make(int64_t batch, const std::stop_token& stop) const;
  void work(const std::stop_token& stop);

  const Dataset& dataset_;
  const LoaderOptions options_;
  int64_t batches_ = 0;
  std::vector<int64_t> order_;  // changes only while no worker is busy, as does:
  uint64_t sample_seed_ = 0;    // of the samples' random streams in this epoch

  std::mutex mutex_;                  // guards what follows
  std::condition_variable_any work_;  // for the workers: there may be a batch to claim
  std::condition_variable done_;      // for the caller: a worker has finished a batch
  std::vector<Slot> slots_;           // batch i is in slot i mod size
  int64_t claimed_ = 0;               // batches that a worker has begun
  int64_t taken_ = 0;                 // batches that next() has given out
  int busy_ = 0;                      // workers that are making a batch
  std::atomic<bool> cancel_ = false;  // start_epoch waits for the workers to drop what they make

  std::vector<std::jthread> workers_;  // last: they stop before what they use goes
};

}  // namespace engine
