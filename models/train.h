// The training loop: data, model, loss, optimizer and profiler put together for one run. It prints
// nothing; an observer is told what happens.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/device.h"
#include "layers/module.h"
#include "layers/optimizer.h"
#include "layers/schedule.h"
#include "models/data/dataset.h"
#include "models/model.h"
#include "models/task.h"
#include "profiler/profiler.h"

namespace engine {

enum class OptimizerKind : uint8_t { sgd, adam, adamw };

/// When the state of a run is saved, and what it goes on from (models/checkpoint.h).
struct CheckpointOptions {
  std::string folder;  ///< empty: nothing is saved
  int64_t every = 0;   ///< steps; 0: at the end of each epoch. The run's end always counts
  int64_t keep = 3;    ///< checkpoints left in the folder, the best one not counted
  std::string resume;  ///< a checkpoint's path; empty: the run begins anew
  std::map<std::string, std::string> run;  ///< what the run that goes on must have in common
};

/// How to train. The defaults of a model come from its recipe (models/model.h); a flag overrides
/// one.
struct TrainOptions {
  int64_t epochs = 1;
  int64_t max_steps = 0;  ///< stop after this many optimizer steps; 0: no limit
  int64_t batch_size = 64;
  int workers = 1;  ///< threads that prepare batches; 0: the training thread does
  uint64_t seed = 0;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double lr = 0.01;
  double momentum = 0;
  double adam_beta1 = 0.9;
  double weight_decay = 0;
  ScheduleKind schedule = ScheduleKind::constant;
  int64_t warmup_steps = 0;   ///< linear warm-up from 0
  double clip_grad_norm = 0;  ///< 0: no clipping
  int64_t accum_steps = 1;    ///< batches whose gradients one optimizer step averages
  double label_smoothing = 0;
  int64_t log_interval = 50;  ///< steps between reports of the loss
  int64_t eval_interval = 1;  ///< epochs between evaluations on the test split; 0: never
  bool eval_only = false;
  std::string samples;  ///< folder for pictures of test samples after each epoch; empty: none
  int64_t profile_warmup = 10;  ///< steps before the profiled part
  int64_t profile_steps = 0;    ///< steps to record; as many unrecorded ones alternate with them
  CheckpointOptions checkpoint;
};

struct StepReport {
  int64_t step = 0;                                   ///< optimizer steps so far, from 1
  int64_t total_steps = 0;                            ///< in the whole run
  int64_t epoch = 0;                                  ///< from 1
  double loss = 0;                                    ///< mean of this step's batches
  std::vector<std::pair<std::string, double>> parts;  ///< further losses, where the task has them
  double lr = 0;
  std::optional<double> grad_norm;  ///< before clipping; only where gradients are clipped
  /// Times and rates; an observer that knows that the device has none puts NaN in their place.
  double step_ms = 0;             ///< median wall time of the steps since the last report
  double samples_per_second = 0;  ///< over the wall time since the last report
};

struct EvalReport {
  int64_t step = 0;
  int64_t epoch = 0;
  double loss = 0;                 ///< mean over the test split
  std::optional<double> accuracy;  ///< share of right answers, in [0, 1], where there are any
  double seconds = 0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// After every step.
  virtual void on_progress(int64_t /*step*/, int64_t /*total_steps*/) {}
  /// Where the loss is read: each log_interval steps, at the first step and at the last.
  virtual void on_step(const StepReport&) {}
  virtual void on_eval(const EvalReport&) {}
};

struct TrainResult {
  int64_t steps = 0;                 ///< of the whole run, those before a checkpoint included
  double seconds = 0;                ///< training, without evaluation
  std::optional<double> final_loss;  ///< of the last step, where there was one
  std::optional<EvalReport> last_eval;
  bool interrupted = false;
};

/// Optimizer steps of a whole run over this many training samples.
int64_t total_steps(const TrainOptions& options, int64_t samples);

/// What one optimizer step needs, found without computing anything.
struct PlanReport {
  int64_t parameters = 0;
  MemorySnapshot memory;  ///< peaks of one step; workspace that kernels ask for is not known here
  int64_t flops[kPhases] = {};
  int64_t bytes[kPhases] = {};  ///< read and written, each tensor once per op
  int64_t kernels = 0;
};
/// Runs one step of `model`, which must be on the meta device, on a batch of such samples.
PlanReport plan_step(Model& model, const TrainOptions& options, const SampleTensor& input,
                     const SampleTensor& target);

/// Trains `model` on `device` from its current parameters. Records `profiler` if options ask for
/// it. Stops after the current step when `stop` becomes true. Throws Error when a loss is not
/// finite, naming the first op that made such a number: on the CPU before the parameters are
/// changed, on another device at the next report.
TrainResult train(Model& model, const DatasetSplits& data, const TrainOptions& options,
                  Device device, Profiler& profiler, TrainObserver& observer,
                  const std::atomic<bool>& stop);

}  // namespace engine
