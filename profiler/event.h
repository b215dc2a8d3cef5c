// The record of one thing that happened during a step. Everything that the reports, the trace and
// the comparison print is derived from a list of these; nothing is measured a second way.
#pragma once

#include <cstdint>

namespace engine {

/// What part of a training step an event belongs to.
enum class Phase : uint8_t { other, data, forward, loss, backward, optimizer, copy };
inline constexpr int kPhases = 7;
const char* name(Phase phase);

/// - op: one kernel of one op (a view op has an event and no kernel; its implementation is "view");
/// - group: the ops that one op stands for: the parts of a decomposed fused op, or the backward ops
///   of one forward op. It carries that op's name;
/// - range: host work between ops, such as waiting for a batch.
enum class EventKind : uint8_t { op, group, range };
const char* name(EventKind kind);

/// Whether an op that has a decomposition ran as one kernel or as its parts; `plain` for all
/// others.
enum class Variant : uint8_t { plain, fused, decomposed };
const char* name(Variant variant);

/// A list of tensor shapes and dtypes in Recording::shape_pool, starting at `offset`: for each
/// tensor its dtype name's index in Recording::dtype_names, its rank, then its dimensions.
struct ShapeList {
  int64_t offset = 0;
  int32_t tensors = 0;
};

/// Times are in nanoseconds of std::chrono::steady_clock. Ids are positive and grow in the order in
/// which events begin; 0 means "none".
struct Event {
  int64_t id = 0;
  int64_t parent = 0;
  int64_t forward_id = 0;           ///< on a backward event, the forward event that it belongs to
  int64_t step = 0;                 ///< StepRecord::index
  const char* op = "";              ///< static storage
  const char* device = "";          ///< "cpu", "cuda:0", "meta"; empty on a range
  const char* implementation = "";  ///< "own", "onednn:<impl>", "eigen", "view", ...; interned
  int32_t module = 0;               ///< index into Recording::module_paths; 0 is ""
  EventKind kind = EventKind::op;
  Phase phase = Phase::other;
  Variant variant = Variant::plain;
  ShapeList inputs, outputs;

  int64_t host_begin_ns = 0, host_end_ns = 0;
  int64_t device_begin_ns = 0, device_end_ns = 0;  ///< both 0 where no kernel ran

  int64_t flops = 0;  ///< 1 multiply-add = 2
  int64_t bytes_read = 0, bytes_written = 0;

  // Of the device's memory, without batches of input (worker threads prepare those meanwhile):
  int64_t allocated_bytes = 0, freed_bytes = 0;  ///< during the event
  int64_t peak_bytes = 0;     ///< highest total of allocated bytes during the event
  int64_t scratch_bytes = 0;  ///< workspace that the kernel asked for; gone at its end
  int64_t saved_bytes = 0;    ///< kept for backward by this op (inputs and outputs it holds on to)
};

/// One training step as the training loop saw it. `wall_ns` ends after the device has finished; it
/// is 0 for a step that an error ended.
struct StepRecord {
  int64_t index = 0;  ///< global step number, from 1
  int64_t begin_ns = 0;
  int64_t wall_ns = 0;
  bool warmup = false;    ///< before the measured part: library start-up and autotuning happen here
  bool profiled = false;  ///< its events were recorded; the others measure the profiler's own cost
  double loss = 0;        ///< as read at the step's end; 0 with has_loss false when it was not read
  bool has_loss = false;
};

}  // namespace engine
