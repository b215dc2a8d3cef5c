// Losses of two tensors of one shape: mse, l1, smooth_l1, bce_with_logits. Definitions as in
// backends/cpu/pointwise_loss.cpp. Sums in double: pieces, then the pieces in order.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

constexpr int64_t kPiece = 4096;  // elements of a block: 16 for each thread

struct Slopes {
  float x, target;
};
struct Mse {
  __device__ static float value(float, float x, float t) { return (x - t) * (x - t); }
  __device__ static Slopes slopes(float, float x, float t) {
    return {2.f * (x - t), -2.f * (x - t)};
  }
};
struct L1 {
  __device__ static float value(float, float x, float t) { return fabsf(x - t); }
  __device__ static Slopes slopes(float, float x, float t) {
    const float sign = x > t ? 1.f : (x < t ? -1.f : 0.f);
    return {sign, -sign};
  }
};
struct SmoothL1 {
  __device__ static float value(float beta, float x, float t) {
    const float distance = fabsf(x - t);
    return distance < beta ? 0.5f * distance * distance / beta : distance - 0.5f * beta;
  }
  __device__ static Slopes slopes(float beta, float x, float t) {
    // NaN stays NaN: both comparisons are false for it.
    const float d = (x - t) / beta, slope = d > 1.f ? 1.f : (d < -1.f ? -1.f : d);
    return {slope, -slope};
  }
};
struct BceWithLogits {
  __device__ static float value(float, float x, float t) {
    return (x > 0.f ? x : 0.f) - x * t + log1pf(expf(-fabsf(x)));
  }
  __device__ static Slopes slopes(float, float x, float t) {
    return {1.f / (1.f + expf(-x)) - t, -x};
  }
};

template <class L>
struct Value {
  float beta;
  __device__ float operator()(float x, float t) const { return L::value(beta, x, t); }
};

template <class L, class T>
__global__ void sum_kernel(int64_t n, float beta, const T* x, const T* t, double* partial) {
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const int64_t end = (p + 1) * kPiece < n ? (p + 1) * kPiece : n;
    double sum = 0;
    for (int64_t i = p * kPiece + threadIdx.x; i < end; i += blockDim.x)
      sum +=
          static_cast<double>(L::value(beta, static_cast<float>(x[i]), static_cast<float>(t[i])));
    sum = reduce_block(sum, 0.0, Plus{});
    if (threadIdx.x == 0) partial[p] = sum;
  }
}
// The mean over nothing is 0 / 0 = NaN, as in PyTorch.
__global__ void finish_kernel(int64_t pieces, double divisor, const double* partial, float* y) {
  double sum = 0;
  for (int64_t p = threadIdx.x; p < pieces; p += blockDim.x) sum += partial[p];
  sum = reduce_block(sum, 0.0, Plus{});
  if (threadIdx.x == 0) y[0] = static_cast<float>(sum / divisor);
}

// inputs dy, x, target -> dx and, where it is not null, d(target)
template <class L, class T>
__global__ void backward_kernel(int64_t n, float beta, bool each, float scale, const float* dy,
                                const T* x, const T* t, T* dx, T* dtarget) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const float g = each ? dy[i] : dy[0] * scale;
    const Slopes s = L::slopes(beta, static_cast<float>(x[i]), static_cast<float>(t[i]));
    dx[i] = T(g * s.x);
    if (dtarget != nullptr) dtarget[i] = T(g * s.target);
  }
}

template <class L>
void forward(KernelArgs& args) {
  const auto& a = args.attrs.as<PointwiseLossAttrs>();
  const Tensor &x = args.inputs[0], &target = args.inputs[1], &y = args.outputs[0];
  const int64_t n = x.numel();
  with_floating(x.dtype(), [&]<class T>(T) {
    const T *in = x.data<T>(), *t = target.data<T>();
    if (a.reduction == Reduction::none)
      return map_elements(n, OfFloats<Value<L>>{{a.beta}}, y.data<float>(), in, t);
    const int64_t pieces = (n + kPiece - 1) / kPiece;
    auto* partial = args.scratch.array<double>(pieces);
    if (n > 0) {
      launch_kernel(sum_kernel<L, T>, static_cast<unsigned>(std::min<int64_t>(pieces, 1 << 16)),
                    kThreads, 0, n, a.beta, in, t, partial);
    }
    launch_kernel(finish_kernel, 1, kThreads, 0, pieces,
                  a.reduction == Reduction::mean ? static_cast<double>(n) : 1.0, partial,
                  y.data<float>());
  });
}

template <class L>
void backward(KernelArgs& args) {
  const auto& a = args.attrs.as<PointwiseLossAttrs>();
  const Tensor &dx = args.outputs[0], &dtarget = args.outputs[1];
  const int64_t n = dx.numel();
  if (n == 0) return;
  const float scale = a.reduction == Reduction::mean ? 1.f / static_cast<float>(n) : 1.f;
  with_floating(dx.dtype(), [&]<class T>(T) {
    launch_kernel(backward_kernel<L, T>, blocks_for(n), kThreads, 0, n, a.beta,
                  a.reduction == Reduction::none, scale, args.inputs[0].data<float>(),
                  args.inputs[1].data<T>(), args.inputs[2].data<T>(), dx.data<T>(),
                  dtarget.defined() ? dtarget.data<T>() : nullptr);
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

}  // namespace engine::cuda
