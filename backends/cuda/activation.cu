// Activations, each with its slope: dx = dy slope(x), or slope(y) where that is simpler (sigmoid,
// tanh). Definitions as in backends/cpu/activation.cpp.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

using A = ActivationAttrs;

__device__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

struct LeakyRelu {
  __device__ static float value(A a, float x) { return x > 0.f ? x : x * a.alpha; }
  __device__ static float slope(A a, float x) { return x > 0.f ? 1.f : a.alpha; }
};
struct Gelu {
  // erfc keeps its accuracy to the left; far out it multiplies what rounding took from its
  // argument, and these few elements are worth a double.
  __device__ static float distribution(float x) {
    if (x < -3.f)
      return static_cast<float>(0.5 * erfc(-0.70710678118654752 * static_cast<double>(x)));
    return 0.5f * erfcf(-0.707106781f * x);
  }
  __device__ static float value(A, float x) { return x * distribution(x); }
  __device__ static float slope(A, float x) {
    return distribution(x) + x * 0.398942280f * expf(-0.5f * x * x);
  }
};
// (1 + tanh(u)) / 2 = sigmoid(2 u), which keeps its accuracy far to the left.
struct GeluTanh {
  static constexpr float kScale = 1.59576912f, kCube = 0.044715f;  // 2 sqrt(2 / pi)
  __device__ static float gate(float x) { return sigmoid(kScale * (x + kCube * x * x * x)); }
  __device__ static float value(A, float x) { return x * gate(x); }
  __device__ static float slope(A, float x) {
    const float s = gate(x);
    return s + x * s * (1.f - s) * kScale * (1.f + 3.f * kCube * x * x);
  }
};
struct Silu {
  __device__ static float value(A, float x) { return x * sigmoid(x); }
  __device__ static float slope(A, float x) {
    const float s = sigmoid(x);
    return s * (1.f + x * (1.f - s));
  }
};
struct Sigmoid {
  __device__ static float value(A, float x) { return sigmoid(x); }
  __device__ static float slope(A, float y) { return y * (1.f - y); }
};
struct Tanh {
  __device__ static float value(A, float x) { return tanhf(x); }
  __device__ static float slope(A, float y) { return 1.f - y * y; }
};
struct Softplus {
  __device__ static float value(A a, float x) {
    const float z = a.beta * x;
    const float soft = (fmaxf(z, 0.f) + log1pf(expf(-fabsf(z)))) / a.beta;
    return z > a.threshold ? x : (z == z ? soft : z);  // fmaxf would lose a NaN
  }
  __device__ static float slope(A a, float x) {
    return a.beta * x > a.threshold ? 1.f : sigmoid(a.beta * x);
  }
};
struct Elu {
  __device__ static float value(A a, float x) { return x > 0.f ? x : a.alpha * expm1f(x); }
  __device__ static float slope(A a, float x) { return x <= 0.f ? a.alpha * expf(x) : 1.f; }
};

template <class F>
struct Value {
  A a;
  __device__ float operator()(float x) const { return F::value(a, x); }
};
template <class F>
struct Gradient {
  A a;
  __device__ float operator()(float dy, float x) const { return dy * F::slope(a, x); }
};

template <class F>
void forward(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], Value<F>{args.attrs.as<A>()});
}
// inputs dy, and the input or output
template <class F>
void backward(KernelArgs& args) {
  map(args.inputs[0], args.inputs[1], args.outputs[0], Gradient<F>{args.attrs.as<A>()});
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

}  // namespace engine::cuda
