#include "models/translation.h"

#include <algorithm>

#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "models/pictures.h"

namespace engine {

namespace {

constexpr int64_t kPool = 50;
constexpr double kCycle = 10, kIdentity = 0.5 * kCycle;

// The mean squared distance of scores from what they should be.
Tensor distance(const Tensor& scores, double target) {
  return ops::mse_loss(scores, full(scores.shape(), target, scores.dtype(), scores.device()));
}

void backward(const Tensor& loss, double share) {
  loss.backward(full(Shape{}, share, DType::f32, loss.device()));
}

std::vector<Tensor> parameters_of(const Module& a, const Module& b) {
  std::vector<Tensor> all = a.parameters();
  for (const Tensor& parameter : b.parameters()) all.push_back(parameter);
  return all;
}

// While the generators learn, nothing is computed for the discriminators' own gradients.
class Frozen {
 public:
  explicit Frozen(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
    for (Tensor& parameter : parameters_) parameter.set_requires_grad(false);
  }
  ~Frozen() {
    for (Tensor& parameter : parameters_) parameter.set_requires_grad(true);
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  std::vector<Tensor> parameters_;
};

}  // namespace

ImagePool::ImagePool(int64_t size, const Shape& image, Device device)
    : images_(full({size, image[0], image[1], image[2]}, 0, DType::f32, device)),
      count_(full({}, 0, DType::i64)) {}

Tensor ImagePool::exchange(const Tensor& images) {
  const NoGradScope no_grad;
  int64_t& count = *count_.data<int64_t>();
  std::vector<Tensor> shown;
  for (int64_t i = 0; i < images.size(0); ++i) {
    const Tensor fresh = ops::slice(images, 0, i, i + 1);
    if (count < images_.size(0)) {
      ops::copy_(ops::slice(images_, 0, count, count + 1), fresh);
      ++count;
      shown.push_back(fresh);
      continue;
    }
    const RandomStream stream = default_generator().take(2);
    const auto bits = philox(stream.seed, stream.offset);
    if (bits[0] >> 31 != 0) {
      shown.push_back(fresh);
      continue;
    }
    const int64_t place = bits[1] % images_.size(0);
    const Tensor stored = ops::slice(images_, 0, place, place + 1);
    const Tensor old = empty(stored.shape(), stored.dtype(), stored.device());
    ops::copy_(old, stored);
    ops::copy_(stored, fresh);
    shown.push_back(old);
  }
  return shown.size() == 1 ? shown[0] : ops::concat(shown);
}

TranslationTask::TranslationTask(CycleGan& model, const Shape& image, Device device)
    : model_(model), pool_a_(kPool, image, device), pool_b_(kPool, image, device) {}

std::vector<std::vector<Tensor>> TranslationTask::parameter_groups() {
  return {parameters_of(model_.generator_a(), model_.generator_b()),
          parameters_of(model_.discriminator_a(), model_.discriminator_b())};
}

std::vector<Loss> TranslationTask::forward_backward(size_t group, const Batch& batch,
                                                    double share) {
  return group == 0 ? generators(batch, share) : discriminators(batch, share);
}

std::vector<Loss> TranslationTask::generators(const Batch& batch, double share) {
  const Frozen frozen(parameters_of(model_.discriminator_a(), model_.discriminator_b()));
  const Tensor &a = batch.inputs, &b = batch.targets;
  Module &to_b = model_.generator_a(), &to_a = model_.generator_b();
  Tensor fake_a, fake_b, again_a, again_b, same_a, same_b, scores_a, scores_b;
  {
    const ContextScope phase(&Context::phase, Phase::forward);
    fake_b = to_b(a);
    again_a = to_a(fake_b);
    fake_a = to_a(b);
    again_b = to_b(fake_a);
    same_b = to_b(b);
    same_a = to_a(a);
    scores_a = model_.discriminator_a()(fake_b);
    scores_b = model_.discriminator_b()(fake_a);
  }
  fake_a_ = fake_a.detach();
  fake_b_ = fake_b.detach();
  std::vector<Loss> losses{{"loss", {}}};
  Tensor total;
  {
    const ContextScope phase(&Context::phase, Phase::loss);
    losses.push_back({"G_A", distance(scores_a, 1)});
    losses.push_back({"G_B", distance(scores_b, 1)});
    losses.push_back({"cycle_A", ops::scale(ops::l1_loss(again_a, a), kCycle)});
    losses.push_back({"cycle_B", ops::scale(ops::l1_loss(again_b, b), kCycle)});
    losses.push_back({"idt_A", ops::scale(ops::l1_loss(same_b, b), kIdentity)});
    losses.push_back({"idt_B", ops::scale(ops::l1_loss(same_a, a), kIdentity)});
    total = losses[1].value;
    for (size_t i = 2; i < losses.size(); ++i) total = ops::add(total, losses[i].value);
  }
  losses[0].value = total;
  backward(total, share);
  for (Loss& loss : losses) loss.value = loss.value.detach();
  return losses;
}

std::vector<Loss> TranslationTask::discriminators(const Batch& batch, double share) {
  std::vector<Loss> losses;
  const auto learn = [&](const char* name, Module& judge, const Tensor& real, const Tensor& made) {
    Tensor of_real, of_made;
    {
      const ContextScope phase(&Context::phase, Phase::forward);
      of_real = judge(real);
      of_made = judge(made);
    }
    Tensor loss;
    {
      const ContextScope phase(&Context::phase, Phase::loss);
      loss = ops::scale(ops::add(distance(of_real, 1), distance(of_made, 0)), 0.5);
    }
    backward(loss, share);
    losses.push_back({name, loss.detach()});
  };
  learn("D_A", model_.discriminator_a(), batch.targets, pool_b_.exchange(fake_b_));
  learn("D_B", model_.discriminator_b(), batch.inputs, pool_a_.exchange(fake_a_));
  fake_a_ = fake_b_ = {};
  return losses;
}

void TranslationTask::evaluate(const Batch& batch, Evaluation& sums) {
  Module &to_b = model_.generator_a(), &to_a = model_.generator_b();
  const auto samples = static_cast<double>(batch.inputs.size(0));
  const double there = ops::l1_loss(to_a(to_b(batch.inputs)), batch.inputs).item(),
               back = ops::l1_loss(to_b(to_a(batch.targets)), batch.targets).item();
  sums.loss += 0.5 * (there + back) * samples;
  sums.samples += batch.inputs.size(0);
}

std::vector<std::vector<Image>> TranslationTask::show(const Batch& batch) {
  Module &to_b = model_.generator_a(), &to_a = model_.generator_b();
  const Tensor fake_b = to_b(batch.inputs), fake_a = to_a(batch.targets);
  std::vector<std::vector<Image>> columns;
  for (const Tensor& images :
       {batch.inputs, fake_b, to_a(fake_b), batch.targets, fake_a, to_b(fake_a)}) {
    columns.push_back(pictures(images, -1, 1));
  }
  return columns;
}

std::vector<std::pair<std::string, Tensor>> TranslationTask::state() const {
  return {{"pool_A", pool_a_.images()},
          {"pool_A.count", pool_a_.count()},
          {"pool_B", pool_b_.images()},
          {"pool_B.count", pool_b_.count()}};
}

}  // namespace engine
