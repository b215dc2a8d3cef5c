#include "profiler/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profiler/report.h"
#include "profiler/safe_file.h"

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;
constexpr int kStepsTrack = 1, kHostTrack = 2, kFirstDeviceTrack = 3;

// Division rounds correctly, so this prints as the nanoseconds with the point moved.
double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

std::string text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// "f32[64,1,28,28] f32[6]"
std::string shapes_text(const Recording& recording, const ShapeList& list) {
  std::string out;
  for (const TensorShape& tensor : tensor_shapes(recording, list)) {
    if (!out.empty()) out += ' ';
    out += tensor.dtype + '[';
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
      out += fmt::format("{}{}", i == 0 ? "" : ",", tensor.dims[i]);
    }
    out += ']';
  }
  return out;
}

class TraceBuilder {
 public:
  TraceBuilder(const Recording& recording, const TraceOptions& options)
      : recording_(recording), options_(options) {
    for (const StepRecord& step : recording.steps) {
      const bool in_range = step.index >= options.first_step &&
                            (options.last_step == 0 || step.index <= options.last_step);
      if (in_range) steps_.emplace(step.index, &step);
    }
    if (!recording.steps.empty()) origin_ns_ = recording.steps.front().begin_ns;
  }

  std::string build() {
    out_ = "{\"displayTimeUnit\": \"ns\",\n\"traceEvents\": [\n";
    append_names();
    if (!fits(0)) {
      throw std::runtime_error(
          fmt::format("[trace] max_bytes is {}; a trace of this run needs {} "
                      "bytes without any event",
                      options_.max_bytes, size_with(0)));
    }
    for (const StepRecord& step : recording_.steps) {
      if (steps_.count(step.index) != 0) append_step(step);
    }
    for (const Event& event : recording_.events) {
      const auto step = steps_.find(event.step);
      if (step != steps_.end()) append_event(event, finished(*step->second));
    }
    return out_ + ending();
  }

 private:
  double us(int64_t ns) const { return microseconds(ns - origin_ns_); }

  // What follows the last trace event. It grows only by the digits of left_out_.
  std::string ending() const {
    Json other = {{"events_left_out", left_out_}, {"max_bytes", options_.max_bytes}};
    for (const auto& [key, value] : recording_.run) other["run: " + key] = value;
    return "\n],\n\"otherData\": " + text(other) + "\n}\n";
  }
  size_t size_with(size_t more) const {
    constexpr size_t kDigits = 20;
    if (ending_size_ == 0) ending_size_ = ending().size() + kDigits;
    return out_.size() + more + ending_size_;
  }
  bool fits(size_t more) const {
    return static_cast<int64_t>(size_with(more)) <= options_.max_bytes;
  }

  void append(std::string_view item) {
    if (!first_) out_ += ",\n";
    first_ = false;
    out_ += item;
  }

  void append_names() {
    const auto append_name = [this](const char* what, int track, const std::string& value) {
      append(text({{"ph", "M"},
                   {"pid", kProcess},
                   {"tid", track},
                   {"name", what},
                   {"args", {{"name", value}}}}));
    };
    const auto append_track = [&](int track, const std::string& value) {
      append_name("thread_name", track, value);
      append(text({{"ph", "M"},
                   {"pid", kProcess},
                   {"tid", track},
                   {"name", "thread_sort_index"},
                   {"args", {{"sort_index", track}}}}));
    };
    append_name("process_name", 0, "engine");
    append_track(kStepsTrack, "steps");
    append_track(kHostTrack, "host");
    for (const Event& event : recording_.events) {
      if (!has_kernel(event)) continue;
      const int track = kFirstDeviceTrack + static_cast<int>(devices_.size());
      if (devices_.try_emplace(event.device, track).second) {
        append_track(track, fmt::format("device {}", event.device));
      }
    }
  }

  void append_step(const StepRecord& step) {
    Json args = {{"profiled", step.profiled}, {"warmup", step.warmup}};
    if (!finished(step)) args["finished"] = false;
    if (step.has_loss && std::isfinite(step.loss)) args["loss"] = step.loss;
    add(text({{"ph", "X"},
              {"pid", kProcess},
              {"tid", kStepsTrack},
              {"name", fmt::format("step {}", step.index)},
              {"cat", step.warmup     ? "warm-up"
                      : step.profiled ? "profiled"
                                      : "unprofiled"},
              {"ts", us(step.begin_ns)},
              {"dur", microseconds(step.wall_ns)},
              {"args", std::move(args)}}));
  }

  // Appends text that the trace can do without, unless the cap is reached; then nothing more.
  bool add(const std::string& item) {
    constexpr size_t kSeparator = 2;
    full_ = full_ || !fits(item.size() + kSeparator);
    if (!full_) append(item);
    return !full_;
  }

  void append_event(const Event& event, bool step_finished) {
    std::string items =
        text(slice(event, kHostTrack, event.host_begin_ns, event.host_end_ns, details(event)));
    if (step_finished && has_kernel(event)) {
      Json args = {{"event", event.id}, {"module", module_path_of(recording_, event)}};
      items += ",\n" + text(slice(event, devices_.at(event.device), event.device_begin_ns,
                                  event.device_end_ns, std::move(args)));
    }
    const bool is_memory_change = event.kind == EventKind::op && event.peak_bytes != memory_bytes_;
    if (is_memory_change) {
      items += ",\n" +
               text({{"ph", "C"},
                     {"pid", kProcess},
                     {"name", "device memory"},
                     {"ts", us(event.host_begin_ns)},
                     {"args", {{"peak MiB", static_cast<double>(event.peak_bytes) / (1 << 20)}}}});
    }
    if (const Event* forward = forward_of(event)) append_arrow(*forward, event, items);
    if (!add(items)) {
      ++left_out_;
      return;
    }
    if (is_memory_change) memory_bytes_ = event.peak_bytes;
    written_.insert(event.id);
  }

  Json slice(const Event& event, int track, int64_t begin_ns, int64_t end_ns, Json args) const {
    return {{"ph", "X"},
            {"pid", kProcess},
            {"tid", track},
            {"name", event.op},
            {"cat", name(event.phase)},
            {"ts", us(begin_ns)},
            {"dur", microseconds(std::max<int64_t>(0, end_ns - begin_ns))},
            {"args", std::move(args)}};
  }

  Json details(const Event& event) const {
    Json args = {{"event", event.id}, {"kind", name(event.kind)}};
    const auto add_text = [&args](const char* key, const std::string& value) {
      if (!value.empty()) args[key] = value;
    };
    const auto add_number = [&args](const char* key, int64_t value) {
      if (value != 0) args[key] = value;
    };
    add_number("forward event", event.forward_id);
    add_text("module", module_path_of(recording_, event));
    add_text("implementation", event.implementation);
    if (event.variant != Variant::plain) args["variant"] = name(event.variant);
    add_text("inputs", shapes_text(recording_, event.inputs));
    add_text("outputs", shapes_text(recording_, event.outputs));
    add_number("FLOP", event.flops);
    add_number("bytes read", event.bytes_read);
    add_number("bytes written", event.bytes_written);
    add_number("bytes allocated", event.allocated_bytes);
    add_number("bytes of scratch", event.scratch_bytes);
    add_number("bytes saved for backward", event.saved_bytes);
    return args;
  }

  // The forward event that an arrow to `event` starts from, or null: only the outermost backward
  // event of a forward op gets an arrow, and only from a slice that is in the trace.
  const Event* forward_of(const Event& event) const {
    if (event.phase != Phase::backward || written_.count(event.forward_id) == 0) return nullptr;
    const auto& events = recording_.events;
    const bool has_outer =
        event.parent > 0 && event.parent < event.id &&
        events[static_cast<size_t>(event.parent - 1)].forward_id == event.forward_id;
    return has_outer ? nullptr : &events[static_cast<size_t>(event.forward_id - 1)];
  }

  // "bp": "e" ties the arrow's end to the slice around it, not to the next one.
  void append_arrow(const Event& forward, const Event& backward, std::string& items) const {
    const auto end = [&](const char* ph, const Event& at) {
      return Json{{"ph", ph},
                  {"pid", kProcess},
                  {"tid", kHostTrack},
                  {"name", "forward to backward"},
                  {"cat", "autograd"},
                  {"id", backward.id},
                  {"ts", us(at.host_begin_ns)}};
    };
    Json finish = end("f", backward);
    finish["bp"] = "e";
    items += ",\n" + text(end("s", forward)) + ",\n" + text(finish);
  }

  const Recording& recording_;
  const TraceOptions& options_;
  std::unordered_map<int64_t, const StepRecord*> steps_;  // those asked for
  std::map<std::string_view, int> devices_;               // their tracks
  std::unordered_set<int64_t> written_;                   // ids of events in the trace
  int64_t origin_ns_ = 0;
  int64_t memory_bytes_ = -1;  // the counter's last value
  int64_t left_out_ = 0;
  mutable size_t ending_size_ = 0;
  bool first_ = true, full_ = false;
  std::string out_;
};

void write_gzip(std::string_view data, SafeFile& file) {
  constexpr int kGzipFormat = 16;  // added to the window bits, see deflateInit2
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzipFormat, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("[trace] zlib could not start");
  }
  struct End {
    z_stream* stream;
    ~End() { deflateEnd(stream); }
  } end{&stream};

  constexpr size_t kInputAtOnce = size_t{1} << 30;  // avail_in is 32 bits wide
  std::array<Bytef, 1 << 16> buffer;
  int status = Z_OK;
  do {
    const std::string_view input = data.substr(0, kInputAtOnce);
    data.remove_prefix(input.size());
    // zlib does not write to its input; older headers lack the const.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream.avail_in = static_cast<uInt>(input.size());
    do {
      stream.next_out = buffer.data();
      stream.avail_out = static_cast<uInt>(buffer.size());
      status = deflate(&stream, data.empty() ? Z_FINISH : Z_NO_FLUSH);
      if (status == Z_STREAM_ERROR) throw std::runtime_error("[trace] zlib failed to compress");
      file.write({reinterpret_cast<const char*>(buffer.data()), buffer.size() - stream.avail_out});
    } while (stream.avail_out == 0);
  } while (status != Z_STREAM_END);
}

}  // namespace

std::string trace_json(const Recording& recording, const TraceOptions& options) {
  return TraceBuilder(recording, options).build();
}

void write_trace(const Recording& recording, const std::string& path, const TraceOptions& options) {
  const std::string json_text = trace_json(recording, options);
  SafeFile file(path);
  if (path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0) {
    write_gzip(json_text, file);
  } else {
    file.write(json_text);
  }
  file.commit();
}

}  // namespace engine
