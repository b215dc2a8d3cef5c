// Normalisation of rows: layer_norm and rms_norm over the last axes. A row is read from memory
// once: its statistics and its result come from the cache.
#include <cmath>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/row.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

constexpr int64_t kRows = 32;  // rows whose parameter gradients are added up in f32

// layer_norm centers the row, rms_norm does not. Outputs y, [mean,] 1 / deviation, the last two
// [rows].
template <bool kCenter>
void forward(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const Tensor& deviations = args.outputs[kCenter ? 2 : 1];
  const auto& a = args.attrs.as<RowNormAttrs>();
  const int64_t n = x.shape().product(x.rank() - a.axes, x.rank()), rows = deviations.numel();
  const float* weight = as_f32(args, args.inputs[1]);
  const float* bias = kCenter ? as_f32(args, args.inputs[2]) : nullptr;
  float* means = kCenter ? args.outputs[1].data<float>() : nullptr;
  float* rstds = deviations.data<float>();
  with_floating(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const bool stream = exceeds_caches(y);
    parallel_items(rows, n * 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* from = in + row * n;
        T* to = out + row * n;
        const auto at = [from](int64_t j) { return static_cast<float>(from[j]); };
        const double mean = kCenter ? sum_row(n, at) / static_cast<double>(n) : 0;
        // The mean in two parts: what rounding takes from it is large beside a small spread.
        const auto m = static_cast<float>(mean),
                   rest = static_cast<float>(mean - static_cast<double>(m));
        const double square = sum_row(n, [&](int64_t j) {
          const float u = at(j) - m - rest;
          return u * u;
        });
        const auto rstd =
            static_cast<float>(1 / std::sqrt(square / static_cast<double>(n) + a.eps));
        if (weight != nullptr && bias != nullptr) {
          store(to, 0, n, stream,
                [=](int64_t j) { return T((at(j) - m - rest) * rstd * weight[j] + bias[j]); });
        } else {
          store(to, 0, n, stream, [=](int64_t j) {
            return T((at(j) - m - rest) * rstd * (weight != nullptr ? weight[j] : 1.f) +
                     (bias != nullptr ? bias[j] : 0.f));
          });
        }
        if (kCenter) means[row] = m;
        rstds[row] = rstd;
      }
    });
  });
}

// A weight of ones where there is none: a question in the inner loops would keep them scalar.
const float* weight_or_ones(KernelArgs& args, const Tensor& weight, int64_t n) {
  if (weight.defined()) return as_f32(args, weight);
  auto* ones = args.scratch.array<float>(n);
  std::fill(ones, ones + n, 1.f);
  return ones;
}

// One row's sums of w dy v and of w dy, where v = (x - mean) rstd; and where `parameters` [2, n] is
// given, dy v and dy are added to it. One pass, as the row comes from memory; up to 16 terms a lane
// are added in f32.
struct RowSums {
  double along = 0, level = 0;
};
template <class T>
RowSums add_row(int64_t n, const T* dy, const T* x, const float* weight, float mean, float rstd,
                float* parameters) {
  constexpr int kVectors = 4;
  RowSums sums;
  int64_t j = 0;
  while (j + kFloatLanes <= n) {
    Floats along[kVectors] = {}, level[kVectors] = {};
    const auto add = [&](int i) {
      Floats g, v, w;
      load_lanes(g, dy + j);
      load_lanes(v, x + j);
      load_lanes(w, weight + j);
      v = (v - mean) * rstd;
      if (parameters != nullptr) {
        Floats for_weight, for_bias;
        load_lanes(for_weight, parameters + j);
        load_lanes(for_bias, parameters + n + j);
        store_lanes(Floats(for_weight + g * v), parameters + j);
        store_lanes(Floats(for_bias + g), parameters + n + j);
      }
      w *= g;
      along[i] += w * v;
      level[i] += w;
      j += kFloatLanes;
    };
    for (int run = 0; run < 16 && j + kVectors * kFloatLanes <= n; ++run)
      for (int i = 0; i < kVectors; ++i) add(i);
    if (n - j < kVectors * kFloatLanes)
      for (int i = 0; j + kFloatLanes <= n; ++i) add(i);
    for (int i = 0; i < kVectors; ++i) {
      for (int64_t k = 0; k < kFloatLanes; ++k) {
        sums.along += static_cast<double>(along[i][k]);
        sums.level += static_cast<double>(level[i][k]);
      }
    }
  }
  for (; j < n; ++j) {
    const float g = static_cast<float>(dy[j]), v = (static_cast<float>(x[j]) - mean) * rstd;
    if (parameters != nullptr) {
      parameters[j] += g * v;
      parameters[n + j] += g;
    }
    sums.along += static_cast<double>(weight[j] * g * v);
    sums.level += static_cast<double>(weight[j] * g);
  }
  return sums;
}

// inputs dy, x, weight, [mean,] 1 / deviation -> dx, dweight, [dbias]. With v = (x - mean) rstd:
// dx = rstd (w dy - mean(w dy) - v mean(w dy v)), without the first mean for rms_norm.
template <bool kCenter>
void backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &x = args.inputs[1], &dx = args.outputs[0];
  const auto& a = args.attrs.as<RowNormAttrs>();
  const int64_t n = x.shape().product(x.rank() - a.axes, x.rank());
  const Tensor& deviations = args.inputs[kCenter ? 4 : 3];
  const int64_t rows = deviations.numel();
  const float* weight = weight_or_ones(args, args.inputs[2], n);
  const float* means = kCenter ? args.inputs[3].data<float>() : nullptr;
  const float* rstds = deviations.data<float>();
  const Tensor none;
  const F32Output dweight(args, args.outputs[1]), dbias(args, kCenter ? args.outputs[2] : none);
  const bool parameters = dweight.data() != nullptr || dbias.data() != nullptr;
  // For each few rows, the sums of dy v and of dy for every column.
  const int64_t blocks = (rows + kRows - 1) / kRows;
  auto* partial = static_cast<float*>(args.scratch.get(
      parameters ? static_cast<size_t>(blocks * 2 * n) * sizeof(float) : size_t{0}));
  with_floating(x.dtype(), [&]<class T>(T) {
    const T *gradient = dy.data<T>(), *in = x.data<T>();
    T* out = dx.defined() ? dx.data<T>() : nullptr;
    const bool stream = exceeds_caches(x);
    parallel_items(blocks, kRows * n * 4, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        float* for_weight = partial + block * 2 * n;
        if (parameters) std::fill(for_weight, for_weight + 2 * n, 0.f);
        for (int64_t row = block * kRows; row < std::min(rows, (block + 1) * kRows); ++row) {
          const T *g = gradient + row * n, *from = in + row * n;
          const float m = kCenter ? means[row] : 0.f, rstd = rstds[row];
          const RowSums sums =
              add_row<T>(n, g, from, weight, m, rstd, parameters ? for_weight : nullptr);
          if (out == nullptr) continue;
          const auto along = static_cast<float>(sums.along / static_cast<double>(n)),
                     level =
                         kCenter ? static_cast<float>(sums.level / static_cast<double>(n)) : 0.f;
          const auto v = [=](int64_t j) { return (static_cast<float>(from[j]) - m) * rstd; };
          const auto wdy = [=](int64_t j) { return static_cast<float>(g[j]) * weight[j]; };
          T* to = out + row * n;
          store(to, 0, n, stream,
                [=](int64_t j) { return T(rstd * (wdy(j) - level - v(j) * along)); });
        }
      }
    });
  });
  if (!parameters) return;
  constexpr int64_t kColumns = 128;
  parallel_items((n + kColumns - 1) / kColumns, blocks * 2 * kColumns,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t first = begin * kColumns; first < std::min(n, end * kColumns);
                        first += kColumns) {
                     double for_weight[kColumns] = {}, for_bias[kColumns] = {};
                     const int64_t columns = std::min(kColumns, n - first);
                     for (int64_t block = 0; block < blocks; ++block) {
                       const float* sums = partial + block * 2 * n + first;
                       for (int64_t j = 0; j < columns; ++j) {
                         for_weight[j] += static_cast<double>(sums[j]);
                         for_bias[j] += static_cast<double>(sums[n + j]);
                       }
                     }
                     for (int64_t j = 0; j < columns; ++j) {
                       if (dweight.data() != nullptr)
                         dweight.data()[first + j] = static_cast<float>(for_weight[j]);
                       if (dbias.data() != nullptr)
                         dbias.data()[first + j] = static_cast<float>(for_bias[j]);
                     }
                   }
                 });
  dweight.store();
  dbias.store();
}

}  // namespace

void kernels::layer_norm(KernelArgs& args) { forward<true>(args); }
void kernels::layer_norm_backward(KernelArgs& args) { backward<true>(args); }
void kernels::rms_norm(KernelArgs& args) { forward<false>(args); }
void kernels::rms_norm_backward(KernelArgs& args) { backward<false>(args); }

}  // namespace engine::cpu
