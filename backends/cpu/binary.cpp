// add, sub, mul, div with broadcasting.
#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernels.h"

namespace engine::cpu {

namespace {

// The output's axes with the strides of both operands (0 along axes that repeat), neighbours merged
// where both operands allow it; the last axis is the inner loop.
struct Walk {
  std::array<int64_t, Shape::kMaxRank> size{}, stride_a{}, stride_b{};
  int rank = 0;
};

Walk plan(const Shape& a, const Shape& b, const Shape& y) {
  Walk walk;
  int64_t next_a = 1, next_b = 1;
  std::array<int64_t, Shape::kMaxRank> size{}, sa{}, sb{};
  int count = 0;  // innermost first
  for (int i = 1; i <= y.rank(); ++i) {
    const int64_t da = i <= a.rank() ? a[-i] : 1, db = i <= b.rank() ? b[-i] : 1;
    if (y[-i] == 1) continue;
    const int64_t stride_a = da == 1 ? 0 : next_a, stride_b = db == 1 ? 0 : next_b;
    next_a *= da;
    next_b *= db;
    const auto last = static_cast<size_t>(count - 1);
    if (count > 0 && stride_a == sa[last] * size[last] && stride_b == sb[last] * size[last]) {
      size[last] *= y[-i];
    } else {
      size[static_cast<size_t>(count)] = y[-i];
      sa[static_cast<size_t>(count)] = stride_a;
      sb[static_cast<size_t>(count)] = stride_b;
      ++count;
    }
  }
  walk.rank = count;
  for (int i = 0; i < count; ++i) {
    const auto to = static_cast<size_t>(i), from = static_cast<size_t>(count - 1 - i);
    walk.size[to] = size[from];
    walk.stride_a[to] = sa[from];
    walk.stride_b[to] = sb[from];
  }
  return walk;
}

template <class T, class F>
void run_walk(const Walk& walk, const T* in_a, const T* in_b, T* out, int64_t n, F f) {
  if (walk.rank == 0) {
    out[0] = T(f(static_cast<float>(in_a[0]), static_cast<float>(in_b[0])));
    return;
  }
  const auto last = static_cast<size_t>(walk.rank - 1);
  const int64_t inner = walk.size[last];
  // The inner loop is split too when it is long, so that two large axes are not needed to use all
  // threads.
  const int64_t piece = std::min(inner, kGrain), pieces = (inner + piece - 1) / piece;
  parallel_items(n / inner * pieces, piece, [=](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / pieces, first = item % pieces * piece,
                    count = std::min(piece, inner - first);
      int64_t rest = row, offset_a = 0, offset_b = 0;
      for (int axis = walk.rank - 2; axis >= 0; --axis) {
        const auto i = static_cast<size_t>(axis);
        const int64_t index = rest % walk.size[i];
        rest /= walk.size[i];
        offset_a += index * walk.stride_a[i];
        offset_b += index * walk.stride_b[i];
      }
      const T* pa = in_a + offset_a + (walk.stride_a[last] != 0 ? first : 0);
      const T* pb = in_b + offset_b + (walk.stride_b[last] != 0 ? first : 0);
      T* po = out + row * inner + first;
      const float a0 = static_cast<float>(*pa), b0 = static_cast<float>(*pb);
      if (walk.stride_a[last] == 0) {
        for (int64_t i = 0; i < count; ++i) po[i] = T(f(a0, static_cast<float>(pb[i])));
      } else if (walk.stride_b[last] == 0) {
        for (int64_t i = 0; i < count; ++i) po[i] = T(f(static_cast<float>(pa[i]), b0));
      } else {
        for (int64_t i = 0; i < count; ++i)
          po[i] = T(f(static_cast<float>(pa[i]), static_cast<float>(pb[i])));
      }
    }
  });
}

template <class F>
void run(KernelArgs& args, F f) {
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  if (a.shape() == b.shape()) return map(a, b, y, f);
  if (y.numel() == 0) return;
  const Walk walk = plan(a.shape(), b.shape(), y.shape());
  with_floating(y.dtype(), [&]<class T>(T) {
    run_walk(walk, a.data<T>(), b.data<T>(), y.data<T>(), y.numel(), f);
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

}  // namespace engine::cpu
