// Optimizer steps over flat buffers, in one pass, and the check of their gradients.
#include <atomic>
#include <bit>
#include <cmath>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "core/op_attrs.h"

namespace engine::cpu {

// PyTorch's SGD: g += wd p; buf = mu buf + (1 - dampening) g (at first: buf = g); with Nesterov
// g += mu buf, else g = buf; p -= lr g.
void kernels::sgd_step_(KernelArgs& args) {
  const SgdAttrs a = args.attrs.as<SgdAttrs>();
  float* p = args.inputs[0].data<float>();
  const float* grad = args.inputs[1].data<float>();
  float* buffer = a.momentum != 0.f ? args.inputs[2].data<float>() : nullptr;
  // The settings are compile-time constants of the loop, so that it becomes vector code.
  const auto step = [=]<bool kMomentum, bool kFirst, bool kNesterov>(int64_t begin, int64_t end) {
    const float fresh = 1.f - a.dampening;
    for (int64_t i = begin; i < end; ++i) {
      float g = grad[i] + a.weight_decay * p[i];
      if constexpr (kMomentum) {
        const float b = kFirst ? g : a.momentum * buffer[i] + fresh * g;
        buffer[i] = b;
        g = kNesterov ? g + a.momentum * b : b;
      }
      p[i] -= a.lr * g;
    }
  };
  parallel_for(args.inputs[0].numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (buffer == nullptr)
      step.template operator()<false, false, false>(begin, end);
    else if (a.first_step && a.nesterov)
      step.template operator()<true, true, true>(begin, end);
    else if (a.first_step)
      step.template operator()<true, true, false>(begin, end);
    else if (a.nesterov)
      step.template operator()<true, false, true>(begin, end);
    else
      step.template operator()<true, false, false>(begin, end);
  });
}

// Adam (Kingma and Ba, 2015) as PyTorch has it: p -= lr m/bc1 / (sqrt(v/bc2) + eps). Weight decay
// goes into the gradient, or with AdamW (Loshchilov and Hutter, 2019) shrinks the parameter first.
void kernels::adam_step_(KernelArgs& args) {
  const AdamAttrs a = args.attrs.as<AdamAttrs>();
  float* p = args.inputs[0].data<float>();
  const float* grad = args.inputs[1].data<float>();
  float *m = args.inputs[2].data<float>(), *v = args.inputs[3].data<float>();
  const float shrink = a.decoupled ? 1.f - a.lr * a.weight_decay : 1.f;
  const float decay = a.decoupled ? 0.f : a.weight_decay;
  const float step_size = a.lr / a.bias_correction1;
  const float root_correction = std::sqrt(a.bias_correction2);
  parallel_for(args.inputs[0].numel(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float old = p[i];
      const float g = grad[i] + decay * old;
      m[i] = a.beta1 * m[i] + (1.f - a.beta1) * g;
      v[i] = a.beta2 * v[i] + (1.f - a.beta2) * g * g;
      p[i] = old * shrink - step_size * m[i] / (std::sqrt(v[i]) / root_correction + a.eps);
    }
  });
}

void kernels::any_non_finite(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  std::atomic<uint8_t> found{0};
  with_floating(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      // The exponent of NaN and of infinity, and of nothing else, is all ones. As whole numbers,
      // with no way out of the loop, this is vector code.
      int32_t bad = 0;
      for (int64_t i = begin; i < end; ++i) {
        const auto bits = std::bit_cast<uint32_t>(static_cast<float>(in[i]));
        bad |= (bits & 0x7f800000u) == 0x7f800000u ? 1 : 0;
      }
      if (bad != 0) found = 1;
    });
  });
  *args.outputs[0].data<uint8_t>() = found;
}

}  // namespace engine::cpu
