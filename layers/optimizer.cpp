#include "layers/optimizer.h"

#include <cmath>
#include <set>

#include "core/context.h"
#include "core/error.h"

namespace engine {

namespace {
constexpr int64_t kAlignment = 16;  // floats: 64 bytes

// New zeroed memory in a category.
Tensor zeros(int64_t n, MemoryCategory category, Device device) {
  const ContextScope memory(&Context::memory, category);
  return full(Shape{n}, 0.0, DType::f32, device);
}
}  // namespace

// The parameters stay where they are; their gradients are free for another optimizer.
FlatParameters::~FlatParameters() {
  for (Tensor& p : parameters_) p.clear_grad_buffer();
}

FlatParameters::FlatParameters(std::vector<Tensor> parameters)
    : parameters_(std::move(parameters)) {
  check(!parameters_.empty(), "optimizer", "expected at least one parameter, got none");
  int64_t total = 0;
  std::set<const TensorImpl*> seen;
  for (const Tensor& p : parameters_) {
    check(p.defined() && p.requires_grad() && !p.impl()->node, "optimizer",
          "expected leaves that require gradients, got {}", describe(p));
    check(seen.insert(p.impl()).second, "optimizer", "expected each parameter once, got {} twice",
          describe(p));
    check(!p.impl()->grad_is_buffer, "optimizer",
          "expected parameters that no other optimizer has: the gradient of {} goes to a buffer "
          "already",
          describe(p));
    check(p.dtype() == DType::f32 && p.device() == parameters_[0].device(), "optimizer",
          "expected f32 parameters on one device, got {} on {}", describe(p), p.device());
    offsets_.push_back(total);
    steps_.push_back(0);
    total += (p.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const NoGradScope no_grad;
  values_ = zeros(total, MemoryCategory::parameter, parameters_[0].device());
  gradients_ = zeros(total, MemoryCategory::gradient, parameters_[0].device());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& p = parameters_[i];
    const size_t offset = static_cast<size_t>(offsets_[i]) * sizeof(float);
    const Tensor place = values_.view(p.shape(), offset);
    ops::copy_(place, p.detach());
    p.rebind(place);
    p.set_grad_buffer(gradients_.view(p.shape(), offset));
  }
}

std::vector<FlatParameters::Run> FlatParameters::runs_with_gradient() const {
  std::vector<Run> runs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].impl()->grad_written) continue;
    const int64_t begin = offsets_[i], end = i + 1 < offsets_.size() ? offsets_[i + 1] : numel();
    const bool continues =
        !runs.empty() && runs.back().end == begin && runs.back().steps == steps_[i];
    if (continues)
      runs.back().end = end;
    else
      runs.push_back({begin, end, steps_[i]});
  }
  return runs;
}

void FlatParameters::count_step() {
  for (size_t i = 0; i < parameters_.size(); ++i) steps_[i] += parameters_[i].impl()->grad_written;
}

void FlatParameters::zero_grad() {
  for (Tensor& p : parameters_) p.zero_grad();
}

void FlatParameters::set_steps(std::vector<int64_t> steps) {
  check(steps.size() == steps_.size(), "optimizer", "expected step counts of {} parameters, got {}",
        steps_.size(), steps.size());
  steps_ = std::move(steps);
}

Optimizer::Optimizer(std::vector<Tensor> parameters, double lr)
    : flat_(std::move(parameters)), lr_(lr) {
  check(lr >= 0, "optimizer", "expected a learning rate of at least 0, got {}", lr);
}

void Optimizer::step() {
  const NoGradScope no_grad;
  const ContextScope phase(&Context::phase, Phase::optimizer);
  for (const FlatParameters::Run run : flat_.runs_with_gradient()) step_run(run);
  flat_.count_step();
}

double Optimizer::clip_grad_norm(double max_norm) {
  const NoGradScope no_grad;
  const ContextScope phase(&Context::phase, Phase::optimizer);
  double squares = 0;
  const auto runs = flat_.runs_with_gradient();
  for (const FlatParameters::Run run : runs)
    squares += ops::sum_squares(flat_.gradients(run)).item();
  const double norm = std::sqrt(squares);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1.0)) {  // also where the norm is NaN: the gradients become NaN, as in PyTorch
    for (const FlatParameters::Run run : runs) ops::scale_(flat_.gradients(run), factor);
  }
  return norm;
}

Tensor Optimizer::zeroed_state() const {
  return zeros(flat_.numel(), MemoryCategory::optimizer_state, flat_.device());
}

Sgd::Sgd(std::vector<Tensor> parameters, double lr, const SgdOptions& options)
    : Optimizer(std::move(parameters), lr), options_(options) {
  check(options.momentum >= 0 && options.weight_decay >= 0, "SGD",
        "expected a momentum and a weight decay of at least 0, got {} and {}", options.momentum,
        options.weight_decay);
  check(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "SGD",
        "Nesterov momentum expects momentum > 0 and dampening = 0, got {} and {}", options.momentum,
        options.dampening);
  if (options.momentum != 0) momentum_ = zeroed_state();
}

std::vector<std::pair<std::string, Tensor>> Sgd::state() const {
  if (!momentum_.defined()) return {};
  return {{"momentum", momentum_}};
}

void Sgd::step_run(FlatParameters::Run run) {
  const SgdAttrs attrs{static_cast<float>(lr_),
                       static_cast<float>(options_.momentum),
                       static_cast<float>(options_.dampening),
                       static_cast<float>(options_.weight_decay),
                       options_.nesterov,
                       run.steps == 0};
  const Tensor buffer = momentum_.defined() ? FlatParameters::slice(momentum_, run) : Tensor();
  ops::sgd_step_(flat_.values(run), flat_.gradients(run), buffer, attrs);
}

Adam::Adam(std::vector<Tensor> parameters, double lr, const AdamOptions& options)
    : Optimizer(std::move(parameters), lr),
      options_(options),
      m_(zeroed_state()),
      v_(zeroed_state()) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  check(is_beta(options.beta1) && is_beta(options.beta2), "Adam",
        "expected betas from 0 to below 1, got {} and {}", options.beta1, options.beta2);
  check(options.eps >= 0 && options.weight_decay >= 0, "Adam",
        "expected an eps and a weight decay of at least 0, got {} and {}", options.eps,
        options.weight_decay);
}

std::vector<std::pair<std::string, Tensor>> Adam::state() const { return {{"m", m_}, {"v", v_}}; }

void Adam::step_run(FlatParameters::Run run) {
  const double t = static_cast<double>(run.steps + 1);
  const AdamAttrs attrs{static_cast<float>(lr_),
                        static_cast<float>(options_.beta1),
                        static_cast<float>(options_.beta2),
                        static_cast<float>(options_.eps),
                        static_cast<float>(options_.weight_decay),
                        options_.decoupled,
                        static_cast<float>(1.0 - std::pow(options_.beta1, t)),
                        static_cast<float>(1.0 - std::pow(options_.beta2, t))};
  ops::adam_step_(flat_.values(run), flat_.gradients(run), FlatParameters::slice(m_, run),
                  FlatParameters::slice(v_, run), attrs);
}

}  // namespace engine
