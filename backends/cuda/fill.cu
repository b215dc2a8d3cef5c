// Writing into memory that exists: constants, random numbers, copies, sums.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};
template <class T>
void fill_as(const Tensor& x, T value) {
  map_elements(x.numel(), Constant<T>{value}, x.data<T>());
}

struct Uniform {
  float low, range;
  __device__ float operator()(uint32_t bits) const { return low + range * uniform_from_bits(bits); }
};
struct Normal {
  float mean, deviation;
  __device__ float operator()(uint32_t bits) const {
    return mean + deviation * normal_from_bits(bits);
  }
};

// Number i of the stream is lane i % 4 of block i / 4: a thread makes blocks.
template <class T, class F>
__global__ void fill_random_kernel(int64_t n, RandomStream stream, F f, T* out) {
  for (int64_t block = grid_index(); block * 4 < n; block += grid_step()) {
    const std::array<uint32_t, 4> bits =
        philox(stream.seed, stream.offset + static_cast<uint64_t>(block));
    for (int64_t k = 0; k < 4 && block * 4 + k < n; ++k)
      out[block * 4 + k] = T(f(bits[static_cast<size_t>(k)]));
  }
}
template <class F>
void fill_random(const Tensor& x, const RandomStream& stream, F f) {
  if (x.numel() == 0) return;
  with_floating(x.dtype(), [&]<class T>(T) {
    launch_kernel(fill_random_kernel<T, F>, blocks_for(x.numel(), 4), kThreads, 0, x.numel(),
                  stream, f, x.data<T>());
  });
}

struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};

}  // namespace

void kernels::fill_(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const double value = args.attrs.as<FillAttrs>().value;
  with_dtype(x.dtype(), [&]<class T>(T) { fill_as(x, convert<T>(value)); });
}
void kernels::uniform_(KernelArgs& args) {
  const auto& a = args.attrs.as<RandomAttrs>();
  fill_random(args.inputs[0], a.stream, Uniform{a.low, a.high - a.low});
}
void kernels::normal_(KernelArgs& args) {
  const auto& a = args.attrs.as<RandomAttrs>();
  fill_random(args.inputs[0], a.stream, Normal{a.low, a.high});
}
void kernels::copy_(KernelArgs& args) {
  ENGINE_CUDA(cudaMemcpyAsync(args.inputs[0].raw(), args.inputs[1].raw(), args.inputs[0].bytes(),
                              cudaMemcpyDeviceToDevice, stream()));
}
void kernels::accumulate_(KernelArgs& args) {
  map(args.inputs[0], args.inputs[1], args.inputs[0], Plus{});
}
void kernels::scale_(KernelArgs& args) {
  map(args.inputs[0], args.inputs[0], Scale{args.attrs.as<ScalarAttrs>().value});
}

}  // namespace engine::cuda
