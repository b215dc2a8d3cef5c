// The kernels of the CUDA device: one line an op, one name a kernel, as backends/cpu/kernels.h.
#pragma once

#include "core/backend.h"

namespace engine::cuda {

// clang-format off
#define ENGINE_CUDA_KERNELS(X)                                                                     \
  /* fill.cu */                                                                                    \
  X(fill_) X(uniform_) X(normal_) X(copy_) X(accumulate_) X(scale_)                                \
  /* binary.cu */                                                                                  \
  X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum)                                         \
  X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(where)                                                     \
  /* unary.cu */                                                                                   \
  X(scale) X(shift) X(neg) X(exp) X(log) X(sqrt) X(rsqrt) X(abs) X(abs_backward) X(pow_scalar)     \
  X(clamp) X(clamp_backward) X(relu) X(relu_backward) X(dropout) X(cast)                           \
  /* activation.cu */                                                                              \
  X(leaky_relu) X(leaky_relu_backward) X(gelu) X(gelu_backward)                                    \
  X(gelu_tanh) X(gelu_tanh_backward) X(silu) X(silu_backward) X(sigmoid) X(sigmoid_backward)       \
  X(tanh) X(tanh_backward) X(softplus) X(softplus_backward) X(elu) X(elu_backward)                 \
  /* shape.cu */                                                                                   \
  X(permute) X(broadcast_to) X(flip) X(slice) X(slice_backward) X(concat)                          \
  /* indexing.cu */                                                                                \
  X(pad) X(pad_backward) X(gather) X(scatter_add) X(embedding) X(embedding_backward)               \
  /* softmax.cu */                                                                                 \
  X(softmax) X(softmax_backward) X(log_softmax) X(log_softmax_backward) X(masked_softmax)          \
  /* reduce.cu */                                                                                  \
  X(sum) X(mean) X(max) X(min) X(extremum_backward) X(argmax) X(sum_squares)                       \
  X(var) X(var_backward) X(logsumexp) X(logsumexp_backward)                                        \
  /* loss.cu, pointwise_loss.cu */                                                                 \
  X(nll_loss) X(nll_loss_backward) X(cross_entropy) X(cross_entropy_backward)                      \
  X(mse_loss) X(mse_loss_backward) X(l1_loss) X(l1_loss_backward) X(smooth_l1_loss)                \
  X(smooth_l1_loss_backward) X(bce_with_logits) X(bce_with_logits_backward)                        \
  /* optimizer.cu */                                                                               \
  X(sgd_step_) X(adam_step_) X(any_non_finite)                                                     \
  /* conv.cpp */                                                                                   \
  X(conv2d) X(conv2d_relu) X(conv2d_backward_data) X(conv2d_backward_weight) X(conv_transpose2d)   \
  /* pool.cu */                                                                                    \
  X(max_pool2d) X(max_pool2d_backward) X(avg_pool2d) X(avg_pool2d_backward)                        \
  /* resample.cu */                                                                                \
  X(adaptive_avg_pool2d) X(adaptive_avg_pool2d_backward) X(interpolate) X(interpolate_backward)    \
  /* norm_columns.cu */                                                                            \
  X(batch_norm) X(batch_norm_backward) X(update_running_stats_) X(group_norm)                      \
  X(group_norm_backward) X(instance_norm) X(instance_norm_backward)                                \
  /* norm_rows.cu */                                                                               \
  X(layer_norm) X(layer_norm_backward) X(rms_norm) X(rms_norm_backward)                            \
  /* recurrent.cu */                                                                               \
  X(lstm) X(lstm_backward) X(gru) X(gru_backward)                                                  \
  /* matmul.cpp */                                                                                 \
  X(matmul) X(linear) X(linear_relu)
// clang-format on

namespace kernels {
#define ENGINE_DECLARE_KERNEL(name) void name(KernelArgs& args);
ENGINE_CUDA_KERNELS(ENGINE_DECLARE_KERNEL)
#undef ENGINE_DECLARE_KERNEL
}  // namespace kernels

}  // namespace engine::cuda
