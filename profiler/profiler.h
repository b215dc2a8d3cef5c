// Records events. `launch` (core) opens one Span around every kernel; the training loop marks the
// steps. With no profiler active on the thread a Span costs one branch.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/event.h"
#include "profiler/memory.h"

namespace engine {

/// Nanoseconds of steady_clock: the host clock of every event.
inline int64_t host_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Times kernels on a device without stopping it. `mark` notes a moment in the device's stream;
/// `nanoseconds` tells it on the host's clock, once the device has been synchronized.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  virtual int64_t mark() = 0;
  virtual int64_t nanoseconds(int64_t mark) = 0;
};

/// Everything that was recorded, and all that a report needs.
struct Recording {
  std::vector<Event> events;  ///< in order of beginning; events[i].id == i + 1
  std::vector<StepRecord> steps;
  std::vector<int64_t> shape_pool;        ///< see ShapeList
  std::vector<std::string> dtype_names;   ///< indexed by the dtype number in shape_pool
  std::vector<std::string> module_paths;  ///< indexed by Event::module
  /// What was run, in the order to print it: model, dataset, batch size, device, threads, versions.
  std::vector<std::pair<std::string, std::string>> run;
  MemorySnapshot memory;  ///< of the device, at the end
  ResidentSetSize rss;
};

class Profiler {
 public:
  Profiler();
  /// Ends recording, if an error left a step open.
  ~Profiler() {
    if (active_ == this) active_ = nullptr;
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// The profiler that records on this thread, or null.
  static Profiler* active() { return active_; }

  /// Marks a training step. Its events are recorded only where `profiled` is true: from begin_step
  /// to end_step the profiler is then active on the calling thread.
  void begin_step(int64_t index, bool warmup, bool profiled);
  /// Ends the step. The device must have been synchronized, as device times are resolved here.
  void end_step();
  /// Notes the loss of the step that ended last.
  void set_loss(double loss);

  /// Begins an event as a child of the innermost open one; returns its position. The reference of
  /// at() is valid until the next open.
  size_t open(EventKind kind, const char* op, Phase phase);
  Event& at(size_t position) { return recording_.events[position]; }
  /// Ends the event, which must be the innermost open one. Device marks in it are resolved later.
  void close(size_t position, DeviceTimer* timer = nullptr);

  /// Starts the description of a list of tensors; `add_shape` continues it.
  ShapeList begin_shapes() const;
  void add_shape(ShapeList& list, int dtype, const int64_t* dims, int rank);

  /// A copy of `text` that lives as long as the profiler; equal texts give the same pointer.
  const char* intern(std::string_view text);

  /// The recording; its names and memory are the caller's to fill in before it is reported.
  Recording& recording() { return recording_; }
  const Recording& recording() const { return recording_; }

 private:
  struct Unresolved {
    size_t position;
    DeviceTimer* timer;
  };
  static thread_local Profiler* active_;

  Recording recording_;
  std::vector<size_t> open_;            // stack of open events
  std::vector<Unresolved> unresolved_;  // events of this step whose device marks are still raw
  std::map<std::string, const char*, std::less<>> interned_;
  std::deque<std::string> texts_;
};

/// A host range, such as waiting for a batch. (`launch` uses the Profiler directly.)
class Span {
 public:
  Span(EventKind kind, const char* op, Phase phase) : profiler_(Profiler::active()) {
    if (profiler_ != nullptr) [[unlikely]]
      position_ = profiler_->open(kind, op, phase);
  }
  ~Span() {
    if (profiler_ != nullptr) [[unlikely]]
      profiler_->close(position_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  /// The open event, or null when nothing is recorded.
  Event* event() { return profiler_ != nullptr ? &profiler_->at(position_) : nullptr; }

 private:
  Profiler* profiler_;
  size_t position_ = 0;
};

}  // namespace engine
