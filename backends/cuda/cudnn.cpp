// cuDNN's graph API: a convolution is an operation between three tensors, a graph holds it, a
// heuristic orders the engines that can run the graph, and a plan is one engine made ready. Tensors
// are named N, C, H, W (filters K, C / groups, R, S, from which cuDNN knows the groups) and lie as
// the strides say: NHWC, OHWI.
#include "backends/cuda/cudnn.h"

#include <cudnn_graph.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/runtime.h"
#include "core/error.h"

namespace engine::cuda {

namespace {

constexpr int64_t kMostWorkspace = int64_t{256} << 20;

enum : int64_t { kX = 1, kW, kY };  // the tensors' names in a graph

void check_cudnn(cudnnStatus_t status, const char* call, int attribute = -1) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  std::array<char, 1024> said{};
  cudnnGetLastErrorString(said.data(), said.size());
  fail_call(call, fmt::format("{} ({}{})", said.data(), cudnnGetErrorString(status),
                              attribute < 0 ? "" : fmt::format(", attribute {}", attribute)));
}

cudnnBackendAttributeType_t type_of(int64_t) { return CUDNN_TYPE_INT64; }
cudnnBackendAttributeType_t type_of(float) { return CUDNN_TYPE_FLOAT; }
cudnnBackendAttributeType_t type_of(void*) { return CUDNN_TYPE_VOID_PTR; }
cudnnBackendAttributeType_t type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
cudnnBackendAttributeType_t type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
cudnnBackendAttributeType_t type_of(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
cudnnBackendAttributeType_t type_of(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
cudnnBackendAttributeType_t type_of(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}

// A descriptor; its attributes are set before it is finalized and read after.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    check_cudnn(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
    descriptor_.reset(made);
  }
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  template <class T, size_t N>
  void set(cudnnBackendAttributeName_t name, const std::array<T, N>& values) {
    set(name, type_of(T{}), N, values.data());
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, T value) {
    set(name, std::array{value});
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    const cudnnBackendDescriptor_t raw = part.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  }

  /// Reads up to N values and returns how many there are.
  template <class T, size_t N>
  int64_t read(cudnnBackendAttributeName_t name, std::array<T, N>& values) const {
    return read(name, type_of(T{}), N, values.data());
  }
  /// Likewise into descriptors.
  int64_t read(cudnnBackendAttributeName_t name, std::span<Descriptor> parts) const {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& part : parts) raw.push_back(part.get());
    return read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()),
                raw.empty() ? nullptr : raw.data());
  }

  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(get()); }
  void finalize() { check_cudnn(try_finalize(), "cudnnBackendFinalize"); }
  /// Likewise, but false where cuDNN does not support what is described.
  bool finalize_if_supported() {
    const cudnnStatus_t status = try_finalize();
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
    check_cudnn(status, "cudnnBackendFinalize");
    return true;
  }

 private:
  struct Destroy {
    void operator()(cudnnBackendDescriptor_t d) const { cudnnBackendDestroyDescriptor(d); }
  };

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values) {
    check_cudnn(cudnnBackendSetAttribute(get(), name, type, count, values),
                "cudnnBackendSetAttribute", name);
  }
  int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
               void* values) const {
    int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(get(), name, type, room, &count, values),
                "cudnnBackendGetAttribute", name);
    return count;
  }

  std::unique_ptr<void, Destroy> descriptor_;
};

cudnnHandle_t handle() {
  static const cudnnHandle_t instance = [] {
    cudnnHandle_t made = nullptr;
    check_cudnn(cudnnCreate(&made), "cudnnCreate");
    check_cudnn(cudnnSetStream(made, stream()), "cudnnSetStream");
    return made;
  }();
  return instance;
}

// The padding after an axis that gives `out` results. Many engines want as much as before the axis,
// so that is taken where it gives the same. Nothing where no padding gives them.
std::optional<int64_t> padding_after(int64_t in, int64_t before, int64_t kernel, int64_t stride,
                                     int64_t dilation, int64_t out) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  const auto fits = [&](int64_t after) {
    const int64_t room = in + before + after - reach;
    return room >= 0 && room / stride + 1 == out;
  };
  if (fits(before)) return before;
  const int64_t after = std::max<int64_t>(0, (out - 1) * stride + reach - in - before);
  return fits(after) ? std::optional(after) : std::nullopt;
}

Descriptor tensor(int64_t id, DType dtype, uint32_t alignment, int64_t n, int64_t c, int64_t h,
                  int64_t w) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{alignment});
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::array{n, c, h, w});
  d.set(CUDNN_ATTR_TENSOR_STRIDES, std::array{h * w * c, int64_t{1}, w * c, c});
  d.finalize();
  return d;
}

// What a pass is called.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

// Whether an engine may be used. The transforms of FFT and Winograd carry a NaN beyond the windows
// that it is in; tensor cores compute f32 as TF32.
bool acceptable(const Descriptor& engine, DType dtype) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count = engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
  for (const auto note : std::span(notes).first(static_cast<size_t>(count))) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return false;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (dtype == DType::f32) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

}  // namespace

// A plan and all that it was made from, which must live as long.
struct CudnnPlan {
  Descriptor plan;
  int64_t workspace;
  std::vector<Descriptor> parts;
};

namespace {

// The first acceptable engine, in the order of the heuristics, that can be made ready.
std::optional<CudnnPlan> choose_engine(const Descriptor& graph, DType dtype,
                                       int64_t most_workspace) {
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (!heuristic.finalize_if_supported()) continue;
    std::vector<Descriptor> configs;
    const int64_t most = heuristic.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::span<Descriptor>());
    for (int64_t i = 0; i < most; ++i) configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const int64_t count =
        most == 0 ? 0 : heuristic.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::span(configs));
    for (Descriptor& config : std::span(configs).first(static_cast<size_t>(count))) {
      Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      config.read(CUDNN_ATTR_ENGINECFG_ENGINE, std::span(&engine, 1));
      if (!acceptable(engine, dtype)) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle());
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      // Whatever keeps one engine from it, the next may do.
      if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
      std::array<int64_t, 1> workspace{};
      plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, workspace);
      if (workspace[0] > most_workspace) continue;
      CudnnPlan made{std::move(plan), workspace[0], {}};
      made.parts.push_back(std::move(config));
      made.parts.push_back(std::move(engine));
      return made;
    }
  }
  return {};
}

std::optional<CudnnPlan> make_plan(const CudnnConv& conv, int64_t most_workspace) {
  const ConvShape& c = conv.shape;
  const auto bottom =
      padding_after(c.in_h, c.pad_top, c.kernel_h, c.stride_h, c.dilation_h, c.out_h);
  const auto right =
      padding_after(c.in_w, c.pad_left, c.kernel_w, c.stride_w, c.dilation_w, c.out_w);
  if (!bottom || !right) return {};

  Descriptor window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  window.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  window.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  window.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::array{c.stride_h, c.stride_w});
  window.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::array{c.dilation_h, c.dilation_w});
  window.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::array{c.pad_top, c.pad_left});
  window.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::array{*bottom, *right});
  window.finalize();

  const auto type = [&](ConvPass writer) {
    return conv.pass == writer ? conv.out_dtype : conv.dtype;
  };
  Descriptor x =
      tensor(kX, type(ConvPass::backward_data), conv.alignment, c.batch, c.c_in, c.in_h, c.in_w);
  Descriptor w = tensor(kW, type(ConvPass::backward_filter), conv.alignment, c.c_out,
                        c.c_in / c.groups, c.kernel_h, c.kernel_w);
  Descriptor y =
      tensor(kY, type(ConvPass::forward), conv.alignment, c.batch, c.c_out, c.out_h, c.out_w);

  const Names& names = kNames[static_cast<size_t>(conv.pass)];
  Descriptor operation(names.operation);
  operation.set(names.conv, window);
  operation.set(names.x, x);
  operation.set(names.w, w);
  operation.set(names.y, y);
  operation.set(names.alpha, 1.f);
  operation.set(names.beta, 0.f);
  if (!operation.finalize_if_supported()) return {};

  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (!graph.finalize_if_supported()) return {};

  std::optional<CudnnPlan> made = choose_engine(graph, conv.dtype, most_workspace);
  if (made) {
    for (Descriptor* part : {&window, &x, &w, &y, &operation, &graph})
      made->parts.push_back(std::move(*part));
  }
  return made;
}

}  // namespace

CudnnRun prepare_cudnn(Scratch& scratch, const CudnnConv& conv) {
  // By convolution and the workspace that a plan may have. Never destroyed: cuDNN may end before
  // this library's statics do.
  static auto& plans = *new std::map<std::pair<CudnnConv, int64_t>, std::optional<CudnnPlan>>;
  CudnnConv key = conv;
  key.alignment = std::min(key.alignment, 16u);  // no engine gains from more
  for (int64_t most = kMostWorkspace;;) {
    auto found = plans.find({key, most});
    if (found == plans.end())
      found = plans.emplace(std::pair(key, most), make_plan(key, most)).first;
    if (!found->second) return {};
    const CudnnPlan& plan = *found->second;
    try {
      return {&plan, scratch.get(static_cast<size_t>(plan.workspace))};
    } catch (const OutOfMemoryError&) {
      most = plan.workspace / 2;  // the device is full: less may fit
    }
  }
}

void run_cudnn(const CudnnRun& run, void* x, void* w, void* y) {
  Descriptor operands(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  operands.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::array<int64_t, 3>{kX, kW, kY});
  operands.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::array{x, w, y});
  operands.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, run.workspace);
  operands.finalize();
  check_cudnn(cudnnBackendExecute(handle(), run.plan->plan.get(), operands.get()),
              "cudnnBackendExecute");
}

std::string cudnn_version() {
  const size_t v = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

}  // namespace engine::cuda
