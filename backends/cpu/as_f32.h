// bf16 tensors for kernels that only know f32: read through copies in scratch, results rounded
// once. For f32 tensors both are the tensor's own memory.
#pragma once

#include "backends/cpu/elementwise.h"
#include "core/backend.h"

namespace engine::cpu {

/// The elements of x as f32; null where x is undefined.
inline const float* as_f32(KernelArgs& args, const Tensor& x) {
  if (!x.defined()) return nullptr;
  if (x.dtype() == DType::f32) return x.data<float>();
  const BFloat16* in = x.data<BFloat16>();
  auto* copy = args.scratch.array<float>(x.numel());
  parallel_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) copy[i] = static_cast<float>(in[i]);
  });
  return copy;
}

/// f32 memory for the elements of y, which store() puts there. Undefined y: null, nothing to store.
class F32Output {
 public:
  F32Output(KernelArgs& args, const Tensor& y) : y_(y) {
    if (!y.defined()) return;
    data_ = y.dtype() == DType::f32 ? y.data<float>() : args.scratch.array<float>(y.numel());
  }
  float* data() const { return data_; }
  void store() const {
    if (data_ == nullptr || y_.dtype() == DType::f32) return;
    BFloat16* out = y_.data<BFloat16>();
    parallel_for(y_.numel(), kGrain, [in = data_, out](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = BFloat16(in[i]);
    });
  }

 private:
  const Tensor& y_;
  float* data_ = nullptr;
};

}  // namespace engine::cpu
