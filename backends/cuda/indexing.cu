// pad, gather, scatter_add, embedding and their gradients. What meets in one place is added by one
// thread, in order, so results are the same every time.
#include "backends/cuda/as_f32.h"
#include "backends/cuda/device_errors.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/walk.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

// One axis of a padded tensor, which is seen as [outer, padded, inner].
struct PadAxis {
  int64_t begin, size, end;
  PadMode mode;

  // The element that a place shows; -1: none.
  __device__ int64_t source(int64_t place) const {
    const int64_t i = place - begin, last = size - 1;
    if (i >= 0 && i <= last) return i;
    if (mode == PadMode::constant) return -1;
    if (mode == PadMode::replicate) return i < 0 ? 0 : last;
    return i < 0 ? -i : 2 * last - i;
  }
};

// The padding of all axes, for a place of y.
struct PadWalk {
  PadAxis axis[Shape::kMaxRank];
  int64_t padded[Shape::kMaxRank];
  int rank;
};
template <class T>
__global__ void pad_kernel(int64_t n, PadWalk walk, T value, const T* x, T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    int64_t rest = i, offset = 0, stride = 1;
    bool inside = true;
    for (int k = walk.rank - 1; k >= 0; --k) {
      const int64_t from = walk.axis[k].source(rest % walk.padded[k]);
      rest /= walk.padded[k];
      inside = inside && from >= 0;
      offset += from * stride;
      stride *= walk.axis[k].size;
    }
    y[i] = inside ? x[offset] : value;
  }
}

// dx [outer, size, inner] from dy [outer, padded, inner]: each element adds up the places along one
// axis that show it.
template <class T, class Out>
__global__ void fold_kernel(int64_t n, PadAxis axis, int64_t inner, const T* dy, Out* dx) {
  const int64_t padded = axis.begin + axis.size + axis.end, last = axis.size - 1;
  for (int64_t at = grid_index(); at < n; at += grid_step()) {
    const int64_t column = at % inner, i = at / inner % axis.size, outer = at / inner / axis.size;
    const T* line = dy + outer * padded * inner + column;
    const auto place = [&](int64_t p) { return static_cast<float>(line[p * inner]); };
    float sum = place(axis.begin + i);
    if (axis.mode == PadMode::reflect) {
      if (i >= 1 && i <= axis.begin) sum += place(axis.begin - i);
      if (i < last && last - i <= axis.end) sum += place(axis.begin + 2 * last - i);
    } else if (axis.mode == PadMode::replicate) {
      for (int64_t p = 0; i == 0 && p < axis.begin; ++p) sum += place(p);
      for (int64_t p = axis.begin + axis.size; i == last && p < padded; ++p) sum += place(p);
    }
    dx[at] = Out(sum);
  }
}

PadAxis pad_axis(const PadAttrs& a, const Shape& x, int axis) {
  const auto k = static_cast<size_t>(axis);
  return {a.begin[k], x[axis], a.end[k], a.mode};
}

// A thread for each index; it takes the element that the index says, along `axis`.
template <class Walk, class Index, class T>
__global__ void gather_kernel(int64_t n, Walk walk, int64_t size, int64_t stride,
                              DeviceError* error, const T* x, const int64_t* index, T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    Index base[1];
    walk.offsets(static_cast<Index>(i), base);
    const bool right = check_index(error, OpId::gather, index[i], size, i);
    y[i] = right ? x[static_cast<int64_t>(base[0]) + index[i] * stride] : T{};
  }
}

// Where element i of an index tensor lies in x, but for its place along the axis.
BroadcastWalk<1> index_walk(const Shape& index, const Shape& x, int axis) {
  BroadcastWalk<1> walk;
  for (int i = 0; i < index.rank(); ++i) {
    walk.size[walk.rank] = index[i];
    walk.stride[walk.rank++][0] = i == axis ? 0 : x.product(i + 1, x.rank());
  }
  return walk;
}

// A thread for each line along the axis; it adds the line's elements in order.
template <class Walk, class Index, class T>
__global__ void scatter_add_kernel(int64_t lines, int64_t n, int64_t inner, Walk walk, int64_t size,
                                   int64_t stride, DeviceError* error, const int64_t* index,
                                   const T* source, float* sums) {
  for (int64_t line = grid_index(); line < lines; line += grid_step()) {
    const int64_t first = line / inner * n * inner + line % inner;
    Index base[1];
    walk.offsets(static_cast<Index>(first), base);
    for (int64_t j = 0; j < n; ++j) {
      const int64_t i = first + j * inner;
      if (!check_index(error, OpId::scatter_add, index[i], size, i)) continue;
      sums[static_cast<int64_t>(base[0]) + index[i] * stride] += static_cast<float>(source[i]);
    }
  }
}

template <class T>
__global__ void embedding_kernel(int64_t n, int64_t width, int64_t rows, DeviceError* error,
                                 const T* weight, const int64_t* ids, T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t position = i / width, id = ids[position];
    const bool right = check_index(error, OpId::embedding, id, rows, position);
    y[i] = right ? weight[id * width + i % width] : T{};
  }
}

__global__ void check_ids_kernel(int64_t n, int64_t rows, DeviceError* error, const int64_t* ids) {
  for (int64_t i = grid_index(); i < n; i += grid_step())
    check_index(error, OpId::embedding, ids[i], rows, i);
}

// A block for each row of the weight. Its warps look for the row's id, 32 ids at a time, and every
// thread adds up the columns that are its own.
template <class T>
__global__ void embedding_backward_kernel(int64_t rows, int64_t width, int64_t n,
                                          const int64_t* ids, const T* dy, T* dweight) {
  const int64_t lane = threadIdx.x % 32;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t first = 0; first < width; first += blockDim.x) {
      const int64_t column = first + threadIdx.x;
      float sum = 0;
      for (int64_t i = 0; i < n; i += 32) {
        unsigned here = __ballot_sync(kWholeWarp, i + lane < n && ids[i + lane] == row);
        for (int64_t k = i; here != 0; ++k, here >>= 1) {
          if ((here & 1) != 0 && column < width) sum += static_cast<float>(dy[k * width + column]);
        }
      }
      if (column < width) dweight[row * width + column] = T(sum);
    }
  }
}

template <class T>
void pad_as(const Tensor& x, const Tensor& y, const PadAttrs& a, T value) {
  if (y.numel() == 0) return;
  PadWalk walk;
  walk.rank = x.rank();
  for (int i = 0; i < x.rank(); ++i) {
    walk.axis[i] = pad_axis(a, x.shape(), i);
    walk.padded[i] = y.size(i);
  }
  launch_kernel(pad_kernel<T>, blocks_for(y.numel()), kThreads, 0, y.numel(), walk, value,
                x.data<T>(), y.data<T>());
}

}  // namespace

void kernels::pad(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const auto& a = args.attrs.as<PadAttrs>();
  with_dtype(x.dtype(), [&]<class T>(T) { pad_as(x, y, a, convert<T>(a.value)); });
}

// Axis by axis, the padded ones alone, in f32 on the way.
void kernels::pad_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &dx = args.outputs[0];
  const auto& a = args.attrs.as<PadAttrs>();
  if (dx.numel() == 0) return;
  std::vector<int> padded;
  for (int i = 0; i < dx.rank(); ++i) {
    const auto k = static_cast<size_t>(i);
    if (a.begin[k] > 0 || a.end[k] > 0) padded.push_back(i);
  }
  with_floating(dy.dtype(), [&]<class T>(T) {
    if (padded.empty()) {
      ENGINE_CUDA(
          cudaMemcpyAsync(dx.raw(), dy.raw(), dx.bytes(), cudaMemcpyDeviceToDevice, stream()));
      return;
    }
    Shape shape = dy.shape();
    const float* between = nullptr;
    for (size_t step = 0; step < padded.size(); ++step) {
      const int axis = padded[step];
      const PadAxis fold = pad_axis(a, dx.shape(), axis);
      shape = shape.with(axis, dx.size(axis));
      const int64_t n = shape.numel(), inner = shape.product(axis + 1, shape.rank());
      const auto to = [&]<class From, class Out>(const From* from, Out* out) {
        launch_kernel(fold_kernel<From, Out>, blocks_for(n), kThreads, 0, n, fold, inner, from,
                      out);
      };
      const bool first = step == 0, last = step + 1 == padded.size();
      float* next = last ? nullptr : args.scratch.array<float>(n);
      const T* in = dy.data<T>();
      if (first && last)
        to(in, dx.data<T>());
      else if (first)
        to(in, next);
      else if (last)
        to(between, dx.data<T>());
      else
        to(between, next);
      between = next;
    }
  });
}

void kernels::gather(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &index = args.inputs[1], &y = args.outputs[0];
  const int axis = args.attrs.as<AxisAttrs>().axis;
  if (y.numel() == 0) return;
  const BroadcastWalk<1> walk = index_walk(index.shape(), x.shape(), axis);
  with_bits(x.dtype(), [&]<class T>(T) {
    with_divider(std::max(x.numel(), y.numel()), [&]<class Divider>(Divider) {
      using Walk = DeviceWalk<1, Divider>;
      launch_kernel(gather_kernel<Walk, typename Divider::Index, T>, blocks_for(y.numel()),
                    kThreads, 0, y.numel(), Walk(walk), x.size(axis),
                    x.shape().product(axis + 1, x.rank()), device_error(),
                    static_cast<const T*>(x.raw()), index.data<int64_t>(),
                    static_cast<T*>(y.raw()));
    });
  });
}

void kernels::scatter_add(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &index = args.inputs[1], &source = args.inputs[2],
               &y = args.outputs[0];
  const int axis = args.attrs.as<AxisAttrs>().axis;
  const int64_t n = index.size(axis), inner = index.shape().product(axis + 1, index.rank());
  const int64_t lines = n > 0 ? index.numel() / n : 0;
  const BroadcastWalk<1> walk = index_walk(index.shape(), x.shape(), axis);
  with_floating(x.dtype(), [&]<class T>(T) {
    const F32Output sums(args, y);
    map_elements(x.numel(), AsFloat{}, sums.data(), static_cast<const T*>(x.data<T>()));
    if (lines > 0) {  // also where x is empty: an index is then out of range
      with_divider(std::max(x.numel(), index.numel()), [&]<class Divider>(Divider) {
        using Walk = DeviceWalk<1, Divider>;
        launch_kernel(scatter_add_kernel<Walk, typename Divider::Index, T>, blocks_for(lines),
                      kThreads, 0, lines, n, inner, Walk(walk), x.size(axis),
                      x.shape().product(axis + 1, x.rank()), device_error(), index.data<int64_t>(),
                      source.data<T>(), sums.data());
      });
    }
    sums.store();
  });
}

void kernels::embedding(KernelArgs& args) {
  const Tensor &weight = args.inputs[0], &ids = args.inputs[1], &y = args.outputs[0];
  if (ids.numel() == 0) return;
  if (y.numel() == 0) {  // rows without elements: an id can be wrong all the same
    launch_kernel(check_ids_kernel, blocks_for(ids.numel()), kThreads, 0, ids.numel(),
                  weight.size(0), device_error(), ids.data<int64_t>());
    return;
  }
  with_bits(weight.dtype(), [&]<class T>(T) {
    launch_kernel(embedding_kernel<T>, blocks_for(y.numel()), kThreads, 0, y.numel(),
                  weight.size(1), weight.size(0), device_error(),
                  static_cast<const T*>(weight.raw()), ids.data<int64_t>(),
                  static_cast<T*>(y.raw()));
  });
}

void kernels::embedding_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &ids = args.inputs[1], &dweight = args.outputs[0];
  if (dweight.numel() == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(dweight.size(0), 1 << 16));
  with_floating(dy.dtype(), [&]<class T>(T) {
    launch_kernel(embedding_backward_kernel<T>, blocks, kThreads, 0, dweight.size(0),
                  dweight.size(1), ids.numel(), ids.data<int64_t>(), dy.data<T>(),
                  dweight.data<T>());
  });
}

}  // namespace engine::cuda
