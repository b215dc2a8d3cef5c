// The attribute struct of each op that has attributes: what its definition and its kernels share.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "core/random.h"
#include "core/shape.h"

namespace engine {

struct FillAttrs {
  double value;
};

/// uniform_: values in [low, high). normal_: mean `low`, standard deviation `high`.
struct RandomAttrs {
  RandomStream stream;
  float low;
  float high;
};

/// scale: x * value. shift: x + value.
struct ScalarAttrs {
  float value;
};

struct ClampAttrs {
  float low;
  float high;
};

/// leaky_relu: slope `alpha` below 0. elu: alpha (e^x - 1) below 0. softplus: log(1 + e^(beta x)) /
/// beta, x itself where beta x exceeds `threshold`.
struct ActivationAttrs {
  float alpha = 1;
  float beta = 1;
  float threshold = 20;
};

/// Each element is dropped with probability `p`; the others are divided by 1 - p.
struct DropoutAttrs {
  RandomStream stream;
  float p;
};

struct CastAttrs {
  DType dtype;
};

struct ShapeAttrs {
  Shape shape;
};

/// Output axis i is input axis order[i].
struct PermuteAttrs {
  std::array<int8_t, Shape::kMaxRank> order;
};

/// Elements begin, begin + step, ...: `length` of them. `full`, for backward: the axis's size.
struct SliceAttrs {
  int32_t axis;
  int64_t begin;
  int64_t step;
  int64_t length;
  int64_t full;
};

/// Bit i of `axes` stands for axis i.
struct FlipAttrs {
  uint32_t axes;
};

/// What the padding shows: `value`; the image mirrored at its edge elements; its edge elements.
enum class PadMode : uint8_t { constant, reflect, replicate };
struct PadAttrs {
  std::array<int32_t, Shape::kMaxRank> begin;
  std::array<int32_t, Shape::kMaxRank> end;
  double value;
  PadMode mode;
};

/// embedding_backward: rows of the weight.
struct EmbeddingAttrs {
  int64_t rows;
};

/// Bit i of `axes` stands for axis i.
struct ReduceAttrs {
  uint32_t axes;
  bool keepdim;
};

struct AxisAttrs {
  int32_t axis;
  bool keepdim = false;
};

/// Multiplies the transposes of the last two axes where asked to.
struct MatmulAttrs {
  bool transpose_a = false;
  bool transpose_b = false;
};

/// Element 0 is for the height, 1 for the width.
struct Conv2dAttrs {
  std::array<int32_t, 2> stride{1, 1};
  std::array<int32_t, 2> padding_begin{0, 0};  ///< top, left
  std::array<int32_t, 2> padding_end{0, 0};    ///< bottom, right
  std::array<int32_t, 2> dilation{1, 1};
  int32_t groups = 1;
};

/// For the two backward ops: the forward op's attributes and what the output's shape cannot tell.
struct Conv2dBackwardAttrs {
  Conv2dAttrs conv;
  std::array<int64_t, 2>
      size;  ///< backward_data: the input's height and width; backward_weight: the kernel's
  bool bias = false;  ///< backward_weight: whether the bias gradient is wanted too
};

struct Pool2dAttrs {
  std::array<int32_t, 2> kernel;
  std::array<int32_t, 2> stride;
  std::array<int32_t, 2> padding{0, 0};
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< average pooling only
};

struct Pool2dBackwardAttrs {
  Pool2dAttrs pool;
  std::array<int64_t, 2> size;  ///< the input's height and width
};

/// `wanted`: the backward op's; bit i: whether input i's gradient is.
struct BatchNormAttrs {
  double eps;
  bool training;
  uint32_t wanted = 0;
};
struct GroupNormAttrs {
  double eps;
  int64_t groups;
  uint32_t wanted = 0;
};
/// The last `axes` axes make a row.
struct RowNormAttrs {
  double eps;
  int32_t axes;
  uint32_t wanted = 0;
};
/// new = (1 - momentum) old + momentum batch; `count` values made each of the batch's statistics.
struct RunningStatsAttrs {
  double momentum;
  int64_t count;
};

/// Which pixels an output pixel takes: the nearest, the four around it, or the average of its share
/// of the image.
enum class ResampleMode : uint8_t { nearest, bilinear, average };
/// Element 0 is for the height, 1 for the width. `in`, for backward: the image's size.
struct ResampleAttrs {
  std::array<int64_t, 2> out;
  std::array<int64_t, 2> in;
  ResampleMode mode;
  bool align_corners;  ///< bilinear: the corner pixels' centers stay where they are
};

/// conv_transpose2d: the attributes of the convolution that it is the transpose of, and the
/// output's height and width.
struct ConvTranspose2dAttrs {
  Conv2dAttrs conv;
  std::array<int64_t, 2> size;
};

/// var: the sum of squares is divided by n - correction.
struct VarAttrs {
  uint32_t axes;
  bool keepdim;
  double correction;
};

/// causal: row i sees columns 0 .. i alone.
struct MaskedSoftmaxAttrs {
  bool causal;
};
struct AttentionAttrs {
  RandomStream stream;
  double scale;
  float dropout;
  bool causal;
};

enum class Reduction : uint8_t { none, mean, sum };

struct LossAttrs {
  int64_t ignore_index = -100;
  float label_smoothing = 0;
  Reduction reduction = Reduction::mean;
};

/// Losses of two tensors of one shape. `beta`: where smooth_l1 turns from square to line.
struct PointwiseLossAttrs {
  Reduction reduction = Reduction::mean;
  float beta = 1;
  bool target_gradient = false;  ///< the backward op's: whether the target's is wanted too
};

struct SgdAttrs {
  float lr;
  float momentum;
  float dampening;
  float weight_decay;
  bool nesterov;
  bool first_step;  ///< the momentum buffer takes the gradient itself
};

struct AdamAttrs {
  float lr;
  float beta1;
  float beta2;
  float eps;
  float weight_decay;
  bool decoupled;          ///< AdamW: decay the parameter, not through the gradient
  float bias_correction1;  ///< 1 - beta1^t
  float bias_correction2;  ///< 1 - beta2^t
};

}  // namespace engine
