// engine-train: trains one of the bundled networks from the command line. Results go to standard
// output, progress and errors to standard error. Exit codes: 0 done, 1 failed, 2 the command line
// cannot be run, 130 interrupted.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/meta/meta_backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/random.h"
#include "models/checkpoint.h"
#include "models/data/augment.h"
#include "models/data/dataset.h"
#include "models/data/derived.h"
#include "models/data/fit.h"
#include "models/files/weights.h"
#include "models/model.h"
#include "models/train.h"
#include "models/training_log.h"
#include "profiler/profile_json.h"
#include "profiler/profiler.h"
#include "profiler/report.h"
#include "profiler/safe_file.h"
#include "profiler/trace.h"
#include "tools/progress.h"
#include "tools/train_options.h"

namespace engine::tools {

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr int kInterrupted = 130;
// The classes that are two kinds of images: of Fashion-MNIST, sneakers and ankle boots.
constexpr int64_t kFirstKind = 7, kSecondKind = 9;

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // as a signal handler writes it

// The first signal asks the run to end after its step; the second ends the process.
extern "C" void on_signal(int number) {
  if (!stop_requested.exchange(true)) return;
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A closed pipe or the limit of a file's size is then an error of the write that met it.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

/// From the end of training on: what is written then takes a moment, and a second signal would
/// leave a temporary file.
void ignore_signals() {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

/// Where a standard stream was closed, no file opened later may get its number and its output.
void occupy_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
  }
}

/// One line on standard error, whatever line breaks the text has.
void print_line(const char* kind, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fputs(fmt::format("engine-train: {}: {}\n", kind, text).c_str(), stderr);
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw std::runtime_error(
        fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

/// Runs `body`; an error in it then names the flag that asked for the file.
template <class Body>
void for_flag(const char* flag, Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", flag, error.what()));
  }
}

/// Makes the folders that `path` is to be in, and makes sure that a file can be put there.
void prepare_output(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw std::runtime_error(fmt::format("cannot make the folder '{}' of '{}': {}", folder.string(),
                                         path, error.message()));
  }
  SafeFile probe(path);
}

/// Text in columns; the last one is not padded.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c + 1 < row.size(); ++c) text += fmt::format("{:<{}}  ", row[c], widths[c]);
    text += row.back() + '\n';
  }
  return text;
}

void list_models() {
  std::vector<std::vector<std::string>> rows{
      {"name", "parameters", "input", "description", "recipe"}};
  for (const ModelInfo& info : model_list()) {
    TrainOptions recipe;
    info.recipe(recipe);
    ModelOptions options = info.defaults;
    options.device = kMeta;
    const std::unique_ptr<Model> model = info.make(options);
    rows.push_back(
        {info.name, std::to_string(model->parameter_count()), to_string(options.input),
         info.description,
         fmt::format("{}: {} epochs of batches of {}, {}, {}", info.dataset, recipe.epochs,
                     recipe.batch_size, describe_optimizer(recipe), describe_schedule(recipe))});
  }
  print(table(rows));
}

void list_datasets() {
  std::vector<std::vector<std::string>> rows{{"name", "default folder", "description"}};
  for (const DatasetInfo& info : dataset_list()) {
    rows.push_back(
        {info.name, info.default_dir.empty() ? "-" : info.default_dir, info.description});
  }
  print(table(rows));
}

/// What runs, for the profile and for --dry-run.
Pairs describe_run(const CommandLine& line, const Model& model, const DatasetSplits& data,
                   int threads) {
  const TrainOptions& o = line.train;
  const auto yes_no = [](bool on) { return std::string(on ? "yes" : "no"); };
  Pairs pairs{
      {"engine version", ENGINE_VERSION},
      {"model",
       line.model->name +
           (line.hidden.empty() ? ""
                                : fmt::format(" with --hidden {}", fmt::join(line.hidden, ","))) +
           (line.stem.empty() ? "" : fmt::format(" with --stem {}", line.stem))},
      {"parameters", std::to_string(model.parameter_count())},
      {"dataset", line.dataset},
      {"augmentation", line.augmentation_text},
      {"training samples", std::to_string(data.train->size())},
      {"test samples", std::to_string(data.test->size())},
      {"input", to_string(data.train->input().shape)},
      {"classes", std::to_string(data.train->classes())},
      {"batch size", std::to_string(o.batch_size)},
      {"accumulated batches", std::to_string(o.accum_steps)},
      {"epochs", std::to_string(o.epochs)},
      {"steps", std::to_string(total_steps(o, data.train->size()))},
      {"device", to_string(line.device)},
      {"device description", line.device == kMeta  ? "no kernel runs"
                             : line.device == kCpu ? cpu::description()
                                                   : cuda::description()},
      {"threads", std::to_string(threads)},
      {"workers", std::to_string(o.workers)},
      {"seed", std::to_string(o.seed)},
      {"optimizer", describe_optimizer(o)},
      {"learning-rate schedule", describe_schedule(o)},
      {"largest gradient norm",
       o.clip_grad_norm > 0 ? fmt::format("{:g}", o.clip_grad_norm) : "no limit"},
      {"label smoothing", fmt::format("{:g}", o.label_smoothing)},
      {"evaluation", o.eval_only           ? "only"
                     : o.eval_interval > 0 ? fmt::format("every {} epochs", o.eval_interval)
                                           : "never"},
      {"fusion", line.fusion_text},
      {"deterministic", yes_no(line.deterministic)},
      {"precision", "f32"},
      {"command line", line.invocation},
  };
  if (line.profiling()) {
    pairs.insert(pairs.end() - 1, {"profile", fmt::format("{} steps after {} warm-up steps",
                                                          o.profile_steps, o.profile_warmup)});
  }
  return pairs;
}

/// What a network's samples are: input and target.
std::pair<SampleTensor, SampleTensor> sample_of(TaskKind task, const Shape& input) {
  switch (task) {
    case TaskKind::classify:
      break;
    case TaskKind::segment:
      return {{input}, {Shape{input[0], input[1]}, DType::i64}};
    case TaskKind::predict_next:
      return {{input, DType::i64}, {input, DType::i64}};
    case TaskKind::translate:
      return {{input}, {input}};
  }
  return {{input}, {Shape{}, DType::i64}};
}

/// Plans one step on the meta device: shapes, memory and cost, and no kernel.
int run_plan(const CommandLine& line) {
  context().fusion = line.fusion;
  const ModelOptions options = line.model_options();
  const std::unique_ptr<Model> model = line.model->make(options);
  const auto [input, target] = sample_of(line.model->task, options.input);
  const PlanReport plan = plan_step(*model, line.train, input, target);
  const auto mib = [](int64_t bytes) {
    return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20));
  };
  std::vector<std::vector<std::string>> work{{"phase", "GFLOP", "MB read and written"}};
  std::vector<std::vector<std::string>> memory{{"category", "MiB at the peak", "own peak, MiB"}};
  int64_t flops = 0, bytes = 0;
  const auto add_work = [&](const std::string& phase, int64_t f, int64_t b) {
    work.push_back({phase, fmt::format("{:.4f}", static_cast<double>(f) * 1e-9),
                    fmt::format("{:.3f}", static_cast<double>(b) * 1e-6)});
  };
  for (size_t i = 0; i < kPhases; ++i) {
    if (plan.flops[i] == 0 && plan.bytes[i] == 0) continue;
    add_work(name(static_cast<Phase>(i)), plan.flops[i], plan.bytes[i]);
    flops += plan.flops[i];
    bytes += plan.bytes[i];
  }
  add_work("total", flops, bytes);
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    memory.push_back({name(static_cast<MemoryCategory>(i)), mib(plan.memory.at_peak[i]),
                      mib(plan.memory.category[i].peak_allocated)});
  }
  memory.push_back({"total", mib(plan.memory.total.peak_allocated), ""});
  print(fmt::format(
      "{}, batch {}, {} parameters: one training step of {} kernels, planned, nothing computed\n\n"
      "{}\n{}\n1 multiply-add = 2 FLOP. Bytes count each tensor once per op. Kernels' own "
      "workspace is not known here.\n",
      line.model->name, line.train.batch_size, plan.parameters, plan.kernels, table(work),
      table(memory)));
  return 0;
}

/// Whether what this run measures is the device's time.
bool has_times(const CommandLine& line) {
  return line.device.kind != DeviceKind::cuda || cuda::has_times();
}

class Observer : public TrainObserver {
 public:
  Observer(TrainingLog* log, Progress& progress, bool has_times)
      : log_(log), progress_(progress), has_times_(has_times) {}
  void on_progress(int64_t step, int64_t) override { progress_.on_progress(step); }
  void on_step(const StepReport& measured) override {
    StepReport report = measured;
    if (!has_times_) report.step_ms = report.samples_per_second = NAN;
    if (log_ != nullptr) for_flag("--log", [&] { log_->write(report); });
    progress_.on_step(report);
  }
  void on_eval(const EvalReport& measured) override {
    EvalReport report = measured;
    if (!has_times_) report.seconds = NAN;
    if (log_ != nullptr) for_flag("--log", [&] { log_->write(report); });
    progress_.on_eval(report);
  }

 private:
  TrainingLog* log_;
  Progress& progress_;
  bool has_times_;
};

/// Runs tasks one after the other, whatever fails, and then throws the first error. The others are
/// printed.
class AllOf {
 public:
  template <class Task>
  void operator()(Task&& task) {
    try {
      task();
    } catch (const std::exception& error) {
      if (first_)
        print_line("error", error.what());
      else
        first_ = std::current_exception();
    }
  }
  void finish() {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

/// Where the run goes on from, and what a checkpoint must have in common with it.
void prepare_checkpoints(const CommandLine& line, const Model& model, const DatasetSplits& data,
                         TrainOptions& options) {
  CheckpointOptions& checkpoint = options.checkpoint;
  const std::string optimizer = describe_optimizer(options);
  checkpoint.folder = line.checkpoint_dir;
  checkpoint.run = {{"model", line.model->name},
                    {"parameters", std::to_string(model.parameter_count())},
                    {"data set", line.dataset},
                    {"augmentation", line.augmentation_text},
                    {"training samples", std::to_string(data.train->size())},
                    {"batch size", std::to_string(options.batch_size)},
                    {"accumulated batches", std::to_string(options.accum_steps)},
                    {"seed", std::to_string(options.seed)},
                    {"optimizer", optimizer.substr(0, optimizer.find(','))}};
  const bool is_folder =
      std::filesystem::is_directory(line.resume) || !std::filesystem::exists(line.resume);
  if (!line.resume.empty() && (!is_folder || line.resume.ends_with(".safetensors"))) {
    checkpoint.resume = line.resume;
  } else if (!line.resume.empty()) {
    checkpoint.resume = CheckpointFolder::newest(line.resume).value_or("");
    if (checkpoint.resume.empty() && !line.quiet)
      print_line("warning",
                 fmt::format("--resume: no checkpoint in '{}'; the run begins anew", line.resume));
  }
  if (line.checkpoint_dir.empty()) return;
  const auto newest = CheckpointFolder::newest(line.checkpoint_dir);
  std::error_code none;
  if (newest && !std::filesystem::equivalent(*newest, checkpoint.resume, none)) {
    throw UsageError(fmt::format(
        "--checkpoint-dir: expected a folder without checkpoints of another run, got '{}': "
        "--resume {} goes on from it",
        *newest, line.checkpoint_dir));
  }
}

/// Writes the files of the profile and prints its table, where a step was measured.
void report_profile(const CommandLine& line, const Recording& recording, AllOf& all) {
  const bool measured = std::any_of(
      recording.steps.begin(), recording.steps.end(),
      [](const StepRecord& step) { return step.profiled && !step.warmup && finished(step); });
  if (!measured) {
    print_line("warning", "the run ended before a step was profiled; no profile is written");
    return;
  }
  // Files first: the table may meet a closed pipe.
  if (!line.profile.empty()) {
    all([&] { for_flag("--profile", [&] { write_profile_json(recording, line.profile); }); });
  }
  if (!line.trace.empty()) {
    all([&] { for_flag("--trace", [&] { write_trace(recording, line.trace); }); });
  }
  if (!line.quiet) all([&] { print(report_table(recording)); });
}

std::string describe_result(const TrainResult& result, const TrainOptions& options, int64_t total,
                            bool has_times) {
  const auto in = [has_times](double seconds) {
    return has_times ? fmt::format(" in {:.1f} s", seconds) : std::string();
  };
  std::string text;
  if (options.eval_only) {
    text = result.interrupted ? "interrupted: no evaluation" : "done: evaluation";
    if (result.last_eval) text += in(result.last_eval->seconds);
  } else if (result.interrupted) {
    text = fmt::format("interrupted: {} of {} steps{}", result.steps, total, in(result.seconds));
  } else {
    text = fmt::format("done: {} steps{}", result.steps, in(result.seconds));
  }
  const bool accuracy = result.last_eval && result.last_eval->accuracy;
  if (accuracy) text += fmt::format(", test accuracy {:.2f} %", 100 * *result.last_eval->accuracy);
  if (result.last_eval && (options.eval_only || !accuracy))
    text += fmt::format(", {}loss {:.4f}", accuracy ? "" : "test ", result.last_eval->loss);
  if (result.final_loss) text += fmt::format(", loss {:.4f}", *result.final_loss);
  return text + '\n';
}

/// The data as the model takes it; sets the options that the data decides.
DatasetSplits load_data(const CommandLine& line, ModelOptions& options) {
  const TaskKind task = line.model->task;
  DatasetSplits data =
      load_dataset(line.dataset, line.data_dir, options.input, line.train.seed,
                   task == TaskKind::translate ? PixelRange::symmetric : PixelRange::standard);
  const Shape own = data.train->input().shape;
  if (line.model->any_shape && line.image_size == 0) options.input = own;
  // Grey images become coloured ones where the network wants that; none becomes grey.
  if (options.input.rank() == 3 && options.input[2] < own[2])
    options.input = Shape{options.input[0], options.input[1], own[2]};
  for (std::unique_ptr<Dataset>* split : {&data.train, &data.test}) {
    if (task == TaskKind::translate) {
      if ((*split)->target() != (*split)->input()) {  // labelled images, not yet two kinds
        *split = unpaired_images(std::move(*split), kFirstKind, kSecondKind, options.input);
      }
      continue;
    }
    if (task != TaskKind::predict_next) *split = fit_images(std::move(*split), options.input);
    if (task == TaskKind::segment) *split = segment_images(std::move(*split));
  }
  if (line.augmentation.pad_crop || line.augmentation.flip)
    data.train = augment_images(std::move(data.train), line.augmentation);
  options.classes = data.train->classes();
  return data;
}

int run_training(const CommandLine& line) {
  TrainOptions options = line.train;
  if (line.device == kMeta && !line.dry_run) return run_plan(line);

  const int available = cpu::default_num_threads();
  const int threads = line.threads > 0 ? line.threads : available;
  if (threads > available && !line.quiet) {
    print_line("warning",
               fmt::format("--threads {} is more than the {} that this process may use", threads,
                           available == 1 ? "1 CPU" : fmt::format("{} CPUs", available)));
  }
  cpu::set_num_threads(threads);
  context().fusion = line.fusion;
  context().deterministic = line.deterministic;

  std::optional<TrainingLog> log;
  if (!line.dry_run) {
    install_signal_handlers();
    if (!line.save_weights.empty())
      for_flag("--save-weights", [&] { prepare_output(line.save_weights); });
    if (!options.samples.empty())
      for_flag("--samples", [&] { prepare_output(options.samples + "/epoch-0001.png"); });
    if (!line.profile.empty()) for_flag("--profile", [&] { prepare_output(line.profile); });
    if (!line.trace.empty()) for_flag("--trace", [&] { prepare_output(line.trace); });
    if (!line.log.empty()) {
      for_flag("--log", [&] {
        prepare_output(line.log);
        log.emplace(line.log);
      });
    }
  }

  ModelOptions model_options = line.model_options();
  const DatasetSplits data = load_data(line, model_options);
  default_generator() = Generator(options.seed);
  const std::unique_ptr<Model> model = line.model->make(model_options);
  if (!line.weights.empty()) for_flag("--weights", [&] { load_weights(line.weights, *model); });
  prepare_checkpoints(line, *model, data, options);
  const int64_t total = total_steps(options, data.train->size());
  // Profiled and unprofiled steps alternate, so a step of each needs two.
  if (line.profiling() && total < options.profile_warmup + 2) {
    throw UsageError(fmt::format(
        "{}: expected a run of at least {} steps, {} of --profile-warmup and 2 to measure, got {}: "
        "more --max-steps or a smaller --profile-warmup make it fit",
        line.profile.empty() ? "--trace" : "--profile", options.profile_warmup + 2,
        options.profile_warmup, total));
  }
  Profiler profiler;
  profiler.recording().run = describe_run(line, *model, data, threads);
  if (line.dry_run) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [key, value] : profiler.recording().run) rows.push_back({key, value});
    print(table(rows));
    return 0;
  }

  TrainResult result;
  {
    Progress progress(line.quiet ? Progress::Style::none : Progress::style_for_stderr(),
                      options.epochs);
    Observer observer(log ? &*log : nullptr, progress, has_times(line));
    try {
      result = train(*model, data, options, line.device, profiler, observer, stop_requested);
    } catch (const OutOfMemoryError&) {
      // Where the memory went is in the profile of the steps so far.
      ignore_signals();
      AllOf all;
      if (line.profiling()) report_profile(line, profiler.recording(), all);
      try {
        all.finish();
      } catch (const std::exception& error) {
        print_line("warning", error.what());
      }
      throw;
    }
  }
  ignore_signals();
  AllOf all;
  if (log && result.interrupted) {
    // Half a run's log never takes the place of a whole one's.
    if (!line.quiet) {
      print_line("warning", fmt::format("--log: the rows so far are in '{}'", log->partial_path()));
    }
  } else if (log) {
    all([&] { for_flag("--log", [&] { log->finish(); }); });
  }
  if (!line.save_weights.empty() && result.interrupted) {
    print_line("warning", "--save-weights: the run was interrupted; no weights are written");
  } else if (!line.save_weights.empty()) {
    all([&] {
      for_flag("--save-weights", [&] {
        save_weights(line.save_weights, *model, {{"model", line.model->name}});
      });
    });
  }
  if (line.profiling()) report_profile(line, profiler.recording(), all);
  all([&] { print(describe_result(result, options, total, has_times(line))); });
  all.finish();
  return result.interrupted ? kInterrupted : 0;
}

int run(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv);
  cpu::register_backend();
  meta::register_backend();
  switch (line.action) {
    case CommandLine::Action::print_text:
      print(line.text);
      return 0;
    case CommandLine::Action::list_models:
      list_models();
      return 0;
    case CommandLine::Action::list_datasets:
      list_datasets();
      return 0;
    case CommandLine::Action::train:
      break;
  }
  if (line.device.kind == DeviceKind::cuda && !cuda::register_backend())
    throw UsageError("--device cuda: " + cuda::unavailable());
  if (line.profiling() && !has_times(line)) {
    throw UsageError(fmt::format(
        "{}: expected a device whose work takes a time of its own, got {}: leave it out",
        line.profile.empty() ? "--trace" : "--profile", cuda::description()));
  }
  return run_training(line);
}

}  // namespace

}  // namespace engine::tools

int main(int argc, char** argv) {
  using namespace engine::tools;
  engine::cpu::limit_spinning(argv);
  occupy_standard_streams();
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    print_line("error", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    print_line("error", "out of host memory; a smaller --batch-size or network needs less");
    return 1;
  } catch (const std::exception& error) {
    print_line("error", error.what());
    return 1;
  } catch (...) {
    print_line("error", "unknown failure");
    return 1;
  }
}
