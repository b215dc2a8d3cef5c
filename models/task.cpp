#include "models/task.h"

#include "core/context.h"
#include "core/ops.h"
#include "layers/layers.h"
#include "models/pictures.h"

namespace engine {

namespace {

// Scores and labels as cross-entropy takes them: [N, C] and [N].
Tensor rows(const Tensor& logits) {
  return logits.rank() == 2 ? logits : ops::reshape(logits, {-1, logits.size(-1)});
}
Tensor flat(const Tensor& labels) {
  return labels.rank() == 1 ? labels : ops::reshape(labels, {-1});
}

}  // namespace

std::vector<std::vector<Tensor>> ClassificationTask::parameter_groups() {
  return {model_.parameters()};
}

std::vector<Loss> ClassificationTask::forward_backward(size_t, const Batch& batch, double share) {
  Tensor logits;
  {
    const ContextScope phase(&Context::phase, Phase::forward);
    logits = model_(batch.inputs);
  }
  const Tensor loss = cross_entropy_loss(rows(logits), flat(batch.targets), label_smoothing_);
  if (share == 1)
    loss.backward();
  else
    loss.backward(full(Shape{}, share, DType::f32, loss.device()));
  return {{"loss", loss.detach()}};
}

void ClassificationTask::evaluate(const Batch& batch, Evaluation& sums) {
  const Tensor logits = rows(model_(batch.inputs)), labels = flat(batch.targets);
  const std::vector<int64_t> expected = labels.to_vector<int64_t>(),
                             answers = ops::argmax(logits, 1).to_vector<int64_t>();
  for (size_t i = 0; i < expected.size(); ++i) sums.right += expected[i] == answers[i];
  sums.samples += labels.numel();
  sums.answers += labels.numel();
  sums.loss += cross_entropy_loss(logits, labels).item() * static_cast<double>(expected.size());
}

std::vector<std::vector<Image>> ClassificationTask::show(const Batch& batch) {
  if (batch.targets.rank() != 3) return {};
  const Tensor answers = ops::argmax(model_(batch.inputs), 3);
  return {stretched_pictures(batch.inputs), class_pictures(batch.targets), class_pictures(answers)};
}

}  // namespace engine
