// nll_loss and cross_entropy, of f32 or bf16 scores. Losses are summed in double and are f32.
#include <cmath>
#include <limits>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/row.h"
#include "backends/cpu/vector_math.h"
#include "core/error.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

// The rows' targets, and what each class counts.
struct Targets {
  const int64_t* data;
  int64_t rows, classes;
  const float* weights;
  int64_t ignore_index;

  Targets(KernelArgs& args, const LossAttrs& a, const Tensor& target, int64_t classes_,
          const Tensor& class_weights)
      : data(target.data<int64_t>()),
        rows(target.numel()),
        classes(classes_),
        weights(as_f32(args, class_weights)),
        ignore_index(a.ignore_index) {
    if (weights != nullptr) return;
    auto* ones = args.scratch.array<float>(classes);
    std::fill(ones, ones + classes, 1.f);
    weights = ones;
  }

  bool ignored(int64_t row) const { return data[row] == ignore_index; }
  float weight(int64_t c) const { return weights[c]; }
  // What a mean divides by.
  double total() const {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r)
      sum += ignored(r) ? 0.0 : static_cast<double>(weight(data[r]));
    return sum;
  }
  double class_total() const {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += static_cast<double>(weight(c));
    return sum;
  }
  // Refuses targets that are no class. Serial: it reads 8 bytes a row, and an exception may not
  // leave a parallel region.
  void check_classes(const char* op) const {
    for (int64_t r = 0; r < rows; ++r) {
      check(ignored(r) || (data[r] >= 0 && data[r] < classes), op,
            "expected targets in [0, {}) or ignore_index {}, got {} at row {}", classes,
            ignore_index, data[r], r);
    }
  }
};

// One row's loss from its log probabilities: -(1 - s) w[t] lp[t] - s mean(w lp). get(i) is lp[i].
template <class Get>
double row_loss(const LossAttrs& a, const Targets& targets, int64_t target, Get get) {
  const double s = static_cast<double>(a.label_smoothing);
  double loss = -(1 - s) * static_cast<double>(targets.weight(target)) * get(target);
  if (s > 0) {
    const float* weights = targets.weights;
    const double sum = sum_row(targets.classes, [&get, weights](int64_t i) {
      return weights[i] * static_cast<float>(get(i));
    });
    loss -= s / static_cast<double>(targets.classes) * sum;
  }
  return loss;
}

// Reduces the rows' losses. With nothing counted the mean is 0 / 0 = NaN, as in PyTorch.
void finish(const LossAttrs& a, const Targets& targets, const Tensor& y, const float* rows) {
  float* out = y.data<float>();
  if (a.reduction == Reduction::none) return;  // the rows are the output
  double sum = 0;
  for (int64_t r = 0; r < targets.rows; ++r) sum += static_cast<double>(rows[r]);
  if (a.reduction == Reduction::mean) {
    const double total = targets.total();
    sum = total != 0 ? sum / total : std::numeric_limits<double>::quiet_NaN();
  }
  out[0] = static_cast<float>(sum);
}

// What one row's loss is multiplied by on the way back. Ignored rows get 0 whatever dy is.
struct RowGradient {
  const LossAttrs& attrs;
  const Targets& targets;
  const float* dy;
  float inverse_total;

  RowGradient(const LossAttrs& a, const Targets& t, const Tensor& upstream)
      : attrs(a), targets(t), dy(upstream.data<float>()) {
    const double total = t.total();
    inverse_total = total != 0 ? static_cast<float>(1 / total) : 0.f;
  }
  float operator()(int64_t row) const {
    if (targets.ignored(row)) return 0.f;
    if (attrs.reduction == Reduction::none) return dy[row];
    return attrs.reduction == Reduction::mean ? dy[0] * inverse_total : dy[0];
  }
};

float* loss_rows(KernelArgs& args, const LossAttrs& a, int64_t n) {
  if (a.reduction == Reduction::none) return args.outputs[0].data<float>();
  return args.scratch.array<float>(n);
}

template <class T>
void nll(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor& scores = args.inputs[0];
  const int64_t n = scores.size(0), classes = scores.size(1);
  const Targets targets(args, a, args.inputs[1], classes, args.inputs[2]);
  targets.check_classes("nll_loss");
  const T* lp = scores.data<T>();
  float* rows = loss_rows(args, a, n);
  for (int64_t r = 0; r < n; ++r) {
    const auto at = [&](int64_t i) {
      return static_cast<double>(static_cast<float>(lp[r * classes + i]));
    };
    rows[r] =
        targets.ignored(r) ? 0.f : static_cast<float>(row_loss(a, targets, targets.data[r], at));
  }
  finish(a, targets, args.outputs[0], rows);
}

// inputs dy, log probabilities, target, class weights
template <class T>
void nll_backward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const int64_t n = args.outputs[0].size(0), classes = args.outputs[0].size(1);
  const Targets targets(args, a, args.inputs[2], classes, args.inputs[3]);
  const RowGradient gradient(a, targets, args.inputs[0]);
  T* out = args.outputs[0].data<T>();
  parallel_items(n, classes, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float g = gradient(r);
      T* row = out + r * classes;
      const float smooth = -g * a.label_smoothing / static_cast<float>(classes);
      const auto rest = [&](int64_t i) { return smooth * targets.weight(i); };
      if (smooth == 0.f)
        std::fill(row, row + classes, T(0.f));
      else
        for (int64_t i = 0; i < classes; ++i) row[i] = T(rest(i));
      if (targets.ignored(r)) continue;
      const int64_t t = targets.data[r];
      row[t] = T(rest(t) - g * (1.f - a.label_smoothing) * targets.weight(t));
    }
  });
}

// Outputs the loss and each row's log-sum-exp.
template <class T>
void cross_entropy_forward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor& logits = args.inputs[0];
  const int64_t n = logits.size(0), classes = logits.size(1);
  const Targets targets(args, a, args.inputs[1], classes, args.inputs[2]);
  targets.check_classes("cross_entropy");
  const T* x = logits.data<T>();
  float *rows = loss_rows(args, a, n), *log_sum_exp = args.outputs[1].data<float>();
  parallel_items(n, classes * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * classes;
      const auto at = [row](int64_t i) { return static_cast<float>(row[i]); };
      const float top = largest(row, classes);
      const double sum =
          sum_row(classes, [&](int64_t i) { return vector_exp_nonpositive(at(i) - top); });
      const double lse = static_cast<double>(top) + std::log(sum);
      log_sum_exp[r] = static_cast<float>(lse);
      const auto log_probability = [&](int64_t i) { return static_cast<double>(at(i)) - lse; };
      rows[r] = targets.ignored(r)
                    ? 0.f
                    : static_cast<float>(row_loss(a, targets, targets.data[r], log_probability));
    }
  });
  finish(a, targets, args.outputs[0], rows);
}

// inputs dy, logits, target, class weights, log-sum-exp. A row's loss is the sum over classes of
// part(i) (log-sum-exp - x[i]), so d(logits) = g (softmax sum(part) - part).
template <class T>
void cross_entropy_backward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor& logits = args.inputs[1];
  const int64_t n = logits.size(0), classes = logits.size(1);
  const Targets targets(args, a, args.inputs[2], classes, args.inputs[3]);
  const RowGradient gradient(a, targets, args.inputs[0]);
  const T* x = logits.data<T>();
  const float* lse = args.inputs[4].data<float>();
  T* out = args.outputs[0].data<T>();
  const bool stream = exceeds_caches(args.outputs[0]);
  const float smooth = a.label_smoothing / static_cast<float>(classes);
  const float* weights = targets.weights;
  const float smooth_total = static_cast<float>(targets.class_total()) * smooth;
  parallel_items(n, classes * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* from = x + r * classes;
      T* to = out + r * classes;
      if (targets.ignored(r)) {
        std::fill(to, to + classes, T(0.f));  // also where the logits are not finite
        continue;
      }
      const int64_t t = targets.data[r];
      const float g = gradient(r), top = lse[r];
      const float own = (1.f - a.label_smoothing) * targets.weight(t), total = smooth_total + own;
      const auto at = [=](int64_t i) {
        return total * vector_exp_nonpositive(static_cast<float>(from[i]) - top) -
               smooth * weights[i];
      };
      store(to, 0, classes, stream, [=](int64_t i) { return T(g * at(i)); });
      to[t] = T(g * (at(t) - own));
    }
  });
}

}  // namespace

void kernels::nll_loss(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { nll<T>(args); });
}
void kernels::nll_loss_backward(KernelArgs& args) {
  with_floating(args.inputs[1].dtype(), [&]<class T>(T) { nll_backward<T>(args); });
}
void kernels::cross_entropy(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { cross_entropy_forward<T>(args); });
}
void kernels::cross_entropy_backward(KernelArgs& args) {
  with_floating(args.inputs[1].dtype(), [&]<class T>(T) { cpu::cross_entropy_backward<T>(args); });
}

}  // namespace engine::cpu
