#include "backends/cpu/small_matmul.h"

#include <algorithm>

#include "backends/cpu/lanes.h"

// The result must not depend on the number of threads.
#define EIGEN_DONT_PARALLELIZE
// GCC 12 and 13 take the deliberately undefined registers of their own AVX-512 header for a mistake
// (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <Eigen/Core>

namespace engine::cpu {

namespace {
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix>;

constexpr int64_t kPacked = 4096;  // 16 KiB
constexpr int64_t kRows = 4;       // sums side by side: as many as an addition takes cycles

// b is copied as rows of whole vectors; kRows x 16 elements of y are summed in registers.
void packed_matmul(int64_t m, int64_t n, int64_t k, const float* a, bool transpose_a,
                   const float* b, bool transpose_b, const float* bias, float* y) {
  const int64_t width = (n + kFloatLanes - 1) / kFloatLanes * kFloatLanes;
  alignas(64) float packed[kPacked];
  for (int64_t p = 0; p < k; ++p) {
    float* row = packed + p * width;
    for (int64_t j = 0; j < n; ++j) row[j] = transpose_b ? b[j * k + p] : b[p * n + j];
    std::fill(row + n, row + width, 0.f);
  }
  const int64_t row_step = transpose_a ? 1 : k, step = transpose_a ? m : 1;
  for (int64_t i = 0; i < m; i += kRows) {
    const float* row[kRows];  // beyond the last, that one again
    for (int64_t r = 0; r < kRows; ++r) row[r] = a + std::min(i + r, m - 1) * row_step;
    for (int64_t j = 0; j < n; j += kFloatLanes) {
      Floats sum[kRows] = {};
      for (int64_t p = 0; p < k; ++p) {
        Floats v;
        load_lanes(v, packed + p * width + j);
        for (int64_t r = 0; r < kRows; ++r) sum[r] += row[r][p * step] * v;
      }
      const int64_t columns = std::min(kFloatLanes, n - j);
      for (int64_t r = 0; r < std::min(kRows, m - i); ++r) {
        float* to = y + (i + r) * n + j;
        if (bias == nullptr && columns == kFloatLanes) {
          store_lanes(sum[r], to);
          continue;
        }
        for (int64_t c = 0; c < columns; ++c)
          to[c] = sum[r][c] + (bias != nullptr ? bias[j + c] : 0.f);
      }
    }
  }
}

}  // namespace

const char* small_matmul(int64_t m, int64_t n, int64_t k, const float* a, bool transpose_a,
                         const float* b, bool transpose_b, const float* bias, float* y) {
  if (k * ((n + kFloatLanes - 1) / kFloatLanes * kFloatLanes) <= kPacked && n >= 8 && m >= kRows) {
    packed_matmul(m, n, k, a, transpose_a, b, transpose_b, bias, y);
    return "own";
  }
  Eigen::Map<Matrix> out(y, m, n);
  if (bias != nullptr)
    out.rowwise() = Eigen::Map<const Eigen::RowVectorXf>(bias, n);
  else
    out.setZero();
  const Input left(a, transpose_a ? k : m, transpose_a ? m : k),
      right(b, transpose_b ? n : k, transpose_b ? k : n);
  if (transpose_a && transpose_b)
    out.noalias() += left.transpose() * right.transpose();
  else if (transpose_a)
    out.noalias() += left.transpose() * right;
  else if (transpose_b)
    out.noalias() += left * right.transpose();
  else
    out.noalias() += left * right;
  return "eigen";
}

}  // namespace engine::cpu
