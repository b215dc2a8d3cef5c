// Elementwise functions, dropout and casts.
#include <cmath>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/philox_blocks.h"
#include "backends/cpu/vector_math.h"
#include "core/error.h"
#include "core/op_attrs.h"

namespace engine::cpu {

void kernels::scale(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0],
      [f = args.attrs.as<ScalarAttrs>().value](float x) { return x * f; });
}
void kernels::shift(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0],
      [t = args.attrs.as<ScalarAttrs>().value](float x) { return x + t; });
}
void kernels::neg(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return -x; });
}
void kernels::exp(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return vector_exp(x); });
}
void kernels::log(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return vector_log(x); });
}
void kernels::sqrt(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return std::sqrt(x); });
}
void kernels::rsqrt(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return 1.f / std::sqrt(x); });
}
// NaN stays NaN: both comparisons are false for it.
void kernels::clamp(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [a = args.attrs.as<ClampAttrs>()](float x) {
    const float above = x < a.low ? a.low : x;
    return above > a.high ? a.high : above;
  });
}
void kernels::clamp_backward(KernelArgs& args) {
  map(args.inputs[0], args.inputs[1], args.outputs[0],
      [a = args.attrs.as<ClampAttrs>()](float dy, float x) {
        return x > a.low && x < a.high ? dy : 0.f;
      });
}
void kernels::pow_scalar(KernelArgs& args) {
  const float e = args.attrs.as<ScalarAttrs>().value;
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  // The usual exponents, as vector code.
  if (e == 2.f) return map(x, y, [](float v) { return v * v; });
  if (e == 3.f) return map(x, y, [](float v) { return v * v * v; });
  if (e == -1.f) return map(x, y, [](float v) { return 1.f / v; });
  map(x, y, [e](float v) { return std::pow(v, e); });
}
void kernels::abs(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return std::abs(x); });
}
// 0 at 0, and at NaN, which has no sign.
void kernels::abs_backward(KernelArgs& args) {
  map(args.inputs[0], args.inputs[1], args.outputs[0],
      [](float dy, float x) { return x > 0 ? dy : (x < 0 ? -dy : 0.f); });
}
void kernels::relu(KernelArgs& args) {
  map(args.inputs[0], args.outputs[0], [](float x) { return relu_value(x); });
}
// Where y is NaN the comparison is false and dy passes, as in PyTorch.
void kernels::relu_backward(KernelArgs& args) {
  map(args.inputs[0], args.inputs[1], args.outputs[0],
      [](float dy, float y) { return y <= 0.f ? 0.f : dy; });
}

void kernels::dropout(KernelArgs& args) {
  const auto& a = args.attrs.as<DropoutAttrs>();
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const int64_t n = y.numel();
  // p = 1 drops all: no number below 1 reaches it, and 1 / 0 is never used.
  const float scale = a.p < 1.f ? 1.f / (1.f - a.p) : 0.f;
  with_floating(y.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const bool stream = exceeds_caches(y);
    const int64_t blocks = (n + kPhiloxNumbers - 1) / kPhiloxNumbers;
    parallel_items(blocks, kPhiloxNumbers * 8, [=](int64_t begin, int64_t end) {
      const auto keep = [=](int64_t first, int64_t count, const uint32_t* numbers) {
        store(out, first, first + count, stream, [=](int64_t i) {
          const float kept = static_cast<float>(in[i]) * scale;
          return T(uniform_from_bits(numbers[i - first]) < a.p ? 0.f : kept);
        });
      };
      for_random(a.stream, begin * kPhiloxNumbers, std::min(n, end * kPhiloxNumbers), keep);
    });
  });
}

namespace {

template <class From, class To>
void cast_as(const Tensor& x, const Tensor& y) {
  const From* in = x.data<From>();
  To* out = y.data<To>();
  const bool stream = exceeds_caches(y);
  parallel_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
    store(out, begin, end, stream, [=](int64_t i) { return convert<To>(in[i]); });
  });
}

}  // namespace

void kernels::cast(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  with_dtype(x.dtype(), [&](auto from) {
    with_dtype(y.dtype(), [&](auto to) { cast_as<decltype(from), decltype(to)>(x, y); });
  });
}

}  // namespace engine::cpu
