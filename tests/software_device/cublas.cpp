// cuBLASLt's matrix product on the software device: what its documentation says, in double.
#include <cublasLt.h>

#include <cstring>
#include <vector>

#include "tests/software_device/software_device.h"
#include "tests/software_device/values.h"

using namespace engine::software_device;

namespace {

struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C and D
};

template <class T>
T& as(const void* handle) {
  return *static_cast<T*>(const_cast<void*>(handle));
}
template <class Value>
cublasStatus_t set(Value& to, const void* from, size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// The bytes that a layout's matrices reach.
size_t extent(const Layout& l) {
  const int64_t matrix =
      l.leading * (static_cast<int64_t>(l.columns) - 1) + static_cast<int64_t>(l.rows);
  return static_cast<size_t>((l.batch - 1) * l.stride + matrix) * size_of(l.type);
}

// Whether the layouts and the product fit each other.
bool fit(const Product& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto rows = [](const Layout& l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.rows : l.columns;
  };
  const auto columns = [](const Layout& l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.columns : l.rows;
  };
  for (const Layout* l : {&a, &b, &c, &d}) {
    if (l->rows == 0 || l->columns == 0 || l->leading < static_cast<int64_t>(l->rows)) return false;
    if (l->type != CUDA_R_32F && l->type != CUDA_R_16BF) return false;
    if (l->batch != d.batch) return false;
  }
  if (a.type != b.type || c.type != d.type) return false;
  if (d.type != a.type && d.type != CUDA_R_32F) return false;
  return p.compute == CUBLAS_COMPUTE_32F && p.scale == CUDA_R_32F &&
         rows(a, p.transpose_a) == d.rows && columns(b, p.transpose_b) == d.columns &&
         columns(a, p.transpose_a) == rows(b, p.transpose_b) && c.rows == d.rows &&
         c.columns == d.columns;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int token;
  *handle = reinterpret_cast<cublasLtHandle_t>(&token);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_NOT_SUPPORTED";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &as<Product>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  Product& p = as<Product>(desc);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(p.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(p.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(p.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(p.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(p.bias_type, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &as<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, size_t bytes) {
  Layout& l = as<Layout>(layout);
  switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(l.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(l.stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &as<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, size_t bytes) {
  Preference& p = as<Preference>(preference);
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(p.workspace, value, bytes);
  if (what < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ||
      what > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return set(p.alignments[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (!fit(as<Product>(desc), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].workspaceSize = std::min<uint64_t>(as<Preference>(preference).workspace, 4096);
  // An algorithm counts on as much alignment as it was promised.
  const Preference& wishes = as<Preference>(preference);
  for (size_t i = 0; i < 4; ++i) results[0].algo.data[i] = wishes.alignments[i];
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Product p = as<Product>(desc);
  const Layout la = as<Layout>(a_layout), lb = as<Layout>(b_layout), lc = as<Layout>(c_layout),
               ld = as<Layout>(d_layout);
  if (is_to_fail("cublasLtMatmul")) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm == nullptr || !fit(p, la, lb, lc, ld)) return CUBLAS_STATUS_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  const void* const operands[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(operands[i]) % algorithm->data[i] != 0)
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool bias = p.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (!bias && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (bias && (p.bias == nullptr || p.bias_type != ld.type)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto one = static_cast<double>(*static_cast<const float*>(alpha)),
             more = static_cast<double>(*static_cast<const float*>(beta));
  enqueue(stream, [=] {
    expect_device(a, extent(la), "cublasLtMatmul: A");
    expect_device(b, extent(lb), "cublasLtMatmul: B");
    expect_device(d, extent(ld), "cublasLtMatmul: D");
    if (more != 0) expect_device(c, extent(lc), "cublasLtMatmul: C");
    if (bias) expect_device(p.bias, ld.rows * size_of(ld.type), "cublasLtMatmul: the bias");
    expect_device(workspace, workspace_bytes, "cublasLtMatmul: the workspace");
    if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
    const auto rows = static_cast<int64_t>(ld.rows), columns = static_cast<int64_t>(ld.columns);
    const auto inner = static_cast<int64_t>(p.transpose_a == CUBLAS_OP_N ? la.columns : la.rows);
    for (int64_t n = 0; n < ld.batch; ++n) {
      // op(A) by rows and op(B) by columns, once, so that the sums run over neighbours.
      std::vector<double> left(static_cast<size_t>(rows * inner)),
          right(static_cast<size_t>(inner * columns));
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = 0; k < inner; ++k)
          left[static_cast<size_t>(i * inner + k)] =
              load(a, la.type,
                   n * la.stride +
                       (p.transpose_a == CUBLAS_OP_N ? k * la.leading + i : i * la.leading + k));
      }
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t k = 0; k < inner; ++k)
          right[static_cast<size_t>(j * inner + k)] =
              load(b, lb.type,
                   n * lb.stride +
                       (p.transpose_b == CUBLAS_OP_N ? j * lb.leading + k : k * lb.leading + j));
      }
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < rows; ++i) {
          const double* x = left.data() + i * inner;
          const double* y = right.data() + j * inner;
          double sum = 0;
          for (int64_t k = 0; k < inner; ++k) sum += x[k] * y[k];
          sum *= one;
          if (more != 0) sum += more * load(c, lc.type, n * lc.stride + j * lc.leading + i);
          if (bias) sum += load(p.bias, ld.type, i);
          store(d, ld.type, n * ld.stride + j * ld.leading + i, sum);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
