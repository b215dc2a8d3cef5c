#include "backends/cpu/small_matmul.h"

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
}  // namespace

void small_matmul(int64_t m, int64_t n, int64_t k, const float* a, bool transpose_a, const float* b,
                  bool transpose_b, const float* bias, float* y) {
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
}

}  // namespace engine::cpu
