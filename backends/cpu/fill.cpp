// Writing into memory that exists: constants, random numbers, copies, sums.
#include <cstring>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

template <class T>
void fill_as(const Tensor& x, T value) {
  T* out = x.data<T>();
  parallel_for(x.numel(), kGrain,
               [=](int64_t begin, int64_t end) { std::fill(out + begin, out + end, value); });
}

// Number i of the stream is lane i % 4 of block i / 4, whatever thread makes it.
template <class F>
void fill_random(const Tensor& x, const RandomStream& stream, F f) {
  with_floating(x.dtype(), [&]<class T>(T) {
    T* out = x.data<T>();
    const int64_t n = x.numel();
    parallel_for((n + 3) / 4, kGrain / 16, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const auto bits = philox(stream.seed, stream.offset + static_cast<uint64_t>(block));
        for (int64_t j = 0; j < 4 && block * 4 + j < n; ++j)
          out[block * 4 + j] = T(f(bits[static_cast<size_t>(j)]));
      }
    });
  });
}

}  // namespace

void kernels::fill_(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const double value = args.attrs.as<FillAttrs>().value;
  switch (x.dtype()) {
    case DType::f32:
      return fill_as(x, static_cast<float>(value));
    case DType::bf16:
      return fill_as(x, BFloat16(static_cast<float>(value)));
    case DType::i32:
      return fill_as(x, static_cast<int32_t>(value));
    case DType::i64:
      return fill_as(x, static_cast<int64_t>(value));
    case DType::u8:
      return fill_as(x, static_cast<uint8_t>(value));
  }
}

void kernels::uniform_(KernelArgs& args) {
  const auto& a = args.attrs.as<RandomAttrs>();
  const float range = a.high - a.low;
  fill_random(args.inputs[0], a.stream,
              [a, range](uint32_t bits) { return a.low + range * uniform_from_bits(bits); });
}

void kernels::normal_(KernelArgs& args) {
  const auto& a = args.attrs.as<RandomAttrs>();
  fill_random(args.inputs[0], a.stream,
              [a](uint32_t bits) { return a.low + a.high * normal_from_bits(bits); });
}

void kernels::copy_(KernelArgs& args) {
  auto* out = static_cast<std::byte*>(args.inputs[0].raw());
  const auto* in = static_cast<const std::byte*>(args.inputs[1].raw());
  parallel_for(static_cast<int64_t>(args.inputs[0].bytes()), 4 * kGrain,
               [=](int64_t begin, int64_t end) {
                 std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
               });
}

void kernels::accumulate_(KernelArgs& args) {
  const Tensor& sum = args.inputs[0];
  map(sum, args.inputs[1], sum, [](float a, float b) { return a + b; });
}

void kernels::scale_(KernelArgs& args) {
  map(args.inputs[0], args.inputs[0],
      [f = args.attrs.as<ScalarAttrs>().value](float x) { return x * f; });
}

}  // namespace engine::cpu
