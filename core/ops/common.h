// What the op definitions share: the usual checks and the usual shape rules.
#pragma once

#include "core/autograd.h"
#include "core/error.h"
#include "core/launch.h"
#include "core/op.h"
#include "core/op_attrs.h"
#include "core/ops.h"

namespace engine {

inline void check_defined(const char* op, const Tensor& x) {
  check(x.defined(), op, "expected a defined tensor, got an undefined one");
}

/// The axis of x as 0 <= axis < rank; negative ones count from the end.
inline int axis_of(const char* op, int64_t axis, const Tensor& x) {
  check_defined(op, x);
  return normalize_axis(op, axis, x.rank());
}

inline void check_floating(const char* op, const Tensor& x) {
  check(is_floating(x.dtype()), op, "expected f32 or bf16, got {}", describe(x));
}

inline void check_f32(const char* op, const Tensor& x) {
  check(x.dtype() == DType::f32, op, "expected f32, got {}", describe(x));
}

inline void check_one_dtype(const char* op, const Tensor& a, const Tensor& b) {
  check(a.dtype() == b.dtype(), op, "expected one dtype, got {} and {}: cast one of them",
        describe(a), describe(b));
}

inline void check_like(const char* op, const Tensor& a, const Tensor& b) {
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), op,
        "expected tensors of one shape and dtype, got {} and {}", describe(a), describe(b));
}

/// For `kName`: one floating input, an output like it.
template <const char* kName>
void infer_like_input(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_floating(kName, in[0]);
  out.add(in[0].shape(), in[0].dtype());
}

/// Two inputs of one shape and dtype, an output like them: backward ops of elementwise functions.
template <const char* kName>
void infer_like_pair(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_floating(kName, in[0]);
  check_like(kName, in[0], in[1]);
  out.add(in[0].shape(), in[0].dtype());
}

/// As infer_like_input's gradient: launches the op kBackward on dy and input (or output) 0, which
/// the op saves, with the forward op's attributes.
template <OpId kBackward>
void grad_from_input(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(kBackward, node.attrs(), {dy[0], node.input(0)});
}
template <OpId kBackward>
void grad_from_output(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(kBackward, node.attrs(), {dy[0], node.output(0)});
}

/// No outputs: an op that changes its inputs, all of one shape and dtype.
template <const char* kName>
void infer_in_place(std::span<const Tensor> in, const Attrs&, OutputSpecs&) {
  for (const Tensor& t : in) check_defined(kName, t);
  for (const Tensor& t : in) check_like(kName, in[0], t);
}

/// A cost of `kFlops` FLOPs for each element of the first output (or first input, in place).
template <int64_t kFlops>
Cost cost_per_element(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {kFlops * (out.empty() ? in[0].numel() : out[0].numel()), bytes_of(in), bytes_of(out)};
}

}  // namespace engine
