// cuDNN's graph API on the software device, for graphs of one convolution: descriptors are checked
// as its documentation says, and the convolution is computed in double. Its engines differ in their
// notes; those that round or that may differ from run to run give results that show it.
#include <cudnn_graph.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/software_device/software_device.h"
#include "tests/software_device/values.h"

using namespace engine::software_device;

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

struct Value {
  cudnnBackendAttributeType_t type;
  std::vector<std::byte> bytes;
};
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values{};
  // Of heuristics, configurations, engines and plans:
  const Descriptor* graph = nullptr;
  int engine = 0;
  bool filled = false;  // a configuration or engine that cuDNN has written
};

struct Library {
  std::set<const void*> descriptors, handles;
  std::string said;
  bool refuse = std::getenv("SOFTWARE_DEVICE_REFUSES_CONV") != nullptr;
};
Library& library() {
  static Library* instance = new Library;
  return *instance;
}

cudnnStatus_t refused(cudnnStatus_t status, const std::string& why) {
  library().said = why;
  return status;
}
// What is thrown inside of a call is its result.
struct Refusal {
  cudnnStatus_t status;
  std::string why;
};
void expect(bool holds, cudnnStatus_t status, const char* why) {
  if (!holds) throw Refusal{status, why};
}
template <class F>
cudnnStatus_t result_of(F call) {
  try {
    call();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& r) {
    return refused(r.status, r.why);
  }
}

Descriptor& live(const void* descriptor) {
  expect(descriptor != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  expect(library().descriptors.contains(descriptor), CUDNN_STATUS_BAD_PARAM,
         "a descriptor that is not there, or no longer");
  return *static_cast<Descriptor*>(const_cast<void*>(descriptor));
}
Descriptor& finalized(const void* descriptor, cudnnBackendDescriptorType_t type) {
  Descriptor& d = live(descriptor);
  expect(d.type == type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type");
  expect(d.finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is not finalized");
  return d;
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
      return 4;
    default:
      return 8;
  }
}

// An attribute that a descriptor takes, and what it must be.
struct Rule {
  cudnnBackendAttributeType_t type;
  int64_t least, most;
  cudnnBackendDescriptorType_t part = CUDNN_BACKEND_TENSOR_DESCRIPTOR;  // of a descriptor
};
using Rules = std::map<cudnnBackendAttributeName_t, Rule>;

#define CONV(pass, x, w, y)                                                                     \
  {                                                                                             \
    {CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_CONV_DESC,                                       \
     {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR}},              \
        {CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##x, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}}, \
        {CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##w, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}}, \
        {CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##y, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}}, \
        {CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_ALPHA, {CUDNN_TYPE_FLOAT, 1, 1}},            \
        {CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_BETA, {CUDNN_TYPE_FLOAT, 1, 1}},             \
  }

const std::map<cudnnBackendDescriptorType_t, Rules>& all_rules() {
  static const std::map<cudnnBackendDescriptorType_t, Rules> rules{
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{CUDNN_ATTR_TENSOR_UNIQUE_ID, {CUDNN_TYPE_INT64, 1, 1}},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, {CUDNN_TYPE_DATA_TYPE, 1, 1}},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {CUDNN_TYPE_INT64, 1, 1}},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, {CUDNN_TYPE_INT64, 4, 4}},
        {CUDNN_ATTR_TENSOR_STRIDES, {CUDNN_TYPE_INT64, 4, 4}}}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE, 1, 1}},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE, 1, 1}},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {CUDNN_TYPE_INT64, 1, 1}},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {CUDNN_TYPE_INT64, 2, 2}},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, {CUDNN_TYPE_INT64, 2, 2}},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {CUDNN_TYPE_INT64, 2, 2}},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {CUDNN_TYPE_INT64, 2, 2}}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CONV(FORWARD, X, W, Y)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CONV(BWD_DATA, DX, W, DY)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CONV(BWD_FILTER, X, DW, DY)},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {CUDNN_TYPE_HANDLE, 1, 1}},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
         {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR}},
        {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE, 1, 1}}}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {CUDNN_TYPE_HANDLE, 1, 1}},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
         {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {CUDNN_TYPE_INT64, 1, 64}},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {CUDNN_TYPE_VOID_PTR, 1, 64}},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {CUDNN_TYPE_VOID_PTR, 1, 1}}}}};
  return rules;
}
#undef CONV

template <class T>
std::vector<T> values(const Descriptor& d, cudnnBackendAttributeName_t name) {
  const std::vector<std::byte>& bytes = d.values.at(name).bytes;
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}
template <class T>
T value(const Descriptor& d, cudnnBackendAttributeName_t name) {
  return values<T>(d, name)[0];
}
const Descriptor& part(const Descriptor& d, cudnnBackendAttributeName_t name) {
  return finalized(value<void*>(d, name), all_rules().at(d.type).at(name).part);
}

struct Tensor {
  int64_t id, alignment;
  cudaDataType_t type;
  std::vector<int64_t> dims, strides;

  explicit Tensor(const Descriptor& d)
      : id(value<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        alignment(value<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
        type(value<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT
                 ? CUDA_R_32F
                 : CUDA_R_16BF),
        dims(values<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES)) {}
  int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
  }
  int64_t extent() const { return at(dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1) + 1; }
};

enum class Pass { forward, data, filter };

struct Convolution {
  Pass pass;
  Tensor x, w, y;
  std::vector<int64_t> stride, dilation, before, after;
  double alpha, beta;

  const Tensor& out() const { return pass == Pass::forward ? y : pass == Pass::data ? x : w; }

  void check() const {
    const auto shape = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    expect(x.id != w.id && x.id != y.id && w.id != y.id, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
           "tensors of one id");
    expect(x.dims[0] == y.dims[0], shape, "x and y of different batches");
    expect(x.dims[1] % w.dims[1] == 0 && w.dims[0] % (x.dims[1] / w.dims[1]) == 0, shape,
           "channels that are no whole number of groups");
    expect(w.dims[0] == y.dims[1], shape, "channels of y that are not the filters");
    for (size_t i = 0; i < 2; ++i) {
      const int64_t room =
          x.dims[2 + i] + before[i] + after[i] - (dilation[i] * (w.dims[2 + i] - 1) + 1);
      expect(room >= 0 && y.dims[2 + i] == room / stride[i] + 1, shape,
             "y is not of the size that x, w, paddings, strides and dilations give");
    }
    const Tensor& to = out();
    cudaDataType_t read = CUDA_R_32F;
    std::set<cudaDataType_t> types;
    for (const Tensor* t : {&x, &w, &y}) {
      if (t != &to) types.insert(read = t->type);
    }
    expect(types.size() == 1 && (to.type == read || to.type == CUDA_R_32F),
           CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "data types that do not go together");
  }

  void run(void* xs, void* ws, void* ys, double scale) const {
    const int64_t own = w.dims[1], groups = x.dims[1] / own, filters = w.dims[0] / groups;
    const Tensor& to = out();
    void* data = pass == Pass::forward ? ys : pass == Pass::data ? xs : ws;
    std::vector<double> sums(static_cast<size_t>(to.extent()));
    for (int64_t n = 0; n < x.dims[0]; ++n)
      for (int64_t k = 0; k < w.dims[0]; ++k)
        for (int64_t p = 0; p < y.dims[2]; ++p)
          for (int64_t q = 0; q < y.dims[3]; ++q)
            for (int64_t r = 0; r < w.dims[2]; ++r)
              for (int64_t s = 0; s < w.dims[3]; ++s) {
                const int64_t h = p * stride[0] - before[0] + r * dilation[0],
                              v = q * stride[1] - before[1] + s * dilation[1];
                if (h < 0 || h >= x.dims[2] || v < 0 || v >= x.dims[3]) continue;
                for (int64_t c = 0; c < own; ++c) {
                  const int64_t ix = x.at(n, k / filters * own + c, h, v), iw = w.at(k, c, r, s),
                                iy = y.at(n, k, p, q);
                  if (pass == Pass::forward)
                    sums[static_cast<size_t>(iy)] += load(xs, x.type, ix) * load(ws, w.type, iw);
                  else if (pass == Pass::data)
                    sums[static_cast<size_t>(ix)] += load(ys, y.type, iy) * load(ws, w.type, iw);
                  else
                    sums[static_cast<size_t>(iw)] += load(ys, y.type, iy) * load(xs, x.type, ix);
                }
              }
    for (int64_t a = 0; a < to.dims[0]; ++a)
      for (int64_t b = 0; b < to.dims[1]; ++b)
        for (int64_t c = 0; c < to.dims[2]; ++c)
          for (int64_t d = 0; d < to.dims[3]; ++d) {
            const int64_t i = to.at(a, b, c, d);
            double sum = alpha * scale * sums[static_cast<size_t>(i)];
            if (beta != 0) sum += beta * load(data, to.type, i);
            store(data, to.type, i, sum);
          }
  }
};

Convolution convolution_of(const Descriptor& operation) {
  const auto make = [&](Pass pass, auto conv, auto x, auto w, auto y, auto alpha, auto beta) {
    const Descriptor& window = part(operation, conv);
    return Convolution{pass,
                       Tensor(part(operation, x)),
                       Tensor(part(operation, w)),
                       Tensor(part(operation, y)),
                       values<int64_t>(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                       values<int64_t>(window, CUDNN_ATTR_CONVOLUTION_DILATIONS),
                       values<int64_t>(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                       values<int64_t>(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                       static_cast<double>(value<float>(operation, alpha)),
                       static_cast<double>(value<float>(operation, beta))};
  };
#define MAKE(pass, name, x, w, y)                                       \
  make(Pass::pass, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x,                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w,                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y,                   \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,                 \
       CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA)
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return MAKE(forward, FORWARD, X, W, Y);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return MAKE(data, BWD_DATA, DX, W, DY);
    default:
      return MAKE(filter, BWD_FILTER, X, DW, DY);
  }
#undef MAKE
}

// The operation of a graph, which is of no fixed type.
Convolution convolution_in(const Descriptor& graph) {
  return convolution_of(live(value<void*>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)));
}

enum Engine { kTensorCore, kUnordered, kWinograd, kUnsupported, kGreedy, kRoomy, kPlain };

std::vector<int64_t> engines(const Descriptor& heuristic) {
  const bool fallback = value<cudnnBackendHeurMode_t>(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE) ==
                        CUDNN_HEUR_MODE_FALLBACK;
  if (library().refuse) return {};
  if (fallback) return {kPlain};
  const Convolution c = convolution_in(*heuristic.graph);
  if (c.x.dims[1] != c.w.dims[1]) return {kTensorCore, kUnordered};  // groups
  return {kTensorCore, kUnordered, kWinograd, kUnsupported, kGreedy, kRoomy, kPlain};
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& engine) {
  const Convolution c = convolution_in(*engine.graph);
  switch (engine.engine) {
    case kTensorCore:
      if (c.x.type == CUDA_R_32F && c.w.type == CUDA_R_32F && c.y.type == CUDA_R_32F)
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    case kUnordered:
      return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case kWinograd:
      return {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4};
    default:
      return {};
  }
}
int64_t workspace_of(int engine) {
  switch (engine) {
    case kGreedy:
      return int64_t{1} << 40;
    case kRoomy:
      return 65536;
    case kPlain:
      return 4096;
    default:
      return 0;
  }
}

void finalize(Descriptor& d) {
  const auto bad = CUDNN_STATUS_BAD_PARAM;
  for (const auto& [name, rule] : all_rules().at(d.type)) {
    expect(d.values.contains(name) || name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE, bad,
           "an attribute is missing");
  }
  const auto all_of = [&](cudnnBackendAttributeName_t name, int64_t least) {
    for (const int64_t v : values<int64_t>(d, name)) expect(v >= least, bad, "a value too small");
  };
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
      const auto type = value<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
      expect(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16,
             CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "f32 and bf16 only");
      all_of(CUDNN_ATTR_TENSOR_DIMENSIONS, 1);
      all_of(CUDNN_ATTR_TENSOR_STRIDES, 1);
      const Tensor t(d);
      expect(t.alignment >= static_cast<int64_t>(size_of(t.type)) &&
                 (t.alignment & (t.alignment - 1)) == 0,
             bad, "an alignment that is no power of two of at least an element");
      break;
    }
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      expect(value<cudnnDataType_t>(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                 value<cudnnConvolutionMode_t>(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
                     CUDNN_CROSS_CORRELATION,
             CUDNN_STATUS_NOT_SUPPORTED, "cross-correlation in f32 only");
      expect(value<int64_t>(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2, bad,
             "as many spatial dimensions as strides");
      all_of(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1);
      all_of(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1);
      all_of(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0);
      all_of(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      convolution_of(d).check();
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      convolution_in(d);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      d.graph = &part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      const auto mode = value<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE);
      expect(mode == CUDNN_HEUR_MODE_A || mode == CUDNN_HEUR_MODE_FALLBACK,
             CUDNN_STATUS_NOT_SUPPORTED, "modes A and FALLBACK only");
      // Both ways of having nothing to offer.
      expect(mode == CUDNN_HEUR_MODE_A || !engines(d).empty(), CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
             "told to refuse");
      break;
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      expect(d.filled, bad, "an engine that no heuristic has chosen");
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Descriptor& config = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      expect(config.engine != kUnsupported, CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
             "an engine that does not support the graph after all");
      d.graph = config.graph;
      d.engine = config.engine;
      break;
    }
    default:
      const auto ids = values<int64_t>(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
      expect(ids.size() == values<void*>(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size(), bad,
             "as many pointers as ids");
      expect(std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size(),
             CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an id twice");
  }
  d.finalized = true;
}

template <class T>
void give(const std::vector<T>& from, int64_t room, int64_t* count, void* to) {
  *count = static_cast<int64_t>(from.size());
  if (room == 0) return;
  expect(to != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nowhere to write");
  *count = std::min(room, *count);
  std::memcpy(to, from.data(), static_cast<size_t>(*count) * sizeof(T));
}
// Writes engines into descriptors that the caller has made.
void give_engines(const std::vector<int64_t>& from, const Descriptor* graph,
                  cudnnBackendDescriptorType_t type, int64_t room, int64_t* count, void* to) {
  *count = static_cast<int64_t>(from.size());
  if (room == 0) return;
  expect(to != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nowhere to write");
  *count = std::min(room, *count);
  for (int64_t i = 0; i < *count; ++i) {
    Descriptor& d = live(static_cast<void**>(to)[i]);
    expect(d.type == type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type");
    d.graph = graph;
    d.engine = static_cast<int>(from[static_cast<size_t>(i)]);
    d.filled = d.finalized = true;
  }
}

}  // namespace

void engine::software_device::refuse_convolutions(bool refuse) { library().refuse = refuse; }

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    default:
      return "CUDNN_STATUS_NOT_SUPPORTED";
  }
}
void cudnnGetLastErrorString(char* message, size_t room) {
  const std::string text = std::exchange(library().said, {}).substr(0, room - 1);
  std::memcpy(message, text.c_str(), text.size() + 1);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  library().handles.insert(*handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  if (library().handles.erase(handle) == 0) return refused(CUDNN_STATUS_BAD_PARAM, "no handle");
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!library().handles.contains(handle)) return refused(CUDNN_STATUS_BAD_PARAM, "no handle");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  if (!all_rules().contains(type))
    return refused(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of convolutions only");
  *descriptor = new Descriptor{.type = type};
  library().descriptors.insert(*descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return result_of([&] {
    const Descriptor* d = &live(descriptor);
    library().descriptors.erase(descriptor);
    delete d;
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* from) {
  return result_of([&] {
    Descriptor& d = live(descriptor);
    expect(!d.finalized, CUDNN_STATUS_BAD_PARAM, "a descriptor that is finalized already");
    const Rules& rules = all_rules().at(d.type);
    const auto rule = rules.find(name);
    expect(rule != rules.end(), CUDNN_STATUS_BAD_PARAM, "an attribute of another descriptor");
    expect(type == rule->second.type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
           "an attribute of another type");
    expect(count >= rule->second.least && count <= rule->second.most, CUDNN_STATUS_BAD_PARAM,
           "another number of values");
    expect(from != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no values");
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const void* given = *static_cast<void* const*>(from);
      const auto wanted = name == CUDNN_ATTR_OPERATIONGRAPH_OPS ? live(given).type  // of any pass
                                                                : rule->second.part;
      finalized(given, wanted);
    }
    if (type == CUDNN_TYPE_HANDLE) {
      expect(library().handles.contains(*static_cast<void* const*>(from)), CUDNN_STATUS_BAD_PARAM,
             "no handle");
    }
    const auto* bytes = static_cast<const std::byte*>(from);
    d.values[name] = {type, {bytes, bytes + static_cast<size_t>(count) * bytes_of(type)}};
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return result_of([&] {
    Descriptor& d = live(descriptor);
    expect(!d.finalized, CUDNN_STATUS_BAD_PARAM, "a descriptor that is finalized already");
    finalize(d);
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room,
                                       int64_t* count, void* to) {
  return result_of([&] {
    const Descriptor& d = finalized(descriptor, live(descriptor).type);
    const auto asked = [&](cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t what,
                           cudnnBackendAttributeType_t as) {
      if (d.type != of || name != what) return false;
      expect(type == as, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
      return true;
    };
    if (asked(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS,
              CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
      give_engines(engines(d), d.graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, room, count, to);
    } else if (asked(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
      give_engines({d.engine}, d.graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR, room, count, to);
    } else if (asked(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                     CUDNN_TYPE_NUMERICAL_NOTE)) {
      give(notes_of(d), room, count, to);
    } else if (asked(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                     CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64)) {
      give(std::vector{workspace_of(d.engine)}, room, count, to);
    } else {
      expect(false, CUDNN_STATUS_NOT_SUPPORTED, "an attribute that is not read here");
    }
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_descriptor,
                                  cudnnBackendDescriptor_t pack_descriptor) {
  return result_of([&] {
    expect(!is_to_fail("cudnnBackendExecute"), CUDNN_STATUS_BAD_PARAM, "told to fail");
    expect(library().handles.contains(handle), CUDNN_STATUS_BAD_PARAM, "no handle");
    expect(handle->stream != nullptr, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
           "a handle that has no stream");
    const Descriptor& plan = finalized(plan_descriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const Descriptor& pack = finalized(pack_descriptor, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const Convolution conv =
        convolution_in(finalized(plan.graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    const auto ids = values<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = values<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const auto pointer_of = [&](const Tensor& t) {
      const auto found = std::find(ids.begin(), ids.end(), t.id);
      expect(found != ids.end(), CUDNN_STATUS_BAD_PARAM, "no pointer for a tensor");
      void* pointer = pointers[static_cast<size_t>(found - ids.begin())];
      expect(reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(t.alignment) == 0,
             CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "less aligned than the tensor says");
      return pointer;
    };
    void *x = pointer_of(conv.x), *w = pointer_of(conv.w), *y = pointer_of(conv.y);
    const auto need = static_cast<size_t>(workspace_of(plan.engine));
    void* workspace = pack.values.contains(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                          ? value<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                          : nullptr;
    expect(need == 0 || workspace != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    // An engine that rounds, or that may differ from run to run, is seen by its results.
    const auto notes = notes_of(plan);
    const bool exact = notes.empty() || notes == std::vector{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    const double scale = exact ? 1 : 1.01;
    enqueue(handle->stream, [=] {
      const auto bytes = [](const Tensor& t) {
        return static_cast<size_t>(t.extent()) * size_of(t.type);
      };
      expect_device(x, bytes(conv.x), "cudnnBackendExecute: x");
      expect_device(w, bytes(conv.w), "cudnnBackendExecute: w");
      expect_device(y, bytes(conv.y), "cudnnBackendExecute: y");
      expect_device(workspace, need, "cudnnBackendExecute: the workspace");
      if (need > 0) std::memset(workspace, 0xff, need);
      conv.run(x, w, y, scale);
    });
  });
}
