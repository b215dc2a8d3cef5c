// matmul, linear and linear_relu.
#include "backends/cuda/check.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/runtime.h"
#include "backends/cuda/small_kernels.h"
#include "core/op_attrs.h"

namespace engine::cuda {

namespace {

void set_zero(const Tensor& t) { ENGINE_CUDA(cudaMemsetAsync(t.raw(), 0, t.bytes(), stream())); }

void run_linear(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &weight = args.inputs[1], &bias = args.inputs[2],
               &y = args.outputs[0];
  const int64_t n = weight.size(0), k = weight.size(1);
  if (y.numel() == 0) return;
  if (k == 0) {  // an empty sum: the bias alone
    if (bias.defined())
      repeat_rows(bias, y);
    else
      set_zero(y);
    return;
  }
  Products(args).run({1, y.numel() / n, n, k, false, true, bias.defined(), y.dtype()}, x.raw(),
                     weight.raw(), bias.defined() ? bias.raw() : nullptr, y.raw());
}

}  // namespace

void kernels::linear(KernelArgs& args) { run_linear(args); }
// cuBLASLt's own ReLU is max(x, 0), which turns NaN into 0 and hides a diverging network.
void kernels::linear_relu(KernelArgs& args) {
  run_linear(args);
  relu_in_place(args.outputs[0]);
}

void kernels::matmul(KernelArgs& args) {
  const auto& flags = args.attrs.as<MatmulAttrs>();
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &y = args.outputs[0];
  if (y.numel() == 0) return;
  const int64_t m = y.size(-2), n = y.size(-1), k = a.size(flags.transpose_a ? -2 : -1);
  if (k == 0) return set_zero(y);
  const auto batch_of = [](const Tensor& t) { return t.shape().product(0, t.rank() - 2); };
  const int64_t batch = batch_of(y);
  Products products(args);
  Gemm gemm{batch, m, n, k, flags.transpose_a, flags.transpose_b, false, y.dtype()};
  if (batch_of(a) == batch && batch_of(b) == batch)
    return products.run(gemm, a.raw(), b.raw(), nullptr, y.raw());
  gemm.batch = 1;
  if (batch_of(b) == 1 && batch_of(a) == batch && !flags.transpose_a) {
    gemm.m *= batch;  // one b for all: the batch is more rows
    return products.run(gemm, a.raw(), b.raw(), nullptr, y.raw());
  }
  // Walk the batch of y; an axis that is 1 in an operand repeats it.
  const auto bytes = static_cast<int64_t>(size_of(y.dtype()));
  for (int64_t i = 0; i < batch; ++i) {
    const auto at = [&](const Tensor& t, int64_t matrix) {
      int64_t rest = i, stride = 1, position = 0;
      for (int axis = y.rank() - 3; axis >= 0; --axis) {
        const int64_t index = rest % y.size(axis);
        rest /= y.size(axis);
        const int own = axis - (y.rank() - t.rank());
        if (own < 0) continue;
        if (t.size(own) != 1) position += index * stride;
        stride *= t.size(own);
      }
      return static_cast<std::byte*>(t.raw()) + position * matrix * bytes;
    };
    products.run(gemm, at(a, m * k), at(b, k * n), nullptr,
                 static_cast<std::byte*>(y.raw()) + i * m * n * bytes);
  }
}

}  // namespace engine::cuda
