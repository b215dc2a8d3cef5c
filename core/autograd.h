// The recorded graph: a Node per differentiable op call, walked backward from the loss.
#pragma once

#include <vector>

#include "core/op.h"
#include "core/tensor.h"

namespace engine {

/// One recorded op call: where its inputs came from and what its gradient needs. Created by
/// `launch` only. Nodes are numbered in order of creation, so an op's consumers always have higher
/// numbers.
class Node : public RefCounted {
 public:
  Node(const Op& op, const Attrs& attrs, std::span<const Tensor> inputs, std::span<Tensor> outputs);
  ~Node();

  const Op& op() const { return *op_; }
  const Attrs& attrs() const { return attrs_; }
  template <class T>
  const T& attrs() const {
    return attrs_.as<T>();
  }

  // For Op::grad:

  /// Whether input i's gradient is wanted.
  bool needs(int i) const { return inputs_[static_cast<size_t>(i)].needs; }
  /// An input or output that the op saves (undefined if it was). Throws when it was changed in
  /// place since, or when a backward pass has already freed it.
  Tensor input(int i) const;
  Tensor output(int i) const;
  const Shape& input_shape(int i) const { return inputs_[static_cast<size_t>(i)].shape; }
  DType input_dtype(int i) const { return inputs_[static_cast<size_t>(i)].dtype; }
  /// Where input i's gradient may be written at once: the gradient buffer of a leaf that has no
  /// gradient yet, or undefined. An op that writes there saves the walk a copy.
  Tensor grad_destination(int i) const;

 private:
  friend void run_backward(const Tensor& root, Tensor upstream);

  struct Saved {
    Tensor tensor;
    uint32_t version = 0;
  };
  struct Input {
    Ref<Node> node;        // the op that made it ...
    int output = 0;        // ... as which output
    Ref<TensorImpl> leaf;  // or the leaf that collects its gradient
    Shape shape;
    DType dtype = DType::f32;
    bool needs = false;
    Saved saved;
  };
  struct Output {
    Shape shape;
    DType dtype = DType::f32;
    Saved saved;
    Tensor grad;  // what the consumers have contributed so far
  };

  static Saved save(const Tensor& tensor);
  Tensor restore(const Saved& saved, const char* what, int i) const;
  void free_saved();

  const Op* op_;
  Attrs attrs_;
  uint64_t number_;
  Device device_;
  int32_t module_;
  const char* group_;      // the decomposed fused op that this op is a part of
  int64_t forward_event_;  // 0 when it was not profiled
  bool freed_ = false;
  bool queued_ = false;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;

  friend struct NodeRecorder;
};

/// Tensor::backward.
void run_backward(const Tensor& root, Tensor upstream);

}  // namespace engine
