// nll_loss and cross_entropy, of f32 or bf16 scores. A warp or a block takes a row; the rows'
// losses and weights are summed in double, in order, by a second launch. Losses are f32.
#include "backends/cuda/device_errors.h"
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/team.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

// The rows' targets, and what each class counts (null: 1 each).
template <class W>
struct Targets {
  const int64_t* data;
  const W* weights;
  int64_t classes, ignore_index;

  __device__ float weight(int64_t c) const {
    return weights != nullptr ? static_cast<float>(weights[c]) : 1.f;
  }
  __device__ bool ignored(int64_t row) const { return data[row] == ignore_index; }
  // Ignored rows, and those whose target is no class, count nothing.
  __device__ bool counts(int64_t row) const {
    return !ignored(row) && data[row] >= 0 && data[row] < classes;
  }
};

// One row's loss -(1 - s) w[t] lp[t] - s mean(w lp), where lp = scores, or with kLogits the scores'
// log-softmax; that row's log-sum-exp is kept too.
template <int kLanes, bool kLogits, class T, class W>
__global__ void loss_kernel(int64_t rows, Targets<W> targets, float smoothing, DeviceError* error,
                            const T* scores, float* losses, float* log_sum_exp) {
  const int64_t classes = targets.classes;
  using Own = Team<kLanes>;
  for (int64_t r = Own::index(); r < rows; r += Own::step()) {
    const T* row = scores + r * classes;
    double lse = 0;
    if (kLogits) {
      float top = -INFINITY;
      for (int64_t i = Own::lane(); i < classes; i += kLanes)
        top = Max{}(static_cast<float>(row[i]), top);
      top = Own::reduce(top, -INFINITY, Max{});
      double sum = 0;
      for (int64_t i = Own::lane(); i < classes; i += kLanes)
        sum += static_cast<double>(expf(static_cast<float>(row[i]) - top));
      sum = Own::reduce(sum, 0.0, Plus{});
      lse = static_cast<double>(top) + log(sum);
      if (Own::lane() == 0) log_sum_exp[r] = static_cast<float>(lse);
    }
    const auto log_probability = [&](int64_t i) {
      return static_cast<double>(static_cast<float>(row[i])) - lse;
    };
    double all = 0;
    if (smoothing > 0) {
      for (int64_t i = Own::lane(); i < classes; i += kLanes)
        all += static_cast<double>(targets.weight(i)) * log_probability(i);
      all = Own::reduce(all, 0.0, Plus{});
    }
    if (Own::lane() != 0) continue;
    const int64_t t = targets.data[r];
    double loss = 0;
    if (!targets.ignored(r) &&
        check_index(error, kLogits ? OpId::cross_entropy : OpId::nll_loss, t, classes, r)) {
      const double s = static_cast<double>(smoothing);
      loss = -(1 - s) * static_cast<double>(targets.weight(t)) * log_probability(t);
      if (smoothing > 0) loss -= s / static_cast<double>(classes) * all;
    }
    losses[r] = static_cast<float>(loss);
  }
}

// The sums of the rows' losses and of the targets' weights, by one block. With nothing counted a
// mean is 0 / 0 = NaN, as in PyTorch.
template <class W>
__global__ void sum_losses_kernel(int64_t rows, Targets<W> targets, bool mean, const float* losses,
                                  float* y) {
  double sum = 0, total = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    sum += static_cast<double>(losses[r]);
    if (targets.counts(r)) total += static_cast<double>(targets.weight(targets.data[r]));
  }
  sum = reduce_block(sum, 0.0, Plus{});
  total = reduce_block(total, 0.0, Plus{});
  if (threadIdx.x == 0) y[0] = static_cast<float>(mean ? (total != 0 ? sum / total : NAN) : sum);
}

// What a mean's gradient is multiplied by, and the sum of all classes' weights.
struct Totals {
  float inverse, classes;
};
template <class W>
__global__ void totals_kernel(int64_t rows, Targets<W> targets, bool mean, Totals* totals) {
  double total = 0, classes = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
    if (targets.counts(r)) total += static_cast<double>(targets.weight(targets.data[r]));
  for (int64_t c = threadIdx.x; c < targets.classes; c += blockDim.x)
    classes += static_cast<double>(targets.weight(c));
  total = reduce_block(total, 0.0, Plus{});
  classes = reduce_block(classes, 0.0, Plus{});
  if (threadIdx.x != 0) return;
  totals->inverse = !mean ? 1.f : (total != 0 ? static_cast<float>(1 / total) : 0.f);
  totals->classes = static_cast<float>(classes);
}

// A row's loss is the sum over classes of part(i) times -lp[i]: with kLogits d(logits) = g (softmax
// sum(part) - part), else d(lp) = -g part. Rows that do not count get 0, whatever dy and the scores
// are.
template <bool kLogits, class T, class W>
__global__ void loss_backward_kernel(int64_t n, Targets<W> targets, float smoothing, bool each,
                                     const Totals* totals, const float* dy, const T* scores,
                                     const float* log_sum_exp, T* dx) {
  const float smooth = smoothing / static_cast<float>(targets.classes);
  for (int64_t at = grid_index(); at < n; at += grid_step()) {
    const int64_t r = at / targets.classes, i = at - r * targets.classes;
    if (!targets.counts(r)) {
      dx[at] = T(0.f);
      continue;
    }
    const int64_t t = targets.data[r];
    const float g = (each ? dy[r] : dy[0]) * totals->inverse;
    const float own = (1.f - smoothing) * targets.weight(t);
    const float part = smooth * targets.weight(i) + (i == t ? own : 0.f);
    if (kLogits) {
      const float softmax = expf(static_cast<float>(scores[at]) - log_sum_exp[r]);
      dx[at] = T(g * ((smooth * totals->classes + own) * softmax - part));
    } else {
      dx[at] = T(-g * part);
    }
  }
}

// Calls f with the targets; the class weights are f32 or of the scores' type.
template <class F>
void with_targets(const LossAttrs& a, const Tensor& target, int64_t classes, const Tensor& weights,
                  F&& f) {
  const DType dtype = weights.defined() ? weights.dtype() : DType::f32;
  with_floating(dtype, [&]<class W>(W) {
    f(Targets<W>{target.data<int64_t>(), weights.defined() ? weights.data<W>() : nullptr, classes,
                 a.ignore_index});
  });
}

// inputs scores, target, class weights
template <bool kLogits>
void forward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor &scores = args.inputs[0], &y = args.outputs[0];
  const int64_t rows = scores.size(0), classes = scores.size(1);
  const bool each = a.reduction == Reduction::none;
  float* losses = each ? y.data<float>() : args.scratch.array<float>(rows);
  float* log_sum_exp = nullptr;
  if constexpr (kLogits) log_sum_exp = args.outputs[1].data<float>();
  with_targets(a, args.inputs[1], classes, args.inputs[2], [&]<class W>(const Targets<W>& targets) {
    with_floating(scores.dtype(), [&]<class T>(T) {
      if (rows > 0) {
        with_team(classes, 1, [&]<int kLanes>(std::integral_constant<int, kLanes>) {
          launch_kernel(loss_kernel<kLanes, kLogits, T, W>, blocks_for(rows * kLanes), kThreads, 0,
                        rows, targets, a.label_smoothing, device_error(), scores.data<T>(), losses,
                        log_sum_exp);
        });
      }
      if (!each) {
        launch_kernel(sum_losses_kernel<W>, 1, kThreads, 0, rows, targets,
                      a.reduction == Reduction::mean, losses, y.data<float>());
      }
    });
  });
}

template <bool kLogits>
void backward(KernelArgs& args, const Tensor& log_sum_exp) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor &dy = args.inputs[0], &scores = args.inputs[1], &dx = args.outputs[0];
  if (dx.numel() == 0) return;
  auto* totals = static_cast<Totals*>(args.scratch.get(sizeof(Totals)));
  with_targets(
      a, args.inputs[2], scores.size(1), args.inputs[3], [&]<class W>(const Targets<W>& targets) {
        launch_kernel(totals_kernel<W>, 1, kThreads, 0, scores.size(0), targets,
                      a.reduction == Reduction::mean, totals);
        with_floating(scores.dtype(), [&]<class T>(T) {
          launch_kernel(loss_backward_kernel<kLogits, T, W>, blocks_for(dx.numel()), kThreads, 0,
                        dx.numel(), targets, a.label_smoothing, a.reduction == Reduction::none,
                        totals, dy.data<float>(), scores.data<T>(),
                        log_sum_exp.defined() ? log_sum_exp.data<float>() : nullptr, dx.data<T>());
        });
      });
}

}  // namespace

void kernels::nll_loss(KernelArgs& args) { forward<false>(args); }
void kernels::cross_entropy(KernelArgs& args) { forward<true>(args); }
// inputs dy, log probabilities, target, class weights
void kernels::nll_loss_backward(KernelArgs& args) { backward<false>(args, {}); }
// inputs dy, logits, target, class weights, log-sum-exp
void kernels::cross_entropy_backward(KernelArgs& args) { backward<true>(args, args.inputs[4]); }

}  // namespace engine::cuda
