// Optimizer steps over flat buffers, one launch each, and the check of their gradients. Definitions
// as in backends/cpu/optimizer.cpp.
#include <cmath>

#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

__global__ void sgd_kernel(int64_t n, SgdAttrs a, float* p, const float* grad, float* buffer) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    float g = grad[i] + a.weight_decay * p[i];
    if (buffer != nullptr) {
      const float b = a.first_step ? g : a.momentum * buffer[i] + (1.f - a.dampening) * g;
      buffer[i] = b;
      g = a.nesterov ? g + a.momentum * b : b;
    }
    p[i] -= a.lr * g;
  }
}

struct AdamFactors {
  float beta1, beta2, eps, shrink, decay, step_size, root_correction;
};
__global__ void adam_kernel(int64_t n, AdamFactors a, float* p, const float* grad, float* m,
                            float* v) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const float old = p[i], g = grad[i] + a.decay * old;
    const float first = a.beta1 * m[i] + (1.f - a.beta1) * g,
                second = a.beta2 * v[i] + (1.f - a.beta2) * g * g;
    m[i] = first;
    v[i] = second;
    p[i] = old * a.shrink - a.step_size * first / (sqrtf(second) / a.root_correction + a.eps);
  }
}

// Any thread that finds one writes the same 1.
template <class T>
__global__ void non_finite_kernel(int64_t n, const T* x, uint8_t* found) {
  for (int64_t i = grid_index(); i < n; i += grid_step())
    if (!isfinite(static_cast<float>(x[i]))) *found = 1;
}

}  // namespace

void kernels::sgd_step_(KernelArgs& args) {
  const auto& a = args.attrs.as<SgdAttrs>();
  const Tensor& p = args.inputs[0];
  if (p.numel() == 0) return;
  launch_kernel(sgd_kernel, blocks_for(p.numel()), kThreads, 0, p.numel(), a, p.data<float>(),
                args.inputs[1].data<float>(),
                a.momentum != 0.f ? args.inputs[2].data<float>() : nullptr);
}

void kernels::adam_step_(KernelArgs& args) {
  const auto& a = args.attrs.as<AdamAttrs>();
  const Tensor& p = args.inputs[0];
  if (p.numel() == 0) return;
  const AdamFactors factors{a.beta1,
                            a.beta2,
                            a.eps,
                            a.decoupled ? 1.f - a.lr * a.weight_decay : 1.f,
                            a.decoupled ? 0.f : a.weight_decay,
                            a.lr / a.bias_correction1,
                            std::sqrt(a.bias_correction2)};
  launch_kernel(adam_kernel, blocks_for(p.numel()), kThreads, 0, p.numel(), factors,
                p.data<float>(), args.inputs[1].data<float>(), args.inputs[2].data<float>(),
                args.inputs[3].data<float>());
}

void kernels::any_non_finite(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &found = args.outputs[0];
  ENGINE_CUDA(cudaMemsetAsync(found.raw(), 0, 1, stream()));
  if (x.numel() == 0) return;
  with_floating(x.dtype(), [&]<class T>(T) {
    launch_kernel(non_finite_kernel<T>, blocks_for(x.numel(), 8), kThreads, 0, x.numel(),
                  x.data<T>(), found.data<uint8_t>());
  });
}

}  // namespace engine::cuda
