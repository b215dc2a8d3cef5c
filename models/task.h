// Tasks: what a network is trained for. A task turns a batch into losses and their gradients, and
// says how well the network does on data that it has not seen. The training loop knows no more.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/data/image.h"
#include "models/data/loader.h"
#include "models/model.h"

namespace engine {

/// A loss with its name where a step has several; a scalar on the device, no longer recorded.
struct Loss {
  std::string name;
  Tensor value;
};

/// What evaluation adds up over the batches of the test split.
struct Evaluation {
  double loss = 0;      ///< summed over `samples`
  int64_t samples = 0;  ///< images, pixels or tokens
  int64_t answers = 0;  ///< those that are right or wrong
  int64_t right = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  /// The parameters that each optimizer steps. Within a step, the optimizers take their turns in
  /// this order.
  virtual std::vector<std::vector<Tensor>> parameter_groups() = 0;
  /// The forward and backward pass for one group; adds its gradients, multiplied by `share`. The
  /// first loss returned is the one that is minimised; others are its parts.
  virtual std::vector<Loss> forward_backward(size_t group, const Batch& batch, double share) = 0;
  /// Without gradients, the network in evaluation mode.
  virtual void evaluate(const Batch& batch, Evaluation& sums) = 0;
  /// Without gradients, the network in evaluation mode: columns of pictures, one in each for each
  /// of the samples, that show what the network makes of them. Empty: it makes nothing to be seen.
  virtual std::vector<std::vector<Image>> show(const Batch& /*batch*/) { return {}; }
  /// What the task remembers from step to step beside the network, for checkpoints.
  virtual std::vector<std::pair<std::string, Tensor>> state() const { return {}; }
};

/// Answers with a class for each image, pixel or token: the mean cross-entropy of logits [..., C]
/// against labels i64 [...].
class ClassificationTask : public Task {
 public:
  ClassificationTask(Model& model, double label_smoothing)
      : model_(model), label_smoothing_(label_smoothing) {}
  std::vector<std::vector<Tensor>> parameter_groups() override;
  std::vector<Loss> forward_backward(size_t group, const Batch& batch, double share) override;
  void evaluate(const Batch& batch, Evaluation& sums) override;
  /// Where pixels are classified: the image, its classes and the network's.
  std::vector<std::vector<Image>> show(const Batch& batch) override;

 private:
  Model& model_;
  double label_smoothing_;
};

}  // namespace engine
