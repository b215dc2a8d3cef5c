// Tensors of other types for kernels that only know f32, as backends/cpu/as_f32.h.
#pragma once

#include "backends/cuda/elementwise.h"

namespace engine::cuda {

struct AsFloat {
  template <class V>
  __device__ float operator()(V v) const {
    return static_cast<float>(v);
  }
};

/// The elements as f32: the tensor's own memory, or a copy in scratch. Null where it is undefined.
inline const float* as_f32(KernelArgs& args, const Tensor& t) {
  if (!t.defined()) return nullptr;
  if (t.dtype() == DType::f32) return t.data<float>();
  float* copy = args.scratch.array<float>(t.numel());
  map_elements(t.numel(), AsFloat{}, copy, static_cast<const BFloat16*>(t.data<BFloat16>()));
  return copy;
}

/// f32 memory for the elements of t, which store() puts there. Null where it is undefined.
class F32Output {
 public:
  F32Output(KernelArgs& args, const Tensor& t) : t_(t) {
    if (t.defined())
      data_ = t.dtype() == DType::f32 ? t.data<float>() : args.scratch.array<float>(t.numel());
  }
  float* data() const { return data_; }
  void store() const {
    if (data_ == nullptr || t_.dtype() == DType::f32) return;
    map_elements(t_.numel(), AsFloat{}, t_.data<BFloat16>(), static_cast<const float*>(data_));
  }

 private:
  const Tensor t_;
  float* data_ = nullptr;
};

}  // namespace engine::cuda
