// permute and broadcast_to: copies by strides, for any element type.
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/parallel.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

using Strides = std::array<int64_t, Shape::kMaxRank>;

// y[i...] = x[sum of index times stride]; y is contiguous.
template <class T>
void copy_strided(const Tensor& x, const Tensor& y, const Strides& stride) {
  const T* in = static_cast<const T*>(x.raw());
  T* out = static_cast<T*>(y.raw());
  const Shape& shape = y.shape();
  if (y.numel() == 0) return;
  if (shape.rank() == 0) {
    out[0] = in[0];
    return;
  }
  const int last = shape.rank() - 1;
  const int64_t inner = shape[last], inner_stride = stride[static_cast<size_t>(last)];
  parallel_items(y.numel() / inner, inner, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, offset = 0;
      for (int axis = last - 1; axis >= 0; --axis) {
        offset += rest % shape[axis] * stride[static_cast<size_t>(axis)];
        rest /= shape[axis];
      }
      T* to = out + row * inner;
      const T* from = in + offset;
      if (inner_stride == 1)
        std::memcpy(to, from, static_cast<size_t>(inner) * sizeof(T));
      else
        for (int64_t i = 0; i < inner; ++i) to[i] = from[i * inner_stride];
    }
  });
}

void copy_strided(const Tensor& x, const Tensor& y, const Strides& stride) {
  switch (size_of(x.dtype())) {
    case 1:
      return copy_strided<uint8_t>(x, y, stride);
    case 2:
      return copy_strided<uint16_t>(x, y, stride);
    case 4:
      return copy_strided<uint32_t>(x, y, stride);
    case 8:
      return copy_strided<uint64_t>(x, y, stride);
  }
}

Strides row_major(const Shape& shape) {
  Strides strides{};
  int64_t next = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = next;
    next *= shape[i];
  }
  return strides;
}

}  // namespace

void kernels::permute(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const Strides own = row_major(x.shape());
  Strides strides{};
  for (size_t i = 0; i < static_cast<size_t>(x.rank()); ++i) {
    strides[i] = own[static_cast<size_t>(args.attrs.as<PermuteAttrs>().order[i])];
  }
  copy_strided(x, args.outputs[0], strides);
}

void kernels::broadcast_to(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const Strides own = row_major(x.shape());
  Strides strides{};
  for (int i = 1; i <= x.rank(); ++i) {
    if (x.size(-i) != 1)
      strides[static_cast<size_t>(y.rank() - i)] = own[static_cast<size_t>(x.rank() - i)];
  }
  copy_strided(x, y, strides);
}

}  // namespace engine::cpu
