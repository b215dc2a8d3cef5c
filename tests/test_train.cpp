// The training loop on made-up data: the same numbers again, whatever the threads, workers or
// profiler; memory that stays flat; events that match what was launched.
#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/meta/meta_backend.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/launch.h"
#include "core/ops.h"
#include "models/data/derived.h"
#include "models/train.h"
#include "tests/catch.h"

using namespace engine;

namespace {

struct Losses : TrainObserver {
  std::vector<double> values;
  std::vector<int64_t> samples_per_step;
  std::optional<EvalReport> evaluation;
  void on_step(const StepReport& report) override { values.push_back(report.loss); }
  void on_eval(const EvalReport& report) override { evaluation = report; }
};

TrainOptions options_of(const std::string& model, int64_t steps) {
  TrainOptions options;
  find_model(model).recipe(options);
  options.max_steps = steps;
  options.log_interval = 1;
  options.eval_interval = 0;
  options.batch_size = 32;
  return options;
}

std::vector<double> run(const std::string& name, const TrainOptions& options, Profiler& profiler,
                        Device device = kCpu, void (*change)(ModelOptions&) = nullptr) {
  cpu::register_backend();
  default_generator() = Generator(options.seed);
  const ModelInfo& info = find_model(name);
  ModelOptions model_options = info.defaults;
  model_options.device = device;
  if (change != nullptr) change(model_options);
  DatasetSplits data = load_dataset("synthetic", "", model_options.input, options.seed);
  if (info.task == TaskKind::segment) data.train = segment_images(std::move(data.train));
  if (info.task == TaskKind::translate)
    data.train = unpaired_images(std::move(data.train), 7, 9, model_options.input);
  model_options.classes = data.train->classes();
  const auto model = info.make(model_options);
  Losses losses;
  const std::atomic<bool> stop{false};
  train(*model, data, options, device, profiler, losses, stop);
  return losses.values;
}

std::vector<double> run(const std::string& name, const TrainOptions& options,
                        void (*change)(ModelOptions&) = nullptr) {
  Profiler profiler;
  return run(name, options, profiler, kCpu, change);
}

}  // namespace

TEST_CASE("train: CUDA gives the CPU's losses") {
  cpu::register_backend();
  if (!has_backend(DeviceKind::cuda)) {
    std::puts("SKIPPED: no CUDA device");
    return;
  }
  for (const char* model : {"lenet", "mlp"}) {
    TrainOptions options = options_of(model, 5);
    options.profile_warmup = 1;
    options.profile_steps = 2;
    Profiler on_cpu, on_cuda;
    const std::vector<double> expected = run(model, options, on_cpu),
                              got = run(model, options, on_cuda, {DeviceKind::cuda, 0});
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(model, i);
      CHECK(got[i] == Approx(expected[i]).epsilon(1e-4));
    }
    CHECK(on_cuda.recording().events.size() >= on_cpu.recording().events.size());
  }
}

TEST_CASE("train: a network learns, and the same seed gives the same losses bit for bit") {
  for (const char* model : {"lenet", "mlp"}) {
    CAPTURE(model);
    const TrainOptions options = options_of(model, 40);
    const std::vector<double> losses = run(model, options);
    REQUIRE(losses.size() == 40);
    CHECK(std::abs(losses.front() - std::log(10.0)) < 0.3);  // ten classes, no knowledge yet
    CHECK(losses.back() < 0.7 * losses.front());
    CHECK(run(model, options) == losses);
    TrainOptions other = options;
    other.seed = 1;
    CHECK(run(model, other) != losses);
  }
}

TEST_CASE("train: deterministic losses are the same for any number of threads and workers") {
  cpu::register_backend();
  const int threads = cpu::num_threads();
  const ContextScope deterministic(&Context::deterministic, true);
  for (const char* model : {"lenet", "mlp"}) {
    CAPTURE(model);
    TrainOptions options = options_of(model, 12);
    cpu::set_num_threads(1);
    const std::vector<double> losses = run(model, options);
    for (const int n : {2, 3}) {
      CAPTURE(n);
      cpu::set_num_threads(n);
      options.workers = n;
      CHECK(run(model, options) == losses);
    }
    cpu::set_num_threads(threads);
  }
}

TEST_CASE("train: profiling changes no loss, and its events are the launches") {
  TrainOptions options = options_of("lenet", 12);
  const std::vector<double> plain = run("lenet", options);
  options.profile_warmup = 2;
  options.profile_steps = 3;
  Profiler profiler;
  CHECK(run("lenet", options, profiler) == plain);

  const Recording& recording = profiler.recording();
  REQUIRE(recording.steps.size() == 8);  // 2 for warm-up, 3 with and 3 without events
  int profiled = 0;
  for (const StepRecord& step : recording.steps) {
    CHECK(step.wall_ns > 0);
    profiled += step.profiled;
  }
  CHECK(profiled == 3);
  for (const Event& event : recording.events) {
    CHECK(event.host_end_ns >= event.host_begin_ns);
    CHECK(event.device_end_ns >= event.device_begin_ns);
  }
}

TEST_CASE("train: each kernel of a step is one event, and each forward op has its backward event") {
  cpu::register_backend();
  const ModelInfo& info = find_model("lenet");
  const auto model = info.make(info.defaults);
  Profiler profiler;
  const Tensor x = full(Shape{4, 28, 28, 1}, 0.5);
  profiler.begin_step(1, false, true);
  const LaunchCount before = launch_count();
  const Tensor y = (*model)(x);
  ops::sum(y).backward();
  const LaunchCount after = launch_count();
  profiler.end_step();
  int64_t launches = 0, kernels = 0;
  std::vector<int64_t> forward_ids;
  for (const Event& event : profiler.recording().events) {
    if (event.phase == Phase::backward) forward_ids.push_back(event.forward_id);
    if (event.kind == EventKind::op) {
      ++launches;
      kernels += event.device_end_ns != 0;
    }
  }
  CHECK(launches == after.launches - before.launches);
  CHECK(kernels == after.kernels - before.kernels);
  for (const Event& event : profiler.recording().events) {
    if (event.phase == Phase::backward) continue;
    CAPTURE(event.op);
    CHECK(std::count(forward_ids.begin(), forward_ids.end(), event.id) > 0);
  }
}

TEST_CASE("train: fused and unfused training agree") {
  const TrainOptions options = options_of("lenet", 10);
  const std::vector<double> fused = run("lenet", options);
  const ContextScope off(&Context::fusion, FusionPolicy::off());
  const std::vector<double> parts = run("lenet", options);
  REQUIRE(parts.size() == fused.size());
  for (size_t i = 0; i < fused.size(); ++i) {
    CAPTURE(i, fused[i], parts[i]);
    CHECK(std::abs(fused[i] - parts[i]) <= 1e-4 * fused[i]);
  }
}

TEST_CASE("train: accumulated small batches step like one large batch") {
  TrainOptions large = options_of("mlp", 5);
  TrainOptions small = large;
  small.batch_size = 8;
  small.accum_steps = 4;
  const std::vector<double> a = run("mlp", large), b = run("mlp", small);
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i, a[i], b[i]);
    CHECK(std::abs(a[i] - b[i]) <= 1e-5 * a[i]);
  }
}

TEST_CASE("train: memory stays flat from step to step") {
  cpu::register_backend();
  CachingAllocator& allocator = backend(kCpu).allocator();
  TrainOptions options = options_of("lenet", 20);
  run("lenet", options);
  const int64_t reserved = allocator.snapshot().reserved;
  options.max_steps = 300;
  run("lenet", options);
  const MemorySnapshot after = allocator.snapshot();
  CHECK(after.reserved <= reserved + reserved / 4);
  CHECK(after[MemoryCategory::activation].allocated == 0);
  CHECK(after[MemoryCategory::gradient].allocated == 0);
  CHECK(after[MemoryCategory::workspace].allocated == 0);
}

TEST_CASE("train: a batch larger than the data set is one step an epoch") {
  TrainOptions options = options_of("mlp", 0);
  options.batch_size = 20000;  // there are 10000 samples
  options.epochs = 2;
  CHECK(run("mlp", options).size() == 2);
}

TEST_CASE("train: a loss that is not finite stops the run and names the step") {
  TrainOptions options = options_of("mlp", 50);
  options.lr = 1e30;
  CHECK_THROWS_WITH(run("mlp", options),
                    ContainsSubstring("finite loss") && ContainsSubstring("at step 2 (epoch 1)") &&
                        ContainsSubstring("is the first op to make it, from finite inputs"));
}

TEST_CASE("train: the first op that makes NaN or infinity is named, or the input that had it") {
  cpu::register_backend();
  const auto message = [](double value) -> std::string {
    const Tensor x = full({3}, value);
    try {
      const ContextScope find(&Context::find_non_finite, true);
      ops::exp(ops::log(ops::scale(x, 2)));
    } catch (const NonFiniteError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(1) == "");
  CHECK(message(0) == "log is the first op to make it, from finite inputs");  // -infinity
  CHECK(message(-1) == "log is the first op to make it, from finite inputs");
  CHECK(message(std::nan("")) ==
        "scale is the first op to meet it, in its input 1, f32[3]: a parameter or the data");
}

TEST_CASE("train: text, masks and pairs of images are learned from") {
  struct Row {
    const char* model;
    void (*shrink)(ModelOptions&);
    double lr;
    double begin, end;  // of the loss, roughly: ln(64), ln(11), and the sum of CycleGAN's
  };
  const auto text = [](ModelOptions& o) {
    o.input = Shape{16};
    o.layers = 1;
    o.width = 32;
    o.heads = o.heads ? 2 : 0;
  };
  const auto small = [](ModelOptions& o) {
    o.input = Shape{32, 32, 1};
    o.width = 4;
    o.blocks = o.blocks ? 1 : 0;
  };
  for (const Row& row :
       {Row{"gpt", text, 1e-2, 4.16, 3}, Row{"lstm", text, 1e-2, 4.16, 3},
        Row{"unet", small, 1e-2, 2.6, 1.5}, Row{"cyclegan", small, 1e-3, 28, 20}}) {
    CAPTURE(row.model);
    TrainOptions options = options_of(row.model, 60);
    options.batch_size = 8;
    options.epochs = 1;
    options.lr = row.lr;
    options.schedule = ScheduleKind::constant;
    options.warmup_steps = 0;
    const std::vector<double> losses = run(row.model, options, row.shrink);
    REQUIRE(losses.size() == 60);
    CHECK(std::abs(losses.front() - row.begin) < 0.35 * row.begin);
    CHECK(losses.back() < row.end);
    CHECK(run(row.model, options, row.shrink) == losses);
  }
}

TEST_CASE("train: the plan on the meta device is what the CPU then allocates") {
  cpu::register_backend();
  meta::register_backend();
  const ModelInfo& info = find_model("lenet");
  const TrainOptions options = options_of("lenet", 1);
  ModelOptions on_meta = info.defaults;
  on_meta.device = kMeta;
  const PlanReport plan =
      plan_step(*info.make(on_meta), options, {info.defaults.input}, {Shape{}, DType::i64});
  CHECK(plan.parameters == 61706);

  Profiler profiler;
  TrainOptions real = options_of("lenet", 4);
  real.profile_warmup = 1;
  real.profile_steps = 1;
  real.workers = 0;
  run("lenet", real, profiler);
  const MemorySnapshot& used = profiler.recording().memory;
  for (const MemoryCategory c :
       {MemoryCategory::parameter, MemoryCategory::optimizer_state, MemoryCategory::input,
        MemoryCategory::activation, MemoryCategory::gradient}) {
    CAPTURE(name(c));
    // What was asked for: the blocks that the CPU's allocator hands out again may be larger.
    CHECK(plan.memory[c].peak_requested == used[c].peak_requested);
  }
  // One multiply-add is 2 FLOPs: the forward pass of LeNet-5 on a 28x28 image, and a batch of 32.
  const int64_t forward =
      2 * (28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10) +
      (28 * 28 * 6 + 10 * 10 * 16 + 120 + 84 + 10);  // biases
  const int64_t pooling = 4 * (14 * 14 * 6 + 5 * 5 * 16);
  CHECK(plan.flops[static_cast<size_t>(Phase::forward)] == 32 * (forward + pooling));
}
