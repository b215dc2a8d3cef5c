// permute, broadcast_to and flip: copies by strides, for any element type.
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/parallel.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

using Strides = std::array<int64_t, Shape::kMaxRank>;

constexpr int64_t kTile = 128;  // 64 KiB of f32: reads and writes come in long runs

// Where the index-th position of the first `axes` axes of a shape lies, counted with these strides.
int64_t offset_of(int64_t index, const Shape& shape, int axes, const Strides& stride) {
  int64_t offset = 0;
  for (int axis = axes - 1; axis >= 0; --axis) {
    offset += index % shape[axis] * stride[static_cast<size_t>(axis)];
    index /= shape[axis];
  }
  return offset;
}

// out[r * out_step + k] = in[r + k * in_step] for r, k in [0, 8): three times, the rows of the
// upper half are interleaved with those of the lower half.
template <class T>
void transpose_8x8(const T* in, int64_t in_step, T* out, int64_t out_step) {
  using Row [[gnu::vector_size(8 * sizeof(T))]] = T;
  Row a[8], b[8];
  for (int k = 0; k < 8; ++k) std::memcpy(&a[k], in + k * in_step, sizeof(Row));
  const auto interleave = [](const Row* from, Row* to) {
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __builtin_shufflevector(from[i], from[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  for (int r = 0; r < 8; ++r) std::memcpy(out + r * out_step, &b[r], sizeof(Row));
}

template <class T>
void transpose_tile(const T* in, int64_t in_step, T* out, int64_t out_step, int64_t rows,
                    int64_t columns) {
  for (int64_t r = 0; r < rows; r += 8) {
    for (int64_t k = 0; k < columns; k += 8) {
      if (r + 8 <= rows && k + 8 <= columns) {
        transpose_8x8(in + r + k * in_step, in_step, out + r * out_step + k, out_step);
        continue;
      }
      for (int64_t i = r; i < std::min(rows, r + 8); ++i) {
        for (int64_t j = k; j < std::min(columns, k + 8); ++j)
          out[i * out_step + j] = in[i + j * in_step];
      }
    }
  }
}

// As copy_strided, where x is contiguous along axis `along` of y and not along the last: both are
// walked in squares, so that whole cache lines are read and written.
template <class T>
void copy_transposed(const T* in, T* out, const Shape& shape, const Strides& stride, int along,
                     bool stream) {
  const int last = shape.rank() - 1;
  const int64_t rows = shape[along], columns = shape[last];
  const int64_t step = stride[static_cast<size_t>(last)];
  const int64_t between = shape.product(along + 1, last), row_step = between * columns;
  const int64_t strips = (rows + kTile - 1) / kTile;
  // An item: an index of the axes before `along`, one of those between it and the last, a strip of
  // rows.
  parallel_items(
      shape.product(0, along) * between * strips, kTile * columns, [&](int64_t begin, int64_t end) {
        alignas(64) T tile[kTile * kTile];
        for (int64_t item = begin; item < end; ++item) {
          const int64_t strip = item % strips * kTile, inside = item / strips % between,
                        outside = item / strips / between;
          const int64_t first = outside * rows * between + inside;  // in rows of `columns`
          const T* from = in + offset_of(first, shape, last, stride);
          T* to = out + first * columns;
          for (int64_t c = 0; c < columns; c += kTile) {
            const int64_t r = std::min(kTile, rows - strip), k = std::min(kTile, columns - c);
            transpose_tile(from + strip + c * step, step, tile, kTile, r, k);
            for (int64_t i = 0; i < r; ++i)
              store_bytes(reinterpret_cast<std::byte*>(to + (strip + i) * row_step + c),
                          reinterpret_cast<const std::byte*>(tile + i * kTile),
                          static_cast<size_t>(k) * sizeof(T), stream);
          }
        }
      });
}

// y[i...] = x[origin + sum of index times stride]; y is contiguous.
template <class T>
void copy_strided(const Tensor& x, const Tensor& y, const Strides& stride, int64_t origin) {
  const T* in = static_cast<const T*>(x.raw()) + origin;
  T* out = static_cast<T*>(y.raw());
  const Shape& shape = y.shape();
  const bool stream = exceeds_caches(y);
  if (y.numel() == 0) return;
  if (shape.rank() == 0) {
    out[0] = in[0];
    return;
  }
  const int last = shape.rank() - 1;
  const int64_t inner = shape[last], inner_stride = stride[static_cast<size_t>(last)];
  if (inner_stride > 1) {
    for (int axis = 0; axis < last; ++axis) {
      if (stride[static_cast<size_t>(axis)] == 1 && shape[axis] > 1)
        return copy_transposed(in, out, shape, stride, axis, stream);
    }
  }
  parallel_items(y.numel() / inner, inner, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* to = out + row * inner;
      const T* from = in + offset_of(row, shape, last, stride);
      if (inner_stride == 1)
        store_bytes(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                    static_cast<size_t>(inner) * sizeof(T), stream);
      else if (inner_stride == 0)
        store(to, 0, inner, stream, [value = *from](int64_t) { return value; });
      else
        store(to, 0, inner, stream, [=](int64_t i) { return from[i * inner_stride]; });
    }
  });
}

void copy_strided(const Tensor& x, const Tensor& y, const Strides& stride, int64_t origin = 0) {
  with_bits(x.dtype(), [&]<class T>(T) { copy_strided<T>(x, y, stride, origin); });
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
  copy_strided(x, args.outputs[0], strides, origin);
}

}  // namespace engine::cpu
