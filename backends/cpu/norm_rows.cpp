// Normalisation of rows: layer_norm and rms_norm over the last axes. A row is read from memory
// once: its statistics and its result come from the cache.
#include <cmath>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/kernels.h"
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
          for (int64_t j = 0; j < n; ++j)
            to[j] = T((at(j) - m - rest) * rstd * weight[j] + bias[j]);
        } else {
          for (int64_t j = 0; j < n; ++j)
            to[j] = T((at(j) - m - rest) * rstd * (weight != nullptr ? weight[j] : 1.f) +
                      (bias != nullptr ? bias[j] : 0.f));
        }
        if (kCenter) means[row] = m;
        rstds[row] = rstd;
      }
    });
  });
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
  const float* weight = as_f32(args, args.inputs[2]);
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
    parallel_items(blocks, kRows * n * 4, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        float* for_weight = partial + block * 2 * n;
        float* for_bias = for_weight + n;
        if (parameters) std::fill(for_weight, for_weight + 2 * n, 0.f);
        for (int64_t row = block * kRows; row < std::min(rows, (block + 1) * kRows); ++row) {
          const T *g = gradient + row * n, *from = in + row * n;
          const float m = kCenter ? means[row] : 0.f, rstd = rstds[row];
          const auto v = [=](int64_t j) { return (static_cast<float>(from[j]) - m) * rstd; };
          const auto wdy = [=](int64_t j) {
            return weight != nullptr ? static_cast<float>(g[j]) * weight[j]
                                     : static_cast<float>(g[j]);
          };
          if (parameters) {
            for (int64_t j = 0; j < n; ++j) {
              for_weight[j] += static_cast<float>(g[j]) * v(j);
              for_bias[j] += static_cast<float>(g[j]);
            }
          }
          if (out == nullptr) continue;
          const double count = static_cast<double>(n);
          const auto along =
              static_cast<float>(sum_row(n, [&](int64_t j) { return wdy(j) * v(j); }) / count);
          const auto level = kCenter ? static_cast<float>(sum_row(n, wdy) / count) : 0.f;
          T* to = out + row * n;
          for (int64_t j = 0; j < n; ++j) to[j] = T(rstd * (wdy(j) - level - v(j) * along));
        }
      }
    });
  });
  if (!parameters) return;
  parallel_items(n, blocks * 2, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      double for_weight = 0, for_bias = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        for_weight += static_cast<double>(partial[block * 2 * n + j]);
        for_bias += static_cast<double>(partial[block * 2 * n + n + j]);
      }
      if (dweight.data() != nullptr) dweight.data()[j] = static_cast<float>(for_weight);
      if (dbias.data() != nullptr) dbias.data()[j] = static_cast<float>(for_bias);
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
