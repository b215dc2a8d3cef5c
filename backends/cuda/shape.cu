// permute, broadcast_to, flip, slice, concat: copies by strides. Elements are moved whole, so only
// their size matters.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/walk.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

using Strides = std::array<int64_t, Shape::kMaxRank>;

Strides row_major(const Shape& shape) {
  Strides strides{};
  int64_t next = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = next;
    next *= shape[i];
  }
  return strides;
}

// The elements of a strided tensor and of a contiguous one that holds them in order; kBack: from
// the contiguous one to the strided one.
template <bool kBack, class Walk, class Index, class T>
__global__ void copy_strided_kernel(int64_t n, Walk walk, const T* from, T* to) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    Index at[1];
    walk.offsets(static_cast<Index>(i), at);
    const auto offset = static_cast<std::make_signed_t<Index>>(at[0]);  // strides may be negative
    if (kBack)
      to[offset] = from[i];
    else
      to[i] = from[offset];
  }
}

// `whole` has `elements` elements, of which those at origin + index * strides are the contiguous
// tensor's, of this shape.
template <bool kBack>
void copy_strided(const void* from, void* to, DType dtype, int64_t elements, const Shape& shape,
                  const Strides& strides, int64_t origin) {
  if (shape.numel() == 0) return;
  BroadcastWalk<1> walk;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    walk.size[walk.rank] = shape[i];
    walk.stride[walk.rank++][0] = strides[static_cast<size_t>(i)];
  }
  with_bits(dtype, [&]<class T>(T) {
    const T* source = static_cast<const T*>(from) + (kBack ? 0 : origin);
    T* destination = static_cast<T*>(to) + (kBack ? origin : 0);
    with_divider(std::max(elements, shape.numel()), [&]<class Divider>(Divider) {
      using Walk = DeviceWalk<1, Divider>;
      launch_kernel(copy_strided_kernel<kBack, Walk, typename Divider::Index, T>,
                    blocks_for(shape.numel()), kThreads, 0, shape.numel(), Walk(walk), source,
                    destination);
    });
  });
}

void read_strided(const Tensor& x, const Tensor& y, const Strides& strides, int64_t origin = 0) {
  copy_strided<false>(x.raw(), y.raw(), x.dtype(), x.numel(), y.shape(), strides, origin);
}
void write_strided(const Tensor& x, const Tensor& y, const Strides& strides, int64_t origin) {
  copy_strided<true>(x.raw(), y.raw(), x.dtype(), y.numel(), x.shape(), strides, origin);
}

// The places of a slice in the whole.
struct Slice {
  Strides strides;
  int64_t origin;

  Slice(const Shape& whole, const SliceAttrs& a) : strides(row_major(whole)) {
    int64_t& along = strides[static_cast<size_t>(a.axis)];
    origin = a.begin * along;
    along *= a.step;
  }
};

}  // namespace

void kernels::permute(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const Strides own = row_major(x.shape());
  Strides strides{};
  for (size_t i = 0; i < static_cast<size_t>(x.rank()); ++i)
    strides[i] = own[static_cast<size_t>(args.attrs.as<PermuteAttrs>().order[i])];
  read_strided(x, args.outputs[0], strides);
}

void kernels::broadcast_to(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const Strides own = row_major(x.shape());
  Strides strides{};
  for (int i = 1; i <= x.rank(); ++i) {
    if (x.size(-i) != 1)
      strides[static_cast<size_t>(y.rank() - i)] = own[static_cast<size_t>(x.rank() - i)];
  }
  read_strided(x, y, strides);
}

void kernels::flip(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  Strides strides = row_major(x.shape());
  int64_t origin = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if ((args.attrs.as<FlipAttrs>().axes >> i & 1) == 0) continue;
    int64_t& stride = strides[static_cast<size_t>(i)];
    origin += (x.size(i) - 1) * stride;
    stride = -stride;
  }
  read_strided(x, args.outputs[0], strides, origin);
}

void kernels::slice(KernelArgs& args) {
  const Slice slice(args.inputs[0].shape(), args.attrs.as<SliceAttrs>());
  read_strided(args.inputs[0], args.outputs[0], slice.strides, slice.origin);
}
void kernels::slice_backward(KernelArgs& args) {
  const Tensor& dx = args.outputs[0];
  ENGINE_CUDA(cudaMemsetAsync(dx.raw(), 0, dx.bytes(), stream()));
  const Slice slice(dx.shape(), args.attrs.as<SliceAttrs>());
  write_strided(args.inputs[0], dx, slice.strides, slice.origin);
}

void kernels::concat(KernelArgs& args) {
  const auto axis = static_cast<size_t>(args.attrs.as<AxisAttrs>().axis);
  const Tensor& y = args.outputs[0];
  const Strides strides = row_major(y.shape());
  int64_t begin = 0;
  for (const Tensor& x : args.inputs) {
    write_strided(x, y, strides, begin * strides[axis]);
    begin += x.size(static_cast<int>(axis));
  }
}

}  // namespace engine::cuda
