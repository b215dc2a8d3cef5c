// Matrix products by cuBLASLt, whose matrices are column-major: a row-major product y = a b is
// y^T = b^T a^T there, on the same memory. f32 is f32: no TF32 unless it is asked for.
#include "backends/cuda/gemm.h"

#include <map>
#include <tuple>

#include "backends/cuda/check.h"
#include "backends/cuda/runtime.h"
#include "core/error.h"

namespace engine::cuda {

namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLASLt may use at most

cublasLtHandle_t handle() {
  static const cublasLtHandle_t instance = [] {
    cublasLtHandle_t h = nullptr;
    ENGINE_CUDA(cublasLtCreate(&h));
    return h;
  }();
  return instance;
}

// A product's descriptors and the algorithm that cuBLASLt would take, kept for the process.
struct Plan {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// A row-major matrix of `rows` rows, which is the column-major one of as many columns.
cublasLtMatrixLayout_t layout(DType dtype, int64_t rows, int64_t columns, int64_t batch,
                              const Gemm::Place& place) {
  const int64_t row = place.row != 0 ? place.row : columns,
                matrix = place.matrix != 0 ? place.matrix : rows * row;
  cublasLtMatrixLayout_t result = nullptr;
  ENGINE_CUDA(cublasLtMatrixLayoutCreate(&result, type_of(dtype), static_cast<uint64_t>(columns),
                                         static_cast<uint64_t>(rows), row));
  const auto count = static_cast<int32_t>(batch);
  ENGINE_CUDA(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count));
  ENGINE_CUDA(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &matrix, sizeof matrix));
  return result;
}

Plan make_plan(const Gemm& g, uint32_t alignment, size_t most_workspace) {
  Plan plan;
  ENGINE_CUDA(cublasLtMatmulDescCreate(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    ENGINE_CUDA(cublasLtMatmulDescSetAttribute(plan.product, what, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(g.out_dtype));
  }
  plan.a = g.transpose_b ? layout(g.dtype, g.n, g.k, g.batch, g.b_place)
                         : layout(g.dtype, g.k, g.n, g.batch, g.b_place);
  plan.b = g.transpose_a ? layout(g.dtype, g.k, g.m, g.batch, g.a_place)
                         : layout(g.dtype, g.m, g.k, g.batch, g.a_place);
  plan.y = layout(g.out_dtype, g.m, g.n, g.batch, g.y_place);

  cublasLtMatmulPreference_t preference = nullptr;
  ENGINE_CUDA(cublasLtMatmulPreferenceCreate(&preference));
  ENGINE_CUDA(cublasLtMatmulPreferenceSetAttribute(preference,
                                                   CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &most_workspace, sizeof most_workspace));
  // Unless told, cuBLASLt takes every pointer for a multiple of 256.
  for (const auto what :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    ENGINE_CUDA(
        cublasLtMatmulPreferenceSetAttribute(preference, what, &alignment, sizeof alignment));
  }
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  ENGINE_CUDA(cublasLtMatmulAlgoGetHeuristic(handle(), plan.product, plan.a, plan.b, plan.y, plan.y,
                                             preference, 1, &best, &found));
  ENGINE_CUDA(cublasLtMatmulPreferenceDestroy(preference));
  check(found > 0, running_op(), "cuBLASLt has no algorithm for {} x {} x {} of {}", g.m, g.n, g.k,
        name(g.dtype));
  plan.algorithm = best.algo;
  plan.workspace = best.workspaceSize;
  return plan;
}

const Plan& plan_for(const Gemm& g, uint32_t alignment, size_t most_workspace) {
  static std::map<std::tuple<Gemm, uint32_t, size_t>, Plan> plans;
  const std::tuple key{g, alignment, most_workspace};
  auto found = plans.find(key);
  if (found == plans.end())
    found = plans.emplace(key, make_plan(g, alignment, most_workspace)).first;
  return found->second;
}

}  // namespace

void Products::run(const Gemm& g, const void* a, const void* b, const void* bias, void* y) {
  const uint32_t alignment = alignment_of({a, b, y});
  const Plan* found = &plan_for(g, alignment, kWorkspace);
  if (found->workspace > bytes_) {
    try {
      workspace_ = args_.scratch.get(found->workspace);
      bytes_ = found->workspace;
    } catch (const OutOfMemoryError&) {
      found = &plan_for(g, alignment, 0);  // the device is full: slower, and it needs none
    }
  }
  const Plan& plan = *found;
  if (bias != nullptr) {
    ENGINE_CUDA(cublasLtMatmulDescSetAttribute(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &bias, sizeof bias));
  }
  const float one = 1, zero = 0;
  ENGINE_CUDA(cublasLtMatmul(handle(), plan.product, &one, b, plan.a, a, plan.b,
                             g.accumulate ? &one : &zero, y, plan.y, y, plan.y, &plan.algorithm,
                             workspace_, plan.workspace, stream()));
  args_.implementation = "cublaslt";
}

}  // namespace engine::cuda
