// The report against recordings built by hand, whose figures were worked out on paper; and one
// recording made by the Profiler itself, whose rows must add up whatever the clock said.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile_json.h"
#include "profiler/profiler.h"
#include "profiler/report.h"
#include "profiler/trace.h"
#include "tests/catch.h"
#include "tests/profiler_recording.h"

using namespace engine;
using nlohmann::json;

namespace {

const OpRow& find(const Aggregate& a, std::string_view op, Phase phase,
                  std::string_view module = "") {
  for (const OpRow& row : a.rows) {
    if (row.op == op && row.phase == phase && row.module == module) return row;
  }
  throw std::runtime_error("no row " + std::string(op));
}

double self_host_sum(const Aggregate& a) {
  double sum = 0;
  for (const OpRow& row : a.rows) sum += row.self.host_us.mean;
  return sum;
}

// The numbers that a printed table has in the column `title`, which is right-aligned: from below
// the heading that begins with `table` to the line that begins with "=".
std::vector<double> printed_column(const std::string& text, const std::string& table,
                                   const std::string& title) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line) && line.rfind(table, 0) != 0) continue;
  const size_t end = line.find(title) + title.size();
  std::getline(lines, line);
  std::vector<double> column;
  do {
    std::getline(lines, line);
    const std::string left = line.substr(0, end);
    std::string number = left.substr(left.rfind(' ') + 1);
    std::erase(number, ',');
    column.push_back(std::stod(number));
  } while (line.rfind("=", 0) != 0);
  return column;
}

}  // namespace

TEST_CASE("statistics have quartiles by linear interpolation", "[profiler]") {
  const Statistics s = statistics({4, 1, 3, 2});
  CHECK(s.n == 4);
  CHECK(s.mean == Approx(2.5));
  CHECK(s.min == 1);
  CHECK(s.q1 == Approx(1.75));
  CHECK(s.median == Approx(2.5));
  CHECK(s.q3 == Approx(3.25));
  CHECK(s.max == 4);

  const Statistics one = statistics({7});
  CHECK(one.q1 == 7);
  CHECK(one.median == 7);
  CHECK(one.q3 == 7);
  CHECK(statistics({}).n == 0);
}

TEST_CASE("rows are what was worked out by hand", "[profiler]") {
  const RecordingBuilder b = two_steps();
  const Aggregate a = aggregate(b.recording, Grouping::op_phase);

  CHECK(a.wall_us.n == 2);
  CHECK(a.wall_us.mean == Approx(1100));
  CHECK(a.wall_us.q1 == Approx(1050));
  CHECK(a.wall_off_us.n == 2);
  CHECK(a.wall_warmup_us.max == Approx(9000));
  REQUIRE(a.profiler_cost_percent);
  CHECK(*a.profiler_cost_percent == Approx(10));  // median 1100 against 1000
  CHECK(a.unaccounted_us.mean == Approx((110 + 280) / 2.0));
  CHECK(a.unaccounted_us.min == Approx(110));
  CHECK(a.unaccounted_percent == Approx(100 * 195 / 1100.0));

  REQUIRE(a.rows.size() == 7);
  CHECK(a.rows.front().op == "conv2d");
  const OpRow& conv = find(a, "conv2d", Phase::forward);
  CHECK(conv.calls.mean == Approx(1.5));
  CHECK(conv.self.host_us.mean == Approx(350));
  CHECK(conv.self.host_us.q1 == Approx(325));
  CHECK(conv.total.host_us.mean == Approx(350));
  CHECK(conv.self.device_us.mean == Approx((280 + 370) / 2.0));
  CHECK(conv.self_wall_percent == Approx(100 * 350 / 1100.0));
  CHECK(conv.self.gflop == Approx(0.00065));  // (0.56 + 0.56 + 0.18) / 2 MFLOP
  REQUIRE(conv.self.gflop_per_s);
  CHECK(*conv.self.gflop_per_s == Approx(2));  // 1.3 MFLOP in 650 us
  REQUIRE(conv.self.gb_per_s);
  CHECK(*conv.self.gb_per_s == Approx(140'000 / 650e3));
  CHECK(conv.self.bytes_read == Approx(50'000));
  CHECK(conv.self.allocated_bytes == Approx(4096));
  CHECK(conv.self.saved_bytes == Approx(2048));
  CHECK(conv.scratch_bytes == 700);
  CHECK(conv.peak_bytes == 50'000);

  const OpRow& group = find(a, "conv2d", Phase::backward);
  CHECK(group.kind == EventKind::group);
  CHECK(group.self.host_us.mean == Approx(50));
  CHECK(group.total.host_us.mean == Approx((400 + 420) / 2.0));
  CHECK(group.self.device_us.mean == 0);
  CHECK(group.total.device_us.mean == Approx((330 + 340) / 2.0));
  CHECK(group.self.gflop == 0);
  CHECK(group.total.gflop == Approx(0.00112));
  CHECK_FALSE(group.self.gflop_per_s);
  CHECK(group.total_wall_percent == Approx(100 * 410 / 1100.0));
  CHECK(find(a, "conv2d_backward_weight", Phase::backward).self.host_us.mean == Approx(210));
  CHECK(find(a, "data", Phase::data).self.host_us.mean == Approx(25));  // in one step of two

  const PhaseRow& backward = a.phases[static_cast<size_t>(Phase::backward)];
  CHECK(backward.self.host_us.mean == Approx(410));
  CHECK(backward.self.device_us.mean == Approx(335));
  CHECK(backward.self_wall_percent == Approx(100 * 410 / 1100.0));
}

TEST_CASE("self host times and the unaccounted rest add up to the wall time", "[profiler]") {
  const RecordingBuilder b = two_steps();
  for (Grouping grouping : {Grouping::op_phase, Grouping::op_phase_module}) {
    const Aggregate a = aggregate(b.recording, grouping);
    CHECK(self_host_sum(a) + a.unaccounted_us.mean == Approx(a.wall_us.mean));
    CHECK(a.sum.host_us.mean == Approx(905));
    double phases = a.unaccounted_us.mean, percent = a.unaccounted_percent;
    for (const PhaseRow& phase : a.phases) {
      phases += phase.self.host_us.mean;
      percent += phase.self_wall_percent;
    }
    CHECK(phases == Approx(1100));
    CHECK(percent == Approx(100));
  }

  const std::string text = report_table(b.recording);
  for (const char* table : {"Op ", "Phase "}) {
    const std::vector<double> column = printed_column(text, table, "self host");
    REQUIRE(column.size() >= 8);
    double sum = 0;
    for (size_t i = 0; i + 1 < column.size(); ++i) sum += column[i];
    CHECK(column.back() == Approx(1100));
    CHECK(sum == Approx(1100));
  }
}

TEST_CASE("what the Profiler records adds up", "[profiler]") {
  Profiler profiler;
  for (int64_t step = 1; step <= 4; ++step) {
    profiler.begin_step(step, /*warmup=*/step == 1, /*profiled=*/step != 3);
    {
      const Span outer(EventKind::group, "outer", Phase::backward);
      for (int i = 0; i < 3; ++i) const Span inner(EventKind::range, "inner", Phase::copy);
    }
    { const Span second(EventKind::range, "second", Phase::data); }
    profiler.end_step();
  }
  const Recording& recording = profiler.recording();
  CHECK(recording.events.size() == 15);
  const Aggregate a = aggregate(recording, Grouping::op_phase);
  CHECK(a.wall_us.n == 2);
  CHECK(a.wall_off_us.n == 1);
  CHECK(a.rows.size() == 3);
  CHECK(find(a, "inner", Phase::copy).calls.mean == 3);
  CHECK(self_host_sum(a) + a.unaccounted_us.mean == Approx(a.wall_us.mean));
  CHECK(a.unaccounted_us.min >= 0);
  for (const OpRow& row : a.rows) CHECK(row.self.host_us.min >= 0);
}

TEST_CASE("a Profiler that is destroyed inside a step records no more", "[profiler]") {
  {
    Profiler profiler;
    profiler.begin_step(1, false, true);
    CHECK(Profiler::active() == &profiler);
  }
  CHECK(Profiler::active() == nullptr);
}

TEST_CASE("an op inside a group of its own name is a row of its own", "[profiler]") {
  RecordingBuilder b;
  b.step(1, 100, false, true);
  b.begin(EventKind::group, "add", Phase::backward);
  b.spend(10);
  b.op("add", Phase::backward, 60, 50);
  b.end();
  const Aggregate a = aggregate(b.recording, Grouping::op_phase);
  REQUIRE(a.rows.size() == 2);
  CHECK(a.rows[0].kind == EventKind::op);
  CHECK(a.rows[0].total.host_us.mean == Approx(60));
  CHECK(a.rows[1].kind == EventKind::group);
  CHECK(a.rows[1].self.host_us.mean == Approx(10));
  CHECK(a.rows[1].total.host_us.mean == Approx(70));
}

TEST_CASE("an event inside another of its own row counts once in total", "[profiler]") {
  RecordingBuilder b;
  b.step(1, 200, false, true);
  b.begin(EventKind::group, "outer", Phase::forward);  // 100 us; its memory was not measured
  b.spend(25);
  Event& inner = b.begin(EventKind::group, "outer", Phase::forward);  // 60 us
  inner.allocated_bytes = 500;
  b.spend(40);
  b.op("part", Phase::forward, 20, 10).allocated_bytes = 300;
  b.end();
  b.spend(15);
  b.end();
  const Aggregate a = aggregate(b.recording, Grouping::op_phase);
  const OpRow& outer = find(a, "outer", Phase::forward);
  CHECK(outer.calls.mean == 2);
  CHECK(outer.self.host_us.mean == Approx(80));
  CHECK(outer.total.host_us.mean == Approx(100));
  CHECK(outer.total_wall_percent == Approx(50));
  CHECK(outer.self.allocated_bytes == Approx(200));
  CHECK(outer.total.allocated_bytes == Approx(500));
}

TEST_CASE("no device time and no FLOP give no rate", "[profiler]") {
  RecordingBuilder b;
  b.step(1, 100, false, true);
  Event& view = b.op("reshape", Phase::forward, 10, 0, /*flops=*/1000);
  view.implementation = "view";
  view.bytes_read = 4000;
  b.op("sgd_", Phase::optimizer, 50, 40, /*flops=*/0);
  const Aggregate a = aggregate(b.recording, Grouping::op_phase);
  const OpRow& reshape = find(a, "reshape", Phase::forward);
  CHECK(reshape.self.gflop == Approx(1e-6));
  CHECK_FALSE(reshape.self.gflop_per_s);
  CHECK_FALSE(reshape.self.gb_per_s);
  CHECK_FALSE(find(a, "sgd_", Phase::optimizer).self.gflop_per_s);
  CHECK_FALSE(a.sum.gflop_per_s);  // the only FLOP ran in no kernel
}

TEST_CASE("rows by module, and rows of several implementations", "[profiler]") {
  RecordingBuilder b = two_steps();
  Event& second = b.recording.events[8];  // of step 4, module "conv1"
  REQUIRE(second.op == std::string("conv2d"));
  second.implementation = "eigen";
  second.variant = Variant::fused;

  const Aggregate by_module = aggregate(b.recording, Grouping::op_phase_module);
  const OpRow& conv1 = find(by_module, "conv2d", Phase::forward, "conv1");
  CHECK(conv1.calls.mean == 1);
  CHECK(conv1.self.host_us.mean == Approx(300));
  CHECK(conv1.implementation == "mixed");
  CHECK(conv1.implementations == std::vector<std::string>{"eigen", "own"});
  CHECK(conv1.variant == "mixed");
  const OpRow& fc = find(by_module, "conv2d", Phase::forward, "fc");
  CHECK(fc.calls.mean == Approx(0.5));
  CHECK(fc.self.host_us.mean == Approx(50));
  CHECK(fc.implementation == "own");
}

TEST_CASE("nothing measured is said, not divided by", "[profiler]") {
  const Recording empty;
  CHECK(aggregate(empty, Grouping::op_phase).rows.empty());
  CHECK_THAT(report_table(empty), ContainsSubstring("No ops to report: of 0 recorded step(s)"));
  CHECK(json::parse(profile_json(empty))["summary"]["wall_us"].is_null());
  CHECK(json::parse(trace_json(empty))["otherData"]["events_left_out"] == 0);

  RecordingBuilder b;
  b.step(1, 500, /*warmup=*/true, /*profiled=*/true);
  b.op("conv2d", Phase::forward, 100, 90);
  b.step(2, 400, false, false);
  const std::string text = report_table(b.recording);
  CHECK_THAT(text, ContainsSubstring("No ops to report: of 2 recorded step(s)"));
  CHECK_THAT(text, ContainsSubstring("cost: not measured"));
  CHECK_THAT(text, ContainsSubstring("0.500"));  // the warm-up step, in ms
}

TEST_CASE("a step that an error ended is in no figure", "[profiler]") {
  RecordingBuilder b = two_steps();
  const double before = aggregate(b.recording, Grouping::op_phase).sum.host_us.mean;
  b.step(6, 0, false, true);
  b.op("conv2d", Phase::forward, 5000, 0);
  b.recording.events.back().device_begin_ns = 3;  // marks that were never resolved
  b.recording.events.back().device_end_ns = 4;
  const Aggregate a = aggregate(b.recording, Grouping::op_phase);
  CHECK(a.unfinished_steps == 1);
  CHECK(a.wall_us.n == 2);
  CHECK(a.sum.host_us.mean == before);
  CHECK_THAT(report_table(b.recording), ContainsSubstring("1 step(s) ended by an error"));
  const json event = json::parse(profile_json(b.recording))["events"].back();
  CHECK(event[3] == 6);
  CHECK(event[13].is_null());
  const json trace = json::parse(trace_json(b.recording));
  for (const json& e : trace["traceEvents"]) CHECK((e["ph"] != "X" || e["dur"] != 0.001));
}

TEST_CASE("a recording that breaks the rules is refused", "[profiler]") {
  RecordingBuilder b = two_steps();
  std::string expected;
  SECTION("children longer than their parent") {
    b.recording.events[3].host_end_ns -= 60 * kUs;
    expected = "event 4 (conv2d) of step 2 is shorter than the events inside it";
  }
  SECTION("events longer than their step") {
    b.recording.steps[1].wall_ns = 889 * kUs;
    expected = "exceed its wall time";
  }
  SECTION("an end before the beginning") {
    b.recording.events[1].host_end_ns = b.recording.events[1].host_begin_ns - 1;
    expected = "ends before it begins";
  }
  SECTION("a parent that comes later") {
    b.recording.events[1].parent = 3;
    expected = "has parent 3";
  }
  SECTION("a parent in another step") {
    b.recording.events[8].parent = 2;
    expected = "has parent 2";
  }
  SECTION("an unknown step") {
    b.recording.events[2].step = 77;
    expected = "belongs to no recorded step";
  }
  SECTION("a step twice") {
    b.recording.steps[2].index = 2;
    expected = "step 2 was recorded twice";
  }
  SECTION("an unknown module") {
    b.recording.events[2].module = 3;
    expected = "has module 3 of 3";
    CHECK_THROWS_WITH(profile_json(b.recording), ContainsSubstring(expected));
    return;
  }
  SECTION("shapes outside the pool") {
    b.recording.events[2].inputs = {0, 1};
    expected = "do not lie in the pool";
    CHECK_THROWS_WITH(profile_json(b.recording), ContainsSubstring(expected));
    CHECK_THROWS_WITH(trace_json(b.recording), ContainsSubstring(expected));
    return;
  }
  CHECK_THROWS_WITH(report_table(b.recording), ContainsSubstring(expected));
}

TEST_CASE("the printed report", "[profiler]") {
  RecordingBuilder b = two_steps();
  auto& memory = b.recording.memory;
  const auto activation = static_cast<size_t>(MemoryCategory::activation);
  memory.category[activation] = {1 << 20, 2 << 20, 3 << 20, 1025LL << 20};
  memory.at_peak[activation] = 1024LL << 20;
  memory.reserved = memory.peak_reserved = 2048LL << 20;
  b.recording.rss = {5 << 20, 6 << 20};
  const std::string text = report_table(b.recording);

  std::istringstream lines(text);
  std::vector<std::string> squeezed;  // with runs of spaces as one
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 120);
    std::istringstream words(line);
    std::string joined;
    for (std::string word; words >> word;) joined += (joined.empty() ? "" : " ") + word;
    squeezed.push_back(joined);
  }
  const auto has = [&](const std::string& line) {
    INFO(text << "\nexpected: " << line);
    CHECK(std::find(squeezed.begin(), squeezed.end(), line) != squeezed.end());
  };
  has("model toy");
  has("measured: profiler on 2 1.100 1.050 1.150 1.000 1.200");
  has("profiler off 2 1.000 0.990 1.010 0.980 1.020");
  has("warm-up, in no figure below 1 9.000 9.000 9.000 9.000 9.000");
  has("Profiler's own cost: +10.00 % of the median step (on: n = 2, off: n = 2)");
  has("conv2d forward 1.5 350.0 31.8 350.0 325.0 0.00065 2.0 0.2 own");
  has("conv2d backward 1 50.0 4.5 410.0 - - - - group");
  has("copy_ copy 0.5 20.0 1.8 20.0 - - - -");
  has("unaccounted 195.0 17.7");
  has("backward 410.0 37.3 335.0 0.00112 3.3 -");  // 2.24 MFLOP in 670 us
  has("loss 0.0 0.0 - - - -");
  has("= wall, mean of steps 1,100.0 100.0 740.0 0.00177 2.4 0.1");
  has("activation 1,024.00 3.00 1,025.00 1.00 2.00");
  has("reserved by allocator 2,048.00 2,048.00");
  has("resident set of process 6.00 5.00");
  for (const char* rule : profile_rules()) has(rule);
}
