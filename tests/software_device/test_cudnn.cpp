// Convolutions by cuDNN's stand-in: that both paths are taken, that only the right engine is, and
// that each misuse which the stand-in must catch is caught.
#include <cudnn_graph.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cudnn.h"
#include "backends/cuda/runtime.h"
#include "core/ops.h"
#include "profiler/profiler.h"
#include "tests/catch.h"
#include "tests/harness.h"
#include "tests/software_device/software_device.h"

namespace engine::software_device {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

struct Refusing {
  explicit Refusing(bool refuse) { refuse_convolutions(refuse); }
  ~Refusing() { refuse_convolutions(false); }
};

struct Memory {
  float* data = nullptr;
  explicit Memory(size_t floats) {
    REQUIRE(cudaMalloc(&data, floats * sizeof(float)) == cudaSuccess);
  }
  ~Memory() { cudaFree(data); }
};

// A convolution of ones and its gradients: whose kernels ran.
std::set<std::string> implementations(const Shape& x_shape, const Shape& w_shape,
                                      const Conv2dAttrs& attrs, float sum, float bias_gradient) {
  Profiler profiler;
  profiler.begin_step(1, false, true);
  Tensor x = full(x_shape, 1, DType::f32, kCuda), w = full(w_shape, 1, DType::f32, kCuda),
         b = full({w_shape[0]}, 1, DType::f32, kCuda);
  for (Tensor* t : {&x, &w, &b}) t->set_requires_grad(true);
  const Tensor y = ops::conv2d(x, w, b, attrs);
  ops::sum(y).backward();
  CHECK(y.to_vector<float>()[0] == sum);
  CHECK(b.grad().to_vector<float>()[0] == bias_gradient);
  CHECK(w.grad().to_vector<float>()[0] == bias_gradient);  // no padding: every tap sees all
  profiler.end_step();
  std::set<std::string> result;
  for (const Event& e : profiler.recording().events) {
    if (std::string(e.op).starts_with("conv2d") && e.kind == EventKind::op)
      result.insert(e.implementation);
  }
  return result;
}

// The descriptors of a forward convolution of x [1, 2, 4, 5] with w [3, 2, 3, 3], as a caller may
// get them wrong.
class Graph {
 public:
  cudnnHandle_t handle = nullptr;
  Graph() {
    REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetStream(handle, cuda::stream()) == CUDNN_STATUS_SUCCESS);
  }
  ~Graph() {
    for (cudnnBackendDescriptor_t d : made_) cudnnBackendDestroyDescriptor(d);
    cudnnDestroy(handle);
  }

  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = nullptr;
    REQUIRE(cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS);
    made_.push_back(d);
    return d;
  }
  void destroy(cudnnBackendDescriptor_t d) {
    REQUIRE(cudnnBackendDestroyDescriptor(d) == CUDNN_STATUS_SUCCESS);
    std::erase(made_, d);
  }
  cudnnBackendDescriptor_t tensor(int64_t id, std::array<int64_t, 4> dims, int64_t alignment = 16) {
    const auto d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const std::array<int64_t, 4> strides{dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1],
                                         dims[1]};
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
    return d;
  }
  cudnnBackendDescriptor_t window(int64_t padding) {
    const auto d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2;
    const std::array<int64_t, 2> ones{1, 1}, paddings{padding, padding};
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones.data());
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones.data());
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, paddings.data());
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, paddings.data());
    return d;
  }
  cudnnBackendDescriptor_t operation(cudnnBackendDescriptor_t conv, cudnnBackendDescriptor_t x,
                                     cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y) {
    const auto d = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    const float one = 1, zero = 0;
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    return d;
  }
  // A plan of the plain engine, which wants 4096 bytes of workspace.
  cudnnBackendDescriptor_t plan(cudnnBackendDescriptor_t operation) {
    const auto graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    finalize(graph);
    const auto heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_FALLBACK;
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(heuristic);
    auto config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    REQUIRE(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                     &config) == CUDNN_STATUS_SUCCESS);
    REQUIRE(count == 1);
    const auto d = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(d);
    return d;
  }
  cudnnStatus_t run(cudnnBackendDescriptor_t plan, std::vector<int64_t> ids, void* x, void* w,
                    void* y, void* workspace) {
    const auto pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    std::array<void*, 3> pointers{x, w, y};
    const auto count = static_cast<int64_t>(ids.size());
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(pack);
    return cudnnBackendExecute(handle, plan, pack);
  }

  static void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    REQUIRE(cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS);
  }
  static void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendDescriptor_t part) {
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
  }
  static cudnnBackendDescriptor_t finalize(cudnnBackendDescriptor_t d) {
    REQUIRE(cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS);
    return d;
  }

 private:
  std::vector<cudnnBackendDescriptor_t> made_;
};

std::string said() {
  char text[256];
  cudnnGetLastErrorString(text, sizeof text);
  return text;
}
std::string fault_of_run() {
  CHECK(cudaStreamSynchronize(cuda::stream()) == cudaErrorIllegalAddress);
  const std::string text = last_fault();
  reset();
  return text;
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("software device: convolutions run by cuDNN, and by im2col where it refuses") {
  REQUIRE(cuda::register_backend());
  using Names = std::set<std::string>;
  // Of 2 channels and 2x3 taps: 12 and the bias. 4x4 pixels of one image. With groups only the
  // heuristics' fallback has an engine that may be taken.
  for (const bool refuse : {false, true}) {
    const Refusing refusing(refuse);
    const int64_t filters = refuse ? 6 : 4;  // a plan is kept
    const Names expected{refuse ? "own:im2col" : "cudnn"};
    CHECK(implementations({1, 5, 6, 2}, {filters, 2, 3, 2}, {}, 13, 16) == expected);
    CHECK(implementations({1, 5, 6, 4}, {filters, 2, 3, 2}, {.groups = 2}, 13, 16) == expected);
  }
  // What is refused once stays so, as what is taken does.
  CHECK(implementations({1, 5, 6, 2}, {6, 2, 3, 2}, {}, 13, 16) == Names{"own:im2col"});
}

TEST_CASE("software device: cuDNN's descriptors are checked") {
  Graph g;
  const int64_t id = 1, zeros[4] = {0, 0, 0, 0};
  const auto set = cudnnBackendSetAttribute;
  const auto x = g.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  CHECK(set(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &id) ==
        CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  CHECK(set(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, &id) == CUDNN_STATUS_BAD_PARAM);
  CHECK(set(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr) ==
        CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(set(x, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, zeros) ==
        CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnnBackendFinalize(x) == CUDNN_STATUS_BAD_PARAM);
  CHECK(said() == "an attribute is missing");
  CHECK(cudnnBackendFinalize(g.tensor(1, {1, 0, 4, 5})) == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnnBackendFinalize(g.tensor(1, {1, 2, 4, 5}, 2)) == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnnBackendFinalize(g.tensor(1, {1, 2, 4, 5}, 24)) == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnnBackendFinalize(g.window(-1)) == CUDNN_STATUS_BAD_PARAM);
  const auto done = Graph::finalize(g.tensor(1, {1, 2, 4, 5}));
  CHECK(cudnnBackendFinalize(done) == CUDNN_STATUS_BAD_PARAM);
  CHECK(set(done, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id) == CUDNN_STATUS_BAD_PARAM);
  // Parts that are not finalized, of another type, or gone.
  const auto operation = g.make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  const auto add = [&](cudnnBackendDescriptor_t part) {
    return set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &part);
  };
  CHECK(add(g.tensor(1, {1, 2, 4, 5})) == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  CHECK(add(Graph::finalize(g.window(0))) == CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  g.destroy(done);
  CHECK(add(done) == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnnBackendDestroyDescriptor(done) == CUDNN_STATUS_BAD_PARAM);
  cudnnHandle_t none = nullptr;
  CHECK(set(g.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
            CUDNN_TYPE_HANDLE, 1, &none) == CUDNN_STATUS_BAD_PARAM);
  int64_t count = 0;
  CHECK(cudnnBackendGetAttribute(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                 nullptr) == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
}

TEST_CASE("software device: cuDNN's tensors must be of the sizes that the convolution gives") {
  Graph g;
  const auto window = Graph::finalize(g.window(1)), x = Graph::finalize(g.tensor(1, {1, 2, 4, 5})),
             w = Graph::finalize(g.tensor(2, {3, 2, 3, 3}));
  const auto status = [&](cudnnBackendDescriptor_t filters, int64_t id,
                          std::array<int64_t, 4> dims) {
    return cudnnBackendFinalize(
        g.operation(window, x, filters, Graph::finalize(g.tensor(id, dims))));
  };
  CHECK(status(w, 3, {1, 3, 4, 5}) == CUDNN_STATUS_SUCCESS);
  CHECK(status(w, 3, {1, 3, 4, 4}) == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  CHECK(status(w, 3, {1, 3, 2, 5}) == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  CHECK(status(w, 3, {1, 4, 4, 5}) == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  CHECK(status(w, 3, {2, 3, 4, 5}) == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  CHECK(status(w, 2, {1, 3, 4, 5}) == CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  // Two groups of one channel do not share three filters.
  CHECK(status(Graph::finalize(g.tensor(2, {3, 1, 3, 3})), 3, {1, 3, 4, 5}) ==
        CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
}

TEST_CASE("software device: what a plan of cuDNN is run with") {
  Graph g;
  const Memory x(40), w(54), y(60), workspace(1024);
  const auto window = Graph::finalize(g.window(1)),
             filters = Graph::finalize(g.tensor(2, {3, 2, 3, 3}));
  const auto operation =
      Graph::finalize(g.operation(window, Graph::finalize(g.tensor(1, {1, 2, 4, 5})), filters,
                                  Graph::finalize(g.tensor(3, {1, 3, 4, 5}))));
  const auto plan = g.plan(operation);
  const std::vector<int64_t> ids{1, 2, 3};
  CHECK(g.run(plan, ids, x.data, w.data, y.data, workspace.data) == CUDNN_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(cuda::stream()) == cudaSuccess);
  CHECK(g.run(plan, ids, x.data, w.data + 1, y.data, workspace.data) ==
        CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  CHECK(g.run(plan, ids, x.data, w.data, y.data, nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(g.run(plan, {1, 2}, x.data, w.data, y.data, workspace.data) == CUDNN_STATUS_BAD_PARAM);
  CHECK(g.run(operation, ids, x.data, w.data, y.data, workspace.data) ==
        CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  // Only the device sees these.
  alignas(16) std::array<float, 60> host{};
  CHECK(g.run(plan, ids, x.data, w.data, host.data(), workspace.data) == CUDNN_STATUS_SUCCESS);
  CHECK(contains(fault_of_run(), "y: a host pointer"));
  CHECK(g.run(plan, ids, x.data + 4, w.data, y.data, workspace.data) == CUDNN_STATUS_SUCCESS);
  CHECK(contains(fault_of_run(), "x: past the end"));
  CHECK(g.run(plan, ids, x.data, w.data, y.data, workspace.data + 4) == CUDNN_STATUS_SUCCESS);
  CHECK(contains(fault_of_run(), "the workspace: past the end"));
  g.destroy(filters);  // while the plan lives
  CHECK(g.run(plan, ids, x.data, w.data, y.data, workspace.data) == CUDNN_STATUS_BAD_PARAM);
  CHECK(said() == "a descriptor that is not there, or no longer");
}

}  // namespace engine::software_device
