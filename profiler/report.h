// Turns a Recording into figures: what each op, each phase and each step cost. The printed table
// and the JSON file are two forms of the same Aggregate.
//
// How the figures add up. Every event has a host interval inside that of its parent. Its self time
// is that interval without its children's, its total time is the whole of it. So over all events of
// a step the self times add up to the top-level intervals, and with "unaccounted", the rest of the
// step, to the step's wall time. Rows are given as means per step, because means keep that sum and
// medians do not. Quartiles are by linear interpolation between the sorted samples (type 7 of
// Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996).
//
// Measured steps are those after the warm-up that were profiled and came to their end; only their
// events are in rows and phases. A step that an error ended has wall_ns = 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/profiler.h"

namespace engine {

/// What the figures mean, one rule a line; printed with every report and kept in every file.
std::span<const char* const> profile_rules();

/// Of one sample a step. All 0 where n is 0.
struct Statistics {
  int64_t n = 0;
  double mean = 0, min = 0, q1 = 0, median = 0, q3 = 0, max = 0;
};
Statistics statistics(std::vector<double> samples);

/// Sums over a row's events, per step. The rates are over device time and leave out events in which
/// no kernel ran; they are empty where there is no device time, or nothing was computed or moved.
struct Totals {
  Statistics host_us, device_us;
  double gflop = 0;  ///< 1 multiply-add = 2 FLOP
  double bytes_read = 0, bytes_written = 0;
  double allocated_bytes = 0, freed_bytes = 0, saved_bytes = 0;
  std::optional<double> gflop_per_s;
  std::optional<double> gb_per_s;  ///< read and written; GB = 1e9 bytes
};

/// One row: the events of equal op, phase and kind (a group and an op of one name differ: a group
/// is not a kernel), and of equal module path where it was asked for.
struct OpRow {
  std::string op;
  Phase phase = Phase::other;
  EventKind kind = EventKind::op;
  std::string module;          ///< empty unless grouped by module
  std::string variant;         ///< "plain", "fused" or "decomposed"; "mixed" where events differ
  std::string implementation;  ///< "" where no kernel ran; "mixed" where events differ
  std::vector<std::string> implementations;  ///< all of them, sorted
  Statistics calls;                          ///< per step
  Totals self;   ///< without the events inside; over all rows these add up
  Totals total;  ///< with the events inside; an event inside another of its own row counts once
  double self_wall_percent = 0, total_wall_percent = 0;  ///< of host_us, of the mean wall time
  int64_t peak_bytes = 0;     ///< highest total on the device during one of the events
  int64_t scratch_bytes = 0;  ///< largest workspace of one call
};

struct PhaseRow {
  Totals self;
  double self_wall_percent = 0;
};

enum class Grouping : uint8_t { op_phase, op_phase_module };

struct Aggregate {
  Statistics wall_us;            ///< of the measured steps: after the warm-up, profiled
  Statistics wall_off_us;        ///< after the warm-up, not profiled
  Statistics wall_warmup_us;     ///< warm-up steps, profiled or not
  int64_t unfinished_steps = 0;  ///< ended by an error; in none of the figures
  /// What profiling adds to the median step: wall_us.median against wall_off_us.median. Empty if
  /// either is missing.
  std::optional<double> profiler_cost_percent;

  std::vector<OpRow> rows;  ///< longest self host time first
  std::array<PhaseRow, kPhases> phases;
  Totals sum;                 ///< of all events
  Statistics unaccounted_us;  ///< wall minus top-level events; sum.host_us + this = wall_us (means)
  double unaccounted_percent = 0;
};

/// Throws std::runtime_error if the recording breaks the rules of event.h: a parent that is not an
/// earlier event of the same step, an event of an unknown step, children longer than their parent,
/// events longer than their step, a module index out of range.
Aggregate aggregate(const Recording& recording, Grouping grouping);

/// The report as text, for a terminal of about 120 columns. Says so if nothing was measured.
/// Throws what aggregate throws.
std::string report_table(const Recording& recording);

struct TensorShape {
  std::string dtype;
  std::vector<int64_t> dims;
};
/// The tensors of `list`. Throws std::runtime_error if it does not lie in recording.shape_pool, or
/// names a dtype that recording.dtype_names does not have.
std::vector<TensorShape> tensor_shapes(const Recording& recording, const ShapeList& list);

/// The module path of an event. Throws std::runtime_error if recording.module_paths lacks it.
const std::string& module_path_of(const Recording& recording, const Event& event);

/// Whether the event's device times are those of a kernel that ran to its end.
inline bool has_kernel(const Event& event) {
  return event.device_end_ns > 0 && event.device_end_ns >= event.device_begin_ns;
}

/// Whether the step came to its end. Of one that did not, device times were never resolved.
inline bool finished(const StepRecord& step) { return step.wall_ns > 0; }

}  // namespace engine
