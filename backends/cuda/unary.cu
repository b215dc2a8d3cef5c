// Elementwise functions, dropout and casts.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Shift {
  float term;
  __device__ float operator()(float x) const { return x + term; }
};
struct Neg {
  __device__ float operator()(float x) const { return -x; }
};
struct Exp {
  __device__ float operator()(float x) const { return expf(x); }
};
struct Log {
  __device__ float operator()(float x) const { return logf(x); }
};
struct Sqrt {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct Rsqrt {
  __device__ float operator()(float x) const { return 1.f / sqrtf(x); }
};
// NaN stays NaN: both comparisons are false for it.
struct Clamp {
  ClampAttrs a;
  __device__ float operator()(float x) const {
    const float above = x < a.low ? a.low : x;
    return above > a.high ? a.high : above;
  }
};
struct ClampBackward {
  ClampAttrs a;
  __device__ float operator()(float dy, float x) const {
    return x > a.low && x < a.high ? dy : 0.f;
  }
};
struct Square {
  __device__ float operator()(float x) const { return x * x; }
};
struct Cube {
  __device__ float operator()(float x) const { return x * x * x; }
};
struct Inverse {
  __device__ float operator()(float x) const { return 1.f / x; }
};
struct Power {
  float exponent;
  __device__ float operator()(float x) const { return powf(x, exponent); }
};
struct Abs {
  __device__ float operator()(float x) const { return fabsf(x); }
};
// 0 at 0, and at NaN, which has no sign.
struct AbsBackward {
  __device__ float operator()(float dy, float x) const { return x > 0 ? dy : (x < 0 ? -dy : 0.f); }
};
struct Relu {
  __device__ float operator()(float x) const { return relu_value(x); }
};
// Where y is NaN the comparison is false and dy passes, as in PyTorch.
struct ReluBackward {
  __device__ float operator()(float dy, float y) const { return y <= 0.f ? 0.f : dy; }
};

template <class F>
void forward(KernelArgs& args, F f) {
  map(args.inputs[0], args.outputs[0], f);
}
template <class F>
void backward(KernelArgs& args, F f) {
  map(args.inputs[0], args.inputs[1], args.outputs[0], f);
}

// Number i of the stream is lane i % 4 of block i / 4: a thread does the elements of a block.
template <class T>
__global__ void dropout_kernel(int64_t n, DropoutAttrs a, float scale, const T* x, T* y) {
  for (int64_t block = grid_index(); block * 4 < n; block += grid_step()) {
    const std::array<uint32_t, 4> bits =
        philox(a.stream.seed, a.stream.offset + static_cast<uint64_t>(block));
    for (int64_t k = 0; k < 4 && block * 4 + k < n; ++k) {
      const float kept = static_cast<float>(x[block * 4 + k]) * scale;
      y[block * 4 + k] = T(uniform_from_bits(bits[static_cast<size_t>(k)]) < a.p ? 0.f : kept);
    }
  }
}

template <class To>
struct Convert {
  template <class From>
  __device__ To operator()(From value) const {
    return convert<To>(value);
  }
};

}  // namespace

void kernels::scale(KernelArgs& args) { forward(args, Scale{args.attrs.as<ScalarAttrs>().value}); }
void kernels::shift(KernelArgs& args) { forward(args, Shift{args.attrs.as<ScalarAttrs>().value}); }
void kernels::neg(KernelArgs& args) { forward(args, Neg{}); }
void kernels::exp(KernelArgs& args) { forward(args, Exp{}); }
void kernels::log(KernelArgs& args) { forward(args, Log{}); }
void kernels::sqrt(KernelArgs& args) { forward(args, Sqrt{}); }
void kernels::rsqrt(KernelArgs& args) { forward(args, Rsqrt{}); }
void kernels::clamp(KernelArgs& args) { forward(args, Clamp{args.attrs.as<ClampAttrs>()}); }
void kernels::clamp_backward(KernelArgs& args) {
  backward(args, ClampBackward{args.attrs.as<ClampAttrs>()});
}
void kernels::pow_scalar(KernelArgs& args) {
  const float e = args.attrs.as<ScalarAttrs>().value;
  if (e == 2.f) return forward(args, Square{});
  if (e == 3.f) return forward(args, Cube{});
  if (e == -1.f) return forward(args, Inverse{});
  forward(args, Power{e});
}
void kernels::abs(KernelArgs& args) { forward(args, Abs{}); }
void kernels::abs_backward(KernelArgs& args) { backward(args, AbsBackward{}); }
void kernels::relu(KernelArgs& args) { forward(args, Relu{}); }
void kernels::relu_backward(KernelArgs& args) { backward(args, ReluBackward{}); }

void kernels::dropout(KernelArgs& args) {
  const auto& a = args.attrs.as<DropoutAttrs>();
  const Tensor& y = args.outputs[0];
  // p = 1 drops all: no number below 1 reaches it, and 1 / 0 is never used.
  const float scale = a.p < 1.f ? 1.f / (1.f - a.p) : 0.f;
  if (y.numel() == 0) return;
  with_floating(y.dtype(), [&]<class T>(T) {
    launch_kernel(dropout_kernel<T>, blocks_for(y.numel(), 4), kThreads, 0, y.numel(), a, scale,
                  args.inputs[0].data<T>(), y.data<T>());
  });
}

void kernels::cast(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  with_dtype(x.dtype(), [&]<class From>(From) {
    with_dtype(y.dtype(), [&]<class To>(To) {
      map_elements(y.numel(), Convert<To>{}, y.data<To>(),
                   static_cast<const From*>(x.data<From>()));
    });
  });
}

}  // namespace engine::cuda
