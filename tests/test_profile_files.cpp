// The files that a profile is kept in, the JSON and the trace, read back and compared with what was
// recorded.
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/profile_json.h"
#include "profiler/report.h"
#include "profiler/trace.h"
#include "tests/catch.h"
#include "tests/profiler_recording.h"

using namespace engine;
using nlohmann::json;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("engine-test-profiler-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* file) const { return (path_ / file).string(); }

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the JSON file holds what was recorded and what is reported", "[profiler]") {
  RecordingBuilder b = two_steps();
  b.recording.shape_pool = {0, 4, 64, 28, 28, 1, 1, 1, 10};
  b.recording.events[2].inputs = {0, 2};
  b.recording.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  b.recording.steps[1].loss = -std::numeric_limits<double>::infinity();
  b.recording.steps[2].has_loss = false;
  b.recording.run.emplace_back("folder", "not UTF-8: \xff");
  b.recording.memory.category[0] = {1, 2, 3, 4};

  const TemporaryFolder folder;
  const std::string path = folder / "profile.json";
  write_profile_json(b.recording, path);
  const std::string text = read_file(path);
  CHECK(text == profile_json(b.recording));
  const json profile = json::parse(text);  // which takes neither NaN nor infinity

  CHECK(profile["format"] == "engine-profile");
  CHECK(profile["version"] == 1);
  CHECK(profile["rules"].size() == profile_rules().size());
  CHECK(profile["run"]["model"] == "toy");
  REQUIRE(profile["steps"].size() == 5);
  CHECK(profile["steps"][0]["loss"].is_null());
  CHECK(profile["steps"][1]["loss"].is_null());
  CHECK(profile["steps"][2]["loss"].is_null());
  CHECK(profile["steps"][3]["loss"] == 0.5);
  CHECK(profile["steps"][3]["wall_ns"] == 1'200'000);
  CHECK(profile["steps"][0]["begin_ns"] == 0);

  REQUIRE(profile["events"].size() == b.recording.events.size());
  const json fields = profile["event_fields"];
  json conv;
  for (size_t i = 0; i < fields.size(); ++i) {
    conv[fields[i].get<std::string>()] = profile["events"][2][i];
  }
  CHECK(profile["events"][2].size() == fields.size());
  const json expected = {{"id", 3},
                         {"parent", 0},
                         {"forward_id", 0},
                         {"step", 2},
                         {"kind", "op"},
                         {"phase", "forward"},
                         {"op", "conv2d"},
                         {"module", "conv1"},
                         {"device", "cpu"},
                         {"variant", "plain"},
                         {"implementation", "own"},
                         {"host_begin_ns", 1'000'050'000},
                         {"host_end_ns", 1'000'350'000},
                         {"device_begin_ns", 1'000'051'000},
                         {"device_end_ns", 1'000'331'000},
                         {"flops", 560'000},
                         {"bytes_read", 100'000},
                         {"bytes_written", 40'000},
                         {"allocated_bytes", 8192},
                         {"freed_bytes", 0},
                         {"peak_bytes", 50'000},
                         {"scratch_bytes", 700},
                         {"saved_bytes", 4096},
                         {"inputs", {{"f32", 64, 28, 28, 1}, {"i64", 10}}},
                         {"outputs", json::array()}};
  CHECK(conv == expected);
  CHECK(profile["events"][1][13].is_null());  // a range runs no kernel

  CHECK(profile["summary"]["measured_steps"] == 2);
  CHECK(profile["summary"]["profiler_cost_percent"].get<double>() == Approx(10));
  CHECK(profile["phases"].size() == static_cast<size_t>(kPhases));
  const json row = profile["rows"]["op_phase"][0];
  CHECK(row["op"] == "conv2d");
  CHECK(row["self"]["host_us"]["median"].get<double>() == Approx(350));
  CHECK(row["self"]["gflop_per_s"].get<double>() == Approx(2));
  CHECK_FALSE(row.contains("module"));
  CHECK(profile["rows"]["op_phase_module"].size() == 8);
  CHECK(profile["memory"]["categories"][0]["category"] == "parameter");
  CHECK(profile["memory"]["categories"][0]["peak_allocated_bytes"] == 4);
}

TEST_CASE("the trace has every event on its track", "[profiler]") {
  RecordingBuilder b = two_steps();
  b.recording.shape_pool = {0, 2, 64, 10};
  b.recording.events[2].outputs = {0, 1};
  const json trace = json::parse(trace_json(b.recording));
  CHECK(trace["otherData"]["events_left_out"] == 0);

  std::map<int, std::string> tracks;
  std::map<std::string, std::vector<json>> slices;
  std::vector<json> arrows, counters;
  for (const json& e : trace["traceEvents"]) {
    if (e["name"] == "thread_name") tracks[e["tid"]] = e["args"]["name"];
    if (e["ph"] == "X") slices[tracks.at(e["tid"])].push_back(e);
    if (e["ph"] == "s" || e["ph"] == "f") arrows.push_back(e);
    if (e["ph"] == "C") counters.push_back(e);
  }
  CHECK(slices["steps"].size() == 5);
  CHECK(slices["host"].size() == b.recording.events.size());
  CHECK(slices["device cpu"].size() == 10);  // all events but data, copy_ and two groups

  const json& conv = slices["host"][2];
  CHECK(conv["name"] == "conv2d");
  CHECK(conv["cat"] == "forward");
  CHECK(conv["ts"] == 1'000'050.0);  // step 2 begins 1 s after step 1
  CHECK(conv["dur"] == 300.0);
  CHECK(conv["args"]["module"] == "conv1");
  CHECK(conv["args"]["outputs"] == "f32[64,10]");
  CHECK(conv["args"]["FLOP"] == 560'000);
  CHECK(slices["device cpu"][1]["ts"] == 1'000'051.0);
  CHECK(slices["device cpu"][1]["dur"] == 280.0);

  // One arrow, from the forward op to its backward group; the events inside get none.
  REQUIRE(arrows.size() == 2);
  CHECK(arrows[0]["ph"] == "s");
  CHECK(arrows[0]["ts"] == conv["ts"]);
  CHECK(arrows[1]["ts"] == 1'000'350.0);
  CHECK(arrows[1]["bp"] == "e");
  CHECK(arrows[0]["id"] == arrows[1]["id"]);
  // The peak is 0 at the first event, 50,000 bytes at the third and 0 after it.
  REQUIRE(counters.size() == 3);
  CHECK(counters[1]["args"]["peak MiB"].get<double>() == Approx(50'000 / 1048576.0));
}

TEST_CASE("a trace of some steps, and one cut at its cap", "[profiler]") {
  const RecordingBuilder b = two_steps();
  TraceOptions options;
  options.first_step = 3;
  options.last_step = 4;
  std::vector<std::string> steps;
  size_t host_slices = 0;
  const json part = json::parse(trace_json(b.recording, options));
  for (const json& e : part["traceEvents"]) {
    if (e["ph"] == "X" && e["tid"] == 1) steps.push_back(e["name"]);
    if (e["ph"] == "X" && e["tid"] == 2) ++host_slices;
  }
  CHECK(steps == std::vector<std::string>{"step 3", "step 4"});
  CHECK(host_slices == 6);

  const size_t whole = trace_json(b.recording).size();
  for (size_t cap = 1500; cap < whole; cap += 97) {
    TraceOptions small;
    small.max_bytes = static_cast<int64_t>(cap);
    const std::string text = trace_json(b.recording, small);
    REQUIRE(text.size() <= cap);
    const json trace = json::parse(text);
    size_t written = 0;
    for (const json& e : trace["traceEvents"]) {
      if (e["ph"] == "X" && e["tid"] == 2) ++written;
    }
    const auto left_out = trace["otherData"]["events_left_out"].get<size_t>();
    REQUIRE(left_out > 0);
    REQUIRE(written + left_out == b.recording.events.size());
  }
  options.max_bytes = 100;
  CHECK_THROWS_WITH(trace_json(b.recording, options), ContainsSubstring("max_bytes is 100"));
}

TEST_CASE("a trace is compressed where its name asks for it", "[profiler]") {
  const RecordingBuilder b = two_steps();
  const TemporaryFolder folder;
  const std::string expected = trace_json(b.recording);
  write_trace(b.recording, folder / "trace.json");
  CHECK(read_file(folder / "trace.json") == expected);

  const std::string path = folder / "trace.json.gz";
  write_trace(b.recording, path);
  REQUIRE(read_file(path).substr(0, 2) == "\x1f\x8b");  // gzip's mark; gzread takes plain files too
  gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::string text(expected.size() + 1, '\0');
  const int size = gzread(file, text.data(), static_cast<unsigned>(text.size()));
  CHECK(gzclose(file) == Z_OK);
  REQUIRE(size >= 0);
  text.resize(static_cast<size_t>(size));
  CHECK(text == expected);
}
