// The kernels of the CPU device: one line an op, one name a kernel. The table in cpu_backend.cpp is
// made from this list; ops that are missing here run by their decomposition.
#pragma once

#include "core/backend.h"

namespace engine::cpu {

#define ENGINE_CPU_KERNELS(X)                                                                      \
  X(fill_)                                                                                         \
  X(uniform_)                                                                                      \
  X(normal_)                                                                                       \
  X(copy_)                                                                                         \
  X(accumulate_)                                                                                   \
  X(scale_)                                                                      /* fill.cpp */    \
      X(add) X(sub) X(mul) X(div)                                                /* binary.cpp */  \
      X(scale) X(shift) X(neg) X(exp) X(log) X(sqrt) X(abs) X(abs_backward)      /* unary.cpp */   \
      X(relu) X(relu_backward) X(dropout) X(cast) X(permute) X(broadcast_to)     /* shape.cpp */   \
      X(sum) X(mean) X(max) X(min) X(extremum_backward) X(argmax) X(sum_squares) /* reduce.cpp */  \
      X(matmul) X(linear) X(linear_relu)                                         /* matmul.cpp */  \
      X(conv2d) X(conv2d_relu) X(conv2d_backward_data) X(conv2d_backward_weight) /* conv.cpp */    \
      X(max_pool2d) X(max_pool2d_backward) X(avg_pool2d) X(avg_pool2d_backward)  /* *_pool.cpp */  \
      X(softmax) X(softmax_backward) X(log_softmax) X(log_softmax_backward)      /* softmax.cpp */ \
      X(nll_loss) X(nll_loss_backward) X(cross_entropy) X(cross_entropy_backward) /* loss.cpp */   \
      X(sgd_step_) X(adam_step_) X(any_non_finite) /* optimizer.cpp */

namespace kernels {
#define ENGINE_DECLARE_KERNEL(name) void name(KernelArgs& args);
ENGINE_CPU_KERNELS(ENGINE_DECLARE_KERNEL)
#undef ENGINE_DECLARE_KERNEL
}  // namespace kernels

}  // namespace engine::cpu
