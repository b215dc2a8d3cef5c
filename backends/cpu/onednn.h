// oneDNN behind one door: the difference between 2.6 and 3.x, the cache of primitives, and how one
// is run. Nothing else of the engine includes oneDNN's headers but the kernels that use it.
#pragma once

#include <oneapi/dnnl/dnnl_debug.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/backend.h"

namespace engine::cpu {

const dnnl::engine& onednn_engine();
std::string onednn_description();

/// oneDNN's name of an element type.
template <class T>
inline constexpr dnnl::memory::data_type onednn_type =
    std::is_same_v<T, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
/// Whether oneDNN has bf16 kernels for this processor (AVX-512 and newer); where it has none, f32
/// computes on copies (as_f32.h).
bool onednn_computes_bf16();

/// What a primitive was built for: an op's number, then shapes and attributes. Equal keys mean
/// equal primitives; the thread count and the deterministic setting are part of every key.
class PrimitiveKey {
 public:
  PrimitiveKey(int kind, std::initializer_list<int64_t> values);
  bool operator==(const PrimitiveKey&) const = default;
  /// The same shapes and attributes for another kind of primitive that belongs to this one: the
  /// reorder of its weights.
  PrimitiveKey companion(int kind) const;
  size_t hash() const;

 private:
  static constexpr size_t kCapacity = 28;
  std::array<int64_t, kCapacity> values_{};
  size_t count_ = 0;
};

/// A built primitive with a memory object for each argument, ready to be pointed at tensors.
struct Primitive {
  struct Argument {
    int index;  // DNNL_ARG_...
    dnnl::memory memory;
  };
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  size_t scratchpad_bytes = 0;
  const char* implementation = "";  // "onednn:<impl>"

  /// The layout of an argument, by its place in `arguments`.
  dnnl::memory::desc desc(size_t i) const { return arguments[i].memory.get_desc(); }

  /// Fills the fields from a primitive descriptor and the descriptors of its arguments.
  template <class Descriptor>
  static Primitive make(const Descriptor& descriptor, dnnl::primitive primitive,
                        std::initializer_list<std::pair<int, dnnl::memory::desc>> arguments) {
    return make(std::move(primitive), arguments, descriptor.scratchpad_desc(),
                descriptor.impl_info_str());
  }

  /// Runs on these pointers, in the order of `arguments`. The scratchpad comes from `args`.
  void run(KernelArgs& args, std::initializer_list<void*> pointers) const;

 private:
  static Primitive make(dnnl::primitive primitive,
                        std::initializer_list<std::pair<int, dnnl::memory::desc>> arguments,
                        const dnnl::memory::desc& scratchpad, const char* implementation);
};

/// The primitive of a key, built by `build` the first time. The cache is per thread and is emptied
/// when it holds 1024 primitives (shapes that keep changing would fill it without end).
std::shared_ptr<const Primitive> cached_primitive(const PrimitiveKey& key,
                                                  const std::function<Primitive()>& build);

/// Attributes of every primitive: the scratchpad comes from us. No ReLU is ever attached: oneDNN's
/// turns NaN into 0 (seen in 2.6), which hides a diverging network; ours runs over the result
/// instead.
dnnl::primitive_attr onednn_attributes();

/// In the deterministic setting oneDNN runs on one thread: its way of splitting sums over threads
/// is its own, and may change the last bits.
class OnednnThreads {
 public:
  OnednnThreads();
  ~OnednnThreads();
  OnednnThreads(const OnednnThreads&) = delete;
  OnednnThreads& operator=(const OnednnThreads&) = delete;

 private:
  int previous_;
};

// Primitive descriptors: oneDNN 3 takes all arguments in the descriptor's constructor, 2.6 wants an
// operation descriptor first.
namespace onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

inline dnnl::matmul::primitive_desc matmul(const Desc& a, const Desc& b, const Desc& bias,
                                           const Desc& y, const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), a, b, bias, y, attr};
#else
  return {dnnl::matmul::desc(a, b, bias, y), attr, onednn_engine()};
#endif
}

inline dnnl::convolution_forward::primitive_desc conv_forward(
    const Desc& x, const Desc& w, const Desc& bias, const Desc& y, const Dims& stride,
    const Dims& dilation, const Dims& begin, const Dims& end, const dnnl::primitive_attr& attr) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), kind, algorithm, x, w, bias, y, stride, dilation, begin, end, attr};
#else
  return {
      dnnl::convolution_forward::desc(kind, algorithm, x, w, bias, y, stride, dilation, begin, end),
      attr, onednn_engine()};
#endif
}

inline dnnl::convolution_backward_data::primitive_desc conv_backward_data(
    const Desc& dx, const Desc& w, const Desc& dy, const Dims& stride, const Dims& dilation,
    const Dims& begin, const Dims& end, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& hint) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), algorithm, dx, w, dy, stride, dilation, begin, end, hint, attr};
#else
  return {dnnl::convolution_backward_data::desc(algorithm, dx, w, dy, stride, dilation, begin, end),
          attr, onednn_engine(), hint};
#endif
}

inline dnnl::convolution_backward_weights::primitive_desc conv_backward_weights(
    const Desc& x, const Desc& dw, const Desc& dbias, const Desc& dy, const Dims& stride,
    const Dims& dilation, const Dims& begin, const Dims& end, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& hint) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), algorithm, x, dw, dbias, dy, stride, dilation, begin, end, hint, attr};
#else
  return {dnnl::convolution_backward_weights::desc(algorithm, x, dw, dbias, dy, stride, dilation,
                                                   begin, end),
          attr, onednn_engine(), hint};
#endif
}

}  // namespace onednn

}  // namespace engine::cpu
