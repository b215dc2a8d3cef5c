// The tensor: a handle to a shape, a dtype and a piece of a storage, with its place in the autograd
// graph. Copying a Tensor copies the handle.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/ref.h"
#include "core/shape.h"
#include "core/storage.h"

namespace engine {

class Node;
class Tensor;
struct TensorImpl;

/// Dense, row-major, contiguous. Images are NHWC, convolution weights OHWI.
class Tensor {
 public:
  /// An undefined tensor: an argument that is not there, such as a missing bias.
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const;
  DType dtype() const;
  Device device() const;
  int rank() const { return shape().rank(); }
  int64_t size(int axis) const { return shape()[axis]; }
  int64_t numel() const { return shape().numel(); }
  /// numel() times the size of an element.
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype()); }

  /// Device memory; on the CPU it may be read and written directly. No dtype check in `raw`.
  void* raw() const;
  /// Throws unless T is the tensor's element type.
  template <class T>
  T* data() const {
    expect_dtype(dtype_of<T>);
    return static_cast<T*>(raw());
  }

  /// The value of a one-element floating or integer tensor, read back from the device (this waits
  /// for it).
  double item() const;
  /// All elements on the host, in row-major order (this waits for the device).
  template <class T>
  std::vector<T> to_vector() const {
    expect_dtype(dtype_of<T>);
    std::vector<T> values(static_cast<size_t>(numel()));
    copy_to_host(values.data());
    return values;
  }

  /// Leaves that require gradients collect them in grad() when a backward pass reaches them.
  bool requires_grad() const;
  /// Only for floating tensors that no recorded op has made.
  Tensor& set_requires_grad(bool value);
  /// The collected gradient; undefined before the first backward pass and after zero_grad().
  Tensor grad() const;
  /// Forgets the gradient. A gradient buffer given by set_grad_buffer is kept and written anew.
  void zero_grad();
  /// Collects the gradient in `buffer` (same shape and dtype) from now on.
  void set_grad_buffer(Tensor buffer);
  /// Forgets the gradient and its buffer.
  void clear_grad_buffer();
  /// Fills this tensor's gradients of every leaf: reverse-mode differentiation from this scalar (or
  /// from `upstream`, of this shape). Frees the graph as it goes; gradients of gradients are
  /// refused.
  void backward(Tensor upstream = {}) const;

  /// The same memory without autograd history.
  Tensor detach() const;
  /// The same memory from `byte_offset` of this tensor on, seen as another shape (no history).
  Tensor view(const Shape& shape, size_t byte_offset = 0) const;
  /// Lets this tensor, and every handle to it, use `source`'s memory (same shape, dtype and
  /// device): how parameters move into a flat buffer.
  void rebind(const Tensor& source);

  TensorImpl* impl() const { return impl_.get(); }
  const Ref<TensorImpl>& impl_ref() const { return impl_; }

 private:
  void expect_dtype(DType dtype) const;
  void copy_to_host(void* destination) const;

  Ref<TensorImpl> impl_;
};

struct TensorImpl : RefCounted {
  Ref<Storage> storage;
  size_t offset = 0;  ///< bytes into the storage
  Shape shape;
  DType dtype = DType::f32;
  bool requires_grad = false;
  bool grad_written = false;    ///< grad holds this round's gradient, not an old one's remains
  bool grad_is_buffer = false;  ///< grad's memory was given by set_grad_buffer
  int output = 0;               ///< which output of `node` this is
  Ref<Node> node;               ///< the recorded op that made this tensor, if any
  Tensor grad;

  TensorImpl();
  ~TensorImpl();
};

/// New memory with unspecified contents, on `device`, counted under the current memory category.
Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
/// Filled with `value`.
Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = kCpu);
/// A copy of host values.
template <class T>
Tensor from_host(const Shape& shape, std::span<const T> values, Device device = kCpu);
template <class T>
Tensor from_host(const Shape& shape, const std::vector<T>& values, Device device = kCpu) {
  return from_host(shape, std::span<const T>(values), device);
}

/// x on `device`: x itself if it is there, else a copy without history. One of the two is the CPU.
Tensor to_device(const Tensor& x, Device device);

/// A tensor in an error's text: "f32[64, 10]".
struct Description {
  const Tensor& tensor;
};
inline Description describe(const Tensor& tensor) { return {tensor}; }
std::string to_string(const Description& description);

}  // namespace engine
