// Normalisation over all positions of a channel or of a group of channels: batch_norm, group_norm,
// instance_norm. x is seen as [batch, rows, channels]; a set of statistics belongs to one batch and
// one group of channels. Neighbouring threads take neighbouring channels; rows are cut in pieces,
// by size alone, whose sums, in double and about a value near the mean, later launches put together
// in order.
#include "backends/cuda/as_f32.h"
#include "backends/cuda/kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

constexpr int64_t kPiece = 256;  // rows that one thread adds up

struct Columns {
  int64_t batch, rows, channels, groups;

  __host__ __device__ int64_t pieces() const { return (rows + kPiece - 1) / kPiece; }
  __host__ __device__ int64_t columns() const { return batch * channels; }  // of all batches
  __host__ __device__ int64_t width() const { return channels / groups; }
  __device__ int64_t set_of(int64_t column) const {
    return column / channels * groups + column % channels / width();
  }
};
Columns batch_columns(const Tensor& x) {
  const int64_t channels = x.size(-1);
  return {1, x.numel() / std::max<int64_t>(1, channels), channels, channels};
}
Columns image_columns(const Tensor& x, int64_t groups) {
  return {x.size(0), x.shape().product(1, x.rank() - 1), x.size(-1), groups};
}

struct Sums {
  double first, second;
};
struct Statistics {
  double mean, variance;  // of a set; biased
};
// What an element of a column is computed with.
struct Coefficients {
  float a, b, c, d;
};

// A value near each column's mean: the mean of its first rows.
template <class T>
__global__ void center_kernel(Columns c, const T* x, float* center) {
  const int64_t sample = c.rows < 8 ? c.rows : 8;
  for (int64_t i = grid_index(); i < c.columns(); i += grid_step()) {
    const T* column = x + i / c.channels * c.rows * c.channels + i % c.channels;
    double sum = 0;
    for (int64_t r = 0; r < sample; ++r)
      sum += static_cast<double>(static_cast<float>(column[r * c.channels]));
    center[i] = static_cast<float>(sum / static_cast<double>(sample));
  }
}
// The mean of each column's set.
__global__ void spread_mean_kernel(Columns c, const float* mean, float* center) {
  for (int64_t i = grid_index(); i < c.columns(); i += grid_step()) center[i] = mean[c.set_of(i)];
}

// Of each piece of each column: the sums of u = x - center and of u^2, or with dy of dy and dy u.
template <class T>
__global__ void sums_kernel(Columns c, const T* dy, const T* x, const float* center,
                            Sums* partial) {
  for (int64_t item = grid_index(); item < c.columns() * c.pieces(); item += grid_step()) {
    const int64_t channel = item % c.channels, piece = item / c.channels % c.pieces(),
                  b = item / c.channels / c.pieces();
    const int64_t begin = piece * kPiece, end = begin + kPiece < c.rows ? begin + kPiece : c.rows;
    const float about = center[b * c.channels + channel];
    Sums sums{0, 0};
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = (b * c.rows + r) * c.channels + channel;
      const double u = static_cast<double>(static_cast<float>(x[at])) - static_cast<double>(about);
      const double first = dy != nullptr ? static_cast<double>(static_cast<float>(dy[at])) : u;
      sums.first += first;
      sums.second += first * u;
    }
    partial[(b * c.channels + channel) * c.pieces() + piece] = sums;
  }
}
__global__ void total_kernel(Columns c, const Sums* partial, Sums* total) {
  for (int64_t i = grid_index(); i < c.columns(); i += grid_step()) {
    Sums sum{0, 0};
    for (int64_t piece = 0; piece < c.pieces(); ++piece) {
      sum.first += partial[i * c.pieces() + piece].first;
      sum.second += partial[i * c.pieces() + piece].second;
    }
    total[i] = sum;
  }
}

template <class T>
const Sums* sum_columns(KernelArgs& args, const Columns& c, const T* dy, const T* x,
                        const float* center) {
  auto* partial = args.scratch.array<Sums>(c.columns() * c.pieces());
  auto* total = args.scratch.array<Sums>(c.columns());
  launch_kernel(sums_kernel<T>, blocks_for(c.columns() * c.pieces()), kThreads, 0, c, dy, x, center,
                partial);
  launch_kernel(total_kernel, blocks_for(c.columns()), kThreads, 0, c, partial, total);
  return total;
}

// The statistics of each set from its columns'. `mean` and `variance` may be null.
__global__ void statistics_kernel(Columns c, const Sums* total, const float* center,
                                  Statistics* sets, float* mean, float* variance) {
  const double rows = static_cast<double>(c.rows);
  for (int64_t s = grid_index(); s < c.batch * c.groups; s += grid_step()) {
    const int64_t first = s / c.groups * c.channels + s % c.groups * c.width();
    Statistics set{0, 0};
    const auto mean_of = [&](int64_t i) {
      return static_cast<double>(center[i]) + total[i].first / rows;
    };
    for (int64_t i = first; i < first + c.width(); ++i) set.mean += mean_of(i);
    set.mean /= static_cast<double>(c.width());
    for (int64_t i = first; i < first + c.width(); ++i) {
      const double off = total[i].first / rows, distance = mean_of(i) - set.mean;
      const double own = total[i].second / rows - off * off;
      set.variance += (own < 0 ? 0 : own) + distance * distance;  // NaN stays
    }
    set.variance /= static_cast<double>(c.width());
    sets[s] = set;
    if (mean != nullptr) {
      mean[s] = static_cast<float>(set.mean);
      variance[s] = static_cast<float>(set.variance);
    }
  }
}
__global__ void given_kernel(int64_t channels, const float* mean, const float* variance,
                             Statistics* sets) {
  for (int64_t i = grid_index(); i < channels; i += grid_step())
    sets[i] = {static_cast<double>(mean[i]), static_cast<double>(variance[i])};
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias. The mean is subtracted in two parts: what
// rounding takes from it would be large beside a small spread.
__global__ void forward_coefficients_kernel(Columns c, const Statistics* sets, double eps,
                                            const float* weight, const float* bias,
                                            Coefficients* coefficients) {
  for (int64_t i = grid_index(); i < c.columns(); i += grid_step()) {
    const Statistics set = sets[c.set_of(i)];
    const int64_t channel = i % c.channels;
    const auto mean = static_cast<float>(set.mean);
    const double w = weight != nullptr ? static_cast<double>(weight[channel]) : 1.0;
    coefficients[i] = {mean, static_cast<float>(set.mean - static_cast<double>(mean)),
                       static_cast<float>(w / sqrt(set.variance + eps)),
                       bias != nullptr ? bias[channel] : 0.f};
  }
}
template <class T>
__global__ void forward_kernel(int64_t n, Columns c, const Coefficients* coefficients, const T* x,
                               T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const Coefficients k = coefficients[i / c.channels / c.rows * c.channels + i % c.channels];
    y[i] = T((static_cast<float>(x[i]) - k.a - k.b) * k.c + k.d);
  }
}

template <class T>
void apply(KernelArgs& args, const Columns& c, const Statistics* sets, double eps) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  auto* coefficients = args.scratch.array<Coefficients>(c.columns());
  launch_kernel(forward_coefficients_kernel, blocks_for(c.columns()), kThreads, 0, c, sets, eps,
                as_f32(args, args.inputs[1]), as_f32(args, args.inputs[2]), coefficients);
  launch_kernel(forward_kernel<T>, blocks_for(x.numel()), kThreads, 0, x.numel(), c, coefficients,
                x.data<T>(), y.data<T>());
}

void set_zero(const Tensor& t) {
  if (t.defined()) ENGINE_CUDA(cudaMemsetAsync(t.raw(), 0, t.bytes(), stream()));
}

void forward(KernelArgs& args, const Columns& c, double eps) {
  const Tensor &x = args.inputs[0], &mean = args.outputs[1], &variance = args.outputs[2];
  if (x.numel() == 0) {
    set_zero(mean);
    return set_zero(variance);
  }
  with_floating(x.dtype(), [&]<class T>(T) {
    float* center = args.scratch.array<float>(c.columns());
    launch_kernel(center_kernel<T>, blocks_for(c.columns()), kThreads, 0, c, x.data<T>(), center);
    const Sums* total = sum_columns(args, c, static_cast<const T*>(nullptr),
                                    static_cast<const T*>(x.data<T>()), center);
    auto* sets = args.scratch.array<Statistics>(c.batch * c.groups);
    launch_kernel(statistics_kernel, blocks_for(c.batch * c.groups), kThreads, 0, c, total, center,
                  sets, mean.defined() ? mean.data<float>() : nullptr,
                  mean.defined() ? variance.data<float>() : nullptr);
    apply<T>(args, c, sets, eps);
  });
}

__device__ double rstd_of(const Columns& c, const float* variance, double eps, int64_t column) {
  return 1 / sqrt(static_cast<double>(variance[c.set_of(column)]) + eps);
}
// dweight and dbias, each where it is not null.
__global__ void parameters_kernel(Columns c, const Sums* total, const float* variance, double eps,
                                  float* dweight, float* dbias) {
  for (int64_t i = grid_index(); i < c.channels; i += grid_step()) {
    double for_weight = 0, for_bias = 0;
    for (int64_t b = 0; b < c.batch; ++b) {
      const int64_t column = b * c.channels + i;
      for_weight += total[column].second * rstd_of(c, variance, eps, column);
      for_bias += total[column].first;
    }
    if (dweight != nullptr) dweight[i] = static_cast<float>(for_weight);
    if (dbias != nullptr) dbias[i] = static_cast<float>(for_bias);
  }
}
// dx = a dy - b - (x - d) c: with r = 1 / sqrt(variance + eps) and means over a set, r (w dy -
// mean(w dy) - u r^2 mean(w dy u)); where the statistics are given, r w dy.
__global__ void backward_coefficients_kernel(Columns c, const Sums* total, const float* mean,
                                             const float* variance, double eps, bool given,
                                             const float* weight, Coefficients* coefficients) {
  for (int64_t i = grid_index(); i < c.columns(); i += grid_step()) {
    const double rstd = rstd_of(c, variance, eps, i);
    const auto w = [&](int64_t column) {
      return weight != nullptr ? static_cast<double>(weight[column % c.channels]) : 1.0;
    };
    double first = 0, second = 0;
    if (!given) {
      const int64_t channel = i % c.channels, begin = i - channel % c.width();
      for (int64_t k = begin; k < begin + c.width(); ++k) {
        first += w(k) * total[k].first;
        second += w(k) * total[k].second;
      }
      const double size = static_cast<double>(c.rows * c.width());
      first /= size;
      second /= size;
    }
    coefficients[i] = {static_cast<float>(w(i) * rstd), static_cast<float>(rstd * first),
                       static_cast<float>(rstd * rstd * rstd * second), mean[c.set_of(i)]};
  }
}
template <class T>
__global__ void backward_kernel(int64_t n, Columns c, const Coefficients* coefficients, const T* dy,
                                const T* x, T* dx) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const Coefficients k = coefficients[i / c.channels / c.rows * c.channels + i % c.channels];
    dx[i] = T(k.a * static_cast<float>(dy[i]) - k.b - (static_cast<float>(x[i]) - k.d) * k.c);
  }
}

// inputs dy, x, weight, mean, variance -> dx, dweight, dbias
void backward(KernelArgs& args, const Columns& c, double eps, bool given) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1], &dx = args.outputs[0];
  if (x.numel() == 0) {
    set_zero(args.outputs[1]);
    return set_zero(args.outputs[2]);
  }
  const float *weight = as_f32(args, args.inputs[2]), *mean = as_f32(args, args.inputs[3]),
              *variance = as_f32(args, args.inputs[4]);
  const F32Output dweight(args, args.outputs[1]), dbias(args, args.outputs[2]);
  with_floating(x.dtype(), [&]<class T>(T) {
    float* center = args.scratch.array<float>(c.columns());
    launch_kernel(spread_mean_kernel, blocks_for(c.columns()), kThreads, 0, c, mean, center);
    const Sums* total = sum_columns(args, c, static_cast<const T*>(dy.data<T>()),
                                    static_cast<const T*>(x.data<T>()), center);
    launch_kernel(parameters_kernel, blocks_for(c.channels), kThreads, 0, c, total, variance, eps,
                  dweight.data(), dbias.data());
    if (!dx.defined()) return;
    auto* coefficients = args.scratch.array<Coefficients>(c.columns());
    launch_kernel(backward_coefficients_kernel, blocks_for(c.columns()), kThreads, 0, c, total,
                  mean, variance, eps, given, weight, coefficients);
    launch_kernel(backward_kernel<T>, blocks_for(x.numel()), kThreads, 0, x.numel(), c,
                  coefficients, dy.data<T>(), x.data<T>(), dx.data<T>());
  });
  dweight.store();
  dbias.store();
}

__global__ void running_kernel(int64_t n, double momentum, double unbiased, float* mean,
                               float* variance, const float* batch_mean,
                               const float* batch_variance) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    mean[i] = static_cast<float>((1 - momentum) * static_cast<double>(mean[i]) +
                                 momentum * static_cast<double>(batch_mean[i]));
    variance[i] = static_cast<float>((1 - momentum) * static_cast<double>(variance[i]) +
                                     momentum * unbiased * static_cast<double>(batch_variance[i]));
  }
}

}  // namespace

void kernels::batch_norm(KernelArgs& args) {
  const auto& a = args.attrs.as<BatchNormAttrs>();
  const Columns c = batch_columns(args.inputs[0]);
  if (a.training) return forward(args, c, a.eps);
  if (args.inputs[0].numel() == 0) return;
  auto* sets = args.scratch.array<Statistics>(c.channels);
  launch_kernel(given_kernel, blocks_for(c.channels), kThreads, 0, c.channels,
                as_f32(args, args.inputs[3]), as_f32(args, args.inputs[4]), sets);
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { apply<T>(args, c, sets, a.eps); });
}
void kernels::batch_norm_backward(KernelArgs& args) {
  const auto& a = args.attrs.as<BatchNormAttrs>();
  backward(args, batch_columns(args.inputs[1]), a.eps, !a.training);
}
void kernels::group_norm(KernelArgs& args) {
  const auto& a = args.attrs.as<GroupNormAttrs>();
  forward(args, image_columns(args.inputs[0], a.groups), a.eps);
}
void kernels::group_norm_backward(KernelArgs& args) {
  const auto& a = args.attrs.as<GroupNormAttrs>();
  backward(args, image_columns(args.inputs[1], a.groups), a.eps, false);
}
void kernels::instance_norm(KernelArgs& args) { group_norm(args); }
void kernels::instance_norm_backward(KernelArgs& args) { group_norm_backward(args); }

void kernels::update_running_stats_(KernelArgs& args) {
  const auto& a = args.attrs.as<RunningStatsAttrs>();
  const double n = static_cast<double>(a.count);
  const Tensor& mean = args.inputs[0];
  launch_kernel(running_kernel, blocks_for(mean.numel()), kThreads, 0, mean.numel(), a.momentum,
                n / (n - 1), mean.data<float>(), args.inputs[1].data<float>(),
                args.inputs[2].data<float>(), args.inputs[3].data<float>());
}

}  // namespace engine::cuda
