// An op is data and four functions. Each op's file in core/ops/ defines one `Op`; everything that
// the engine knows about the op, on any device, stands there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/attrs.h"
#include "core/op_list.h"
#include "core/tensor.h"

namespace engine {

inline constexpr int kMaxOutputs = 4;

struct OutputSpec {
  Shape shape;
  DType dtype = DType::f32;
  bool needed = true;  ///< false: this call leaves the output undefined
};

/// What `infer` writes.
struct OutputSpecs {
  std::array<OutputSpec, kMaxOutputs> specs;
  int count = 0;

  void add(const Shape& shape, DType dtype) {
    specs[static_cast<size_t>(count++)] = {shape, dtype, true};
  }
  void add_absent() { specs[static_cast<size_t>(count++)] = {Shape{}, DType::f32, false}; }
  void drop_last() { specs[static_cast<size_t>(count - 1)].needed = false; }
};

/// Work of one call. 1 multiply-add = 2 FLOPs. Bytes count each tensor once, as if caches were
/// perfect: the least that any implementation must move.
struct Cost {
  int64_t flops = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
};

/// Bytes of a tensor, or of several; 0 where one is undefined.
inline int64_t bytes_of(const Tensor& t) { return t.defined() ? t.bytes() : 0; }
inline int64_t bytes_of(std::span<const Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += bytes_of(t);
  return bytes;
}

/// Bit i stands for input or output i.
using TensorMask = uint32_t;

struct Op {
  OpId id;
  const char* name;

  /// Checks inputs and attributes (throwing "[name] ...") and describes the outputs.
  void (*infer)(std::span<const Tensor> inputs, const Attrs& attrs, OutputSpecs& outputs);
  /// FLOPs and bytes; null means no FLOPs and every input read once, every output written once.
  Cost (*cost)(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
               const Attrs& attrs) = nullptr;
  /// Writes to `dx[i]` the gradient of input i, for each i with node.needs(i), by calling ops. A
  /// gradient may have the shape that the input was broadcast to: the walk sums it. Null: the op
  /// is not differentiable.
  void (*grad)(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) = nullptr;
  /// The same result by smaller ops: the meaning of a fused op, and what runs when no kernel does.
  void (*decompose)(std::span<const Tensor> inputs, const Attrs& attrs,
                    std::span<Tensor> outputs) = nullptr;

  /// Which inputs and outputs `grad` reads. Kept by the node; of the others it keeps the shape.
  TensorMask saved_inputs = 0;
  TensorMask saved_outputs = 0;
  /// Inputs that the kernel changes in place. Such an op has no gradient.
  TensorMask mutated = 0;
  /// The single output is input 0's memory under another shape: no kernel runs. It begins where
  /// view_offset, if there is one, says, in bytes.
  bool view = false;
  size_t (*view_offset)(std::span<const Tensor> inputs, const Attrs& attrs) = nullptr;
};

constexpr TensorMask bit(int i) { return TensorMask{1} << i; }

#define ENGINE_DECLARE_OP(name) extern const Op kOp_##name;
ENGINE_OPS(ENGINE_DECLARE_OP)
#undef ENGINE_DECLARE_OP

/// The definition of an op, and the op of a name (null if there is none).
const Op& op(OpId id);
const Op* find_op(std::string_view name);

}  // namespace engine
