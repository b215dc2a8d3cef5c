// Writing into memory that exists: constants, random numbers, copies, sums.
#include <cstring>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/philox_blocks.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

template <class T>
void fill_as(const Tensor& x, T value) {
  T* out = x.data<T>();
  parallel_for(x.numel(), kGrain, [=, stream = exceeds_caches(x)](int64_t begin, int64_t end) {
    store(out, begin, end, stream, [=](int64_t) { return value; });
  });
}

// Number i of the stream is lane i % 4 of block i / 4, whatever thread makes it.
template <class F>
void fill_random(const Tensor& x, const RandomStream& random, F f) {
  with_floating(x.dtype(), [&]<class T>(T) {
    T* out = x.data<T>();
    const int64_t n = x.numel();
    const bool stream = exceeds_caches(x);
    const int64_t blocks = (n + kPhiloxNumbers - 1) / kPhiloxNumbers;
    parallel_items(blocks, kPhiloxNumbers * 8, [=](int64_t begin, int64_t end) {
      const auto write = [=](int64_t first, int64_t count, const uint32_t* numbers) {
        store(out, first, first + count, stream,
              [=](int64_t i) { return T(f(numbers[i - first])); });
      };
      for_random(random, begin * kPhiloxNumbers, std::min(n, end * kPhiloxNumbers), write);
    });
  });
}

}  // namespace

void kernels::fill_(KernelArgs& args) {
  const Tensor& x = args.inputs[0];
  const double value = args.attrs.as<FillAttrs>().value;
  with_dtype(x.dtype(), [&]<class T>(T) { fill_as(x, convert<T>(value)); });
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
               [=, stream = exceeds_caches(args.inputs[0])](int64_t begin, int64_t end) {
                 store_bytes(out + begin, in + begin, static_cast<size_t>(end - begin), stream);
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
