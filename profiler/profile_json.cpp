#include "profiler/profile_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "profiler/report.h"
#include "profiler/safe_file.h"

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

// Compact text. Names that are not UTF-8 must not cost the file: their bad bytes are replaced.
std::string text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json finite(double value) {
  if (!std::isfinite(value)) throw std::runtime_error("[profile_json] a figure is not finite");
  return value;
}

Json finite_or_null(const std::optional<double>& value) { return value ? finite(*value) : Json(); }

Json json(const Statistics& s) {
  if (s.n == 0) return nullptr;
  return {{"n", s.n},
          {"mean", finite(s.mean)},
          {"min", finite(s.min)},
          {"q1", finite(s.q1)},
          {"median", finite(s.median)},
          {"q3", finite(s.q3)},
          {"max", finite(s.max)}};
}

Json json(const Totals& t) {
  return {{"host_us", json(t.host_us)},
          {"device_us", json(t.device_us)},
          {"gflop", finite(t.gflop)},
          {"bytes_read", finite(t.bytes_read)},
          {"bytes_written", finite(t.bytes_written)},
          {"allocated_bytes", finite(t.allocated_bytes)},
          {"freed_bytes", finite(t.freed_bytes)},
          {"saved_bytes", finite(t.saved_bytes)},
          {"gflop_per_s", finite_or_null(t.gflop_per_s)},
          {"gb_per_s", finite_or_null(t.gb_per_s)}};
}

Json json(const OpRow& row, Grouping grouping) {
  Json j = {{"op", row.op}, {"phase", name(row.phase)}, {"kind", name(row.kind)}};
  if (grouping == Grouping::op_phase_module) j["module"] = row.module;
  j["variant"] = row.variant;
  j["implementations"] = row.implementations;
  j["calls"] = json(row.calls);
  j["self_wall_percent"] = finite(row.self_wall_percent);
  j["total_wall_percent"] = finite(row.total_wall_percent);
  j["self"] = json(row.self);
  j["total"] = json(row.total);
  j["peak_bytes"] = row.peak_bytes;
  j["scratch_bytes"] = row.scratch_bytes;
  return j;
}

Json json(const MemoryUse& use) {
  return {{"requested_bytes", use.requested},
          {"allocated_bytes", use.allocated},
          {"peak_requested_bytes", use.peak_requested},
          {"peak_allocated_bytes", use.peak_allocated}};
}

Json json(const MemorySnapshot& memory) {
  Json categories = Json::array();
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    Json j = {{"category", name(category)},
              {"at_peak_allocated_bytes", memory.at_peak[static_cast<size_t>(c)]}};
    j.update(json(memory[category]));
    categories.push_back(std::move(j));
  }
  return {{"categories", std::move(categories)},
          {"total", json(memory.total)},
          {"reserved_bytes", memory.reserved},
          {"peak_reserved_bytes", memory.peak_reserved}};
}

Json json(const std::vector<TensorShape>& tensors) {
  Json list = Json::array();
  for (const TensorShape& tensor : tensors) {
    Json j = Json::array({tensor.dtype});
    for (int64_t dim : tensor.dims) j.push_back(dim);
    list.push_back(std::move(j));
  }
  return list;
}

Json json(const StepRecord& step, int64_t origin_ns) {
  return {{"index", step.index},
          {"begin_ns", step.begin_ns - origin_ns},
          {"wall_ns", step.wall_ns},
          {"warmup", step.warmup},
          {"profiled", step.profiled},
          {"finished", finished(step)},
          {"loss", step.has_loss && std::isfinite(step.loss) ? Json(step.loss) : Json()}};
}

constexpr const char* kEventFields[] = {"id",
                                        "parent",
                                        "forward_id",
                                        "step",
                                        "kind",
                                        "phase",
                                        "op",
                                        "module",
                                        "device",
                                        "variant",
                                        "implementation",
                                        "host_begin_ns",
                                        "host_end_ns",
                                        "device_begin_ns",
                                        "device_end_ns",
                                        "flops",
                                        "bytes_read",
                                        "bytes_written",
                                        "allocated_bytes",
                                        "freed_bytes",
                                        "peak_bytes",
                                        "scratch_bytes",
                                        "saved_bytes",
                                        "inputs",
                                        "outputs"};

// In the order of kEventFields.
Json json(const Recording& recording, const Event& e, bool step_finished, int64_t origin_ns) {
  const bool kernel = step_finished && has_kernel(e);
  return Json::array({e.id,
                      e.parent,
                      e.forward_id,
                      e.step,
                      name(e.kind),
                      name(e.phase),
                      e.op,
                      module_path_of(recording, e),
                      e.device,
                      name(e.variant),
                      e.implementation,
                      e.host_begin_ns - origin_ns,
                      e.host_end_ns - origin_ns,
                      kernel ? Json(e.device_begin_ns - origin_ns) : Json(),
                      kernel ? Json(e.device_end_ns - origin_ns) : Json(),
                      e.flops,
                      e.bytes_read,
                      e.bytes_written,
                      e.allocated_bytes,
                      e.freed_bytes,
                      e.peak_bytes,
                      e.scratch_bytes,
                      e.saved_bytes,
                      json(tensor_shapes(recording, e.inputs)),
                      json(tensor_shapes(recording, e.outputs))});
}

// A JSON array with one item a line, so that files can be read and compared by line.
void append_lines(std::string& out, const char* key, const std::vector<std::string>& items) {
  out += fmt::format("\"{}\": [", key);
  for (size_t i = 0; i < items.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    out += items[i];
  }
  out += "],\n";
}

}  // namespace

std::string profile_json(const Recording& recording) {
  const Aggregate by_op = aggregate(recording, Grouping::op_phase);
  const Aggregate by_module = aggregate(recording, Grouping::op_phase_module);
  const int64_t origin_ns = recording.steps.empty() ? 0 : recording.steps.front().begin_ns;

  std::string out = "{\n";
  const auto append = [&out](const char* key, const Json& value) {
    out += fmt::format("\"{}\": {},\n", key, text(value));
  };
  append("format", "engine-profile");
  append("version", 1);
  Json rules = Json::array();
  for (const char* rule : profile_rules()) rules.push_back(rule);
  append("rules", rules);
  append("units", {{"_ns", "nanoseconds; begin and end since the first step began"},
                   {"_us", "microseconds, per step"},
                   {"bytes", "bytes; in self, total and sum per step"},
                   {"flops", "FLOP, 1 multiply-add = 2"},
                   {"gflop", "1e9 FLOP, per step"},
                   {"gflop_per_s", "1e9 FLOP a second of device time"},
                   {"gb_per_s", "1e9 bytes a second of device time"},
                   {"calls", "events per step"},
                   {"wall_percent", "% of the mean wall time of the measured steps"},
                   {"profiler_cost_percent", "% of the median wall time with the profiler off"}});
  Json run = Json::object();
  for (const auto& [key, value] : recording.run) run[key] = value;
  append("run", run);

  std::vector<std::string> lines;
  std::vector<int64_t> unfinished;
  for (const StepRecord& step : recording.steps) {
    lines.push_back(text(json(step, origin_ns)));
    if (!finished(step)) unfinished.push_back(step.index);
  }
  append_lines(out, "steps", lines);
  append("event_fields", kEventFields);
  lines.clear();
  for (const Event& event : recording.events) {
    const bool step_finished =
        std::find(unfinished.begin(), unfinished.end(), event.step) == unfinished.end();
    lines.push_back(text(json(recording, event, step_finished, origin_ns)));
  }
  append_lines(out, "events", lines);

  append("summary", {{"measured_steps", by_op.wall_us.n},
                     {"wall_us", json(by_op.wall_us)},
                     {"wall_profiler_off_us", json(by_op.wall_off_us)},
                     {"wall_warmup_us", json(by_op.wall_warmup_us)},
                     {"unfinished_steps", by_op.unfinished_steps},
                     {"profiler_cost_percent", finite_or_null(by_op.profiler_cost_percent)},
                     {"sum", json(by_op.sum)},
                     {"unaccounted_us", json(by_op.unaccounted_us)},
                     {"unaccounted_wall_percent", finite(by_op.unaccounted_percent)}});
  Json phases = Json::array();
  for (int p = 0; p < kPhases; ++p) {
    const PhaseRow& row = by_op.phases[static_cast<size_t>(p)];
    phases.push_back({{"phase", name(static_cast<Phase>(p))},
                      {"wall_percent", finite(row.self_wall_percent)},
                      {"self", json(row.self)}});
  }
  append("phases", phases);
  Json rows = {{"op_phase", Json::array()}, {"op_phase_module", Json::array()}};
  for (const OpRow& row : by_op.rows) rows["op_phase"].push_back(json(row, Grouping::op_phase));
  for (const OpRow& row : by_module.rows) {
    rows["op_phase_module"].push_back(json(row, Grouping::op_phase_module));
  }
  append("rows", rows);
  append("memory", json(recording.memory));
  out += fmt::format("\"rss\": {}\n}}\n", text({{"current_bytes", recording.rss.current},
                                                {"peak_bytes", recording.rss.peak}}));
  return out;
}

void write_profile_json(const Recording& recording, const std::string& path) {
  const std::string json_text = profile_json(recording);
  SafeFile file(path);
  file.write(json_text);
  file.commit();
}

}  // namespace engine
