#include "models/train.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>

#include "core/backend.h"
#include "core/error.h"
#include "core/ops.h"
#include "models/checkpoint.h"
#include "models/data/image.h"
#include "models/data/loader.h"
#include "models/pictures.h"
#include "models/translation.h"

namespace engine {

namespace {

constexpr int64_t kSamplesShown = 8;

// Wall times of the latest steps; bounded, as a report may be far away.
class StepTimes {
 public:
  void add(double ms) {
    times_.push_back(ms);
    if (times_.size() > 4096) times_.pop_front();
  }
  double take_median() {
    std::vector<double> sorted(times_.begin(), times_.end());
    times_.clear();
    if (sorted.empty()) return 0;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

 private:
  std::deque<double> times_;
};

// How this model learns.
std::unique_ptr<Task> make_task(Model& model, const TrainOptions& options,
                                const SampleTensor& input, Device device) {
  if (auto* gan = dynamic_cast<CycleGan*>(&model)) {
    check(options.accum_steps == 1, "train",
          "expected no accumulated batches where networks compete, got {}", options.accum_steps);
    return std::make_unique<TranslationTask>(*gan, input.shape, device);
  }
  return std::make_unique<ClassificationTask>(model, options.label_smoothing);
}

// The optimizer that the options describe.
std::unique_ptr<Optimizer> make_optimizer(std::vector<Tensor> parameters, const TrainOptions& o) {
  switch (o.optimizer) {
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(
          std::move(parameters), o.lr,
          SgdOptions{.momentum = o.momentum, .weight_decay = o.weight_decay});
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return std::make_unique<Adam>(std::move(parameters), o.lr,
                                    AdamOptions{.beta1 = o.adam_beta1,
                                                .weight_decay = o.weight_decay,
                                                .decoupled = o.optimizer == OptimizerKind::adamw});
  }
  fail("train", "unknown optimizer");
}

using Optimizers = std::vector<std::unique_ptr<Optimizer>>;

// One for each of the task's groups of parameters.
Optimizers make_optimizers(Task& task, const TrainOptions& options) {
  Optimizers optimizers;
  for (std::vector<Tensor>& group : task.parameter_groups())
    optimizers.push_back(make_optimizer(std::move(group), options));
  return optimizers;
}

// The losses of a step: those of each batch added up, by their order in the task.
class LossSums {
 public:
  void add(std::vector<Loss> losses) {
    for (Loss& loss : losses) losses_.push_back(std::move(loss));
  }
  // Waits for the device. The first is the step's loss.
  std::vector<std::pair<std::string, double>> means(int64_t batches) const {
    std::vector<std::pair<std::string, double>> result;
    for (const Loss& loss : losses_) {
      const double part = loss.value.item() / static_cast<double>(batches);
      const auto same = std::find_if(result.begin(), result.end(),
                                     [&](const auto& one) { return one.first == loss.name; });
      if (same == result.end())
        result.emplace_back(loss.name, part);
      else
        same->second += part;
    }
    return result;
  }

 private:
  std::vector<Loss> losses_;
};

// Gives a recording the names that its events refer to, also when the run ends by an error.
class NameRecording {
 public:
  explicit NameRecording(Recording& recording) : recording_(recording) {}
  ~NameRecording() {
    for (int i = 0; i < kDTypes; ++i) recording_.dtype_names.push_back(name(static_cast<DType>(i)));
    recording_.module_paths = all_module_paths();
  }
  NameRecording(const NameRecording&) = delete;
  NameRecording& operator=(const NameRecording&) = delete;

 private:
  Recording& recording_;
};

// The run of one call of train().
class Training {
 public:
  Training(Model& model, const DatasetSplits& data, const TrainOptions& options, Device device,
           Profiler& profiler, TrainObserver& observer, const std::atomic<bool>& stop)
      : model_(model),
        data_(data),
        options_(options),
        device_(device),
        profiler_(profiler),
        observer_(observer),
        stop_(stop),
        loader_(*data.train, {options.batch_size, options.workers, /*shuffle=*/true, options.seed}),
        task_(make_task(model, options, data.train->input(), device)),
        optimizers_(make_optimizers(*task_, options)) {
    total_steps_ = total_steps(options, data.train->size());
    const int64_t decaying = std::max<int64_t>(1, total_steps_ - options.warmup_steps);
    schedule_ = {options.schedule, options.warmup_steps, total_steps_, (decaying + 2) / 3};
  }

  TrainResult run() {
    const NameRecording name_recording(profiler_.recording());
    if (options_.eval_only) {
      evaluate(0);
      return result_;
    }
    if (!options_.checkpoint.folder.empty())
      checkpoints_.emplace(options_.checkpoint.folder, options_.checkpoint.keep);
    if (!options_.checkpoint.resume.empty()) resume();
    report_begin_ = host_clock_ns();
    while (result_.steps < total_steps_ && !result_.interrupted) {
      train_epoch();
      if (result_.interrupted) break;
      if (!options_.samples.empty()) draw_samples();
      const bool last = result_.steps >= total_steps_;
      const bool due = options_.eval_interval > 0 && (last || epoch_ % options_.eval_interval == 0);
      const bool best = due && evaluate(epoch_) && is_best();
      if (result_.interrupted) break;
      ++epoch_;
      batches_done_ = 0;
      if (last || best || options_.checkpoint.every == 0) save(best);
    }
    if (result_.interrupted) save(false);
    return result_;
  }

 private:
  enum class Recording : uint8_t { none, warmup, profiled, unprofiled };

  // Warm-up steps, then recorded and unrecorded ones in turn: the difference between these is what
  // profiling costs.
  Recording recording_of(int64_t step) const {
    if (options_.profile_steps == 0) return Recording::none;
    const int64_t after = step - 1 - first_step_ - options_.profile_warmup;
    if (after < 0) return Recording::warmup;
    if (after >= 2 * options_.profile_steps) return Recording::none;
    return after % 2 == 0 ? Recording::profiled : Recording::unprofiled;
  }

  void train_epoch() {
    const int64_t begin = host_clock_ns();
    loader_.start_epoch(epoch_, batches_done_);
    while (batches_done_ < loader_.batches_per_epoch() && result_.steps < total_steps_) {
      if (stop_) {
        result_.interrupted = true;
        break;
      }
      const int64_t batches =
          std::min(loader_.batches_per_epoch() - batches_done_, options_.accum_steps);
      step(epoch_, batches);
      batches_done_ += batches;
      const int64_t every = options_.checkpoint.every;
      if (every > 0 && result_.steps % every == 0 && result_.steps < total_steps_) save(false);
    }
    result_.seconds += static_cast<double>(host_clock_ns() - begin) * 1e-9;
  }

  // All that the next step depends on, apart from the options and the data.
  TrainingState state() {
    TrainingState state;
    const auto add = [&](const std::string& prefix, const auto& tensors) {
      for (const auto& [name, tensor] : tensors)
        state.tensors.emplace_back(prefix + name, tensor.detach());
    };
    add("model.", model_.named_parameters());
    add("model.", model_.named_buffers());
    add("task.", task_->state());
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      const std::string prefix = fmt::format("optimizer.{}.", i);
      add(prefix, optimizers_[i]->state());
      const std::vector<int64_t>& steps = optimizers_[i]->steps();
      state.tensors.emplace_back(prefix + "steps",
                                 from_host(Shape{static_cast<int64_t>(steps.size())}, steps));
    }
    const RandomStream random = default_generator().state();
    state.numbers = {{"step", result_.steps},
                     {"epoch", epoch_},
                     {"batches of the epoch done", batches_done_},
                     {"random seed", std::bit_cast<int64_t>(random.seed)},
                     {"random offset", std::bit_cast<int64_t>(random.offset)},
                     {"right answers of the best", best_right_}};
    state.run = options_.checkpoint.run;
    return state;
  }

  void save(bool best) {
    if (!checkpoints_ || (result_.steps == saved_step_ && !best)) return;
    checkpoints_->save(state(), result_.steps, best);
    saved_step_ = result_.steps;
  }

  void resume() {
    TrainingState state = this->state();
    load_checkpoint(options_.checkpoint.resume, state);
    const auto number = [&](const char* key, int64_t least) {
      const int64_t value = state.numbers.at(key);
      check(value >= least, "checkpoint", "{}: expected '{}' of at least {}, got {}",
            options_.checkpoint.resume, key, least, value);
      return value;
    };
    result_.steps = first_step_ = saved_step_ = number("step", 0);
    check(first_step_ <= total_steps_, "checkpoint",
          "{}: expected a checkpoint of at most step {}, got step {}: a longer run goes on from it",
          options_.checkpoint.resume, total_steps_, first_step_);
    epoch_ = number("epoch", 1);
    batches_done_ = number("batches of the epoch done", 0);
    best_right_ = number("right answers of the best", -1);
    default_generator().set_state({std::bit_cast<uint64_t>(state.numbers.at("random seed")),
                                   std::bit_cast<uint64_t>(state.numbers.at("random offset"))});
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      const std::string name = fmt::format("optimizer.{}.steps", i);
      for (const auto& [key, tensor] : state.tensors) {
        if (key == name) optimizers_[i]->set_steps(tensor.template to_vector<int64_t>());
      }
    }
  }

  // Whether the evaluation just made is the first to be as good.
  bool is_best() {
    if (right_ <= best_right_) return false;
    best_right_ = right_;
    return true;
  }

  void step(int64_t epoch, int64_t batches) {
    const int64_t number = result_.steps + 1;
    const Recording recording = recording_of(number);
    if (recording != Recording::none) begin_recorded_step(number, recording);
    const int64_t begin = host_clock_ns();
    std::vector<Batch> batch_list;
    for (int64_t i = 0; i < batches; ++i) {
      batch_list.push_back(next_batch());
      samples_ += batch_list.back().inputs.size(0);
    }
    LossSums sums;
    std::optional<double> norm;
    for (size_t group = 0; group < optimizers_.size(); ++group) {
      for (const Batch& batch : batch_list) {
        std::vector<Loss> losses =
            task_->forward_backward(group, batch, 1 / static_cast<double>(batches));
        for (const Loss& loss : losses) {
          if (device_ != kCpu) break;  // reading it would wait for the device
          const double value = loss.value.item();
          if (!std::isfinite(value)) fail_not_finite(loss.name, value, epoch, batch_list);
        }
        sums.add(std::move(losses));
      }
      Optimizer& optimizer = *optimizers_[group];
      optimizer.set_lr(options_.lr * schedule_.factor(number - 1));
      if (options_.clip_grad_norm > 0) {
        const double one = optimizer.clip_grad_norm(options_.clip_grad_norm);
        norm = std::hypot(norm.value_or(0), one);
      }
      optimizer.step();
      optimizer.zero_grad();
    }
    const bool report =
        number % options_.log_interval == 0 || number == total_steps_ || number == 1 || stop_;
    std::vector<std::pair<std::string, double>> losses{{"loss", 0}};
    if (report || recording != Recording::none) {
      losses = sums.means(batches);
      for (const auto& [name, value] : losses) {
        if (!std::isfinite(value)) fail_not_finite(name, value, epoch, batch_list);
      }
    }
    if (recording != Recording::none) end_recorded_step(recording, losses.front().second);
    times_.add(static_cast<double>(host_clock_ns() - begin) * 1e-6);
    result_.steps = number;
    if (report) report_step(epoch, std::move(losses), norm);
    observer_.on_progress(number, total_steps_);
  }

  Batch next_batch() {
    std::optional<Batch> batch;
    {
      const Span span(EventKind::range, "next batch", Phase::data);
      batch = loader_.next();
      check(batch.has_value(), "train", "the loader ended before its last batch");
    }
    return on_device(std::move(*batch));
  }

  Batch on_device(Batch batch) const {
    if (device_ == kCpu) return batch;
    const Span span(EventKind::range, "copy to the device", Phase::copy);
    const ContextScope memory(&Context::memory, MemoryCategory::input);
    batch.inputs = to_device(batch.inputs, device_);
    batch.targets = to_device(batch.targets, device_);
    return batch;
  }

  // Runs the step's passes once more, with a look at every op's result.
  [[noreturn]] void fail_not_finite(const std::string& name, double value, int64_t epoch,
                                    const std::vector<Batch>& batches) {
    std::string origin = "which op made it did not show again";
    try {
      const ContextScope find(&Context::find_non_finite, true);
      for (size_t group = 0; group < optimizers_.size(); ++group) {
        for (const Batch& batch : batches) task_->forward_backward(group, batch, 1);
      }
    } catch (const NonFiniteError& error) {
      origin = error.what();
    }
    fail("train",
         "expected a finite {}, got {} at step {} (epoch {}): {}. A lower --lr or "
         "--clip-grad-norm may help",
         name, std::abs(value) /* "-nan" would puzzle */, result_.steps + 1, epoch, origin);
  }

  void begin_recorded_step(int64_t number, Recording recording) {
    backend(device_).synchronize();
    if (number == first_step_ + options_.profile_warmup + 1)
      backend(device_).allocator().reset_peaks();
    profiler_.begin_step(number, recording == Recording::warmup, recording == Recording::profiled);
  }

  void end_recorded_step(Recording recording, double loss) {
    backend(device_).synchronize();
    profiler_.end_step();
    profiler_.set_loss(loss);
    if (recording == Recording::profiled) {
      profiler_.recording().memory = backend(device_).allocator().snapshot();
      profiler_.recording().rss = resident_set_size();
    }
  }

  void report_step(int64_t epoch, std::vector<std::pair<std::string, double>> losses,
                   std::optional<double> norm) {
    const int64_t now = host_clock_ns();
    StepReport report;
    report.step = result_.steps;
    report.total_steps = total_steps_;
    report.epoch = epoch;
    report.loss = losses.front().second;
    result_.final_loss = report.loss;
    losses.erase(losses.begin());
    report.parts = std::move(losses);
    report.lr = optimizers_.front()->lr();
    report.grad_norm = norm;
    report.step_ms = times_.take_median();
    report.samples_per_second = static_cast<double>(samples_) /
                                std::max(1e-9, static_cast<double>(now - report_begin_) * 1e-9);
    samples_ = 0;
    observer_.on_step(report);
    report_begin_ = host_clock_ns();
  }

  // Whether it came to its end.
  bool evaluate(int64_t epoch) {
    const NoGradScope no_grad;
    const int64_t begin = host_clock_ns();
    model_.train(false);
    DataLoader loader(*data_.test,
                      {options_.batch_size, options_.workers, /*shuffle=*/false, options_.seed});
    loader.start_epoch(1);
    Evaluation sums;
    while (std::optional<Batch> batch = loader.next()) {
      if (stop_) {
        result_.interrupted = true;
        break;
      }
      task_->evaluate(on_device(std::move(*batch)), sums);
    }
    model_.train(true);
    if (result_.interrupted) return false;
    right_ = sums.right;
    const int64_t end = host_clock_ns();
    EvalReport report;
    report.step = result_.steps;
    report.epoch = epoch;
    report.loss = sums.loss / static_cast<double>(sums.samples);
    if (sums.answers > 0)
      report.accuracy = static_cast<double>(sums.right) / static_cast<double>(sums.answers);
    report.seconds = static_cast<double>(end - begin) * 1e-9;
    result_.last_eval = report;
    report_begin_ += end - begin;  // samples/s leaves evaluation out
    observer_.on_eval(report);
    return true;
  }

  // The same test samples after every epoch.
  void draw_samples() {
    const NoGradScope no_grad;
    const int64_t begin = host_clock_ns();
    model_.train(false);
    DataLoader loader(*data_.test, {.batch_size = kSamplesShown, .workers = 0});
    loader.start_epoch(1);
    const std::vector<std::vector<Image>> columns = task_->show(on_device(*loader.next()));
    model_.train(true);
    check(!columns.empty(), "train", "expected a model that makes images to draw samples of");
    write_png(fmt::format("{}/epoch-{:04}.png", options_.samples, epoch_), grid(columns));
    report_begin_ += host_clock_ns() - begin;
  }

  Model& model_;
  const DatasetSplits& data_;
  const TrainOptions& options_;
  const Device device_;
  Profiler& profiler_;
  TrainObserver& observer_;
  const std::atomic<bool>& stop_;
  DataLoader loader_;
  std::unique_ptr<Task> task_;
  Optimizers optimizers_;
  Schedule schedule_;
  int64_t total_steps_ = 0;
  std::optional<CheckpointFolder> checkpoints_;
  int64_t epoch_ = 1;                    // the one that the next step belongs to
  int64_t batches_done_ = 0;             // of it
  int64_t first_step_ = 0;               // done before this process
  int64_t saved_step_ = -1;              // of the last checkpoint
  int64_t right_ = 0, best_right_ = -1;  // answers, at the last and at the best evaluation
  StepTimes times_;
  int64_t samples_ = 0;
  int64_t report_begin_ = 0;
  TrainResult result_;
};

}  // namespace

int64_t total_steps(const TrainOptions& o, int64_t samples) {
  if (o.eval_only) return 0;
  const int64_t batches = (samples + o.batch_size - 1) / o.batch_size;
  const int64_t steps = o.epochs * ((batches + o.accum_steps - 1) / o.accum_steps);
  return o.max_steps > 0 ? std::min(steps, o.max_steps) : steps;
}

PlanReport plan_step(Model& model, const TrainOptions& options, const SampleTensor& input,
                     const SampleTensor& target) {
  CachingAllocator& allocator = backend(kMeta).allocator();
  const std::unique_ptr<Task> task = make_task(model, options, input, kMeta);
  const Optimizers optimizers = make_optimizers(*task, options);
  Profiler profiler;
  allocator.reset_peaks();
  profiler.begin_step(1, /*warmup=*/false, /*profiled=*/true);
  {
    std::vector<Batch> batches;
    for (int64_t i = 0; i < options.accum_steps; ++i) {
      const ContextScope memory(&Context::memory, MemoryCategory::input);
      batches.push_back({empty(input.batched(options.batch_size), input.dtype, kMeta),
                         empty(target.batched(options.batch_size), target.dtype, kMeta)});
    }
    for (size_t group = 0; group < optimizers.size(); ++group) {
      for (const Batch& batch : batches)
        task->forward_backward(group, batch, 1 / static_cast<double>(options.accum_steps));
      if (options.clip_grad_norm > 0) optimizers[group]->clip_grad_norm(options.clip_grad_norm);
      optimizers[group]->step();
    }
  }
  profiler.end_step();
  PlanReport report;
  report.parameters = model.parameter_count();
  report.memory = allocator.snapshot();
  for (const Event& event : profiler.recording().events) {
    if (event.kind != EventKind::op || std::string_view(event.implementation) == "view") continue;
    const auto phase = static_cast<size_t>(event.phase);
    report.flops[phase] += event.flops;
    report.bytes[phase] += event.bytes_read + event.bytes_written;
    ++report.kernels;
  }
  return report;
}

TrainResult train(Model& model, const DatasetSplits& data, const TrainOptions& options,
                  Device device, Profiler& profiler, TrainObserver& observer,
                  const std::atomic<bool>& stop) {
  model.train(true);
  return Training(model, data, options, device, profiler, observer, stop).run();
}

}  // namespace engine
