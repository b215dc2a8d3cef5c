// The ops, as functions. Each checks its arguments, runs on the device of its inputs and is
// recorded for backward when an input requires gradients. Semantics are PyTorch's where nothing
// else is said. A name that ends in `_` changes its first argument in place.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/op_attrs.h"
#include "core/tensor.h"

namespace engine::ops {

// Creation, in place. Any shape.
void fill_(const Tensor& x, double value);
/// f32: uniform in [low, high); normal with this mean and standard deviation.
void uniform_(const Tensor& x, double low, double high, Generator& generator = default_generator());
void normal_(const Tensor& x, double mean, double stddev,
             Generator& generator = default_generator());
/// destination = source, any dtype, and destination += source, f32; same shape and dtype.
void copy_(const Tensor& destination, const Tensor& source);
void accumulate_(const Tensor& destination, const Tensor& source);
/// x *= factor, f32.
void scale_(const Tensor& x, double factor);

// Elementwise, f32. Binary ops broadcast by NumPy's rule.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
/// a^b, as C's pow. The gradients at a = 0 are PyTorch's.
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, double exponent);
/// NaN if either is. Equal elements share the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
/// 1 where true, else 0, as u8; broadcasting. NaN is not equal to anything.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
/// a where the condition (u8) is not 0, else b. All three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, double factor);  ///< x * factor
Tensor shift(const Tensor& x, double term);    ///< x + term
Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  ///< 1 / sqrt(x)
/// x cut to [low, high]; the gradient passes inside and is 0 at the edges. NaN stays NaN.
Tensor clamp(const Tensor& x, double low, double high);
Tensor abs(const Tensor& x);   ///< gradient 0 at 0
Tensor relu(const Tensor& x);  ///< NaN stays NaN; gradient 0 at 0
/// Activations.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor gelu(const Tensor& x);       ///< x times the normal distribution function (erf)
Tensor gelu_tanh(const Tensor& x);  ///< its approximation with tanh, as GPT-2 has it
Tensor silu(const Tensor& x);       ///< x sigmoid(x)
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
/// log(1 + e^(beta x)) / beta; x itself where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor elu(const Tensor& x, double alpha = 1);  ///< alpha (e^x - 1) below 0
/// Zeroes each element with probability p in [0, 1] and divides the others by 1 - p; the identity
/// unless `training`. p = 1 gives zeros.
Tensor dropout(const Tensor& x, double p, bool training,
               Generator& generator = default_generator());
/// Converts the element type. Floating to integer truncates toward zero; differentiable between
/// floating types.
Tensor cast(const Tensor& x, DType dtype);

// Shape.
/// A view. One dimension may be -1: it takes what is left.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims);
/// Merges the axes from `start` to `end` (inclusive) into one; a view.
Tensor flatten(const Tensor& x, int start = 0, int end = -1);
/// Output axis i is input axis order[i].
Tensor permute(const Tensor& x, std::span<const int64_t> order);
Tensor transpose(const Tensor& x, int a, int b);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
/// Elements begin, begin + step, ... before end of an axis; negative positions count from its end.
/// A view along the first axis with step 1.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step = 1);
std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int axis = 0);
/// Tensors of one dtype, and of one shape but for the axis, one after the other.
Tensor concat(std::span<const Tensor> tensors, int axis = 0);
/// Tensors of one shape along a new axis.
Tensor stack(std::span<const Tensor> tensors, int axis = 0);
Tensor flip(const Tensor& x, std::span<const int64_t> axes);
/// Elements before and after each axis: a value, the mirror image (less than the axis's size), or
/// the edge repeated.
Tensor pad(const Tensor& x, std::span<const int64_t> begin, std::span<const int64_t> end,
           PadMode mode = PadMode::constant, double value = 0);
/// x that many times along each axis, as PyTorch's repeat; up to 4 axes.
Tensor repeat(const Tensor& x, std::span<const int64_t> times);
/// y[..., i, ...] = x[..., index[..., i, ...], ...]. Index i64, of x's rank and nowhere larger than
/// x but along the axis; an index outside [0, size) is an error.
Tensor gather(const Tensor& x, int axis, const Tensor& index);
/// x with each element of source (of index's shape) added where gather would take one from.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source);
/// weight [rows, width], ids i64 [...] in [0, rows) -> [..., width].
Tensor embedding(const Tensor& weight, const Tensor& ids);

// Reductions, f32, over the given axes (all of them when none is given). Accumulated in double.
Tensor sum(const Tensor& x, std::span<const int64_t> axes = {}, bool keepdim = false,
           Tensor out = {});
Tensor mean(const Tensor& x, std::span<const int64_t> axes = {}, bool keepdim = false);
/// NaN if any element is. The gradient is divided evenly between equal extrema. No axis of size 0.
Tensor max(const Tensor& x, std::span<const int64_t> axes = {}, bool keepdim = false);
Tensor min(const Tensor& x, std::span<const int64_t> axes = {}, bool keepdim = false);
/// The sum of squared distances from the mean over n - correction; NaN where that is not above 0.
Tensor var(const Tensor& x, std::span<const int64_t> axes = {}, double correction = 1,
           bool keepdim = false);
/// log(sum(exp(x))) without overflow. Its gradient is softmax(x); NaN beside an infinite result,
/// where x is infinite too.
Tensor logsumexp(const Tensor& x, std::span<const int64_t> axes = {}, bool keepdim = false);
/// i64 index of the first largest element along the axis; NaN counts as largest. Not
/// differentiable.
Tensor argmax(const Tensor& x, int axis, bool keepdim = false);

// Linear algebra, f32.
/// a [..., M, K] times b [..., K, N] (the last two axes as stored swapped where a flag says so).
/// Batch axes broadcast. K = 0 gives zeros.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false,
              Tensor out = {});
/// x [..., in] times weight [out, in] transposed, plus bias [out] if defined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// relu(linear(x, weight, bias)) as one kernel, unless the fusion policy says otherwise.
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Images, f32. x [N, H, W, C].
/// weight [O, KH, KW, C / groups], bias [O] if defined -> [N, OH, OW, O].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dAttrs& attrs = {});
/// relu(conv2d(...)) as one kernel, unless the fusion policy says otherwise.
Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                   const Conv2dAttrs& attrs = {});
/// The largest element of each window; padding counts as -infinity, NaN as largest, the first of
/// equal elements wins. Padding is at most half the kernel.
Tensor max_pool2d(const Tensor& x, const Pool2dAttrs& attrs);
Tensor avg_pool2d(const Tensor& x, const Pool2dAttrs& attrs);
/// Averages of height x width shares of the image; shares that meet inside a pixel both take it.
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t height, int64_t width);
/// The image at another size, as PyTorch's interpolate.
Tensor interpolate(const Tensor& x, int64_t height, int64_t width,
                   ResampleMode mode = ResampleMode::nearest, bool align_corners = false);
/// The transpose of conv2d: x [N, H, W, I], weight [I, KH, KW, O / groups], bias [O] if defined ->
/// [N, (H - 1) stride - paddings + dilation (KH - 1) + output_padding + 1, ..., O].
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Conv2dAttrs& attrs = {},
                        std::array<int32_t, 2> output_padding = {0, 0});

// Normalisations: y = (x - mean) / sqrt(variance + eps) * weight + bias, with the biased variance.
// weight and bias may be undefined, and f32 where x is bf16.
/// x [N, ..., C], statistics of each channel over all other axes. In training those of the batch
/// (more than one value for each channel), and running = (1 - momentum) running + momentum batch,
/// where defined, with the unbiased variance; a batch of nothing leaves it. Else the running ones
/// are used. Ioffe and Szegedy, 2015.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum = 0.1, double eps = 1e-5);
/// x [N, ..., C], statistics of each image and group of neighbouring channels. Wu and He, 2018.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// x [N, ..., C], statistics of each image and channel. Ulyanov et al., 2016.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     double eps = 1e-5);
/// Statistics over the last `axes` axes, whose shape weight and bias have. Ba et al., 2016.
Tensor layer_norm(const Tensor& x, int axes, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight over the last `axes` axes. Zhang and Sennrich, 2019.
Tensor rms_norm(const Tensor& x, int axes, const Tensor& weight = {}, double eps = 1e-5);

// Recurrent layers over a sequence x [T, N, I], T >= 1, in PyTorch's order of gates.
struct LstmOutputs {
  Tensor y;      ///< the hidden state after each step, [T, N, H]
  Tensor cells;  ///< the cell state after each step, [T, N, H]
};
/// Gates input, forget, cell, output. w_ih [4H, I], w_hh [4H, H], biases [4H] if defined; h0 and c0
/// [N, H], zeros if undefined. Hochreiter and Schmidhuber, 1997.
LstmOutputs lstm(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = {},
                 const Tensor& b_hh = {}, const Tensor& h0 = {}, const Tensor& c0 = {});
/// Gates reset, update, new; the reset gate applies after b_hh is added. w_ih [3H, I], w_hh [3H,
/// H], biases [3H] if defined; h0 [N, H], zeros if undefined. Returns [T, N, H]. Cho et al., 2014.
Tensor gru(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = {},
           const Tensor& b_hh = {}, const Tensor& h0 = {});

// Softmax, attention and losses. A loss is f32, of bf16 scores too.
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
/// softmax over the last axis of x [..., Q, K], of the columns alone where the mask (u8,
/// broadcasting to x, may be undefined) is not 0 and which, if causal, are not beyond the row. A
/// row that sees nothing is zeros; one that sees a NaN is NaN.
Tensor masked_softmax(const Tensor& x, const Tensor& mask, bool causal);
/// Scaled dot-product attention: dropout(masked_softmax(scale q k^T)) v. q [..., Q, D], k [..., K,
/// D], v [..., K, V] of one batch shape; mask as masked_softmax's; scale 1 / sqrt(D) if not given.
/// Vaswani et al., 2017.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {},
                 bool causal = false, double dropout = 0, std::optional<double> scale = {},
                 Generator& generator = default_generator());

/// Negative log likelihood. log_probabilities [N, C], target i64 [N] -> scalar, or [N] with
/// Reduction::none. Rows whose target is ignore_index count neither in the sum nor in the mean; the
/// mean over no rows is NaN, with zero gradients. Any other target outside [0, C) is an error.
/// class_weights [C], f32 or of the scores' dtype, if defined: each class's term is multiplied by
/// its weight, and the mean divides by the sum of the targets' weights. With label smoothing s the
/// target's term counts 1 - s + s/C and every other class's s/C. Szegedy et al., 2016.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const LossAttrs& attrs = {},
                const Tensor& class_weights = {});
/// nll_loss(log_softmax(logits)), fused.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const LossAttrs& attrs = {},
                     const Tensor& class_weights = {});

/// Losses of x and a target of its shape and dtype: a scalar, or with Reduction::none x's shape.
/// Differentiable in both. (x - t)^2; |x - t|; (x - t)^2 / (2 beta) below beta and |x - t| - beta /
/// 2 from there, so that a beta of 0 is l1_loss.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1,
                      Reduction reduction = Reduction::mean);
/// Binary cross-entropy of sigmoid(x) against a target in [0, 1], stable for any finite x.
Tensor bce_with_logits(const Tensor& x, const Tensor& target,
                       Reduction reduction = Reduction::mean);

// Optimizer steps, in place over f32 buffers of one shape (see layers/optimizer.h).
void sgd_step_(const Tensor& parameter, const Tensor& gradient, const Tensor& momentum_buffer,
               const SgdAttrs& attrs);
void adam_step_(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
                const AdamAttrs& attrs);
/// The sum of the squares of all elements, accumulated in double, as an f32 scalar.
Tensor sum_squares(const Tensor& x);
/// 1 where any element is NaN or infinite, else 0; a u8 scalar.
Tensor any_non_finite(const Tensor& x);
/// The host's answer to the same question, for a tensor of any dtype or none; waits for the device.
bool is_finite(const Tensor& x);

}  // namespace engine::ops
