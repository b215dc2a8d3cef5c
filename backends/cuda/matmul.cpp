// matmul, linear and linear_relu by cuBLASLt, whose matrices are column-major: a row-major product
// y = a b is y^T = b^T a^T there, on the same memory. f32 is f32: no TF32 unless it is asked for.
#include <map>

#include "backends/cuda/check.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/runtime.h"
#include "backends/cuda/small_kernels.h"
#include "core/error.h"
#include "core/op_attrs.h"

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

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch) {
  cublasLtMatrixLayout_t result = nullptr;
  ENGINE_CUDA(cublasLtMatrixLayoutCreate(&result, type, static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), rows));
  const auto count = static_cast<int32_t>(batch);
  const int64_t stride = rows * columns;
  ENGINE_CUDA(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count));
  ENGINE_CUDA(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride));
  return result;
}

Plan make_plan(const Gemm& g) {
  Plan plan;
  const cudaDataType_t type = g.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  ENGINE_CUDA(cublasLtMatmulDescCreate(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    ENGINE_CUDA(cublasLtMatmulDescSetAttribute(plan.product, what, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  plan.a = g.transpose_b ? layout(type, g.k, g.n, g.batch) : layout(type, g.n, g.k, g.batch);
  plan.b = g.transpose_a ? layout(type, g.m, g.k, g.batch) : layout(type, g.k, g.m, g.batch);
  plan.y = layout(type, g.n, g.m, g.batch);

  cublasLtMatmulPreference_t preference = nullptr;
  ENGINE_CUDA(cublasLtMatmulPreferenceCreate(&preference));
  ENGINE_CUDA(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  ENGINE_CUDA(cublasLtMatmulAlgoGetHeuristic(handle(), plan.product, plan.a, plan.b, plan.y, plan.y,
                                             preference, 1, &best, &found));
  ENGINE_CUDA(cublasLtMatmulPreferenceDestroy(preference));
  check(found > 0, "cublasLt", "has no algorithm for {} x {} x {} of {}", g.m, g.n, g.k,
        name(g.dtype));
  plan.algorithm = best.algo;
  plan.workspace = best.workspaceSize;
  return plan;
}

}  // namespace

void gemm(KernelArgs& args, const Gemm& g, const void* a, const void* b, const void* bias,
          void* y) {
  static std::map<Gemm, Plan> plans;
  auto found = plans.find(g);
  if (found == plans.end()) found = plans.emplace(g, make_plan(g)).first;
  const Plan& plan = found->second;
  if (bias != nullptr) {
    ENGINE_CUDA(cublasLtMatmulDescSetAttribute(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &bias, sizeof bias));
  }
  const float one = 1, kept = g.accumulate ? 1 : 0;
  ENGINE_CUDA(cublasLtMatmul(handle(), plan.product, &one, b, plan.a, a, plan.b, &kept, y, plan.y,
                             y, plan.y, &plan.algorithm, args.scratch.get(plan.workspace),
                             plan.workspace, stream()));
  args.implementation = "cublaslt";
}

namespace {

void set_zero(const Tensor& t) { ENGINE_CUDA(cudaMemsetAsync(t.raw(), 0, t.bytes(), stream())); }

void run_linear(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  const int64_t n = weight.size(0), k = weight.size(1);
  if (y.numel() == 0) return;
  if (k == 0) {  // an empty sum: the bias alone
    if (bias.defined())
      repeat_rows(bias, y);
    else
      set_zero(y);
    return;
  }
  gemm(args, {1, y.numel() / n, n, k, false, true, bias.defined(), y.dtype()}, x.raw(),
       weight.raw(), bias.defined() ? bias.raw() : nullptr, y.raw());
}

}  // namespace

void kernels::linear(KernelArgs& args) { run_linear(args); }
// cuBLASLt's own ReLU is max(x, 0), which turns NaN into 0 and hides a diverging network.
void kernels::linear_relu(KernelArgs& args) {
  run_linear(args);
  relu_in_place(args.outputs[0]);
}

void kernels::matmul(KernelArgs& args) {
  const auto& flags = args.attrs.as<MatmulAttrs>();
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  if (y.numel() == 0) return;
  const int64_t m = y.size(-2), n = y.size(-1), k = a.size(flags.transpose_a ? -2 : -1);
  if (k == 0) return set_zero(y);
  const auto batch_of = [](const Tensor& t) { return t.shape().product(0, t.rank() - 2); };
  const int64_t batch = batch_of(y);
  Gemm product{batch, m, n, k, flags.transpose_a, flags.transpose_b, false, y.dtype()};
  if (batch_of(a) == batch && batch_of(b) == batch)
    return gemm(args, product, a.raw(), b.raw(), nullptr, y.raw());
  product.batch = 1;
  if (batch_of(b) == 1 && batch_of(a) == batch && !flags.transpose_a) {
    product.m *= batch;  // one b for all: the batch is more rows
    return gemm(args, product, a.raw(), b.raw(), nullptr, y.raw());
  }
  // Walk the batch of y; an axis that is 1 in an operand repeats it.
  const auto bytes = static_cast<int64_t>(size_of(y.dtype()));
  for (int64_t i = 0; i < batch; ++i) {
    const auto at = [&](const Tensor& t, int64_t matrix) {
      int64_t rest = i, stride = 1, position = 0;
      for (int axis = y.rank() - 3; axis >= 0; --axis) {
        const int64_t index = rest % y.size(axis);
        rest /= y.size(axis);
        const int own = axis - (y.rank() - t.rank());
        if (own < 0) continue;
        if (t.size(own) != 1) position += index * stride;
        stride *= t.size(own);
      }
      return static_cast<std::byte*>(t.raw()) + position * matrix * bytes;
    };
    gemm(args, product, at(a, m * k), at(b, k * n), nullptr,
         static_cast<std::byte*>(y.raw()) + i * m * n * bytes);
  }
}

}  // namespace engine::cuda
