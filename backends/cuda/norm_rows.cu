// Normalisation of rows: layer_norm and rms_norm over the last axes. A warp or a block takes a row;
// sums are in double. The parameters' gradients are sums over rows, cut in pieces by size.
#include "backends/cuda/as_f32.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/team.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

constexpr int64_t kPiece = 64;  // rows that one thread adds up for a parameter's gradient

// layer_norm centers the row, rms_norm does not (means null). Outputs y, [mean,] 1 / deviation.
template <int kLanes, class T>
__global__ void forward_kernel(int64_t rows, int64_t n, double eps, bool center, const T* x,
                               const float* weight, const float* bias, T* y, float* means,
                               float* rstds) {
  using Own = Team<kLanes>;
  for (int64_t row = Own::index(); row < rows; row += Own::step()) {
    const T* from = x + row * n;
    const auto at = [from](int64_t j) { return static_cast<double>(static_cast<float>(from[j])); };
    double mean = 0;
    if (center) {
      for (int64_t j = Own::lane(); j < n; j += kLanes) mean += at(j);
      mean = Own::reduce(mean, 0.0, Plus{}) / static_cast<double>(n);
    }
    double square = 0;
    for (int64_t j = Own::lane(); j < n; j += kLanes) {
      const double u = at(j) - mean;
      square += u * u;
    }
    square = Own::reduce(square, 0.0, Plus{});
    const float rstd = static_cast<float>(1 / sqrt(square / static_cast<double>(n) + eps));
    // The mean in two parts: what rounding takes from it is large beside a small spread.
    const float m = static_cast<float>(mean),
                rest = static_cast<float>(mean - static_cast<double>(m));
    for (int64_t j = Own::lane(); j < n; j += kLanes) {
      const float v = (static_cast<float>(from[j]) - m - rest) * rstd;
      y[row * n + j] =
          T(v * (weight != nullptr ? weight[j] : 1.f) + (bias != nullptr ? bias[j] : 0.f));
    }
    if (Own::lane() == 0) {
      if (center) means[row] = m;
      rstds[row] = rstd;
    }
  }
}

// With v = (x - mean) rstd: dx = rstd (w dy - mean(w dy) - v mean(w dy v)), without the first mean
// for rms_norm.
template <int kLanes, class T>
__global__ void backward_kernel(int64_t rows, int64_t n, const T* dy, const T* x,
                                const float* weight, const float* means, const float* rstds,
                                T* dx) {
  using Own = Team<kLanes>;
  for (int64_t row = Own::index(); row < rows; row += Own::step()) {
    const float m = means != nullptr ? means[row] : 0.f, rstd = rstds[row];
    const auto v = [&](int64_t j) { return (static_cast<float>(x[row * n + j]) - m) * rstd; };
    const auto wdy = [&](int64_t j) {
      return static_cast<float>(dy[row * n + j]) * (weight != nullptr ? weight[j] : 1.f);
    };
    double along = 0, level = 0;
    for (int64_t j = Own::lane(); j < n; j += kLanes) {
      along += static_cast<double>(wdy(j)) * static_cast<double>(v(j));
      level += static_cast<double>(wdy(j));
    }
    along = Own::reduce(along, 0.0, Plus{}) / static_cast<double>(n);
    level = means != nullptr ? Own::reduce(level, 0.0, Plus{}) / static_cast<double>(n) : 0;
    for (int64_t j = Own::lane(); j < n; j += kLanes) {
      dx[row * n + j] =
          T(rstd * (wdy(j) - static_cast<float>(level) - v(j) * static_cast<float>(along)));
    }
  }
}

struct Sums {
  double weight, bias;
};
// Of each piece of rows, each column's sums of dy v and of dy.
template <class T>
__global__ void parameters_kernel(int64_t rows, int64_t n, int64_t pieces, const T* dy, const T* x,
                                  const float* means, const float* rstds, Sums* partial) {
  for (int64_t item = grid_index(); item < pieces * n; item += grid_step()) {
    const int64_t j = item % n, begin = item / n * kPiece,
                  end = begin + kPiece < rows ? begin + kPiece : rows;
    Sums sums{0, 0};
    for (int64_t row = begin; row < end; ++row) {
      const float m = means != nullptr ? means[row] : 0.f;
      const float g = static_cast<float>(dy[row * n + j]);
      sums.weight +=
          static_cast<double>(g * ((static_cast<float>(x[row * n + j]) - m) * rstds[row]));
      sums.bias += static_cast<double>(g);
    }
    partial[item] = sums;
  }
}
__global__ void finish_parameters_kernel(int64_t n, int64_t pieces, const Sums* partial,
                                         float* dweight, float* dbias) {
  for (int64_t j = grid_index(); j < n; j += grid_step()) {
    Sums sums{0, 0};
    for (int64_t piece = 0; piece < pieces; ++piece) {
      sums.weight += partial[piece * n + j].weight;
      sums.bias += partial[piece * n + j].bias;
    }
    if (dweight != nullptr) dweight[j] = static_cast<float>(sums.weight);
    if (dbias != nullptr) dbias[j] = static_cast<float>(sums.bias);
  }
}

template <bool kCenter>
void forward(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const Tensor& deviations = args.outputs[kCenter ? 2 : 1];
  const auto& a = args.attrs.as<RowNormAttrs>();
  const int64_t n = x.shape().product(x.rank() - a.axes, x.rank()), rows = deviations.numel();
  if (rows == 0) return;
  const float* weight = as_f32(args, args.inputs[1]);
  const float* bias = kCenter ? as_f32(args, args.inputs[2]) : nullptr;
  float* means = kCenter ? args.outputs[1].data<float>() : nullptr;
  with_floating(x.dtype(), [&]<class T>(T) {
    with_team(n, 1, [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      launch_kernel(forward_kernel<kLanes, T>, blocks_for(rows * kLanes), kThreads, 0, rows, n,
                    a.eps, kCenter, x.data<T>(), weight, bias, y.data<T>(), means,
                    deviations.data<float>());
    });
  });
}

// inputs dy, x, weight, [mean,] 1 / deviation -> dx, dweight, [dbias]
template <bool kCenter>
void backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1], &dx = args.outputs[0];
  const auto& a = args.attrs.as<RowNormAttrs>();
  const int64_t n = x.shape().product(x.rank() - a.axes, x.rank());
  const Tensor& deviations = args.inputs[kCenter ? 4 : 3];
  const int64_t rows = deviations.numel();
  const float* weight = as_f32(args, args.inputs[2]);
  const float* means = kCenter ? args.inputs[3].data<float>() : nullptr;
  const float* rstds = deviations.data<float>();
  const F32Output dweight(args, args.outputs[1]), dbias(args, kCenter ? args.outputs[2] : Tensor());
  with_floating(x.dtype(), [&]<class T>(T) {
    if (dx.defined() && rows > 0) {
      with_team(n, 1, [&]<int kLanes>(std::integral_constant<int, kLanes>) {
        launch_kernel(backward_kernel<kLanes, T>, blocks_for(rows * kLanes), kThreads, 0, rows, n,
                      dy.data<T>(), x.data<T>(), weight, means, rstds, dx.data<T>());
      });
    }
    if (dweight.data() == nullptr && dbias.data() == nullptr) return;
    const int64_t pieces = (rows + kPiece - 1) / kPiece;
    auto* partial = args.scratch.array<Sums>(pieces * n);
    if (pieces > 0) {
      launch_kernel(parameters_kernel<T>, blocks_for(pieces * n), kThreads, 0, rows, n, pieces,
                    dy.data<T>(), x.data<T>(), means, rstds, partial);
    }
    launch_kernel(finish_parameters_kernel, blocks_for(n), kThreads, 0, n, pieces, partial,
                  dweight.data(), dbias.data());
  });
  dweight.store();
  dbias.store();
}

}  // namespace

void kernels::layer_norm(KernelArgs& args) { forward<true>(args); }
void kernels::layer_norm_backward(KernelArgs& args) { backward<true>(args); }
void kernels::rms_norm(KernelArgs& args) { forward<false>(args); }
void kernels::rms_norm_backward(KernelArgs& args) { backward<false>(args); }

}  // namespace engine::cuda
