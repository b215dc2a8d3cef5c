// Recordings built by hand for the profiler's tests, with figures that can be worked out on paper.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profiler.h"

namespace engine {

inline constexpr int64_t kUs = 1000;  // nanoseconds

/// Builds a recording in which every event begins where its last sibling ended.
class RecordingBuilder {
 public:
  Recording recording;

  RecordingBuilder() {
    recording.module_paths = {"", "conv1", "fc"};
    recording.dtype_names = {"f32", "i64"};
    recording.run = {{"model", "toy"}, {"batch size", "64"}};
  }

  void step(int64_t index, int64_t wall_us, bool warmup, bool profiled) {
    now_ = index * 1'000'000 * kUs;
    recording.steps.push_back(
        {index, now_, wall_us * kUs, warmup, profiled, /*loss=*/0.5, /*has_loss=*/true});
    open_.clear();
  }
  Event& begin(EventKind kind, const char* op, Phase phase) {
    Event event;
    event.id = static_cast<int64_t>(recording.events.size()) + 1;
    event.parent = open_.empty() ? 0 : open_.back();
    event.step = recording.steps.back().index;
    event.kind = kind;
    event.op = op;
    event.phase = phase;
    event.host_begin_ns = now_;
    open_.push_back(event.id);
    return recording.events.emplace_back(event);
  }
  void spend(int64_t us) { now_ += us * kUs; }
  void end() {
    recording.events[static_cast<size_t>(open_.back() - 1)].host_end_ns = now_;
    open_.pop_back();
  }
  /// An op without children. With device_us 0 no kernel ran.
  Event& op(const char* op, Phase phase, int64_t host_us, int64_t device_us, int64_t flops = 0) {
    Event& event = begin(EventKind::op, op, phase);
    event.flops = flops;
    if (device_us > 0) {
      event.device = "cpu";
      event.implementation = "own";
      event.device_begin_ns = now_ + kUs;
      event.device_end_ns = event.device_begin_ns + device_us * kUs;
    }
    spend(host_us);
    end();
    return event;
  }

 private:
  int64_t now_ = 0;
  std::vector<int64_t> open_;
};

/// Two measured steps, 2 (wall 1000 us) and 4 (1200 us), a warm-up step that must not count, and
/// two steps with the profiler off (980 and 1020 us).
inline RecordingBuilder two_steps() {
  RecordingBuilder b;
  b.step(1, 9000, /*warmup=*/true, /*profiled=*/true);
  b.op("conv2d", Phase::forward, 8000, 7000, 1'000'000'000);

  b.step(2, 1000, false, true);
  b.begin(EventKind::range, "data", Phase::data);
  b.spend(50);
  b.end();
  Event& conv = b.op("conv2d", Phase::forward, 300, 280, 560'000);
  conv.module = 1;
  conv.bytes_read = 100'000;
  conv.bytes_written = 40'000;
  conv.saved_bytes = 4096;
  conv.allocated_bytes = 8192;
  conv.scratch_bytes = 700;
  conv.peak_bytes = 50'000;
  const int64_t forward = conv.id;
  Event& group = b.begin(EventKind::group, "conv2d", Phase::backward);
  group.forward_id = forward;
  b.spend(30);
  b.op("conv2d_backward_weight", Phase::backward, 200, 190, 560'000).forward_id = forward;
  b.spend(20);
  b.op("conv2d_backward_data", Phase::backward, 150, 140, 560'000).forward_id = forward;
  b.end();
  b.op("sgd_", Phase::optimizer, 100, 80);
  b.op("copy_", Phase::copy, 40, 0);  // 890 us in all

  b.step(3, 980, false, false);

  b.step(4, 1200, false, true);
  b.op("conv2d", Phase::forward, 300, 280, 560'000).module = 1;
  b.op("conv2d", Phase::forward, 100, 90, 180'000).module = 2;
  b.begin(EventKind::group, "conv2d", Phase::backward);
  b.spend(50);
  b.op("conv2d_backward_weight", Phase::backward, 220, 200, 560'000);
  b.op("conv2d_backward_data", Phase::backward, 150, 140, 560'000);
  b.end();
  b.op("sgd_", Phase::optimizer, 100, 80);  // 920 us in all

  b.step(5, 1020, false, false);
  return b;
}

}  // namespace engine
