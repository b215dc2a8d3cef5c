// add, sub, mul, div, pow, maximum, minimum and comparisons with broadcasting; where.
#include <array>
#include <cmath>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"
#include "core/broadcast.h"

namespace engine::cpu {

namespace {

// Calls run(offsets, begin, count) for stretches of the output's last axis: output begin .. begin +
// count takes the operands' elements from the offsets on, each with the walk's last stride, which
// is 0 or 1. A long axis is split, so that two large axes are not needed to use all threads.
template <size_t kOperands, class Run>
void for_runs(const BroadcastWalk<kOperands>& walk, int64_t n, Run run) {
  const size_t last = walk.rank - 1;
  const int64_t inner = walk.size[last];
  const int64_t piece = std::min(inner, kGrain), pieces = (inner + piece - 1) / piece;
  parallel_items(n / inner * pieces, piece, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / pieces, first = item % pieces * piece;
      std::array<int64_t, kOperands> offsets;
      for (size_t k = 0; k < kOperands; ++k) offsets[k] = walk.stride[last][k] * first;
      int64_t rest = row;
      for (size_t axis = last; axis-- > 0;) {
        const int64_t index = rest % walk.size[axis];
        rest /= walk.size[axis];
        for (size_t k = 0; k < kOperands; ++k) offsets[k] += index * walk.stride[axis][k];
      }
      run(offsets, row * inner + first, std::min(piece, inner - first));
    }
  });
}

template <class T, class Out, class F>
void run_broadcast(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  const BroadcastWalk<2> walk = broadcast_walk<2>({a.shape(), b.shape()}, y.shape());
  const auto stride = walk.stride[walk.rank - 1];
  const T *in_a = a.data<T>(), *in_b = b.data<T>();
  Out* out = y.data<Out>();
  const bool stream = exceeds_caches(y);
  for_runs(walk, y.numel(), [=](const auto& offsets, int64_t begin, int64_t count) {
    const T *pa = in_a + offsets[0], *pb = in_b + offsets[1];
    Out* po = out + begin;
    const float a0 = static_cast<float>(*pa), b0 = static_cast<float>(*pb);
    if (stride[0] == 0) {
      store(po, 0, count, stream, [=](int64_t i) { return Out(f(a0, static_cast<float>(pb[i]))); });
    } else if (stride[1] == 0) {
      store(po, 0, count, stream, [=](int64_t i) { return Out(f(static_cast<float>(pa[i]), b0)); });
    } else {
      store(po, 0, count, stream, [=](int64_t i) {
        return Out(f(static_cast<float>(pa[i]), static_cast<float>(pb[i])));
      });
    }
  });
}

// Results of the operands' type.
template <class F>
void run(KernelArgs& args, F f) {
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  if (a.shape() == b.shape()) return map(a, b, y, f);
  if (y.numel() == 0) return;
  with_floating(y.dtype(), [&]<class T>(T) { run_broadcast<T, T>(a, b, y, f); });
}

// Results 0 or 1.
template <class F>
void run_comparison(KernelArgs& args, F f) {
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  if (y.numel() == 0) return;
  with_floating(a.dtype(), [&]<class T>(T) { run_broadcast<T, uint8_t>(a, b, y, f); });
}

template <class T>
void select(KernelArgs& args) {
  const Tensor &condition = args.inputs[0], &a = args.inputs[1], &b = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  const BroadcastWalk<3> walk =
      broadcast_walk<3>({condition.shape(), a.shape(), b.shape()}, y.shape());
  const auto stride = walk.stride[walk.rank - 1];
  const bool plain = stride == std::array<int64_t, 3>{1, 1, 1};
  const uint8_t* in = condition.data<uint8_t>();
  const T *in_a = static_cast<const T*>(a.raw()), *in_b = static_cast<const T*>(b.raw());
  T* out = static_cast<T*>(y.raw());
  const bool stream = exceeds_caches(y);
  for_runs(walk, y.numel(), [=](const auto& offsets, int64_t begin, int64_t count) {
    const uint8_t* pc = in + offsets[0];
    const T *pa = in_a + offsets[1], *pb = in_b + offsets[2];
    T* po = out + begin;
    if (plain) {
      store(po, 0, count, stream, [=](int64_t i) { return pc[i] != 0 ? pa[i] : pb[i]; });
    } else {
      for (int64_t i = 0; i < count; ++i)
        po[i] = pc[i * stride[0]] != 0 ? pa[i * stride[1]] : pb[i * stride[2]];
    }
  });
}

}  // namespace

void kernels::add(KernelArgs& args) {
  run(args, [](float a, float b) { return a + b; });
}
void kernels::sub(KernelArgs& args) {
  run(args, [](float a, float b) { return a - b; });
}
void kernels::mul(KernelArgs& args) {
  run(args, [](float a, float b) { return a * b; });
}
void kernels::div(KernelArgs& args) {
  run(args, [](float a, float b) { return a / b; });
}

void kernels::pow(KernelArgs& args) {
  run(args, [](float a, float b) { return std::pow(a, b); });
}
// A NaN in a is not smaller, one in b makes a comparison false: either stays.
void kernels::maximum(KernelArgs& args) {
  run(args, [](float a, float b) { return a > b || a != a ? a : b; });
}
void kernels::minimum(KernelArgs& args) {
  run(args, [](float a, float b) { return a < b || a != a ? a : b; });
}
void kernels::eq(KernelArgs& args) {
  run_comparison(args, [](float a, float b) { return a == b; });
}
void kernels::ne(KernelArgs& args) {
  run_comparison(args, [](float a, float b) { return a != b; });
}
void kernels::lt(KernelArgs& args) {
  run_comparison(args, [](float a, float b) { return a < b; });
}
void kernels::le(KernelArgs& args) {
  run_comparison(args, [](float a, float b) { return a <= b; });
}
void kernels::gt(KernelArgs& args) {
  run_comparison(args, [](float a, float b) { return a > b; });
}
void kernels::ge(KernelArgs& args) {
  run_comparison(args, [](float a, float b) { return a >= b; });
}

// Elements are moved whole, so only their size matters.
void kernels::where(KernelArgs& args) {
  with_bits(args.outputs[0].dtype(), [&]<class T>(T) { select<T>(args); });
}

}  // namespace engine::cpu
