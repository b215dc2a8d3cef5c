// Checkpoints: a run that was stopped and goes on ends bit for bit where an unbroken one ends;
// files that do not fit are refused with every difference; the folder keeps the last few and the
// best.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "backends/cpu/cpu_backend.h"
#include "core/random.h"
#include "models/checkpoint.h"
#include "models/files/safetensors.h"
#include "models/train.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using engine::test::error_of;
using engine::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// Asks the run to stop after this step; 0: never.
struct Stopper : TrainObserver {
  explicit Stopper(int64_t after) : after_(after) {}
  void on_progress(int64_t step, int64_t) override { stop = stop || step == after_; }
  std::atomic<bool> stop{false};
  int64_t after_;
};

struct Run {
  std::string model = "lenet";
  OptimizerKind optimizer = OptimizerKind::sgd;
  int64_t steps = 0;
  int64_t accum_steps = 1;
  int64_t stop_after = 0;
  std::string resume{};
  int64_t every = 0, keep = 3;
  std::map<std::string, std::string> shared{{"model", "a"}};
};

// 10000 samples in batches of 1024: ten steps an epoch, or five where two batches make a step.
TrainResult train_in(const std::string& folder, const Run& run) {
  cpu::register_backend();
  const ModelInfo& info = find_model(run.model);
  TrainOptions options;
  info.recipe(options);
  options.optimizer = run.optimizer;
  options.batch_size = 1024;
  options.epochs = 2;
  options.max_steps = run.steps;
  options.accum_steps = run.accum_steps;
  options.checkpoint = {folder, run.every, run.keep, run.resume, run.shared};
  default_generator() = Generator(run.resume.empty() ? options.seed : 999);
  const ModelOptions model_options = info.defaults;
  const auto model = info.make(model_options);
  const DatasetSplits data = load_dataset("synthetic", "", model_options.input, options.seed);
  Profiler profiler;
  Stopper stopper(run.stop_after);
  return train(*model, data, options, kCpu, profiler, stopper, stopper.stop);
}

std::string newest(const TemporaryFolder& folder) {
  return CheckpointFolder::newest(folder.path()).value();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TrainingState small_state() {
  cpu::register_backend();
  return {{{"w", full({2}, 3.0)}}, {{"step", 7}}, {{"model", "a"}}};
}

}  // namespace

TEST_CASE("checkpoint: a run stopped at any step and resumed ends with the same bytes") {
  for (Run run : {Run{.steps = 13}, Run{.optimizer = OptimizerKind::adam, .accum_steps = 2}}) {
    const TemporaryFolder whole;
    CHECK_FALSE(train_in(whole.path(), run).interrupted);
    const int64_t total = run.accum_steps == 2 ? 10 : 13;
    // In mid-epoch, at the end of an epoch (before its evaluation), after one and before the last
    // step.
    for (const int64_t stop :
         {int64_t{1}, int64_t{4}, total == 10 ? int64_t{5} : int64_t{10}, total - 1}) {
      CAPTURE(total, stop);
      const TemporaryFolder parts;
      Run first = run, second = run;
      first.stop_after = stop;
      const TrainResult interrupted = train_in(parts.path(), first);
      CHECK(interrupted.interrupted);
      CHECK(interrupted.steps == stop);
      second.resume = newest(parts);
      const TrainResult resumed = train_in(parts.path(), second);
      CHECK(resumed.steps == total);
      CHECK(test::read_bytes(newest(parts)) == test::read_bytes(newest(whole)));
    }
  }
}

TEST_CASE("checkpoint: running statistics and random numbers go on too") {
  const TemporaryFolder whole, parts;
  Run run{.model = "conv6_small", .optimizer = OptimizerKind::adamw, .steps = 3};
  train_in(whole.path(), run);
  run.stop_after = 2;
  train_in(parts.path(), run);
  run.stop_after = 0;
  run.resume = newest(parts);
  train_in(parts.path(), run);
  CHECK(test::read_bytes(newest(parts)) == test::read_bytes(newest(whole)));

  // The stream of random numbers is where the file says.
  TrainingState state = small_state();
  state.numbers = {{"random offset", 12345}};
  CheckpointFolder(parts.file("small"), 1).save(state, 1, false);
  state.numbers = {{"random offset", 0}};
  load_checkpoint(parts.file("small/checkpoint-0000000001.safetensors"), state);
  CHECK(state.numbers.at("random offset") == 12345);
}

TEST_CASE("checkpoint: the last few stay, and the best beside them") {
  const TemporaryFolder temporary;
  const std::string folder = temporary.file("made/when/missing");
  TrainingState state = small_state();
  CheckpointFolder checkpoints(folder, 2);
  CHECK_FALSE(CheckpointFolder::newest(folder).has_value());
  checkpoints.save(state, 5, true);
  for (const int64_t step : {10, 15, 20}) checkpoints.save(state, step, false);
  CHECK(names_in(folder) == std::vector<std::string>{"best.safetensors",
                                                     "checkpoint-0000000005.safetensors",
                                                     "checkpoint-0000000015.safetensors",
                                                     "checkpoint-0000000020.safetensors"});
  CHECK(fs::read_symlink(folder + "/best.safetensors") == "checkpoint-0000000005.safetensors");
  checkpoints.save(state, 25, true);
  CHECK(names_in(folder) == std::vector<std::string>{"best.safetensors",
                                                     "checkpoint-0000000020.safetensors",
                                                     "checkpoint-0000000025.safetensors"});
  CHECK(CheckpointFolder::newest(folder) == folder + "/checkpoint-0000000025.safetensors");

  // What a killed process left half written goes; what is not ours stays.
  temporary.write("made/when/missing/checkpoint-0000000030.safetensors.123-0.tmp", "half");
  temporary.write("made/when/missing/notes.tmp", "mine");
  temporary.write("made/when/missing/checkpoint-7.safetensors", "another name");
  const CheckpointFolder again(folder, 2);
  CHECK(names_in(folder) == std::vector<std::string>{"best.safetensors",
                                                     "checkpoint-0000000020.safetensors",
                                                     "checkpoint-0000000025.safetensors",
                                                     "checkpoint-7.safetensors", "notes.tmp"});
  CHECK(CheckpointFolder::newest(folder) == folder + "/checkpoint-0000000025.safetensors");
  CHECK_FALSE(CheckpointFolder::newest(folder + "/absent").has_value());
}

TEST_CASE("checkpoint: what is not finite is not written") {
  const TemporaryFolder folder;
  TrainingState state = small_state();
  CheckpointFolder checkpoints(folder.path(), 2);
  checkpoints.save(state, 1, false);
  state.tensors[0].second = full({2}, std::numeric_limits<double>::infinity());
  CHECK_THAT(error_of([&] { checkpoints.save(state, 2, false); }),
             ContainsSubstring("w is not finite after step 2"));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint-0000000001.safetensors"});
}

TEST_CASE("checkpoint: what does not fit is refused with every difference, and nothing changes") {
  const TemporaryFolder folder;
  TrainingState state = small_state();
  CheckpointFolder(folder.path(), 2).save(state, 7, false);
  const std::string path = folder.file("checkpoint-0000000007.safetensors");

  TrainingState same = small_state();
  same.tensors[0].second = full({2}, 0.0);
  same.numbers["step"] = 0;
  load_checkpoint(path, same);
  CHECK(same.tensors[0].second.to_vector<float>() == std::vector<float>{3, 3});
  CHECK(same.numbers.at("step") == 7);

  TrainingState other;
  other.tensors = {{"w", full({3}, 1.0)}, {"v", full({1}, 1.0)}};
  other.numbers = {{"step", 0}};
  other.run = {{"model", "b"}, {"seed", "1"}};
  const std::string what = error_of([&] { load_checkpoint(path, other); });
  for (const char* part : {"run 'model': expected b, got a", "run 'seed': expected, got none",
                           "tensor 'w': expected f32[3], got f32[2]",
                           "tensor 'v': expected, got none", "checkpoint-0000000007"}) {
    CHECK_THAT(what, ContainsSubstring(part));
  }
  CHECK(other.tensors[0].second.to_vector<float>() == std::vector<float>{1, 1, 1});

  TrainingState numbers = small_state();
  numbers.numbers["epoch"] = 1;
  CHECK_THAT(error_of([&] { load_checkpoint(path, numbers); }), ContainsSubstring("'epoch'"));

  // A file of weights is no checkpoint; half a checkpoint is none either.
  write_safetensors(folder.file("weights.safetensors"), state.tensors);
  CHECK_THAT(error_of([&] { load_checkpoint(folder.file("weights.safetensors"), same); }),
             ContainsSubstring("engine checkpoint 1"));
  test::survive_damage(test::read_bytes(path), [](const std::string& damaged) {
    TrainingState victim = small_state();
    load_checkpoint(damaged, victim);
  });
}
