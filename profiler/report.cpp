#include "profiler/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace engine {

namespace {

constexpr size_t kFewestForCost = 2;  // steps, with the profiler on and off: one says nothing

constexpr const char* kRules[] = {
    "Times: host = call to return; device = start to end on the device; wall = clock of the step, "
    "read "
    "after a synchronize.",
    "On the CPU kernels run inside the call, so host includes device. self = without the events "
    "inside, total = with them.",
    "Rows are means per step over the measured steps, so they add up: self host + unaccounted = "
    "wall. "
    "Quartiles: JSON file.",
    "1 multiply-add = 2 FLOP; backward is counted op by op. Rates are over device time. "
    "GB = 1e9 B, MiB = 2^20 B.",
};

[[noreturn]] void malformed(const Event& event, std::string_view problem) {
  throw std::runtime_error(fmt::format("[profiler] event {} ({}) of step {} {}", event.id, event.op,
                                       event.step, problem));
}

// What one event, or an event with all inside it, adds to its step.
struct Quantities {
  int64_t host_ns = 0, device_ns = 0;
  int64_t flops = 0, bytes_read = 0, bytes_written = 0;
  int64_t kernel_flops = 0, kernel_bytes = 0;  // of events with device time: what the rates are of
  int64_t allocated = 0, freed = 0, saved = 0;

  void operator+=(const Quantities& other) {
    host_ns += other.host_ns;
    device_ns += other.device_ns;
    flops += other.flops;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    kernel_flops += other.kernel_flops;
    kernel_bytes += other.kernel_bytes;
    allocated += other.allocated;
    freed += other.freed;
    saved += other.saved;
  }
};

// An event's figures split into its own and those inside it.
struct Account {
  Quantities self, total, inside;
  int64_t peak = 0, scratch = 0;
};

// Splits every event of a finished step. Children have greater ids than their parents, so one walk
// from the last event to the first meets each event after everything inside it.
std::vector<Account> split(const Recording& recording) {
  const auto& events = recording.events;
  std::unordered_map<int64_t, int64_t> room;  // wall time left of each finished step
  std::set<int64_t> known;
  for (const StepRecord& step : recording.steps) {
    if (!known.insert(step.index).second) {
      throw std::runtime_error(fmt::format("[profiler] step {} was recorded twice", step.index));
    }
    if (finished(step)) room[step.index] = step.wall_ns;
  }

  std::vector<Account> accounts(events.size());
  for (size_t i = events.size(); i-- > 0;) {
    const Event& event = events[i];
    if (event.id != static_cast<int64_t>(i) + 1) malformed(event, "is out of order");
    if (known.count(event.step) == 0) malformed(event, "belongs to no recorded step");
    const auto step_room = room.find(event.step);
    if (step_room == room.end()) continue;
    Account& account = accounts[i];
    Quantities& self = account.self;

    const int64_t host = event.host_end_ns - event.host_begin_ns;
    if (host < 0) malformed(event, "ends before it begins");
    self.host_ns = host - account.inside.host_ns;
    if (self.host_ns < 0) malformed(event, "is shorter than the events inside it");
    if (has_kernel(event)) self.device_ns = event.device_end_ns - event.device_begin_ns;
    self.flops = event.flops;
    self.bytes_read = event.bytes_read;
    self.bytes_written = event.bytes_written;
    if (self.device_ns > 0) {
      self.kernel_flops = event.flops;
      self.kernel_bytes = event.bytes_read + event.bytes_written;
    }
    // These two are measured over the whole event where at all; backward groups and ranges have
    // none.
    self.allocated = std::max<int64_t>(0, event.allocated_bytes - account.inside.allocated);
    self.freed = std::max<int64_t>(0, event.freed_bytes - account.inside.freed);
    self.saved = event.saved_bytes;
    account.total = self;
    account.total += account.inside;
    account.peak = std::max(account.peak, event.peak_bytes);
    account.scratch = std::max(account.scratch, event.scratch_bytes);

    if (event.parent == 0) {
      step_room->second -= host;
      if (step_room->second < 0) malformed(event, "and those after it exceed its wall time");
      continue;
    }
    if (event.parent < 0 || event.parent >= event.id ||
        events[static_cast<size_t>(event.parent - 1)].step != event.step) {
      malformed(event,
                fmt::format("has parent {}, not an earlier event of its step", event.parent));
    }
    Account& parent = accounts[static_cast<size_t>(event.parent - 1)];
    parent.inside += account.total;
    parent.peak = std::max(parent.peak, account.peak);
    parent.scratch = std::max(parent.scratch, account.scratch);
  }
  return accounts;
}

// Gathers the events of a row, step by step.
class Collector {
 public:
  explicit Collector(size_t steps) : host_us_(steps), device_us_(steps) {}

  void add(size_t step, const Quantities& q) {
    sum_ += q;
    host_us_[step] += static_cast<double>(q.host_ns) * 1e-3;
    device_us_[step] += static_cast<double>(q.device_ns) * 1e-3;
  }

  Totals totals() const {
    Totals t;
    t.host_us = statistics(host_us_);
    t.device_us = statistics(device_us_);
    const auto per_step = [this](int64_t sum) {
      return host_us_.empty() ? 0 : static_cast<double>(sum) / static_cast<double>(host_us_.size());
    };
    t.gflop = per_step(sum_.flops) * 1e-9;
    t.bytes_read = per_step(sum_.bytes_read);
    t.bytes_written = per_step(sum_.bytes_written);
    t.allocated_bytes = per_step(sum_.allocated);
    t.freed_bytes = per_step(sum_.freed);
    t.saved_bytes = per_step(sum_.saved);
    if (sum_.device_ns > 0) {  // FLOP in a nanosecond are GFLOP in a second
      const auto ns = static_cast<double>(sum_.device_ns);
      if (sum_.kernel_flops > 0) t.gflop_per_s = static_cast<double>(sum_.kernel_flops) / ns;
      if (sum_.kernel_bytes > 0) t.gb_per_s = static_cast<double>(sum_.kernel_bytes) / ns;
    }
    return t;
  }

 private:
  Quantities sum_;
  std::vector<double> host_us_, device_us_;
};

using RowKey = std::tuple<std::string_view, Phase, EventKind, std::string_view>;

struct RowCollector {
  explicit RowCollector(size_t steps) : calls(steps), self(steps), total(steps) {}

  std::vector<double> calls;
  Collector self, total;
  std::set<std::string_view> implementations;
  std::set<Variant> variants;
  int64_t peak = 0, scratch = 0;
};

OpRow finish(const RowKey& key, const RowCollector& collector, double wall_us) {
  OpRow row;
  row.op = std::get<0>(key);
  row.phase = std::get<1>(key);
  row.kind = std::get<2>(key);
  row.module = std::get<3>(key);
  const auto& variants = collector.variants;
  row.variant = variants.size() == 1 ? name(*variants.begin()) : "mixed";
  row.implementations.assign(collector.implementations.begin(), collector.implementations.end());
  if (!row.implementations.empty()) {
    row.implementation = row.implementations.size() == 1 ? row.implementations.front() : "mixed";
  }
  row.calls = statistics(collector.calls);
  row.self = collector.self.totals();
  row.total = collector.total.totals();
  row.self_wall_percent = 100 * row.self.host_us.mean / wall_us;
  row.total_wall_percent = 100 * row.total.host_us.mean / wall_us;
  row.peak_bytes = collector.peak;
  row.scratch_bytes = collector.scratch;
  return row;
}

}  // namespace

std::span<const char* const> profile_rules() { return kRules; }

Statistics statistics(std::vector<double> samples) {
  Statistics s;
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  const size_t last = samples.size() - 1;
  const auto quantile = [&](double q) {
    const double position = q * static_cast<double>(last);
    const auto below = static_cast<size_t>(position);
    const double low = samples[below], high = samples[std::min(below + 1, last)];
    return low + (position - static_cast<double>(below)) * (high - low);
  };
  s.n = static_cast<int64_t>(samples.size());
  s.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(s.n);
  s.min = samples.front();
  s.q1 = quantile(0.25);
  s.median = quantile(0.5);
  s.q3 = quantile(0.75);
  s.max = samples.back();
  return s;
}

Aggregate aggregate(const Recording& recording, Grouping grouping) {
  const std::vector<Account> accounts = split(recording);
  Aggregate result;

  std::vector<double> wall, wall_off, wall_warmup;
  std::vector<int64_t> unaccounted_ns;
  std::unordered_map<int64_t, size_t> position;  // of each measured step in `wall`
  for (const StepRecord& step : recording.steps) {
    if (!finished(step)) {
      ++result.unfinished_steps;
      continue;
    }
    if (!step.warmup && step.profiled) {
      position.emplace(step.index, wall.size());
      unaccounted_ns.push_back(step.wall_ns);
    }
    auto& samples = step.warmup ? wall_warmup : step.profiled ? wall : wall_off;
    samples.push_back(static_cast<double>(step.wall_ns) * 1e-3);
  }
  result.wall_us = statistics(wall);
  result.wall_off_us = statistics(wall_off);
  result.wall_warmup_us = statistics(wall_warmup);
  if (wall.empty()) return result;
  if (std::min(wall.size(), wall_off.size()) >= kFewestForCost) {
    const double off = result.wall_off_us.median;
    result.profiler_cost_percent = 100 * (result.wall_us.median - off) / off;
  }

  const size_t steps = wall.size();
  std::map<RowKey, RowCollector> rows;
  std::array<std::optional<Collector>, kPhases> phases;
  for (auto& phase : phases) phase.emplace(steps);
  Collector sum(steps);
  const auto key_of = [&](const Event& event) {
    const bool by_module = grouping == Grouping::op_phase_module;
    return RowKey(event.op, event.phase, event.kind,
                  by_module ? std::string_view(module_path_of(recording, event)) : "");
  };
  const auto inside_own_row = [&](const Event& event, const RowKey& key) {
    for (int64_t id = event.parent; id != 0;) {
      const Event& outer = recording.events[static_cast<size_t>(id - 1)];
      if (key_of(outer) == key) return true;
      id = outer.parent;
    }
    return false;
  };
  for (size_t i = 0; i < recording.events.size(); ++i) {
    const Event& event = recording.events[i];
    const auto found = position.find(event.step);
    if (found == position.end()) continue;
    const size_t step = found->second;
    const Account& account = accounts[i];
    const RowKey key = key_of(event);
    RowCollector& row = rows.try_emplace(key, steps).first->second;
    row.calls[step] += 1;
    row.self.add(step, account.self);
    if (!inside_own_row(event, key)) row.total.add(step, account.total);
    if (*event.implementation != '\0') row.implementations.insert(event.implementation);
    row.variants.insert(event.variant);
    row.peak = std::max(row.peak, account.peak);
    row.scratch = std::max(row.scratch, account.scratch);
    phases[static_cast<size_t>(event.phase)]->add(step, account.self);
    sum.add(step, account.self);
    if (event.parent == 0) unaccounted_ns[step] -= account.total.host_ns;
  }

  const double mean_wall = result.wall_us.mean;
  for (const auto& [key, collector] : rows)
    result.rows.push_back(finish(key, collector, mean_wall));
  std::stable_sort(result.rows.begin(), result.rows.end(), [](const OpRow& a, const OpRow& b) {
    return a.self.host_us.mean > b.self.host_us.mean;
  });
  for (size_t p = 0; p < phases.size(); ++p) {
    result.phases[p].self = phases[p]->totals();
    result.phases[p].self_wall_percent = 100 * result.phases[p].self.host_us.mean / mean_wall;
  }
  result.sum = sum.totals();
  std::vector<double> unaccounted;
  for (int64_t ns : unaccounted_ns) unaccounted.push_back(static_cast<double>(ns) * 1e-3);
  result.unaccounted_us = statistics(std::move(unaccounted));
  result.unaccounted_percent = 100 * result.unaccounted_us.mean / mean_wall;
  return result;
}

std::vector<TensorShape> tensor_shapes(const Recording& recording, const ShapeList& list) {
  const auto& pool = recording.shape_pool;
  const auto size = static_cast<int64_t>(pool.size());
  int64_t at = list.offset;
  const auto require = [&](bool condition) {
    if (!condition) {
      throw std::runtime_error(fmt::format(
          "[profiler] the shapes at {} do not lie in the pool of {} numbers and {} dtypes",
          list.offset, size, recording.dtype_names.size()));
    }
  };
  std::vector<TensorShape> result;
  for (int32_t t = 0; t < list.tensors; ++t) {
    require(at >= 0 && at + 2 <= size);
    const int64_t dtype = pool[static_cast<size_t>(at)], rank = pool[static_cast<size_t>(at + 1)];
    at += 2;
    require(dtype >= 0 && dtype < static_cast<int64_t>(recording.dtype_names.size()));
    require(rank >= 0 && rank <= size - at);
    result.push_back({recording.dtype_names[static_cast<size_t>(dtype)],
                      {pool.begin() + at, pool.begin() + at + rank}});
    at += rank;
  }
  return result;
}

const std::string& module_path_of(const Recording& recording, const Event& event) {
  const auto& paths = recording.module_paths;
  if (event.module < 0 || static_cast<size_t>(event.module) >= paths.size()) {
    malformed(event, fmt::format("has module {} of {}", event.module, paths.size()));
  }
  return paths[static_cast<size_t>(event.module)];
}

namespace {

// Columns of text: the first row is the titles, the second their units. Text is aligned left,
// numbers right.
class Table {
 public:
  Table(std::string columns_left) : left_(std::move(columns_left)) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  void append_to(std::string& out) const {
    std::vector<size_t> width(left_.size());
    for (const auto& cells : rows_) {
      for (size_t c = 0; c < cells.size(); ++c) width[c] = std::max(width[c], cells[c].size());
    }
    for (const auto& cells : rows_) {
      std::string line;
      for (size_t c = 0; c < cells.size(); ++c) {
        if (c > 0) line += "  ";
        line += left_[c] == '<' ? fmt::format("{:<{}}", cells[c], width[c])
                                : fmt::format("{:>{}}", cells[c], width[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
  }

 private:
  std::string left_;  // '<' or '>' for each column
  std::vector<std::vector<std::string>> rows_;
};

// 1234.56 -> "1,234.6" with one decimal. What would round to 0 without being 0 is "<0.1".
std::string number(double value, int decimals) {
  const double unit = std::pow(10.0, -decimals);
  if (value > 0 && value < unit / 2) return fmt::format("<{:.{}f}", unit, decimals);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  const size_t point = text.find('.');
  for (size_t i = point == std::string::npos ? text.size() : point; i > 3; i -= 3) {
    text.insert(i - 3, ",");
  }
  return text;
}

std::string number_or_dash(std::optional<double> value, int decimals) {
  return value.value_or(0) == 0 ? "-" : number(*value, decimals);
}

std::string mib(double bytes) { return number_or_dash(bytes / (1 << 20), 2); }

std::string calls_per_step(double calls) {
  return number(calls, calls == std::floor(calls) ? 0 : 1);
}

void append_steps(const Aggregate& a, std::string& out) {
  Table table("<>>>>>>");
  table.row({"Steps", "n", "median", "quartile 1", "quartile 3", "min", "max"});
  table.row({"", "", "wall ms", "wall ms", "wall ms", "wall ms", "wall ms"});
  const auto row = [&table](const char* title, const Statistics& us) {
    if (us.n == 0) {
      table.row({title, "0", "-", "-", "-", "-", "-"});
      return;
    }
    table.row({title, fmt::format("{}", us.n), number(us.median * 1e-3, 3), number(us.q1 * 1e-3, 3),
               number(us.q3 * 1e-3, 3), number(us.min * 1e-3, 3), number(us.max * 1e-3, 3)});
  };
  row("measured: profiler on", a.wall_us);
  row("profiler off", a.wall_off_us);
  row("warm-up, in no figure below", a.wall_warmup_us);
  table.append_to(out);
  if (a.unfinished_steps > 0) {
    out += fmt::format("{} step(s) ended by an error, in no figure\n", a.unfinished_steps);
  }
  if (a.profiler_cost_percent) {
    out +=
        fmt::format("Profiler's own cost: {:+.2f} % of the median step (on: n = {}, off: n = {})\n",
                    *a.profiler_cost_percent, a.wall_us.n, a.wall_off_us.n);
  } else {
    out += fmt::format(
        "Profiler's own cost: not measured; it takes {} steps with it on and {} with it "
        "off (on: n = {}, off: n = {})\n",
        kFewestForCost, kFewestForCost, a.wall_us.n, a.wall_off_us.n);
  }
}

// What the device did for a row: the last columns of the tables by op and by phase. The decimals of
// GFLOP are chosen for the whole table, so that a small network's ops do not all come out as 0.
void add_device_cells(const Aggregate& a, const Totals& t, std::vector<std::string>& cells) {
  cells.push_back(number_or_dash(t.device_us.mean, 1));
  cells.push_back(number_or_dash(t.gflop, a.sum.gflop < 1 ? 5 : 3));
  cells.push_back(number_or_dash(t.gflop_per_s, 1));
  cells.push_back(number_or_dash(t.gb_per_s, 1));
}

std::string implementation_text(const OpRow& row) {
  std::string text = row.kind == EventKind::op ? row.implementation : name(row.kind);
  if (row.variant != name(Variant::plain)) {
    text += fmt::format("{}({})", text.empty() ? "" : " ", row.variant);
  }
  return text;
}

void append_ops(const Aggregate& a, std::string& out) {
  Table table("<<>>>>>>>><");
  table.row({"Op", "phase", "calls", "self host", "self", "total host", "device", "work", "rate",
             "rate", "implementation"});
  table.row(
      {"", "", "/step", "us/step", "% wall", "us/step", "us/step", "GFLOP", "GFLOP/s", "GB/s", ""});
  double calls = 0;
  for (const OpRow& row : a.rows) {
    std::vector<std::string> cells = {row.op,
                                      name(row.phase),
                                      calls_per_step(row.calls.mean),
                                      number(row.self.host_us.mean, 1),
                                      number(row.self_wall_percent, 1),
                                      number(row.total.host_us.mean, 1)};
    add_device_cells(a, row.self, cells);
    cells.push_back(implementation_text(row));
    table.row(std::move(cells));
    calls += row.calls.mean;
  }
  table.row(
      {"unaccounted", "", "", number(a.unaccounted_us.mean, 1), number(a.unaccounted_percent, 1)});
  std::vector<std::string> sum = {"= wall, mean of steps",   "",      calls_per_step(calls),
                                  number(a.wall_us.mean, 1), "100.0", ""};
  add_device_cells(a, a.sum, sum);
  table.row(std::move(sum));
  table.append_to(out);
}

void append_phases(const Aggregate& a, std::string& out) {
  Table table("<>>>>>>");
  table.row({"Phase", "self host", "self", "device", "work", "rate", "rate"});
  table.row({"", "us/step", "% wall", "us/step", "GFLOP", "GFLOP/s", "GB/s"});
  const auto row = [&](Phase phase) {
    const PhaseRow& p = a.phases[static_cast<size_t>(phase)];
    std::vector<std::string> cells = {name(phase), number(p.self.host_us.mean, 1),
                                      number(p.self_wall_percent, 1)};
    add_device_cells(a, p.self, cells);
    table.row(std::move(cells));
  };
  for (Phase phase :
       {Phase::data, Phase::forward, Phase::loss, Phase::backward, Phase::optimizer, Phase::copy}) {
    row(phase);
  }
  const bool has_other = std::any_of(a.rows.begin(), a.rows.end(),
                                     [](const OpRow& r) { return r.phase == Phase::other; });
  if (has_other) row(Phase::other);
  table.row({"unaccounted", number(a.unaccounted_us.mean, 1), number(a.unaccounted_percent, 1)});
  std::vector<std::string> sum = {"= wall, mean of steps", number(a.wall_us.mean, 1), "100.0"};
  add_device_cells(a, a.sum, sum);
  table.row(std::move(sum));
  table.append_to(out);
}

void append_op_memory(const Aggregate& a, std::string& out) {
  std::vector<const OpRow*> rows;
  for (const OpRow& row : a.rows) {
    const bool uses = row.self.allocated_bytes > 0 || row.self.saved_bytes > 0 ||
                      (row.scratch_bytes > 0 && row.kind == EventKind::op);
    if (uses) rows.push_back(&row);
  }
  if (rows.empty()) return;
  std::stable_sort(rows.begin(), rows.end(), [](const OpRow* x, const OpRow* y) {
    return x->self.allocated_bytes > y->self.allocated_bytes;
  });
  Table table("<<>>>>");
  table.row({"Memory by op", "phase", "allocated", "for backward", "scratch", "peak on device"});
  table.row({"", "", "MiB/step", "saved MiB/step", "MiB, max call", "MiB, meanwhile"});
  for (const OpRow* row : rows) {
    table.row({row->op, name(row->phase), mib(row->self.allocated_bytes),
               mib(row->self.saved_bytes), mib(static_cast<double>(row->scratch_bytes)),
               mib(static_cast<double>(row->peak_bytes))});
  }
  table.append_to(out);
  out += '\n';
}

void append_memory(const Recording& recording, std::string& out) {
  const MemorySnapshot& memory = recording.memory;
  const auto cell = [](int64_t bytes) { return mib(static_cast<double>(bytes)); };
  Table table("<>>>>>");
  table.row(
      {"Memory by category", "at the peak", "own peak", "own peak", "at the end", "at the end"});
  table.row(
      {"", "allocated MiB", "requested MiB", "allocated MiB", "requested MiB", "allocated MiB"});
  const auto row = [&](const char* title, int64_t at_peak, const MemoryUse& use) {
    table.row({title, cell(at_peak), cell(use.peak_requested), cell(use.peak_allocated),
               cell(use.requested), cell(use.allocated)});
  };
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    row(name(category), memory.at_peak[static_cast<size_t>(c)], memory[category]);
  }
  row("= all categories", memory.total.peak_allocated, memory.total);
  table.row(
      {"reserved by allocator", "", "", cell(memory.peak_reserved), "", cell(memory.reserved)});
  table.row({"resident set of process", "", "", cell(recording.rss.peak), "",
             cell(recording.rss.current)});
  table.append_to(out);
}

}  // namespace

std::string report_table(const Recording& recording) {
  const Aggregate a = aggregate(recording, Grouping::op_phase);
  std::string out;
  Table run("<<");
  for (const auto& [key, value] : recording.run) run.row({key, value});
  run.append_to(out);
  if (!recording.run.empty()) out += '\n';
  append_steps(a, out);
  out += '\n';
  if (a.wall_us.n == 0) {
    out += fmt::format(
        "No ops to report: of {} recorded step(s), none after the warm-up was profiled "
        "and finished.\n\n",
        recording.steps.size());
  } else {
    append_ops(a, out);
    out += '\n';
    append_phases(a, out);
    out += '\n';
    append_op_memory(a, out);
  }
  append_memory(recording, out);
  out += '\n';
  for (const char* rule : kRules) out += fmt::format("{}\n", rule);
  return out;
}

}  // namespace engine
