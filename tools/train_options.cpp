#include "tools/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "models/data/dataset.h"
#include "tools/arguments.h"

namespace engine::tools {

namespace {

// Counts are kept where products of a few of them cannot overflow 64 bits.
constexpr int64_t kLargestCount = 1'000'000'000;
constexpr int64_t kLargestWidth = 1'000'000;
constexpr int64_t kLargestImage = 4096;
constexpr int kMostThreads = 1024;
constexpr int64_t kDefaultProfileSteps = 20;

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

const Choices<OptimizerKind> kOptimizers{
    {"sgd", OptimizerKind::sgd}, {"adam", OptimizerKind::adam}, {"adamw", OptimizerKind::adamw}};
const Choices<ScheduleKind> kSchedules{{"constant", ScheduleKind::constant},
                                       {"step", ScheduleKind::step},
                                       {"cosine", ScheduleKind::cosine},
                                       {"linear", ScheduleKind::linear}};

// The sizes that some models let be set.
struct Size {
  const char* flag;
  const char* help;
  int64_t ModelOptions::*member;
};
constexpr Size kSizes[] = {
    {"--layers", "Layers of gpt and lstm", &ModelOptions::layers},
    {"--width", "Width of gpt's and lstm's layers, and of the first of unet and cyclegan",
     &ModelOptions::width},
    {"--heads", "Heads of gpt's attention", &ModelOptions::heads},
    {"--blocks", "Residual blocks of cyclegan's generators", &ModelOptions::blocks},
};

template <class E>
const std::string& name_of(const Choices<E>& choices, E value) {
  return std::find_if(choices.begin(), choices.end(),
                      [&](const auto& c) { return c.second == value; })
      ->first;
}

/// The flags, declared with CLI11, which also prints the help. Texts of values are checked by
/// functions of our own, so that every message has one form.
class Flags {
 public:
  Flags();
  CommandLine parse(int argc, const char* const* argv);

 private:
  // Stores the value that the text stands for; false when it stands for none.
  using Store = std::function<bool(const std::string&)>;

  void data_flags();
  void model_flags();
  void training_flags();
  void device_flags();
  void profiling_flags();
  void output_flags();

  CLI::Option* value(const std::string& names, const char* type, const std::string& help,
                     const std::string& expected, Store store,
                     const std::vector<std::string>& known = {});
  CLI::Option* flag(const std::string& name, const std::string& help, std::function<void()> set);
  /// A number of the options that `Options` names: TrainOptions, or their part for checkpoints.
  template <class Options, class T, class Valid>
  void number(const std::string& names, const char* type, const std::string& help,
              const std::string& expected, T Options::*member, Valid valid);
  template <class E>
  void choice(const std::string& names, const char* type, const std::string& help,
              const Choices<E>& choices, std::function<void(E)> set);
  void count(const std::string& names, const std::string& help, int64_t least,
             int64_t TrainOptions::*member);
  /// A whole number from 1 to `most`.
  void size(const std::string& name, const std::string& help, int64_t most,
            std::function<void(int64_t)> set);
  /// Any name but an empty one.
  void path(const std::string& name, const char* type, const std::string& help,
            const std::string& expected, std::string CommandLine::*member);
  void file(const std::string& names, const char* type, const std::string& help,
            const std::vector<std::string>& endings, std::string CommandLine::*member);

  std::vector<std::string> separate_arguments(int argc, const char* const* argv) const;
  void complete();
  bool given(const std::string& name) const { return given_.contains(name); }

  CLI::App app_;
  const char* group_ = "";
  std::map<std::string, std::string> expected_;  // by every name of the flags that take a value
  CommandLine result_;
  std::string model_name_;
  std::set<std::string> given_;
  std::vector<std::function<void(TrainOptions&)>> overrides_;  // of the recipe
};

Flags::Flags()
    : app_(
          "Trains one of the bundled networks and shows where the time and the memory go.\n"
          "Defaults that are not stated come from the model's recipe (--list-models).",
          "engine-train") {
  app_.get_formatter()->column_width(38);
  app_.set_help_flag();  // declared again with the others of its group
  data_flags();
  model_flags();
  training_flags();
  device_flags();
  profiling_flags();
  output_flags();
}

CLI::Option* Flags::value(const std::string& names, const char* type, const std::string& help,
                          const std::string& expected, Store store,
                          const std::vector<std::string>& known) {
  const std::string name = names.substr(names.find("--"));
  CLI::Option* option = app_.add_option_function<std::string>(
      names,
      [this, name, expected, known, store = std::move(store)](const std::string& text) {
        given_.insert(name);
        if (store(text)) return;
        throw UsageError(fmt::format("{}: expected {}, got '{}'{}", name, expected, text,
                                     suggestion(text, known)));
      },
      help);
  option->type_name(type)->take_last()->group(group_);
  expected_[name] = expected;
  if (names != name) expected_[names.substr(0, 2)] = expected;
  return option;
}

CLI::Option* Flags::flag(const std::string& name, const std::string& help,
                         std::function<void()> set) {
  return app_.add_flag_callback(name, std::move(set), help)->group(group_);
}

template <class Options, class T, class Valid>
void Flags::number(const std::string& names, const char* type, const std::string& help,
                   const std::string& expected, T Options::*member, Valid valid) {
  value(names, type, help, expected, [this, member, valid](const std::string& text) {
    T parsed{};
    if (!parse_number(text, parsed) || !valid(parsed)) return false;
    overrides_.push_back([member, parsed](TrainOptions& options) {
      if constexpr (std::is_same_v<Options, CheckpointOptions>)
        options.checkpoint.*member = parsed;
      else
        options.*member = parsed;
    });
    return true;
  });
}

template <class E>
void Flags::choice(const std::string& names, const char* type, const std::string& help,
                   const Choices<E>& choices, std::function<void(E)> set) {
  std::vector<std::string> known;
  for (const auto& [text, meaning] : choices) known.push_back(text);
  value(
      names, type, help, fmt::format("one of {}", fmt::join(known, ", ")),
      [choices, set = std::move(set)](const std::string& text) {
        const auto found = std::find_if(choices.begin(), choices.end(),
                                        [&](const auto& c) { return c.first == text; });
        if (found == choices.end()) return false;
        set(found->second);
        return true;
      },
      known);
}

void Flags::count(const std::string& names, const std::string& help, int64_t least,
                  int64_t TrainOptions::*member) {
  number(names, "N", help, fmt::format("a whole number from {} to {}", least, kLargestCount),
         member, [least](int64_t n) { return n >= least && n <= kLargestCount; });
}

void Flags::size(const std::string& name, const std::string& help, int64_t most,
                 std::function<void(int64_t)> set) {
  value(name, "N", help, fmt::format("a whole number from 1 to {}", most),
        [most, set = std::move(set)](const std::string& text) {
          int64_t parsed = 0;
          if (!parse_number(text, parsed) || parsed < 1 || parsed > most) return false;
          set(parsed);
          return true;
        });
}

void Flags::path(const std::string& name, const char* type, const std::string& help,
                 const std::string& expected, std::string CommandLine::*member) {
  value(name, type, help, expected, [this, member](const std::string& text) {
    result_.*member = text;
    return !text.empty();
  });
}

void Flags::file(const std::string& names, const char* type, const std::string& help,
                 const std::vector<std::string>& endings, std::string CommandLine::*member) {
  value(names, type, help, fmt::format("a file name that ends in {}", fmt::join(endings, " or ")),
        [this, endings, member](const std::string& text) {
          const std::string name = std::filesystem::path(text).filename().string();
          // Longer than the ending: ".csv" alone is a hidden file with no ending.
          const bool ends = std::any_of(endings.begin(), endings.end(), [&](const std::string& e) {
            return name.size() > e.size() && name.ends_with(e);
          });
          result_.*member = text;
          return ends;
        });
}

void Flags::data_flags() {
  group_ = "Data";
  std::vector<std::string> names;
  for (const DatasetInfo& info : dataset_list()) names.push_back(info.name);
  value(
      "--dataset", "NAME", "Data set to train on; default: the model's (--list-datasets)",
      fmt::format("one of {}", fmt::join(names, ", ")),
      [this, names](const std::string& text) {
        result_.dataset = text;
        return std::find(names.begin(), names.end(), text) != names.end();
      },
      names);
  path("--data-dir", "DIR|FILE",
       "The data set's folder, or file; default: where its package puts it", "a folder or a file",
       &CommandLine::data_dir);
  value("--augment", "LIST",
        "Move training images by up to 4 pixels, mirror them: pad-crop, flip or both, as "
        "pad-crop,flip",
        "pad-crop, flip or pad-crop,flip", [this](const std::string& text) {
          result_.augmentation = {.pad_crop = text == "pad-crop" || text == "pad-crop,flip",
                                  .flip = text == "flip" || text == "pad-crop,flip"};
          result_.augmentation_text = text;
          return result_.augmentation.pad_crop || result_.augmentation.flip;
        });
  count("-b,--batch-size", "Samples in a batch", 1, &TrainOptions::batch_size);
  number("-j,--workers", "N",
         "Threads that prepare batches; 0: the training thread does (default 1)",
         fmt::format("a whole number from 0 to {}", kMostThreads), &TrainOptions::workers,
         [](int n) { return n >= 0 && n <= kMostThreads; });
  flag("--list-datasets", "List the data sets and exit",
       [this] { result_.action = CommandLine::Action::list_datasets; });
}

void Flags::model_flags() {
  group_ = "Model";
  std::vector<std::string> names;
  for (const ModelInfo& info : model_list()) names.push_back(info.name);
  value(
      "--model", "NAME", "Network to train (required)",
      fmt::format("one of {}", fmt::join(names, ", ")),
      [this, names](const std::string& text) {
        model_name_ = text;
        return std::find(names.begin(), names.end(), text) != names.end();
      },
      names);
  value("--hidden", "N,N,...", "Widths of the hidden layers of mlp and conv2 to conv6",
        fmt::format("whole numbers from 1 to {} with commas between", kLargestWidth),
        [this](const std::string& text) {
          result_.hidden.clear();
          for (size_t begin = 0; begin <= text.size();) {
            const size_t end = std::min(text.find(',', begin), text.size());
            int64_t width = 0;
            const bool valid =
                parse_number(std::string_view(text).substr(begin, end - begin), width);
            if (!valid || width < 1 || width > kLargestWidth) return false;
            result_.hidden.push_back(width);
            begin = end + 1;
          }
          return true;
        });
  choice<std::string>("--stem", "imagenet|cifar",
                      "First layers of vgg and resnet: cifar for 32x32 images (default imagenet)",
                      {{"imagenet", "imagenet"}, {"cifar", "cifar"}},
                      [this](const std::string& stem) { result_.stem = stem; });
  for (const Size& one : kSizes) {
    size(one.flag, one.help, kLargestWidth,
         [this, &one](int64_t n) { result_.sizes.emplace_back(one.member, n); });
  }
  size("--context", "Tokens of a sample, and gpt's longest text; default: the model's",
       kLargestWidth, [this](int64_t n) { result_.context = n; });
  size("--image-size", "Height and width that images are made to fit; default: the model's",
       kLargestImage, [this](int64_t n) { result_.image_size = n; });
  flag("--list-models", "List the networks with their recipes and exit",
       [this] { result_.action = CommandLine::Action::list_models; });
}

void Flags::training_flags() {
  group_ = "Training";
  count("--epochs", "Times through the training data", 1, &TrainOptions::epochs);
  count("--max-steps", "Stop after this many optimizer steps; default: no limit", 1,
        &TrainOptions::max_steps);
  number("--seed", "N", "Seed of the parameters, the data order and dropout (default 0)",
         "a whole number from 0 to 18446744073709551615", &TrainOptions::seed,
         [](uint64_t) { return true; });
  choice<OptimizerKind>(
      "--optimizer", "sgd|adam|adamw", "Optimizer", kOptimizers, [this](OptimizerKind kind) {
        overrides_.push_back([kind](TrainOptions& options) { options.optimizer = kind; });
      });
  number("--lr", "X",
         "Learning rate; with an --optimizer that is not the recipe's: sgd 0.01, others 0.001",
         "a number above 0", &TrainOptions::lr, [](double x) { return x > 0; });
  number("--momentum", "X", "Momentum of sgd", "a number from 0 to below 1",
         &TrainOptions::momentum, [](double x) { return x >= 0 && x < 1; });
  number("--weight-decay", "X", "Weight decay", "a number of at least 0",
         &TrainOptions::weight_decay, [](double x) { return x >= 0; });
  choice<ScheduleKind>(
      "--lr-scheduler", "constant|step|cosine|linear", "Learning-rate schedule", kSchedules,
      [this](ScheduleKind kind) {
        overrides_.push_back([kind](TrainOptions& options) { options.schedule = kind; });
      });
  count("--warmup-steps", "Steps of linear learning-rate warm-up", 0, &TrainOptions::warmup_steps);
  number("--clip-grad-norm", "X", "Largest norm of all gradients; 0: no clipping",
         "a number of at least 0", &TrainOptions::clip_grad_norm, [](double x) { return x >= 0; });
  count("--accum-steps", "Batches whose gradients one step averages", 1,
        &TrainOptions::accum_steps);
  number("--label-smoothing", "X", "Label smoothing of the loss", "a number from 0 to 1",
         &TrainOptions::label_smoothing, [](double x) { return x >= 0 && x <= 1; });
  count("--eval-interval", "Epochs between evaluations on the test data; 0: never (default 1)", 0,
        &TrainOptions::eval_interval);
  flag("--eval-only", "Evaluate on the test data, train nothing", [this] {
    given_.insert("--eval-only");
    overrides_.push_back([](TrainOptions& options) { options.eval_only = true; });
  });
  file("--weights", "FILE.safetensors", "Begin with these weights (PyTorch's names and layouts)",
       {".safetensors"}, &CommandLine::weights);
  path("--resume", "FILE|DIR",
       "Go on from this checkpoint, or from a folder's newest; where it has none, begin",
       "a checkpoint or a folder", &CommandLine::resume);
}

void Flags::device_flags() {
  group_ = "Device";
  choice<DeviceKind>(
      "--device", "cpu|cuda|meta", "Device; meta plans a step and computes nothing (default cpu)",
      {{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}, {"meta", DeviceKind::meta}},
      [this](DeviceKind kind) {
        result_.device = Device{kind, 0};
      });
  size("--threads", "Threads of the CPU's kernels; default: the CPUs that the process may use",
       kMostThreads, [this](int64_t n) { result_.threads = static_cast<int>(n); });
  choice<std::string>(
      "--precision", "f32|tf32|bf16",
      "Type that kernels compute in; only f32 is built yet (default f32)",
      {{"f32", "f32"}, {"tf32", "tf32"}, {"bf16", "bf16"}}, [](const std::string& precision) {
        if (precision == "f32") return;
        throw UsageError(fmt::format("--precision {0}: {0} is not built yet; use f32", precision));
      });
  value("--fusion", "on|off|LIST",
        "Fused kernels: all, none, or those named, as in op,op (default on)", "on, off or a list",
        [this](const std::string& text) {
          try {
            result_.fusion = FusionPolicy::parse(text);
          } catch (const Error& error) {
            throw UsageError(fmt::format("--fusion: {}", error.what()));
          }
          result_.fusion_text = text;
          return true;
        });
  flag("--deterministic", "Bitwise equal results for any number of threads, at some cost in speed",
       [this] { result_.deterministic = true; });
}

void Flags::profiling_flags() {
  group_ = "Profiling";
  file("--profile", "FILE.json", "Profile steps, print the table, write everything here", {".json"},
       &CommandLine::profile);
  file("--trace", "FILE.json[.gz]", "Write a timeline of the profiled steps (Chrome trace format)",
       {".json", ".json.gz"}, &CommandLine::trace);
  count("--profile-steps",
        fmt::format("Steps to profile; as many others alternate with them (default {})",
                    kDefaultProfileSteps),
        1, &TrainOptions::profile_steps);
  count("--profile-warmup", "Steps before the profiled ones (default 10)", 0,
        &TrainOptions::profile_warmup);
}

void Flags::output_flags() {
  group_ = "Output";
  file("--log", "FILE.csv|.jsonl",
       "Write losses and accuracies here, to FILE.partial until the end", {".csv", ".jsonl"},
       &CommandLine::log);
  count("--log-interval", "Steps between reports of the loss (default 50)", 1,
        &TrainOptions::log_interval);
  file("--save-weights", "FILE.safetensors",
       "Write the weights here at the end, as PyTorch has them", {".safetensors"},
       &CommandLine::save_weights);
  value("--samples", "DIR", "Write pictures of what unet or cyclegan makes here after each epoch",
        "a folder", [this](const std::string& text) {
          overrides_.push_back([text](TrainOptions& options) { options.samples = text; });
          return !text.empty();
        });
  path("--checkpoint-dir", "DIR",
       "Save checkpoints here: each epoch, at the end, and when interrupted", "a folder",
       &CommandLine::checkpoint_dir);
  number("--checkpoint-every", "N", "Steps between checkpoints; default: each epoch",
         fmt::format("a whole number from 1 to {}", kLargestCount), &CheckpointOptions::every,
         [](int64_t n) { return n >= 1 && n <= kLargestCount; });
  number("--keep-checkpoints", "N", "Checkpoints to keep beside the best (default 3)",
         fmt::format("a whole number from 1 to {}", kLargestCount), &CheckpointOptions::keep,
         [](int64_t n) { return n >= 1 && n <= kLargestCount; });
  flag("--dry-run", "Load the data, build the model, print what would run, write nothing",
       [this] { result_.dry_run = true; });
  flag("--quiet", "Print errors and the final line only", [this] { result_.quiet = true; });
  app_.set_help_flag("-h,--help", "Print this help and exit")->group(group_);
  flag("--version", "Print the version and exit", [this] {
    result_.action = CommandLine::Action::print_text;
    result_.text = "engine-train " ENGINE_VERSION "\n";
  });
}

/// The arguments as CLI11 is to see them: each value an argument of its own, `-` for `_` in names
/// of flags. Throws on what is no flag, and on a flag without its value.
std::vector<std::string> Flags::separate_arguments(int argc, const char* const* argv) const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::vector<std::string> separated;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    std::string name(argument);
    bool attached = false;  // the value is in the same argument
    std::string value;
    if (argument.starts_with("--")) {
      const size_t equals = argument.find('=');
      attached = equals != std::string_view::npos;
      name = argument.substr(0, equals);
      if (attached) value = argument.substr(equals + 1);
      std::replace(name.begin(), name.end(), '_', '-');
    } else if (argument.size() > 2 && argument.starts_with('-') &&
               expected_.contains(name.substr(0, 2))) {
      attached = true;
      value = argument.substr(2);
      name.resize(2);
    }
    if (!argument.starts_with('-') || argument.size() < 2 || argument == "--") {
      throw UsageError(fmt::format("unexpected argument '{}' (--help lists the flags)", argument));
    }
    if (app_.get_option_no_throw(name) == nullptr) {
      throw UsageError(fmt::format("unknown flag '{}'{}", name, suggestion(name, names)));
    }
    const auto expected = expected_.find(name);
    if (expected == expected_.end()) {
      if (attached) throw UsageError(fmt::format("{}: expected no value, got '{}'", name, value));
    } else if (!attached) {
      if (++i == argc) {
        throw UsageError(fmt::format("{}: expected {}, got nothing", name, expected->second));
      }
      value = argv[i];
    }
    separated.push_back(name);
    if (expected != expected_.end()) separated.push_back(value);
  }
  return separated;
}

/// The rules that concern more than one flag, and the recipe.
void Flags::complete() {
  CommandLine& r = result_;
  if (r.action != CommandLine::Action::train) return;
  if (model_name_.empty())
    throw UsageError("--model is required; --list-models lists the networks");
  r.model = &find_model(model_name_);
  if (r.dataset.empty()) r.dataset = r.model->dataset;
  if (!r.hidden.empty() && r.model->defaults.hidden.empty()) {
    throw UsageError(
        fmt::format("--hidden: expected a model whose widths can be set, got {}", r.model->name));
  }
  if (!r.stem.empty() && r.model->defaults.stem.empty()) {
    throw UsageError(
        fmt::format("--stem: expected a model with a choice of stems, got {}", r.model->name));
  }

  r.model->recipe(r.train);
  const OptimizerKind recipes_optimizer = r.train.optimizer;
  for (const auto& override : overrides_) override(r.train);
  if (r.train.optimizer != recipes_optimizer && !given("--lr")) {
    r.train.lr = r.train.optimizer == OptimizerKind::sgd ? 0.01 : 0.001;
  }
  if (r.train.optimizer != OptimizerKind::sgd) {
    if (given("--momentum")) {
      throw UsageError(fmt::format("--momentum: expected --optimizer sgd with it, got {}",
                                   name_of(kOptimizers, r.train.optimizer)));
    }
    r.train.momentum = 0;
  }

  if (r.device == kMeta) {
    for (const char* name :
         {"--weights", "--save-weights", "--resume", "--checkpoint-dir", "--profile", "--trace",
          "--log", "--data-dir", "--workers", "--threads", "--epochs", "--max-steps", "--eval-only",
          "--eval-interval", "--log-interval", "--profile-steps", "--profile-warmup", "--augment",
          "--samples"}) {
      if (!given(name)) continue;
      throw UsageError(fmt::format(
          "{}: has no meaning with --device meta, which plans one training step; leave it out",
          name));
    }
  }
  const auto& known = dataset_list();
  const auto dataset = std::find_if(known.begin(), known.end(),
                                    [&](const DatasetInfo& d) { return d.name == r.dataset; });
  const bool takes_text = r.model->task == TaskKind::predict_next;
  const bool takes_pairs = r.model->task == TaskKind::translate && dataset->pairs;
  if (takes_text ? !dataset->text : !dataset->images && !takes_pairs) {
    throw UsageError(fmt::format("--dataset: expected {} for {}, got {}",
                                 takes_text ? "text" : "images", r.model->name, r.dataset));
  }
  for (const Size& size : kSizes) {
    if (!given(size.flag) || r.model->defaults.*size.member != 0) continue;
    throw UsageError(
        fmt::format("{}: expected a model with this size, got {}", size.flag, r.model->name));
  }
  if (given("--context") && !takes_text)
    throw UsageError(fmt::format("--context: expected a model of text, got {}", r.model->name));
  if (given("--image-size") && takes_text)
    throw UsageError(
        fmt::format("--image-size: expected a model of images, got {}", r.model->name));
  if (given("--augment") && takes_text)
    throw UsageError(fmt::format("--augment: expected a model of images, got {}", r.model->name));
  const bool makes_images =
      r.model->task == TaskKind::segment || r.model->task == TaskKind::translate;
  if (given("--samples") && !makes_images) {
    throw UsageError(
        fmt::format("--samples: expected a model that makes images, got {}", r.model->name));
  }
  for (const char* name : {"--augment", "--samples"}) {
    if (given(name) && r.train.eval_only)
      throw UsageError(fmt::format("{}: expected a run that trains, got --eval-only", name));
  }
  if (given("--data-dir") && !dataset->from_files) {
    throw UsageError(
        fmt::format("--data-dir: expected a data set that is read from files, got {}", r.dataset));
  }
  for (const char* name : {"--profile-steps", "--profile-warmup"}) {
    if (given(name) && !r.profiling()) {
      throw UsageError(fmt::format("{}: expected --profile or --trace with it, got neither", name));
    }
  }
  if (r.train.eval_only && !r.save_weights.empty())
    throw UsageError("--save-weights: expected a run that trains, got --eval-only");
  for (const char* name : {"--checkpoint-every", "--keep-checkpoints"}) {
    if (given(name) && r.checkpoint_dir.empty())
      throw UsageError(fmt::format("{}: expected --checkpoint-dir with it, got none", name));
  }
  if (r.train.eval_only && !r.checkpoint_dir.empty())
    throw UsageError("--checkpoint-dir: expected a run that trains, got --eval-only");
  if (!r.resume.empty() && !r.weights.empty())
    throw UsageError("--weights: expected it without --resume, which brings the weights along");
  if (!r.profiling()) {
    r.train.profile_steps = 0;
  } else if (r.train.eval_only) {
    throw UsageError("--profile and --trace record training steps; --eval-only has none");
  } else if (!given("--profile-steps")) {
    r.train.profile_steps = kDefaultProfileSteps;
  }
  if (!r.profile.empty() && !r.trace.empty() &&
      std::filesystem::absolute(r.profile).lexically_normal() ==
          std::filesystem::absolute(r.trace).lexically_normal()) {
    throw UsageError(
        fmt::format("--trace: expected another file than --profile, got '{}'", r.trace));
  }
}

CommandLine Flags::parse(int argc, const char* const* argv) {
  std::vector<std::string> arguments = separate_arguments(argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app_.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    result_.action = CommandLine::Action::print_text;
    result_.text = app_.help();
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  complete();
  for (int i = 0; i < argc; ++i) {
    result_.invocation += (i == 0 ? "" : " ") + quoted_for_shell(argv[i]);
  }
  return result_;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  return Flags().parse(argc, argv);
}

std::string describe_optimizer(const TrainOptions& options) {
  std::string text =
      fmt::format("{}, lr {:g}", name_of(kOptimizers, options.optimizer), options.lr);
  if (options.optimizer == OptimizerKind::sgd)
    text += fmt::format(", momentum {:g}", options.momentum);
  return text + fmt::format(", weight decay {:g}", options.weight_decay);
}

std::string describe_schedule(const TrainOptions& options) {
  return fmt::format("{}, {} warm-up steps", name_of(kSchedules, options.schedule),
                     options.warmup_steps);
}

}  // namespace engine::tools
