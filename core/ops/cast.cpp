// cast: converting the element type.
#include "core/ops/common.h"

namespace engine {

namespace {
void infer(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  out.add(in[0].shape(), attrs.as<CastAttrs>().dtype);
}
void grad(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = ops::cast(dy[0], node.input_dtype(0));
}
}  // namespace

const Op kOp_cast{.id = OpId::cast, .name = "cast", .infer = infer, .grad = grad};

namespace ops {
Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  return x.dtype() == dtype ? x : launch(OpId::cast, CastAttrs{dtype}, {x});
}
}  // namespace ops
}  // namespace engine
