// dropout: its mask is a function of the stream's position, so backward is dropout again with the
// same attributes, and no mask is stored.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kDropout[] = "dropout";

void grad(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::dropout, node.attrs(), {dy[0]});
}
}  // namespace

const Op kOp_dropout{.id = OpId::dropout,
                     .name = kDropout,
                     .infer = infer_like_input<kDropout>,
                     .cost = cost_per_element<1>,
                     .grad = grad};

namespace ops {
Tensor dropout(const Tensor& x, double p, bool training, Generator& generator) {
  check(p >= 0 && p <= 1, kDropout, "expected a probability in [0, 1], got {}", p);
  check_defined(kDropout, x);
  if (!training || p == 0) return x;
  return launch(OpId::dropout, DropoutAttrs{generator.take(x.numel()), static_cast<float>(p)}, {x});
}
}  // namespace ops
}  // namespace engine
