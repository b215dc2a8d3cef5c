// softmax and log_softmax over any axis, masked_softmax over the last. The tensor is seen as
// [outer, n, inner]. Along the last axis a block takes a row; along another a thread takes a
// column, so that neighbouring threads read neighbours. Sums in double.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/team.h"
#include "backends/cuda/walk.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

template <int kLanes, bool kLog, class T>
__global__ void forward_kernel(int64_t rows, int64_t n, int64_t inner, const T* x, T* y) {
  using Own = Team<kLanes>;
  for (int64_t row = Own::index(); row < rows; row += Own::step()) {
    const int64_t offset = row / inner * n * inner + row % inner;
    const T* from = x + offset;
    T* to = y + offset;
    float top = -INFINITY;
    for (int64_t i = Own::lane(); i < n; i += kLanes)
      top = Max{}(static_cast<float>(from[i * inner]), top);
    top = Own::reduce(top, -INFINITY, Max{});
    double sum = 0;
    for (int64_t i = Own::lane(); i < n; i += kLanes)
      sum += static_cast<double>(expf(static_cast<float>(from[i * inner]) - top));
    sum = Own::reduce(sum, 0.0, Plus{});
    const float log_sum = static_cast<float>(log(sum)), scale = static_cast<float>(1 / sum);
    for (int64_t i = Own::lane(); i < n; i += kLanes) {
      const float below = static_cast<float>(from[i * inner]) - top;
      to[i * inner] = T(kLog ? below - log_sum : expf(below) * scale);
    }
  }
}

// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy).
template <int kLanes, bool kLog, class T>
__global__ void backward_kernel(int64_t rows, int64_t n, int64_t inner, const T* dy, const T* y,
                                T* dx) {
  using Own = Team<kLanes>;
  for (int64_t row = Own::index(); row < rows; row += Own::step()) {
    const int64_t offset = row / inner * n * inner + row % inner;
    double sum = 0;
    for (int64_t i = Own::lane(); i < n; i += kLanes) {
      const float g = static_cast<float>(dy[offset + i * inner]);
      sum += static_cast<double>(kLog ? g : g * static_cast<float>(y[offset + i * inner]));
    }
    const float total = static_cast<float>(Own::reduce(sum, 0.0, Plus{}));
    for (int64_t i = Own::lane(); i < n; i += kLanes) {
      const float g = static_cast<float>(dy[offset + i * inner]),
                  value = static_cast<float>(y[offset + i * inner]);
      dx[offset + i * inner] = T(kLog ? g - expf(value) * total : value * (g - total));
    }
  }
}

struct View {
  int64_t rows, n, inner;
};
View view_of(const KernelArgs& args) {
  const auto axis = args.attrs.as<AxisAttrs>().axis;
  const Shape& shape = args.outputs[0].shape();
  const int64_t inner = shape.product(axis + 1, shape.rank());
  return {shape.product(0, axis) * inner, shape[axis], inner};
}
template <bool kLog>
void forward(KernelArgs& args) {
  const View v = view_of(args);
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  if (y.numel() == 0) return;
  with_floating(y.dtype(), [&]<class T>(T) {
    with_team(v.n, v.inner, [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      launch_kernel(forward_kernel<kLanes, kLog, T>, blocks_for(v.rows * kLanes), kThreads, 0,
                    v.rows, v.n, v.inner, x.data<T>(), y.data<T>());
    });
  });
}
// inputs dy, y
template <bool kLog>
void backward(KernelArgs& args) {
  const View v = view_of(args);
  const Tensor &dy = args.inputs[0], &y = args.inputs[1], &dx = args.outputs[0];
  if (dx.numel() == 0) return;
  with_floating(y.dtype(), [&]<class T>(T) {
    with_team(v.n, v.inner, [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      launch_kernel(backward_kernel<kLanes, kLog, T>, blocks_for(v.rows * kLanes), kThreads, 0,
                    v.rows, v.n, v.inner, dy.data<T>(), y.data<T>(), dx.data<T>());
    });
  });
}

// As forward_kernel, of the columns that the mask (null: all) shows and, if causal, that are not
// beyond the row. A row that sees nothing is zeros, one that sees a NaN is NaN.
template <int kLanes, class Walk, class Index, class T>
__global__ void masked_kernel(int64_t rows, int64_t n, int64_t queries, bool causal, Walk walk,
                              const uint8_t* mask, const T* x, T* y) {
  using Own = Team<kLanes>;
  for (int64_t row = Own::index(); row < rows; row += Own::step()) {
    const int64_t visible = causal && row % queries + 1 < n ? row % queries + 1 : n;
    const T* from = x + row * n;
    const auto shown = [&](int64_t i) {
      if (mask == nullptr) return true;
      Index at[1];
      walk.offsets(static_cast<Index>(row * n + i), at);
      return mask[at[0]] != 0;
    };
    float top = -INFINITY;
    for (int64_t i = Own::lane(); i < visible; i += kLanes)
      if (shown(i)) top = Max{}(static_cast<float>(from[i]), top);
    top = Own::reduce(top, -INFINITY, Max{});
    if (top == -INFINITY) top = 0;
    double sum = 0;
    for (int64_t i = Own::lane(); i < visible; i += kLanes)
      if (shown(i)) sum += static_cast<double>(expf(static_cast<float>(from[i]) - top));
    sum = Own::reduce(sum, 0.0, Plus{});
    const float scale = sum == 0 ? 0.f : static_cast<float>(1 / sum);
    for (int64_t i = Own::lane(); i < n; i += kLanes) {
      const float e = i < visible && shown(i) ? expf(static_cast<float>(from[i]) - top) : 0.f;
      y[row * n + i] = T(e * scale);
    }
  }
}

}  // namespace

void kernels::softmax(KernelArgs& args) { forward<false>(args); }
void kernels::log_softmax(KernelArgs& args) { forward<true>(args); }
void kernels::softmax_backward(KernelArgs& args) { backward<false>(args); }
void kernels::log_softmax_backward(KernelArgs& args) { backward<true>(args); }

void kernels::masked_softmax(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &mask = args.inputs[1], &y = args.outputs[0];
  if (y.numel() == 0) return;
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const BroadcastWalk<1> walk =
      broadcast_walk<1>({mask.defined() ? mask.shape() : x.shape()}, x.shape());
  with_floating(x.dtype(), [&]<class T>(T) {
    with_divider(x.numel(), [&]<class Divider>(Divider) {
      using Walk = DeviceWalk<1, Divider>;
      with_team(n, 1, [&]<int kLanes>(std::integral_constant<int, kLanes>) {
        if constexpr (kLanes > 1)
          launch_kernel(masked_kernel<kLanes, Walk, typename Divider::Index, T>,
                        blocks_for(rows * kLanes), kThreads, 0, rows, n, x.size(-2),
                        args.attrs.as<MaskedSoftmaxAttrs>().causal, Walk(walk),
                        mask.defined() ? mask.data<uint8_t>() : nullptr, x.data<T>(), y.data<T>());
      });
    });
  });
}

}  // namespace engine::cuda
