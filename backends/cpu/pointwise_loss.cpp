// Losses of two tensors of one shape: for each, its value and its slopes in x and in the target.
// Sums are in double, over pieces cut by size, so they do not depend on the number of threads.
#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/vector_math.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

constexpr int64_t kPiece = 16384;  // elements that one partial sum covers

struct Slopes {
  float x, target;
};

struct Mse {
  static float value(float, float x, float t) { return (x - t) * (x - t); }
  static Slopes slopes(float, float x, float t) { return {2.f * (x - t), -2.f * (x - t)}; }
};
struct L1 {
  static float value(float, float x, float t) { return __builtin_fabsf(x - t); }
  // 0 where both are equal
  static Slopes slopes(float, float x, float t) {
    const float sign = x > t ? 1.f : (x < t ? -1.f : 0.f);
    return {sign, -sign};
  }
};
struct SmoothL1 {
  static float value(float beta, float x, float t) {
    const float distance = __builtin_fabsf(x - t);
    return distance < beta ? 0.5f * distance * distance / beta : distance - 0.5f * beta;
  }
  static Slopes slopes(float beta, float x, float t) {
    const float d = (x - t) / beta, slope = d > 1.f ? 1.f : (d < -1.f ? -1.f : d);
    return {slope, -slope};
  }
};
// max(x, 0) - x t + log(1 + e^-|x|)
struct BceWithLogits {
  static float value(float, float x, float t) {
    return (x > 0.f ? x : 0.f) - x * t +
           vector_log1p_unit(vector_exp_nonpositive(-__builtin_fabsf(x)));
  }
  static Slopes slopes(float, float x, float t) { return {vector_sigmoid(x) - t, -x}; }
};

template <class L, class T>
double sum_piece(float beta, const T* x, const T* t, int64_t n) {
  double lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int64_t j = 0; j < 16; ++j) {
      lane[j] += static_cast<double>(
          L::value(beta, static_cast<float>(x[i + j]), static_cast<float>(t[i + j])));
    }
  }
  for (int64_t j = 0; i < n; ++i, ++j)
    lane[j] +=
        static_cast<double>(L::value(beta, static_cast<float>(x[i]), static_cast<float>(t[i])));
  double sum = 0;
  for (const double value : lane) sum += value;
  return sum;
}

template <class L>
void forward(KernelArgs& args) {
  const auto& a = args.attrs.as<PointwiseLossAttrs>();
  const Tensor &x = args.inputs[0], &target = args.inputs[1];
  float* y = args.outputs[0].data<float>();
  const int64_t n = x.numel();
  with_floating(x.dtype(), [&]<class T>(T) {
    const T *in = x.data<T>(), *t = target.data<T>();
    if (a.reduction == Reduction::none) {
      parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          y[i] = L::value(a.beta, static_cast<float>(in[i]), static_cast<float>(t[i]));
      });
      return;
    }
    const int64_t pieces = (n + kPiece - 1) / kPiece;
    auto* partial = args.scratch.array<double>(pieces);
    parallel_items(pieces, kPiece, [=](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t first = p * kPiece;
        partial[p] = sum_piece<L>(a.beta, in + first, t + first, std::min(kPiece, n - first));
      }
    });
    double sum = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += partial[p];
    // The mean over nothing is 0 / 0 = NaN, as in PyTorch.
    y[0] = static_cast<float>(a.reduction == Reduction::mean ? sum / static_cast<double>(n) : sum);
  });
}

// inputs dy, x, target
template <class L>
void backward(KernelArgs& args) {
  const auto& a = args.attrs.as<PointwiseLossAttrs>();
  const float* dy = args.inputs[0].data<float>();
  const Tensor &dx = args.outputs[0], &dtarget = args.outputs[1];
  const int64_t n = dx.numel();
  const bool none = a.reduction == Reduction::none;
  const float scale = a.reduction == Reduction::mean ? 1.f / static_cast<float>(n) : 1.f;
  with_floating(dx.dtype(), [&]<class T>(T) {
    const T *x = args.inputs[1].data<T>(), *t = args.inputs[2].data<T>();
    T* out = dx.data<T>();
    const bool stream = exceeds_caches(dx);
    T* out_target = dtarget.defined() ? dtarget.data<T>() : nullptr;
    parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
      const auto slopes = [=](int64_t i) {
        return L::slopes(a.beta, static_cast<float>(x[i]), static_cast<float>(t[i]));
      };
      const auto write = [=](auto upstream) {
        store(out, begin, end, stream, [=](int64_t i) { return T(upstream(i) * slopes(i).x); });
        if (out_target == nullptr) return;
        store(out_target, begin, end, stream,
              [=](int64_t i) { return T(upstream(i) * slopes(i).target); });
      };
      if (none)
        write([dy](int64_t i) { return dy[i]; });
      else
        write([whole = dy[0] * scale](int64_t) { return whole; });
    });
  });
}

}  // namespace

void kernels::mse_loss(KernelArgs& args) { forward<Mse>(args); }
void kernels::mse_loss_backward(KernelArgs& args) { backward<Mse>(args); }
void kernels::l1_loss(KernelArgs& args) { forward<L1>(args); }
void kernels::l1_loss_backward(KernelArgs& args) { backward<L1>(args); }
void kernels::smooth_l1_loss(KernelArgs& args) { forward<SmoothL1>(args); }
void kernels::smooth_l1_loss_backward(KernelArgs& args) { backward<SmoothL1>(args); }
void kernels::bce_with_logits(KernelArgs& args) { forward<BceWithLogits>(args); }
void kernels::bce_with_logits_backward(KernelArgs& args) { backward<BceWithLogits>(args); }

}  // namespace engine::cpu
