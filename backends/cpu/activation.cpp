// Activations: for each, its value and its slope. The slope is a function of the input, or for
// sigmoid and tanh of the output: of what the op keeps for backward. Where a product is added to
// something, that is a written fma: left to the compiler, the loops for whole vectors and for the
// rest, which thread counts cut differently, need not round alike.
#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/vector_math.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

using A = const ActivationAttrs&;

struct LeakyRelu {
  // Both sides are computed first: a branch would be guessed wrong for half of the elements.
  static float value(A a, float x) {
    const float below = x * a.alpha;
    return x > 0.f ? x : below;
  }
  static float slope(A a, float x) {
    const float below = a.alpha;
    return x > 0.f ? 1.f : below;
  }
};
struct Gelu {
  static float value(A, float x) { return x * vector_normal(x).cdf; }
  static float slope(A, float x) {
    const Normal normal = vector_normal(x);
    return __builtin_fmaf(x, normal.density, normal.cdf);
  }
};
// (1 + tanh(u)) / 2 = sigmoid(2 u), which keeps its accuracy far to the left.
struct GeluTanh {
  static constexpr float kScale = 1.59576912f, kCube = 0.044715f;  // 2 sqrt(2 / pi)
  static float gate(float x) {
    return vector_sigmoid(kScale * __builtin_fmaf(kCube * x * x, x, x));
  }
  static float value(A, float x) { return x * gate(x); }
  static float slope(A, float x) {
    const float s = gate(x);
    const float u = kScale * __builtin_fmaf(3.f * kCube * x, x, 1.f);
    return __builtin_fmaf(x * s * (1.f - s), u, s);
  }
};
struct Silu {
  static float value(A, float x) { return x * vector_sigmoid(x); }
  static float slope(A, float x) {
    const float s = vector_sigmoid(x);
    return __builtin_fmaf(x * s, 1.f - s, s);
  }
};
struct Sigmoid {
  static float value(A, float x) { return vector_sigmoid(x); }
  static float slope(A, float y) { return y * (1.f - y); }
};
struct Tanh {
  static float value(A, float x) { return vector_tanh(x); }
  static float slope(A, float y) { return 1.f - y * y; }
};
struct Softplus {
  static float value(A a, float x) {
    const float z = a.beta * x;
    const float positive = z > 0.f ? z : 0.f;
    const float soft =
        (positive + vector_log1p_unit(vector_exp_nonpositive(-__builtin_fabsf(z)))) / a.beta;
    return z > a.threshold ? x : soft;
  }
  static float slope(A a, float x) {
    const float soft = vector_sigmoid(a.beta * x);
    return a.beta * x > a.threshold ? 1.f : soft;
  }
};
struct Elu {
  static float value(A a, float x) {
    const float below = a.alpha * vector_expm1(x);
    return x > 0.f ? x : below;
  }
  static float slope(A a, float x) {
    const float below = a.alpha * vector_exp_nonpositive(x);
    return x <= 0.f ? below : 1.f;  // 1 at NaN too, as in PyTorch
  }
};

template <class F>
void forward(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0],
      [a = args.attrs.as<ActivationAttrs>()](float x) { return F::value(a, x); });
}
// inputs dy, and the input or output
template <class F>
void backward(KernelArgs& args) {
  map(args.inputs[0], args.inputs[1], args.outputs[0],
      [a = args.attrs.as<ActivationAttrs>()](float dy, float v) { return dy * F::slope(a, v); });
}

}  // namespace

void kernels::leaky_relu(KernelArgs& args) { forward<LeakyRelu>(args); }
void kernels::leaky_relu_backward(KernelArgs& args) { backward<LeakyRelu>(args); }
void kernels::gelu(KernelArgs& args) { forward<Gelu>(args); }
void kernels::gelu_backward(KernelArgs& args) { backward<Gelu>(args); }
void kernels::gelu_tanh(KernelArgs& args) { forward<GeluTanh>(args); }
void kernels::gelu_tanh_backward(KernelArgs& args) { backward<GeluTanh>(args); }
void kernels::silu(KernelArgs& args) { forward<Silu>(args); }
void kernels::silu_backward(KernelArgs& args) { backward<Silu>(args); }
void kernels::sigmoid(KernelArgs& args) { forward<Sigmoid>(args); }
void kernels::sigmoid_backward(KernelArgs& args) { backward<Sigmoid>(args); }
void kernels::tanh(KernelArgs& args) { forward<Tanh>(args); }
void kernels::tanh_backward(KernelArgs& args) { backward<Tanh>(args); }
void kernels::softplus(KernelArgs& args) { forward<Softplus>(args); }
void kernels::softplus_backward(KernelArgs& args) { backward<Softplus>(args); }
void kernels::elu(KernelArgs& args) { forward<Elu>(args); }
void kernels::elu_backward(KernelArgs& args) { backward<Elu>(args); }

}  // namespace engine::cpu
