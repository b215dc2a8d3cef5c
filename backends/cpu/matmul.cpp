// matmul, linear and linear_relu: by oneDNN's matmul primitive, small f32 products by
// small_matmul.h.
#include <algorithm>
#include <cstring>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/small_matmul.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

using dnnl::memory;

enum Kind : int { kMatmul = 1 };

// Up to this many multiplications one thread is faster: 2.4 us against 5.0 for 64 x 84 x
// 10 (54,000) on a 2-core Zen 4; at 64 x 120 x 84 (645,000) it takes twice oneDNN's time.
constexpr int64_t kSmall = 65536;

template <class T>
void run_gemm(KernelArgs& args, const Gemm& g, const T* a, const T* b, const T* bias, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    if (g.batch == 1 && g.m * g.n * g.k <= kSmall) {
      args.implementation =
          small_matmul(g.m, g.n, g.k, a, g.transpose_a, b, g.transpose_b, bias, y);
      return;
    }
  }
  const OnednnThreads threads;
  const PrimitiveKey key(kMatmul, {g.batch, g.m, g.n, g.k, g.transpose_a, g.transpose_b,
                                   bias != nullptr, static_cast<int64_t>(dtype_of<T>)});
  const std::shared_ptr<const Primitive> primitive = cached_primitive(key, [&] {
    const auto matrix = [&](int64_t rows, int64_t cols, bool transposed) {
      const memory::dims strides =
          transposed ? memory::dims{rows * cols, 1, rows} : memory::dims{rows * cols, cols, 1};
      if (g.batch == 1) {
        return memory::desc({rows, cols}, onednn_type<T>, memory::dims{strides[1], strides[2]});
      }
      return memory::desc({g.batch, rows, cols}, onednn_type<T>, strides);
    };
    const memory::desc ad = matrix(g.m, g.k, g.transpose_a), bd = matrix(g.k, g.n, g.transpose_b),
                       yd = matrix(g.m, g.n, false);
    memory::desc biasd;
    if (bias != nullptr) {
      const memory::dims dims = g.batch == 1 ? memory::dims{1, g.n} : memory::dims{1, 1, g.n};
      const memory::dims strides = g.batch == 1 ? memory::dims{g.n, 1} : memory::dims{g.n, g.n, 1};
      biasd = memory::desc(dims, onednn_type<T>, strides);
    }
    const auto pd = onednn::matmul(ad, bd, biasd, yd, onednn_attributes());
    if (bias == nullptr) {
      return Primitive::make(pd, dnnl::matmul(pd),
                             {{DNNL_ARG_SRC, ad}, {DNNL_ARG_WEIGHTS, bd}, {DNNL_ARG_DST, yd}});
    }
    return Primitive::make(
        pd, dnnl::matmul(pd),
        {{DNNL_ARG_SRC, ad}, {DNNL_ARG_WEIGHTS, bd}, {DNNL_ARG_DST, yd}, {DNNL_ARG_BIAS, biasd}});
  });
  void* const pa = const_cast<T*>(a);
  void* const pb = const_cast<T*>(b);
  if (bias == nullptr)
    primitive->run(args, {pa, pb, y});
  else
    primitive->run(args, {pa, pb, y, const_cast<T*>(bias)});
}

template <class T>
void linear_as(KernelArgs& args, const T* x, const T* weight, const T* bias, T* y) {
  const Shape& shape = args.inputs[1].shape();
  const int64_t n = shape[0], k = shape[1], count = args.outputs[0].numel();
  if (k == 0) {  // an empty sum: the bias alone
    for (int64_t i = 0; i < count; ++i) y[i] = bias != nullptr ? bias[i % n] : T(0.f);
    return;
  }
  run_gemm(args, Gemm{1, count / n, n, k, false, true}, x, weight, bias, y);
}

void run_linear(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  if (y.numel() == 0) return;
  if (y.dtype() == DType::bf16 && onednn_computes_bf16()) {
    linear_as(args, x.data<BFloat16>(), weight.data<BFloat16>(),
              bias.defined() ? bias.data<BFloat16>() : nullptr, y.data<BFloat16>());
    return;
  }
  const F32Output out(args, y);
  linear_as(args, as_f32(args, x), as_f32(args, weight), as_f32(args, bias), out.data());
  out.store();
}

template <class T>
void matmul_as(KernelArgs& args, const T* in_a, const T* in_b, T* out) {
  const auto& flags = args.attrs.as<MatmulAttrs>();
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  const int64_t m = y.size(-2), n = y.size(-1), k = a.size(flags.transpose_a ? -2 : -1);
  if (k == 0) {
    std::fill(out, out + y.numel(), T(0.f));
    return;
  }
  const auto batch_of = [](const Tensor& t) { return t.shape().product(0, t.rank() - 2); };
  const int64_t batch = batch_of(y);
  Gemm gemm{batch, m, n, k, flags.transpose_a, flags.transpose_b};
  const T* no_bias = nullptr;
  if (batch_of(a) == batch && batch_of(b) == batch) {
    run_gemm(args, gemm, in_a, in_b, no_bias, out);
  } else if (batch_of(b) == 1 && batch_of(a) == batch && !flags.transpose_a) {
    gemm.m *= batch;  // one b for all: the batch is more rows
    gemm.batch = 1;
    run_gemm(args, gemm, in_a, in_b, no_bias, out);
  } else {
    gemm.batch = 1;
    // Walk the batch of y; an axis that is 1 in an operand repeats it.
    for (int64_t i = 0; i < batch; ++i) {
      const auto offset = [&](const Tensor& t, int64_t matrix) {
        int64_t rest = i, stride = 1, position = 0;
        for (int axis = y.rank() - 3; axis >= 0; --axis) {
          const int64_t index = rest % y.size(axis);
          rest /= y.size(axis);
          const int own = axis - (y.rank() - t.rank());
          if (own < 0) continue;
          if (t.size(own) != 1) position += index * stride;
          stride *= t.size(own);
        }
        return position * matrix;
      };
      run_gemm(args, gemm, in_a + offset(a, m * k), in_b + offset(b, k * n), no_bias,
               out + i * m * n);
    }
  }
}

}  // namespace

void gemm(KernelArgs& args, const Gemm& g, const float* a, const float* b, float* y) {
  run_gemm(args, g, a, b, static_cast<const float*>(nullptr), y);
}

void kernels::linear(KernelArgs& args) { run_linear(args); }
void kernels::linear_relu(KernelArgs& args) {
  run_linear(args);
  const Tensor& y = args.outputs[0];
  with_floating(y.dtype(), [&]<class T>(T) { relu_in_place(y.data<T>(), y.numel()); });
}

void kernels::matmul(KernelArgs& args) {
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  if (y.numel() == 0) return;
  if (y.dtype() == DType::bf16 && onednn_computes_bf16()) {
    matmul_as(args, a.data<BFloat16>(), b.data<BFloat16>(), y.data<BFloat16>());
    return;
  }
  const F32Output out(args, y);
  matmul_as(args, as_f32(args, a), as_f32(args, b), out.data());
  out.store();
}

}  // namespace engine::cpu
