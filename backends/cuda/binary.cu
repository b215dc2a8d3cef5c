// add, sub, mul, div, pow, maximum, minimum and comparisons with broadcasting; where.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/walk.h"

namespace engine::cuda {

namespace {

template <class Walk, class Index, class T, class Out, class F>
__global__ void broadcast_kernel(int64_t n, Walk walk, F f, const T* a, const T* b, Out* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    Index at[2];
    walk.offsets(static_cast<Index>(i), at);
    y[i] = Out(f(static_cast<float>(a[at[0]]), static_cast<float>(b[at[1]])));
  }
}

template <class T, class Out, class F>
void run_as(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  const T *in_a = a.data<T>(), *in_b = b.data<T>();
  Out* out = y.data<Out>();
  if (y.numel() == 0) return;
  if (a.shape() == b.shape()) return map_elements(y.numel(), OfFloats<F>{f}, out, in_a, in_b);
  const BroadcastWalk<2> walk = broadcast_walk<2>({a.shape(), b.shape()}, y.shape());
  with_divider(y.numel(), [&]<class Divider>(Divider) {
    using Walk = DeviceWalk<2, Divider>;
    launch_kernel(broadcast_kernel<Walk, typename Divider::Index, T, Out, F>, blocks_for(y.numel()),
                  kThreads, 0, y.numel(), Walk(walk), f, in_a, in_b, out);
  });
}

// Results of the operands' type.
template <class F>
void run(KernelArgs& args, F f) {
  const Tensor& y = args.outputs[0];
  with_floating(y.dtype(), [&]<class T>(T) { run_as<T, T>(args.inputs[0], args.inputs[1], y, f); });
}
// Results 0 or 1.
template <class F>
void run_comparison(KernelArgs& args, F f) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) {
    run_as<T, uint8_t>(args.inputs[0], args.inputs[1], args.outputs[0], f);
  });
}

template <class Walk, class Index, class T>
__global__ void where_kernel(int64_t n, Walk walk, const uint8_t* condition, const T* a, const T* b,
                             T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    Index at[3];
    walk.offsets(static_cast<Index>(i), at);
    y[i] = condition[at[0]] != 0 ? a[at[1]] : b[at[2]];
  }
}
template <class T>
void select(KernelArgs& args) {
  const Tensor &condition = args.inputs[0], &a = args.inputs[1], &b = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  const BroadcastWalk<3> walk =
      broadcast_walk<3>({condition.shape(), a.shape(), b.shape()}, y.shape());
  with_divider(y.numel(), [&]<class Divider>(Divider) {
    using Walk = DeviceWalk<3, Divider>;
    launch_kernel(where_kernel<Walk, typename Divider::Index, T>, blocks_for(y.numel()), kThreads,
                  0, y.numel(), Walk(walk), condition.data<uint8_t>(),
                  static_cast<const T*>(a.raw()), static_cast<const T*>(b.raw()),
                  static_cast<T*>(y.raw()));
  });
}

struct Minus {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct Times {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Over {
  __device__ float operator()(float a, float b) const { return a / b; }
};
struct Power {
  __device__ float operator()(float a, float b) const { return powf(a, b); }
};
// A NaN in a is not smaller, one in b makes a comparison false: either stays.
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Smaller {
  __device__ float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};
struct Eq {
  __device__ bool operator()(float a, float b) const { return a == b; }
};
struct Ne {
  __device__ bool operator()(float a, float b) const { return a != b; }
};
struct Lt {
  __device__ bool operator()(float a, float b) const { return a < b; }
};
struct Le {
  __device__ bool operator()(float a, float b) const { return a <= b; }
};
struct Gt {
  __device__ bool operator()(float a, float b) const { return a > b; }
};
struct Ge {
  __device__ bool operator()(float a, float b) const { return a >= b; }
};

}  // namespace

void kernels::add(KernelArgs& args) { run(args, Plus{}); }
void kernels::sub(KernelArgs& args) { run(args, Minus{}); }
void kernels::mul(KernelArgs& args) { run(args, Times{}); }
void kernels::div(KernelArgs& args) { run(args, Over{}); }
void kernels::pow(KernelArgs& args) { run(args, Power{}); }
void kernels::maximum(KernelArgs& args) { run(args, Larger{}); }
void kernels::minimum(KernelArgs& args) { run(args, Smaller{}); }
void kernels::eq(KernelArgs& args) { run_comparison(args, Eq{}); }
void kernels::ne(KernelArgs& args) { run_comparison(args, Ne{}); }
void kernels::lt(KernelArgs& args) { run_comparison(args, Lt{}); }
void kernels::le(KernelArgs& args) { run_comparison(args, Le{}); }
void kernels::gt(KernelArgs& args) { run_comparison(args, Gt{}); }
void kernels::ge(KernelArgs& args) { run_comparison(args, Ge{}); }

// Elements are moved whole, so only their size matters.
void kernels::where(KernelArgs& args) {
  with_bits(args.outputs[0].dtype(), [&]<class T>(T) { select<T>(args); });
}

}  // namespace engine::cuda
