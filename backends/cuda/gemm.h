// Matrix products by cuBLASLt, for the kernels that are built on them.
#pragma once

#include "core/backend.h"

namespace engine::cuda {

/// y [batch, m, n] = op(a) op(b) + bias, row-major.
struct Gemm {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b, bias;
  DType dtype;              ///< of a and b
  DType out_dtype = dtype;  ///< of y: dtype, or f32
  bool accumulate = false;  ///< y += op(a) op(b)

  /// Where a matrix lies: elements from row to row as stored, and from one of the batch to the
  /// next. 0: without gaps.
  struct Place {
    int64_t row = 0, matrix = 0;
    auto operator<=>(const Place&) const = default;
  };
  Place a_place{}, b_place{}, y_place{};

  auto operator<=>(const Gemm&) const = default;
};

/// The products of one kernel call: they run one after another and share their workspace.
class Products {
 public:
  explicit Products(KernelArgs& args) : args_(args) {}
  void run(const Gemm& g, const void* a, const void* b, const void* bias, void* y);

 private:
  KernelArgs& args_;
  void* workspace_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace engine::cuda
