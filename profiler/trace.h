// The timeline of recorded steps for a trace viewer (ui.perfetto.dev, chrome://tracing), in the
// JSON of the Trace Event Format. One process has these tracks:
//
//   steps           a slice for each step, unprofiled ones too
//   host            the events as they nested; an arrow leads from each forward op to its backward
//   device NAME     the kernels of each device
//   device memory   a counter, MiB: the highest total on the device during each op
//
// Times are microseconds since the first step of the recording began, to the nanosecond. The args
// of a host slice hold all else that is known of the event; a device slice names its event.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/profiler.h"

namespace engine {

struct TraceOptions {
  int64_t first_step = 0;  ///< StepRecord::index; 0: from the first recorded one
  int64_t last_step = 0;   ///< inclusive; 0: to the last recorded one
  /// Bytes of JSON, before any compression. What does not fit is left out from the end; the trace's
  /// otherData then says how many events, and the file is valid all the same.
  int64_t max_bytes = int64_t{64} << 20;
};

/// The JSON text. Throws std::runtime_error if max_bytes does not even hold a trace without events,
/// or if the recording is malformed (see tensor_shapes and module_path_of in report.h).
std::string trace_json(const Recording& recording, const TraceOptions& options = {});

/// Writes it to `path`, replacing the file whole or not at all; with gzip where the name ends in
/// ".gz". Throws std::runtime_error also where the file cannot be written.
void write_trace(const Recording& recording, const std::string& path,
                 const TraceOptions& options = {});

}  // namespace engine
