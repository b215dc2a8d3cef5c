#include "core/tensor.h"

#include "core/autograd.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"

namespace engine {

TensorImpl::TensorImpl() = default;
TensorImpl::~TensorImpl() = default;

namespace {
const TensorImpl& deref(const TensorImpl* impl) {
  check(impl != nullptr, op_or("tensor"), "expected a defined tensor, got an undefined one");
  return *impl;
}
}  // namespace

const Shape& Tensor::shape() const { return deref(impl()).shape; }
DType Tensor::dtype() const { return deref(impl()).dtype; }
Device Tensor::device() const { return deref(impl()).storage->device(); }

void* Tensor::raw() const {
  const TensorImpl& t = deref(impl());
  return static_cast<std::byte*>(t.storage->data()) + t.offset;
}

void Tensor::expect_dtype(DType wanted) const {
  check(dtype() == wanted, op_or("tensor"), "expected elements of type {}, got {}", name(wanted),
        describe(*this));
}

void Tensor::copy_to_host(void* destination) const {
  check(device().kind != DeviceKind::meta, op_or("tensor"),
        "expected a tensor with values, got {} on the meta device, which computes none",
        describe(*this));
  Backend& device_backend = backend(device());
  device_backend.synchronize();
  if (bytes() > 0) device_backend.copy_to_host(destination, raw(), bytes());
}

double Tensor::item() const {
  check(numel() == 1, op_or("tensor"), "item() expects one element, got {}", describe(*this));
  switch (dtype()) {
    case DType::f32:
      return static_cast<double>(to_vector<float>()[0]);
    case DType::bf16:
      return static_cast<double>(static_cast<float>(to_vector<BFloat16>()[0]));
    case DType::i32:
      return static_cast<double>(to_vector<int32_t>()[0]);
    case DType::i64:
      return static_cast<double>(to_vector<int64_t>()[0]);
    case DType::u8:
      return static_cast<double>(to_vector<uint8_t>()[0]);
  }
  return 0;
}

bool Tensor::requires_grad() const {
  const TensorImpl& t = deref(impl());
  return t.requires_grad || t.node;
}

Tensor& Tensor::set_requires_grad(bool value) {
  check(is_floating(dtype()), op_or("tensor"), "only floating tensors have gradients, got {}",
        describe(*this));
  check(!impl_->node, op_or("tensor"),
        "requires_grad can be set on leaves only, got the result of an op: detach() it");
  impl_->requires_grad = value;
  return *this;
}

Tensor Tensor::grad() const {
  const TensorImpl& t = deref(impl());
  return t.grad_written ? t.grad : Tensor();
}

void Tensor::zero_grad() {
  deref(impl());
  impl_->grad_written = false;
  if (!impl_->grad_is_buffer) impl_->grad = {};
}

void Tensor::set_grad_buffer(Tensor buffer) {
  check(buffer.shape() == shape() && buffer.dtype() == dtype() && buffer.device() == device(),
        op_or("tensor"), "expected a gradient buffer like {}, got {}", describe(*this),
        describe(buffer));
  impl_->grad = std::move(buffer);
  impl_->grad_is_buffer = true;
  impl_->grad_written = false;
}

void Tensor::clear_grad_buffer() {
  deref(impl());
  impl_->grad = {};
  impl_->grad_is_buffer = impl_->grad_written = false;
}

void Tensor::backward(Tensor upstream) const { run_backward(*this, std::move(upstream)); }

Tensor Tensor::detach() const { return view(shape()); }

Tensor Tensor::view(const Shape& new_shape, size_t byte_offset) const {
  const TensorImpl& t = deref(impl());
  const auto room = static_cast<size_t>(bytes());
  check(byte_offset % size_of(t.dtype) == 0, op_or("tensor"),
        "expected a view at a multiple of {} bytes, got byte {} of {}", size_of(t.dtype),
        byte_offset, describe(*this));
  const bool inside = byte_offset <= room && static_cast<size_t>(new_shape.numel()) <=
                                                 (room - byte_offset) / size_of(t.dtype);
  check(inside, op_or("tensor"), "expected a view inside {}, got {} at byte {}", describe(*this),
        new_shape, byte_offset);
  auto result = make_ref<TensorImpl>();
  result->storage = t.storage;
  result->offset = t.offset + byte_offset;
  result->shape = new_shape;
  result->dtype = t.dtype;
  return Tensor(std::move(result));
}

void Tensor::rebind(const Tensor& source) {
  check(source.shape() == shape() && source.dtype() == dtype() && source.device() == device(),
        op_or("tensor"), "expected memory for {}, got {}", describe(*this), describe(source));
  impl_->storage = source.impl()->storage;
  impl_->offset = source.impl()->offset;
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  const int64_t element = static_cast<int64_t>(size_of(dtype));
  int64_t bytes = 0;
  check(!__builtin_mul_overflow(shape.numel(), element, &bytes), op_or("empty"),
        "expected fewer than 2^63 bytes, got {} of {}", shape, name(dtype));
  auto impl = make_ref<TensorImpl>();
  impl->storage = make_ref<Storage>(device, backend(device).allocator(), static_cast<size_t>(bytes),
                                    context().memory);
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor to_device(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const bool up = x.device() == kCpu;
  check(up || device == kCpu, "to_device", "expected a copy from or to the CPU, got {} on {} to {}",
        describe(x), x.device(), device);
  const Tensor copy = empty(x.shape(), x.dtype(), device);
  if (x.numel() == 0) return copy;
  if (up)
    backend(device).copy_from_host(copy.raw(), x.raw(), x.bytes());
  else
    backend(x.device()).copy_to_host(copy.raw(), x.raw(), x.bytes());
  return copy;
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  ops::fill_(result, value);
  return result;
}

template <class T>
Tensor from_host(const Shape& shape, std::span<const T> values, Device device) {
  check(static_cast<int64_t>(values.size()) == shape.numel(), "from_host",
        "expected {} values for {}, got {}", shape.numel(), shape, values.size());
  Tensor result = empty(shape, dtype_of<T>, device);
  if (!values.empty() && device.kind != DeviceKind::meta) {
    backend(device).copy_from_host(result.raw(), values.data(), result.bytes());
  }
  return result;
}
template Tensor from_host(const Shape&, std::span<const float>, Device);
template Tensor from_host(const Shape&, std::span<const BFloat16>, Device);
template Tensor from_host(const Shape&, std::span<const int32_t>, Device);
template Tensor from_host(const Shape&, std::span<const int64_t>, Device);
template Tensor from_host(const Shape&, std::span<const uint8_t>, Device);

std::string to_string(const Description& description) {
  const Tensor& tensor = description.tensor;
  if (!tensor.defined()) return "undefined";
  return fmt::format("{}{}", name(tensor.dtype()), tensor.shape());
}

}  // namespace engine
