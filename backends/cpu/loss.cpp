// nll_loss and cross_entropy, of f32 or bf16 scores. Losses are summed in double and are f32.
#include <cmath>
#include <limits>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/vector_math.h"
#include "core/error.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

// Refuses targets that are no class, and returns how many rows count. Serial: it reads 8 bytes a
// row, and an exception may not leave a parallel region.
int64_t check_targets(const char* op, const Tensor& target, int64_t classes, int64_t ignore_index) {
  const int64_t* t = target.data<int64_t>();
  int64_t counted = 0;
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (t[i] == ignore_index) continue;
    check(t[i] >= 0 && t[i] < classes, op,
          "expected targets in [0, {}) or ignore_index {}, got {} at row {}", classes, ignore_index,
          t[i], i);
    ++counted;
  }
  return counted;
}

// One row's loss from its log probabilities: -(1 - s) lp[t] - s mean(lp). get(i) is lp[i].
template <class Get>
double row_loss(const LossAttrs& a, int64_t target, int64_t classes, Get get) {
  const double s = static_cast<double>(a.label_smoothing);
  double loss = -(1 - s) * get(target);
  if (s > 0) {
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += get(i);
    loss -= s / static_cast<double>(classes) * sum;
  }
  return loss;
}

// Reduces the rows' losses. With nothing counted the mean is 0 / 0 = NaN, as in PyTorch.
void finish(const LossAttrs& a, const Tensor& y, const float* rows, int64_t n, int64_t counted) {
  float* out = y.data<float>();
  if (a.reduction == Reduction::none) return;  // the rows are the output
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(rows[i]);
  if (a.reduction == Reduction::mean)
    sum =
        counted > 0 ? sum / static_cast<double>(counted) : std::numeric_limits<double>::quiet_NaN();
  out[0] = static_cast<float>(sum);
}

// What one row's loss is multiplied by on the way back. Ignored rows get 0 whatever dy is.
struct RowGradient {
  const LossAttrs& attrs;
  const float* dy;
  const int64_t* target;
  float inverse_count;

  float operator()(int64_t row) const {
    if (target[row] == attrs.ignore_index) return 0.f;
    if (attrs.reduction == Reduction::none) return dy[row];
    return attrs.reduction == Reduction::mean ? dy[0] * inverse_count : dy[0];
  }
};

RowGradient row_gradient(const LossAttrs& a, const Tensor& dy, const Tensor& target) {
  const int64_t* t = target.data<int64_t>();
  int64_t counted = 0;
  for (int64_t i = 0; i < target.numel(); ++i) counted += t[i] != a.ignore_index;
  return {a, dy.data<float>(), t, counted > 0 ? 1.f / static_cast<float>(counted) : 0.f};
}

float* loss_rows(KernelArgs& args, const LossAttrs& a, int64_t n) {
  if (a.reduction == Reduction::none) return args.outputs[0].data<float>();
  return static_cast<float*>(args.scratch.get(static_cast<size_t>(n) * sizeof(float)));
}

template <class T>
void nll(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor& scores = args.inputs[0];
  const int64_t n = scores.size(0), classes = scores.size(1);
  const int64_t counted = check_targets("nll_loss", args.inputs[1], classes, a.ignore_index);
  const int64_t* target = args.inputs[1].data<int64_t>();
  const T* lp = scores.data<T>();
  float* rows = loss_rows(args, a, n);
  for (int64_t r = 0; r < n; ++r) {
    if (target[r] == a.ignore_index) {
      rows[r] = 0.f;
      continue;
    }
    rows[r] = static_cast<float>(row_loss(a, target[r], classes, [&](int64_t i) {
      return static_cast<double>(static_cast<float>(lp[r * classes + i]));
    }));
  }
  finish(a, args.outputs[0], rows, n, counted);
}

// inputs dy, log probabilities, target
template <class T>
void nll_backward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const RowGradient gradient = row_gradient(a, args.inputs[0], args.inputs[2]);
  const int64_t n = args.outputs[0].size(0), classes = args.outputs[0].size(1);
  T* out = args.outputs[0].data<T>();
  parallel_items(n, classes, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float g = gradient(r);
      T* row = out + r * classes;
      const float rest = -g * a.label_smoothing / static_cast<float>(classes);
      std::fill(row, row + classes, T(rest));
      if (gradient.target[r] != a.ignore_index)
        row[gradient.target[r]] = T(rest - g * (1.f - a.label_smoothing));
    }
  });
}

// Outputs the loss and each row's log-sum-exp.
template <class T>
void cross_entropy_forward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const Tensor& logits = args.inputs[0];
  const int64_t n = logits.size(0), classes = logits.size(1);
  const int64_t counted = check_targets("cross_entropy", args.inputs[1], classes, a.ignore_index);
  const int64_t* target = args.inputs[1].data<int64_t>();
  const T* x = logits.data<T>();
  float *rows = loss_rows(args, a, n), *log_sum_exp = args.outputs[1].data<float>();
  parallel_items(n, classes * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * classes;
      const auto at = [row](int64_t i) { return static_cast<float>(row[i]); };
      float top = -std::numeric_limits<float>::infinity();
      for (int64_t i = 0; i < classes; ++i) top = at(i) > top ? at(i) : top;
      double sum = 0;
      for (int64_t i = 0; i < classes; ++i) sum += static_cast<double>(vector_exp(at(i) - top));
      const double lse = static_cast<double>(top) + std::log(sum);
      log_sum_exp[r] = static_cast<float>(lse);
      rows[r] = target[r] == a.ignore_index
                    ? 0.f
                    : static_cast<float>(row_loss(a, target[r], classes, [&](int64_t i) {
                        return static_cast<double>(at(i)) - lse;
                      }));
    }
  });
  finish(a, args.outputs[0], rows, n, counted);
}

// inputs dy, logits, target, log-sum-exp: d(logits) = g (softmax - smoothed one-hot)
template <class T>
void cross_entropy_backward(KernelArgs& args) {
  const auto& a = args.attrs.as<LossAttrs>();
  const RowGradient gradient = row_gradient(a, args.inputs[0], args.inputs[2]);
  const Tensor& logits = args.inputs[1];
  const int64_t n = logits.size(0), classes = logits.size(1);
  const T* x = logits.data<T>();
  const float* lse = args.inputs[3].data<float>();
  T* out = args.outputs[0].data<T>();
  parallel_items(n, classes * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* from = x + r * classes;
      T* to = out + r * classes;
      if (gradient.target[r] == a.ignore_index) {
        std::fill(to, to + classes, T(0.f));  // also where the logits are not finite
        continue;
      }
      const float g = gradient(r), rest = a.label_smoothing / static_cast<float>(classes),
                  top = lse[r];
      const auto softmax = [from, top](int64_t i) {
        return vector_exp(static_cast<float>(from[i]) - top);
      };
      for (int64_t i = 0; i < classes; ++i) to[i] = T(g * (softmax(i) - rest));
      const int64_t target = gradient.target[r];
      to[target] = T(g * (softmax(target) - rest - (1.f - a.label_smoothing)));
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
