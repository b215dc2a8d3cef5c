// Normalisation over all positions of a channel or of a group of channels: batch_norm, group_norm,
// instance_norm. x is seen as [batch, rows, channels] (batch_norm: one batch of N x H x W rows),
// and a set of statistics belongs to one batch and one group of channels.
//
// Both directions are two passes over memory: sums for each channel, then an affine function of
// each element whose coefficients depend on its channel. Sums are about a channel's first values,
// so a large mean takes nothing from the variance, in f32 for a few terms and in double from there;
// they are cut by size, not by thread count. A few channels fill no vector, so several rows are
// taken as one: `period` elements after which the channels repeat.
#include <cmath>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/kernels.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

constexpr int64_t kLanes = 32;     // sums that are kept in registers
constexpr int64_t kRun = 32;       // terms that are added in f32 before they go to double
constexpr int64_t kPeriod = 64;    // elements that a period has at least
constexpr int64_t kChunk = 32768;  // elements of a work item, about

struct Columns {
  int64_t batch, rows, channels, groups;

  int64_t per_batch() const { return rows * channels; }
  int64_t period() const { return channels * ((kPeriod + channels - 1) / channels); }
  int64_t chunk() const { return period() * std::max<int64_t>(1, kChunk / period()); }
  int64_t chunks() const { return (per_batch() + chunk() - 1) / chunk(); }
  int64_t set_of(int64_t b, int64_t c) const { return b * groups + c / (channels / groups); }
  double set_size() const { return static_cast<double>(rows * (channels / groups)); }
};

Columns batch_columns(const Tensor& x) {
  const int64_t channels = x.size(-1);
  return {1, x.numel() / std::max<int64_t>(1, channels), channels, channels};
}
Columns image_columns(const Tensor& x, int64_t groups) {
  return {x.size(0), x.shape().product(1, x.rank() - 1), x.size(-1), groups};
}

// Numbers for each batch and channel, repeated to a period.
class PerChannel {
 public:
  PerChannel(KernelArgs& args, const Columns& c) : columns_(c) {
    data_ = args.scratch.array<float>(c.batch * c.period());
  }
  template <class F>
  const PerChannel& fill(F f) {
    const int64_t period = columns_.period();
    for (int64_t b = 0; b < columns_.batch; ++b) {
      float* lanes = data_ + b * period;
      for (int64_t i = 0; i < columns_.channels; ++i) lanes[i] = static_cast<float>(f(b, i));
      for (int64_t i = columns_.channels; i < period; ++i) lanes[i] = lanes[i - columns_.channels];
    }
    return *this;
  }
  const float* of(int64_t b) const { return data_ + b * columns_.period(); }

 private:
  const Columns& columns_;
  float* data_;
};

// Calls f(b, chunk, begin, end) for stretches of elements that begin at a whole period of batch b.
template <class F>
void for_chunks(const Columns& c, F f) {
  parallel_items(c.batch * c.chunks(), c.chunk(), [&](int64_t first, int64_t last) {
    for (int64_t item = first; item < last; ++item) {
      const int64_t b = item / c.chunks(), chunk = item % c.chunks();
      const int64_t start = b * c.per_batch();
      f(b, chunk, start + chunk * c.chunk(),
        start + std::min(c.per_batch(), (chunk + 1) * c.chunk()));
    }
  });
}

struct Sums {
  double first, second;
};

// For each batch and channel the sums of two numbers, term(i, center) -> {float, float} of element
// i and its channel's center.
template <class Term>
const Sums* sum_columns(KernelArgs& args, const Columns& c, const PerChannel& center, Term term) {
  const int64_t period = c.period(), chunks = c.chunks();
  auto* partial = args.scratch.array<Sums>(c.batch * (chunks + 1) * c.channels);
  for_chunks(c, [&](int64_t b, int64_t chunk, int64_t begin, int64_t end) {
    Sums* into = partial + (b * chunks + chunk) * c.channels;
    std::fill(into, into + c.channels, Sums{0, 0});
    for (int64_t lane = 0; lane < period; lane += kLanes) {
      double first[kLanes] = {}, second[kLanes] = {};
      const float* centers = center.of(b) + lane;
      const int64_t width = std::min(kLanes, period - lane);
      int64_t i = begin + lane;
      if (width == kLanes) {
        while (i + kLanes <= end) {
          float run_first[kLanes] = {}, run_second[kLanes] = {};
          const int64_t run_end = std::min(end, i + kRun * period);
          for (; i + kLanes <= run_end; i += period) {
            for (int64_t j = 0; j < kLanes; ++j) {
              const auto [u, v] = term(i + j, centers[j]);
              run_first[j] += u;
              run_second[j] += v;
            }
          }
          for (int64_t j = 0; j < kLanes; ++j) {
            first[j] += static_cast<double>(run_first[j]);
            second[j] += static_cast<double>(run_second[j]);
          }
        }
      }
      for (; i < end; i += period) {
        for (int64_t j = 0; j < std::min(width, end - i); ++j) {
          const auto [u, v] = term(i + j, centers[j]);
          first[j] += static_cast<double>(u);
          second[j] += static_cast<double>(v);
        }
      }
      for (int64_t j = 0; j < width; ++j) {
        Sums& sum = into[(lane + j) % c.channels];
        sum.first += first[j];
        sum.second += second[j];
      }
    }
  });
  Sums* total = partial + c.batch * chunks * c.channels;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t i = 0; i < c.channels; ++i) {
      Sums sum{0, 0};
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const Sums& part = partial[(b * chunks + chunk) * c.channels + i];
        sum.first += part.first;
        sum.second += part.second;
      }
      total[b * c.channels + i] = sum;
    }
  }
  return total;
}

// f(i, lane) for every element i; `lane` indexes what PerChannel::of(b) gives.
template <class F>
void for_elements(const Columns& c, F f) {
  const int64_t period = c.period();
  for_chunks(c, [&](int64_t b, int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += period) f(b, i, std::min(period, end - i));
  });
}

struct Statistics {
  double mean = 0, variance = 0;  // of a set; biased
};

// The statistics of each set.
template <class T>
const Statistics* measure(KernelArgs& args, const Columns& c, const T* x) {
  PerChannel shift(args, c);
  const int64_t sample = std::min<int64_t>(c.rows, 8);  // near the mean: little to take off later
  shift.fill([&](int64_t b, int64_t i) {
    double sum = 0;
    for (int64_t r = 0; r < sample; ++r)
      sum += static_cast<double>(static_cast<float>(x[b * c.per_batch() + r * c.channels + i]));
    return sum / static_cast<double>(sample);
  });
  const Sums* sums = sum_columns(args, c, shift, [x](int64_t i, float center) {
    const float u = static_cast<float>(x[i]) - center;
    return std::pair(u, u * u);
  });
  auto* sets = args.scratch.array<Statistics>(c.batch * c.groups);
  const int64_t width = c.channels / c.groups;
  const double rows = static_cast<double>(c.rows);
  for (int64_t s = 0; s < c.batch * c.groups; ++s) {
    const int64_t b = s / c.groups, first = s % c.groups * width;
    const auto mean_of = [&](int64_t i) {
      return static_cast<double>(shift.of(b)[i]) + sums[b * c.channels + i].first / rows;
    };
    Statistics total;
    for (int64_t i = first; i < first + width; ++i) total.mean += mean_of(i);
    total.mean /= static_cast<double>(width);
    for (int64_t i = first; i < first + width; ++i) {
      const Sums& sum = sums[b * c.channels + i];
      const double off = sum.first / rows, distance = mean_of(i) - total.mean;
      total.variance += std::max(0.0, sum.second / rows - off * off) + distance * distance;
    }
    total.variance /= static_cast<double>(width);
    sets[s] = total;
  }
  return sets;
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias. The mean is subtracted in two parts: what
// rounding takes from it would be large beside a small spread.
template <class T>
void apply(KernelArgs& args, const Columns& c, const Statistics* sets, double eps, const T* x,
           T* y) {
  const float *weight = as_f32(args, args.inputs[1]), *bias = as_f32(args, args.inputs[2]);
  PerChannel mean(args, c), rest(args, c), scale(args, c), shift(args, c);
  mean.fill([&](int64_t b, int64_t i) { return sets[c.set_of(b, i)].mean; });
  rest.fill([&](int64_t b, int64_t i) {
    const double m = sets[c.set_of(b, i)].mean;
    return m - static_cast<double>(static_cast<float>(m));
  });
  scale.fill([&](int64_t b, int64_t i) {
    const double w = weight != nullptr ? static_cast<double>(weight[i]) : 1.0;
    return w / std::sqrt(sets[c.set_of(b, i)].variance + eps);
  });
  shift.fill([&](int64_t, int64_t i) { return bias != nullptr ? bias[i] : 0.f; });
  const bool stream = exceeds_caches(args.outputs[0]);
  for_elements(c, [&](int64_t b, int64_t begin, int64_t count) {
    const float *m = mean.of(b), *r = rest.of(b), *s = scale.of(b), *t = shift.of(b);
    const T* from = x + begin;
    T* to = y + begin;
    store(to, 0, count, stream,
          [=](int64_t j) { return T((static_cast<float>(from[j]) - m[j] - r[j]) * s[j] + t[j]); });
  });
}

void store_statistics(KernelArgs& args, const Statistics* sets) {
  const Tensor &mean = args.outputs[1], &variance = args.outputs[2];
  if (!mean.defined()) return;
  float *m = mean.data<float>(), *v = variance.data<float>();
  for (int64_t s = 0; s < mean.numel(); ++s) {
    m[s] = static_cast<float>(sets[s].mean);
    v[s] = static_cast<float>(sets[s].variance);
  }
}

void forward(KernelArgs& args, const Columns& c, double eps) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  if (x.numel() == 0) {
    for (const Tensor& t : {args.outputs[1], args.outputs[2]}) {
      if (t.defined()) std::fill_n(t.data<float>(), t.numel(), 0.f);
    }
    return;
  }
  with_floating(x.dtype(), [&]<class T>(T) {
    const Statistics* sets = measure(args, c, x.data<T>());
    apply(args, c, sets, eps, x.data<T>(), y.data<T>());
    store_statistics(args, sets);
  });
}

// inputs dy, x, weight, mean, variance -> dx, dweight, dbias. With u = x - mean, r = 1 /
// sqrt(variance
// + eps), and sums over a set of n: dx = r (w dy - sum(w dy) / n - u r^2 sum(w dy u) / n). Where
// the statistics are given (evaluation), dx = r w dy.
void backward(KernelArgs& args, const Columns& c, double eps, bool given) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1], &dx = args.outputs[0];
  const float* weight = as_f32(args, args.inputs[2]);
  const float *mean = as_f32(args, args.inputs[3]), *variance = as_f32(args, args.inputs[4]);
  const F32Output dweight(args, args.outputs[1]), dbias(args, args.outputs[2]);
  if (x.numel() == 0) {
    for (const F32Output* out : {&dweight, &dbias}) {
      if (out->data() != nullptr) std::fill_n(out->data(), c.channels, 0.f);
      out->store();
    }
    return;
  }
  const auto rstd = [&](int64_t b, int64_t i) {
    return 1 / std::sqrt(static_cast<double>(variance[c.set_of(b, i)]) + eps);
  };
  const auto w = [&](int64_t i) {
    return weight != nullptr ? static_cast<double>(weight[i]) : 1.0;
  };
  PerChannel center(args, c);
  center.fill([&](int64_t b, int64_t i) { return mean[c.set_of(b, i)]; });
  with_floating(x.dtype(), [&]<class T>(T) {
    const T *g = dy.data<T>(), *in = x.data<T>();
    const Sums* sums = sum_columns(args, c, center, [g, in](int64_t i, float m) {
      const auto gradient = static_cast<float>(g[i]);
      return std::pair(gradient, gradient * (static_cast<float>(in[i]) - m));
    });
    for (int64_t i = 0; i < c.channels; ++i) {
      double for_weight = 0, for_bias = 0;
      for (int64_t b = 0; b < c.batch; ++b) {
        for_weight += sums[b * c.channels + i].second * rstd(b, i);
        for_bias += sums[b * c.channels + i].first;
      }
      if (dweight.data() != nullptr) dweight.data()[i] = static_cast<float>(for_weight);
      if (dbias.data() != nullptr) dbias.data()[i] = static_cast<float>(for_bias);
    }
    dweight.store();
    dbias.store();
    if (!dx.defined()) return;

    PerChannel scale(args, c), constant(args, c), slope(args, c);
    scale.fill([&](int64_t b, int64_t i) { return w(i) * rstd(b, i); });
    // The sums of a set, once for each of its channels.
    const auto set_sum = [&](int64_t b, int64_t i, double Sums::*member) {
      if (given) return 0.0;
      const int64_t width = c.channels / c.groups, first = i / width * width;
      double sum = 0;
      for (int64_t k = first; k < first + width; ++k)
        sum += w(k) * (sums[b * c.channels + k].*member);
      return sum / c.set_size();
    };
    constant.fill([&](int64_t b, int64_t i) { return rstd(b, i) * set_sum(b, i, &Sums::first); });
    slope.fill([&](int64_t b, int64_t i) {
      return std::pow(rstd(b, i), 3) * set_sum(b, i, &Sums::second);
    });
    T* out = dx.data<T>();
    const bool stream = exceeds_caches(dx);
    for_elements(c, [&](int64_t b, int64_t begin, int64_t count) {
      const float *s = scale.of(b), *k = constant.of(b), *l = slope.of(b), *m = center.of(b);
      const T *from = in + begin, *gradient = g + begin;
      store(out + begin, 0, count, stream, [=](int64_t j) {
        const float u = static_cast<float>(from[j]) - m[j];
        return T(s[j] * static_cast<float>(gradient[j]) - k[j] - u * l[j]);
      });
    });
  });
}

}  // namespace

void kernels::batch_norm(KernelArgs& args) {
  const auto& a = args.attrs.as<BatchNormAttrs>();
  const Columns c = batch_columns(args.inputs[0]);
  if (a.training) return forward(args, c, a.eps);
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  if (x.numel() == 0) return;
  const float *mean = as_f32(args, args.inputs[3]), *variance = as_f32(args, args.inputs[4]);
  auto* sets = args.scratch.array<Statistics>(c.channels);
  for (int64_t i = 0; i < c.channels; ++i)
    sets[i] = {static_cast<double>(mean[i]), static_cast<double>(variance[i])};
  with_floating(x.dtype(),
                [&]<class T>(T) { apply(args, c, sets, a.eps, x.data<T>(), y.data<T>()); });
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
  float *mean = args.inputs[0].data<float>(), *variance = args.inputs[1].data<float>();
  const float *batch_mean = args.inputs[2].data<float>(),
              *batch_variance = args.inputs[3].data<float>();
  const double n = static_cast<double>(a.count), unbiased = n / (n - 1), m = a.momentum;
  for (int64_t i = 0; i < args.inputs[0].numel(); ++i) {
    mean[i] = static_cast<float>((1 - m) * static_cast<double>(mean[i]) +
                                 m * static_cast<double>(batch_mean[i]));
    variance[i] = static_cast<float>((1 - m) * static_cast<double>(variance[i]) +
                                     m * unbiased * static_cast<double>(batch_variance[i]));
  }
}

}  // namespace engine::cpu
