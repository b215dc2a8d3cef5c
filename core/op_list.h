// The list of all ops. One line here, one definition `kOp_<name>` in core/ops/: the linker says
// when one of the two is missing.
#pragma once

#include <cstdint>

namespace engine {

#define ENGINE_OPS(X)                                \
  /* creation, in place */                           \
  X(fill_)                                           \
  X(uniform_)                                        \
  X(normal_)                                         \
  X(copy_)                                           \
  X(accumulate_)                                     \
  X(scale_)                                          \
  /* elementwise */                                  \
  X(add)                                             \
  X(sub)                                             \
  X(mul)                                             \
  X(div)                                             \
  X(pow)                                             \
  X(maximum)                                         \
  X(minimum)                                         \
  X(eq)                                              \
  X(ne)                                              \
  X(lt)                                              \
  X(le)                                              \
  X(gt)                                              \
  X(ge)                                              \
  X(where)                                           \
  X(scale)                                           \
  X(shift)                                           \
  X(neg)                                             \
  X(exp)                                             \
  X(log)                                             \
  X(sqrt)                                            \
  X(rsqrt)                                           \
  X(pow_scalar)                                      \
  X(clamp)                                           \
  X(clamp_backward)                                  \
  X(abs)                                             \
  X(abs_backward)                                    \
  X(relu)                                            \
  X(relu_backward)                                   \
  X(dropout)                                         \
  /* activations */                                  \
  X(leaky_relu)                                      \
  X(leaky_relu_backward)                             \
  X(gelu)                                            \
  X(gelu_backward)                                   \
  X(gelu_tanh)                                       \
  X(gelu_tanh_backward)                              \
  X(silu)                                            \
  X(silu_backward)                                   \
  X(sigmoid)                                         \
  X(sigmoid_backward)                                \
  X(tanh)                                            \
  X(tanh_backward)                                   \
  X(softplus)                                        \
  X(softplus_backward)                               \
  X(elu)                                             \
  X(elu_backward)                                    \
  X(cast)                                            \
  /* shape */                                        \
  X(reshape)                                         \
  X(permute)                                         \
  X(broadcast_to)                                    \
  X(slice)                                           \
  X(slice_rows)                                      \
  X(slice_backward)                                  \
  X(concat)                                          \
  X(flip)                                            \
  X(pad)                                             \
  X(pad_backward)                                    \
  X(gather)                                          \
  X(scatter_add)                                     \
  X(embedding)                                       \
  X(embedding_backward)                              \
  /* reductions */                                   \
  X(sum)                                             \
  X(mean)                                            \
  X(max)                                             \
  X(min)                                             \
  X(extremum_backward)                               \
  X(argmax)                                          \
  X(var)                                             \
  X(var_backward)                                    \
  X(logsumexp)                                       \
  X(logsumexp_backward)                              \
  /* linear algebra */                               \
  X(matmul)                                          \
  X(linear)                                          \
  X(linear_relu)                                     \
  /* images */                                       \
  X(conv2d)                                          \
  X(conv2d_relu)                                     \
  X(conv2d_backward_data)                            \
  X(conv2d_backward_weight)                          \
  X(max_pool2d)                                      \
  X(max_pool2d_backward)                             \
  X(avg_pool2d)                                      \
  X(avg_pool2d_backward)                             \
  X(adaptive_avg_pool2d)                             \
  X(adaptive_avg_pool2d_backward)                    \
  X(interpolate)                                     \
  X(interpolate_backward)                            \
  X(conv_transpose2d)                                \
  /* normalisations */                               \
  X(batch_norm)                                      \
  X(batch_norm_backward)                             \
  X(update_running_stats_)                           \
  X(group_norm)                                      \
  X(group_norm_backward)                             \
  X(instance_norm)                                   \
  X(instance_norm_backward)                          \
  X(layer_norm)                                      \
  X(layer_norm_backward)                             \
  X(rms_norm)                                        \
  X(rms_norm_backward)                               \
  /* recurrent */                                    \
  X(lstm)                                            \
  X(lstm_backward)                                   \
  X(gru)                                             \
  X(gru_backward)                                    \
  /* softmax, attention, losses */                   \
  X(softmax)                                         \
  X(softmax_backward)                                \
  X(log_softmax)                                     \
  X(log_softmax_backward)                            \
  X(masked_softmax)                                  \
  X(attention)                                       \
  X(nll_loss)                                        \
  X(nll_loss_backward)                               \
  X(cross_entropy)                                   \
  X(cross_entropy_backward)                          \
  X(mse_loss)                                        \
  X(mse_loss_backward)                               \
  X(l1_loss)                                         \
  X(l1_loss_backward)                                \
  X(smooth_l1_loss)                                  \
  X(smooth_l1_loss_backward)                         \
  X(bce_with_logits)                                 \
  X(bce_with_logits_backward)                        \
  /* optimizer steps, in place, over flat buffers */ \
  X(sgd_step_)                                       \
  X(adam_step_)                                      \
  X(sum_squares)                                     \
  X(any_non_finite)

enum class OpId : uint16_t {
#define ENGINE_OP_ID(name) name,
  ENGINE_OPS(ENGINE_OP_ID)
#undef ENGINE_OP_ID
};

#define ENGINE_OP_COUNT(name) +1
inline constexpr int kOps = 0 ENGINE_OPS(ENGINE_OP_COUNT);
#undef ENGINE_OP_COUNT

}  // namespace engine
