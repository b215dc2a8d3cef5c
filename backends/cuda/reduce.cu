// sum, mean, max, min, var, logsumexp over any axes, argmax over one, sum_squares; their gradients.
//
// The input is seen as kept axes and reduced axes. Along a contiguous reduced axis a warp or a
// block reads neighbours; along a contiguous kept axis each thread has an output of its own and
// neighbouring threads read neighbours. Long reductions are cut in pieces, by size alone, whose
// results a second launch puts together in order, so results are the same every time. Sums of more
// than a few terms are in double.
#include <array>

#include "backends/cuda/as_f32.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/walk.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

constexpr int64_t kPiece = 4096;    // terms of a piece along a contiguous axis: 16 for each thread
constexpr int64_t kRows = 256;      // terms of a piece of a thread's own
constexpr int64_t kWarpRow = 2048;  // up to here a warp reduces a row

struct Add {
  using Value = double;
  static constexpr double kStart = 0;
  __device__ double operator()(double a, double b) const { return a + b; }
};
// The larger (smaller) one, or NaN if either is.
struct Larger {
  using Value = float;
  static constexpr float kStart = -INFINITY;
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Smaller {
  using Value = float;
  static constexpr float kStart = INFINITY;
  __device__ float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};

// A set of axes, outermost first, that positions are counted along.
struct Axes {
  int64_t size[Shape::kMaxRank], stride[Shape::kMaxRank];
  int count = 0;
  int64_t total = 1;

  void add(int64_t n, int64_t step) {
    size[count] = n;
    stride[count++] = step;
    total *= n;
  }
  __device__ int64_t offset(int64_t position) const {
    int64_t result = 0;
    for (int i = count - 1; i > 0; --i) {
      const int64_t rest = position / size[i];
      result += (position - rest * size[i]) * stride[i];
      position = rest;
    }
    return count > 0 ? result + position * stride[0] : 0;
  }
};

struct Layout {
  Axes kept, reduced;
  bool run_reduced = true;  // whether the innermost axis is reduced
};

// Neighbouring axes of one kind are merged, those of size 1 dropped.
Layout layout_of(const Shape& shape, uint32_t axes) {
  std::array<int64_t, Shape::kMaxRank> size{};
  std::array<bool, Shape::kMaxRank> reduced{};
  size_t count = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const bool r = (axes >> i & 1) != 0;
    if (count > 0 && reduced[count - 1] == r) {
      size[count - 1] *= shape[i];
    } else {
      size[count] = shape[i];
      reduced[count++] = r;
    }
  }
  Layout layout;
  if (count > 0) layout.run_reduced = reduced[count - 1];
  std::array<int64_t, Shape::kMaxRank> stride{};
  int64_t step = 1;
  for (size_t i = count; i-- > 0;) {
    stride[i] = step;
    step *= size[i];
  }
  for (size_t i = 0; i < count; ++i)
    (reduced[i] ? layout.reduced : layout.kept).add(size[i], stride[i]);
  return layout;
}

// What a term is: a function of the element and its output's center.
struct Identity {
  __device__ float operator()(float v, float) const { return v; }
};
struct Squared {
  __device__ double operator()(float v, float) const {
    return static_cast<double>(v) * static_cast<double>(v);
  }
};
struct SquaredDistance {
  __device__ double operator()(float v, float center) const {
    const double d = static_cast<double>(v) - static_cast<double>(center);
    return d * d;
  }
};
struct ExpOf {
  __device__ float operator()(float v, float center) const { return expf(v - center); }
};
// NaN is the extremum of what has one.
__device__ bool is_extremum(float v, float extremum) {
  return v == extremum || (v != v && extremum != extremum);
}
struct EqualTo {
  __device__ float operator()(float v, float center) const {
    return is_extremum(v, center) ? 1.f : 0.f;
  }
};

// What becomes of a result.
struct Keep {
  template <class V>
  __device__ float operator()(V v, int64_t) const {
    return static_cast<float>(v);
  }
};
// In double where the output is, as the means that a variance is about are.
template <class Result>
struct DividedBy {
  double count;
  __device__ Result operator()(double v, int64_t) const { return static_cast<Result>(v / count); }
};

// partial[item], item = output * pieces + piece: what `lanes` threads (a warp, or the block) reduce
// of a piece along the reduced axes.
template <class R, class T, class F>
__global__ void reduce_rows(Layout layout, int64_t pieces, int64_t piece, int lanes, const T* x,
                            F f, const float* centers, typename R::Value* partial) {
  using Value = typename R::Value;
  const int64_t items = layout.kept.total * pieces,
                teams = blockDim.x / static_cast<unsigned>(lanes);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // The same number of rounds for every thread of a block: they meet in reduce_block.
  for (int64_t first = blockIdx.x * teams; first < items; first += gridDim.x * teams) {
    const int64_t item = first + threadIdx.x / static_cast<unsigned>(lanes);
    Value value = R::kStart;
    if (item < items) {
      const int64_t output = item / pieces, begin = item % pieces * piece;
      const int64_t end =
          begin + piece < layout.reduced.total ? begin + piece : layout.reduced.total;
      const T* base = x + layout.kept.offset(output);
      const float center = centers != nullptr ? centers[output] : 0.f;
      for (int64_t i = begin + lane; i < end; i += lanes)
        value =
            R{}(value,
                static_cast<Value>(f(static_cast<float>(base[layout.reduced.offset(i)]), center)));
    }
    value = lanes == 32 ? reduce_warp(value, R{}) : reduce_block(value, R::kStart, R{});
    if (lane == 0 && item < items) partial[item] = value;
  }
}

// The same, a thread for each item, neighbouring outputs side by side: item = piece * outputs +
// output.
template <class R, class T, class F>
__global__ void reduce_columns(Layout layout, int64_t pieces, int64_t piece, const T* x, F f,
                               const float* centers, typename R::Value* partial) {
  using Value = typename R::Value;
  const int64_t outputs = layout.kept.total;
  for (int64_t item = grid_index(); item < outputs * pieces; item += grid_step()) {
    const int64_t output = item % outputs, begin = item / outputs * piece;
    const int64_t end = begin + piece < layout.reduced.total ? begin + piece : layout.reduced.total;
    const T* base = x + layout.kept.offset(output);
    const float center = centers != nullptr ? centers[output] : 0.f;
    Value value = R::kStart;
    for (int64_t i = begin; i < end; ++i)
      value = R{}(
          value, static_cast<Value>(f(static_cast<float>(base[layout.reduced.offset(i)]), center)));
    partial[output * pieces + item / outputs] = value;
  }
}

// out[o] = finish(the pieces of output o, together).
template <class R, class Out, class Finish>
__global__ void finish_reduction(int64_t outputs, int64_t pieces, const typename R::Value* partial,
                                 Finish finish, Out* out) {
  const int64_t warps = blockDim.x / 32, lane = threadIdx.x % 32;
  for (int64_t first = blockIdx.x * warps; first < outputs; first += gridDim.x * warps) {
    const int64_t o = first + threadIdx.x / 32;
    typename R::Value value = R::kStart;
    if (o < outputs) {
      for (int64_t i = lane; i < pieces; i += 32) value = R{}(value, partial[o * pieces + i]);
    }
    value = reduce_warp(value, R{});
    if (lane == 0 && o < outputs) out[o] = Out(finish(value, o));
  }
}

unsigned blocks_of(int64_t items, int64_t per_block) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((items + per_block - 1) / per_block, 1, 1 << 16));
}

// out = finish(R over f(x, center)), one for each kept position; `centers` may be null.
template <class R, class T, class Out, class F, class Finish>
void reduce(KernelArgs& args, const Tensor& x, uint32_t axes, Out* out, int64_t outputs, F f,
            Finish finish, const float* centers = nullptr) {
  using Value = typename R::Value;
  if (outputs == 0) return;
  Layout layout = layout_of(x.shape(), axes);
  if (x.numel() == 0) {  // every output is of no terms
    layout = {};
    layout.kept.add(outputs, 0);
    layout.reduced.total = 0;
  }
  const int64_t terms = layout.reduced.total, piece = layout.run_reduced ? kPiece : kRows;
  const int64_t pieces = std::max<int64_t>(1, (terms + piece - 1) / piece);
  auto* partial = args.scratch.array<Value>(outputs * pieces);
  const T* in = x.data<T>();
  if (layout.run_reduced) {
    const int lanes = terms <= kWarpRow ? 32 : kThreads;
    launch_kernel(reduce_rows<R, T, F>, blocks_of(outputs * pieces, kThreads / lanes), kThreads, 0,
                  layout, pieces, piece, lanes, in, f, centers, partial);
  } else {
    launch_kernel(reduce_columns<R, T, F>, blocks_for(outputs * pieces), kThreads, 0, layout,
                  pieces, piece, in, f, centers, partial);
  }
  launch_kernel(finish_reduction<R, Out, Finish>, blocks_of(outputs, kThreads / 32), kThreads, 0,
                outputs, pieces, partial, finish, out);
}

template <class R, class Finish>
void reduce_plain(KernelArgs& args, Finish finish) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  with_floating(x.dtype(), [&]<class T>(T) {
    reduce<R, T>(args, x, args.attrs.as<ReduceAttrs>().axes, y.data<T>(), y.numel(), Identity{},
                 finish);
  });
}

// dx[i] = f(x[i], output of i), where the outputs are the kept positions of x.
template <class Walk, class Index, class T, class F>
__global__ void spread_kernel(int64_t n, Walk walk, const T* x, F f, T* dx) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    Index output[1];
    walk.offsets(static_cast<Index>(i), output);
    dx[i] = T(f(static_cast<float>(x[i]), static_cast<int64_t>(output[0])));
  }
}
template <class T, class F>
void spread(const Tensor& x, uint32_t axes, const Tensor& dx, F f) {
  if (x.numel() == 0) return;
  Shape kept = x.shape();
  for (int i = 0; i < x.rank(); ++i)
    if ((axes >> i & 1) != 0) kept = kept.with(i, 1);
  const BroadcastWalk<1> walk = broadcast_walk<1>({kept}, x.shape());
  with_divider(x.numel(), [&]<class Divider>(Divider) {
    using Walk = DeviceWalk<1, Divider>;
    launch_kernel(spread_kernel<Walk, typename Divider::Index, T, F>, blocks_for(x.numel()),
                  kThreads, 0, x.numel(), Walk(walk), x.data<T>(), f, dx.data<T>());
  });
}

template <class T>
struct ShareOfExtremum {
  const T *dy, *y;
  const float* ties;
  __device__ float operator()(float x, int64_t o) const {
    return is_extremum(x, static_cast<float>(y[o])) ? static_cast<float>(dy[o]) / ties[o] : 0.f;
  }
};

// The sum of squares about the center, which is the mean rounded to f32: n times the square of what
// that moved it is too much.
template <class T>
struct FinishVariance {
  const double* means;
  const float* centers;
  double n, correction;
  __device__ float operator()(double squares, int64_t o) const {
    const double moved = means[o] - static_cast<double>(centers[o]);
    const double less = squares - n * moved * moved, sum = less < 0 ? 0 : less;  // NaN stays
    return static_cast<float>(n > correction ? sum / (n - correction) : NAN);
  }
};
template <class T>
struct VarianceSlope {
  const T* dy;
  const double* means;
  float scale;
  __device__ float operator()(float x, int64_t o) const {
    return static_cast<float>(dy[o]) * scale *
           static_cast<float>(static_cast<double>(x) - means[o]);
  }
};

template <class T>
std::pair<const double*, const float*> means_of(KernelArgs& args, const Tensor& x, uint32_t axes,
                                                int64_t outputs) {
  auto* means = args.scratch.array<double>(outputs);
  auto* centers = args.scratch.array<float>(outputs);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(outputs);
  reduce<Add, T>(args, x, axes, means, outputs, Identity{}, DividedBy<double>{count});
  map_elements(outputs, AsFloat{}, centers, static_cast<const double*>(means));
  return {means, centers};
}

// What is taken from an exponent: 0 where the largest is infinite, as infinity less infinity is no
// number.
__device__ float center_of(float largest) { return isinf(largest) ? 0.f : largest; }
struct Center {
  __device__ float operator()(float v, int64_t) const { return center_of(v); }
};
struct FinishLogSum {
  const float* centers;
  __device__ float operator()(double sum, int64_t o) const {
    return static_cast<float>(log(sum) + static_cast<double>(centers[o]));
  }
};
template <class T>
struct LogSumExpSlope {
  const T *dy, *y;
  __device__ float operator()(float x, int64_t o) const {
    return static_cast<float>(dy[o]) * expf(x - static_cast<float>(y[o]));
  }
};

// The first of the largest elements along an axis, NaN counting as largest. A warp for each row
// where the axis is the last, else a thread for each column.
__device__ bool comes_first(float a, int64_t i, float b, int64_t j) {
  const bool nan_a = a != a, nan_b = b != b;
  if (nan_a != nan_b) return nan_a;
  if (!nan_a && a != b) return a > b;
  return i < j;
}
template <class T>
__global__ void argmax_kernel(int64_t outputs, int64_t n, int64_t inner, int lanes, const T* x,
                              int64_t* y) {
  const int64_t teams = blockDim.x / static_cast<unsigned>(lanes);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int64_t first = blockIdx.x * teams; first < outputs; first += gridDim.x * teams) {
    const int64_t o = first + threadIdx.x / static_cast<unsigned>(lanes);
    float top = -INFINITY;
    int64_t best = n;
    if (o < outputs) {
      const T* column = x + o / inner * n * inner + o % inner;
      for (int64_t i = lane; i < n; i += lanes) {
        const float value = static_cast<float>(column[i * inner]);
        if (comes_first(value, i, top, best)) {
          top = value;
          best = i;
        }
      }
    }
    for (int step = lanes / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, top, step);
      const int64_t at = __shfl_xor_sync(kWholeWarp, best, step);
      if (comes_first(other, at, top, best)) {
        top = other;
        best = at;
      }
    }
    if (lane == 0 && o < outputs) y[o] = best;
  }
}

}  // namespace

void kernels::sum(KernelArgs& args) { reduce_plain<Add>(args, Keep{}); }
void kernels::mean(KernelArgs& args) {
  // The mean over no elements is 0 / 0 = NaN.
  const double count = static_cast<double>(args.inputs[0].numel()) /
                       static_cast<double>(std::max<int64_t>(1, args.outputs[0].numel()));
  reduce_plain<Add>(args, DividedBy<float>{count});
}
void kernels::max(KernelArgs& args) { reduce_plain<Larger>(args, Keep{}); }
void kernels::min(KernelArgs& args) { reduce_plain<Smaller>(args, Keep{}); }

// inputs dy, x, y: equal extrema share the gradient.
void kernels::extremum_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1], &y = args.inputs[2];
  const uint32_t axes = args.attrs.as<ReduceAttrs>().axes;
  with_floating(x.dtype(), [&]<class T>(T) {
    auto* ties = args.scratch.array<float>(y.numel());
    auto* extrema = args.scratch.array<float>(y.numel());
    map_elements(y.numel(), AsFloat{}, extrema, static_cast<const T*>(y.data<T>()));
    reduce<Add, T>(args, x, axes, ties, y.numel(), EqualTo{}, Keep{}, extrema);
    spread<T>(x, axes, args.outputs[0], ShareOfExtremum<T>{dy.data<T>(), y.data<T>(), ties});
  });
}

void kernels::sum_squares(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const uint32_t all = (uint32_t{1} << x.rank()) - 1;
  with_floating(x.dtype(), [&]<class T>(T) {
    reduce<Add, T>(args, x, all, args.outputs[0].data<float>(), 1, Squared{}, Keep{});
  });
}

void kernels::var(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const auto& a = args.attrs.as<VarAttrs>();
  if (y.numel() == 0) return;
  with_floating(x.dtype(), [&]<class T>(T) {
    const auto [means, centers] = means_of<T>(args, x, a.axes, y.numel());
    const double n = static_cast<double>(x.numel()) / static_cast<double>(y.numel());
    reduce<Add, T>(args, x, a.axes, y.data<T>(), y.numel(), SquaredDistance{},
                   FinishVariance<T>{means, centers, n, a.correction}, centers);
  });
}
// inputs dy, x
void kernels::var_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1];
  const auto& a = args.attrs.as<VarAttrs>();
  if (x.numel() == 0) return;
  with_floating(x.dtype(), [&]<class T>(T) {
    const double* means = means_of<T>(args, x, a.axes, dy.numel()).first;
    const double n = static_cast<double>(x.numel()) / static_cast<double>(dy.numel());
    const auto scale = static_cast<float>(n > a.correction ? 2 / (n - a.correction) : NAN);
    spread<T>(x, a.axes, args.outputs[0], VarianceSlope<T>{dy.data<T>(), means, scale});
  });
}

void kernels::logsumexp(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const uint32_t axes = args.attrs.as<ReduceAttrs>().axes;
  with_floating(x.dtype(), [&]<class T>(T) {
    auto* centers = args.scratch.array<float>(y.numel());
    reduce<Larger, T>(args, x, axes, centers, y.numel(), Identity{}, Center{});
    reduce<Add, T>(args, x, axes, y.data<T>(), y.numel(), ExpOf{}, FinishLogSum{centers}, centers);
  });
}
// inputs dy, x, y
void kernels::logsumexp_backward(KernelArgs& args) {
  const Tensor& x = args.inputs[1];
  with_floating(x.dtype(), [&]<class T>(T) {
    spread<T>(x, args.attrs.as<ReduceAttrs>().axes, args.outputs[0],
              LogSumExpSlope<T>{args.inputs[0].data<T>(), args.inputs[2].data<T>()});
  });
}

void kernels::argmax(KernelArgs& args) {
  const auto axis = args.attrs.as<AxisAttrs>().axis;
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const int64_t n = x.size(axis), inner = x.shape().product(axis + 1, x.rank());
  if (y.numel() == 0) return;
  const int lanes = inner == 1 ? 32 : 1;
  with_floating(x.dtype(), [&]<class T>(T) {
    launch_kernel(argmax_kernel<T>, blocks_of(y.numel(), kThreads / lanes), kThreads, 0, y.numel(),
                  n, inner, lanes, x.data<T>(), y.data<int64_t>());
  });
}

}  // namespace engine::cuda
