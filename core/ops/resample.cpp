// adaptive_avg_pool2d and interpolate (nearest, bilinear) over NHWC images, with their backward
// ops: each output pixel is a weighted sum of the pixels where a few rows and columns of the image
// cross.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kPool[] = "adaptive_avg_pool2d", kPoolBackward[] = "adaptive_avg_pool2d_backward",
               kInterpolate[] = "interpolate", kInterpolateBackward[] = "interpolate_backward";

template <const char* kName>
void infer(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<ResampleAttrs>();
  const Tensor& x = in[0];
  check_floating(kName, x);
  check(x.rank() == 4 && x.shape().product(1, 4) > 0, kName,
        "expected x [N, H, W, C] with no empty axis but the batch, got {}", describe(x));
  check(a.out[0] >= 1 && a.out[1] >= 1, kName, "expected an output of at least 1x1, got {}x{}",
        a.out[0], a.out[1]);
  out.add(Shape{x.size(0), a.out[0], a.out[1], x.size(3)}, x.dtype());
}
// dy -> dx
template <const char* kName>
void infer_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<ResampleAttrs>();
  check_floating(kName, in[0]);
  out.add(Shape{in[0].size(0), a.in[0], a.in[1], in[0].size(3)}, in[0].dtype());
}

// A multiply-add for each pixel of each window: of average pools, about one for each input.
Cost cost(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  const int64_t taps = attrs.as<ResampleAttrs>().mode == ResampleMode::bilinear ? 4 : 1;
  return {2 * taps * std::max(in[0].numel(), out[0].numel()), bytes_of(in), bytes_of(out)};
}

template <OpId kBackward>
void grad(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  ResampleAttrs attrs = node.attrs<ResampleAttrs>();
  const Shape& x = node.input_shape(0);
  attrs.in = {x[1], x[2]};
  dx[0] = launch(kBackward, attrs, {dy[0]});
}
}  // namespace

const Op kOp_adaptive_avg_pool2d{.id = OpId::adaptive_avg_pool2d,
                                 .name = kPool,
                                 .infer = infer<kPool>,
                                 .cost = cost,
                                 .grad = grad<OpId::adaptive_avg_pool2d_backward>};
const Op kOp_adaptive_avg_pool2d_backward{.id = OpId::adaptive_avg_pool2d_backward,
                                          .name = kPoolBackward,
                                          .infer = infer_backward<kPoolBackward>,
                                          .cost = cost};
const Op kOp_interpolate{.id = OpId::interpolate,
                         .name = kInterpolate,
                         .infer = infer<kInterpolate>,
                         .cost = cost,
                         .grad = grad<OpId::interpolate_backward>};
const Op kOp_interpolate_backward{.id = OpId::interpolate_backward,
                                  .name = kInterpolateBackward,
                                  .infer = infer_backward<kInterpolateBackward>,
                                  .cost = cost};

namespace ops {
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t height, int64_t width) {
  return launch(OpId::adaptive_avg_pool2d,
                ResampleAttrs{{height, width}, {}, ResampleMode::average, false}, {x});
}
Tensor interpolate(const Tensor& x, int64_t height, int64_t width, ResampleMode mode,
                   bool align_corners) {
  check(mode != ResampleMode::average, kInterpolate,
        "expected the mode nearest or bilinear; averages are adaptive_avg_pool2d's");
  check(!align_corners || mode == ResampleMode::bilinear, kInterpolate,
        "expected the mode bilinear with align_corners");
  return launch(OpId::interpolate, ResampleAttrs{{height, width}, {}, mode, align_corners}, {x});
}
}  // namespace ops
}  // namespace engine
