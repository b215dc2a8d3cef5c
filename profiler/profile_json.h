// The profile as a file: everything that was recorded and everything the report says, as one JSON
// object. Times of events and steps are nanoseconds since the first step began. Schema, version 1:
//
//   format        "engine-profile"
//   version       1; rises when a reader of an older version would misread
//   rules         what the figures mean, in sentences
//   units         the unit of every kind of field, by its ending
//   run           {name: value}: what was run; all values are strings
//   steps         [{index, begin_ns, wall_ns, warmup, profiled, finished, loss}], in order; loss is
//                 null where it was not read or not finite; wall_ns is 0 where finished is false
//   event_fields  the names of an event's values, in order:
//                 id, parent (0: none), forward_id (0: none), step, kind, phase, op, module,
//                 device, variant, implementation, host_begin_ns, host_end_ns, device_begin_ns,
//                 device_end_ns (null where no kernel ran), flops, bytes_read, bytes_written,
//                 allocated_bytes, freed_bytes, peak_bytes, scratch_bytes, saved_bytes, inputs,
//                 outputs (a list of tensors, each [dtype, dim, ...])
//   events        [[value, ...]], one event a line, in order of beginning
//   summary       {measured_steps, wall_us, wall_profiler_off_us, wall_warmup_us, unfinished_steps,
//                 profiler_cost_percent, sum, unaccounted_us, unaccounted_wall_percent}
//   phases        [{phase, wall_percent, self}], the seven phases
//   rows          {op_phase: [row], op_phase_module: [row]}, longest self host time first; a row is
//                 {op, phase, kind, module (op_phase_module only), variant, implementations,
//                 calls, self_wall_percent, total_wall_percent, self, total, peak_bytes,
//                 scratch_bytes}
//   memory        {categories: [{category, at_peak_allocated_bytes, requested_bytes,
//                 allocated_bytes, peak_requested_bytes, peak_allocated_bytes}], total: {the same
//                 but category and at_peak}, reserved_bytes, peak_reserved_bytes}
//   rss           {current_bytes, peak_bytes}
//
// Statistics over steps (wall_us, calls, host_us, ...) are {n, mean, min, q1, median, q3, max}, or
// null where n would be 0. self, total and sum are {host_us, device_us, gflop, bytes_read,
// bytes_written, allocated_bytes, freed_bytes, saved_bytes, gflop_per_s, gb_per_s}: from gflop on
// means per step, and the two rates are null where report.h has none. No number is NaN or
// infinite.
#pragma once

#include <string>

#include "profiler/profiler.h"

namespace engine {

/// The JSON text. Throws what aggregate (report.h) and tensor_shapes throw.
std::string profile_json(const Recording& recording);

/// Writes it to `path`, replacing the file whole or not at all. Throws std::runtime_error also if
/// the file cannot be written.
void write_profile_json(const Recording& recording, const std::string& path);

}  // namespace engine
