// The command line of engine-train: every flag is checked here, so that a mistake costs no time,
// and what is not given comes from the model's recipe.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/device.h"
#include "models/data/augment.h"
#include "models/model.h"
#include "models/train.h"

namespace engine::tools {

/// A command line that cannot be run as it is: the flag, what was expected, what came. The program
/// prints it in one line and exits with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CommandLine {
  enum class Action { train, print_text, list_models, list_datasets };
  Action action = Action::train;
  std::string text;  ///< of print_text: the help or the version

  const ModelInfo* model = nullptr;
  std::string dataset;
  std::string data_dir;  ///< empty: where the data set usually is
  Augmentation augmentation;
  std::string augmentation_text = "none";
  std::vector<int64_t> hidden;  ///< widths of hidden layers; empty: the model's own
  std::string stem;             ///< empty: the model's own
  std::vector<std::pair<int64_t ModelOptions::*, int64_t>> sizes;  ///< of the model, as given
  int64_t context = 0;     ///< tokens of a sample; 0: the model's own
  int64_t image_size = 0;  ///< height and width of the model's images; 0: the model's own
  Device device = kCpu;
  int threads = 0;  ///< 0: as many as the process may use
  FusionPolicy fusion = FusionPolicy::on();
  std::string fusion_text = "on";
  bool deterministic = false;
  TrainOptions train;

  std::string weights;  ///< to begin with; empty: the network's initial values
  std::string resume;   ///< a checkpoint or a folder of them; empty: begin anew
  std::string checkpoint_dir;
  std::string save_weights;  ///< files to write; empty: none
  std::string profile;
  std::string trace;
  std::string log;
  bool quiet = false;
  bool dry_run = false;

  std::string invocation;  ///< as it was typed, quoted for a shell

  /// The model's defaults with what the flags change; input and classes may be the data's to say.
  ModelOptions model_options() const {
    ModelOptions options = model->defaults;
    if (!hidden.empty()) options.hidden = hidden;
    if (!stem.empty()) options.stem = stem;
    if (options.stem == "cifar") options.input = Shape{32, 32, options.input[2]};
    for (const auto& [member, value] : sizes) options.*member = value;
    if (context > 0) options.input = Shape{context};
    if (image_size > 0) options.input = Shape{image_size, image_size, options.input[2]};
    options.device = device;
    return options;
  }
  bool profiling() const { return !profile.empty() || !trace.empty(); }
};

/// Throws UsageError.
CommandLine parse_command_line(int argc, const char* const* argv);

/// "sgd, lr 0.05, momentum 0.9, weight decay 0".
std::string describe_optimizer(const TrainOptions& options);
/// "cosine, 100 warm-up steps".
std::string describe_schedule(const TrainOptions& options);

}  // namespace engine::tools
