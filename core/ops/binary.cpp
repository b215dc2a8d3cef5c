// add, sub, mul, div, with broadcasting. Gradients come in the output's shape; the backward walk
// sums them over broadcast axes.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kAdd[] = "add", kSub[] = "sub", kMul[] = "mul", kDiv[] = "div";

template <const char* kName>
void infer(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_floating(kName, in[0]);
  check_one_dtype(kName, in[0], in[1]);
  out.add(broadcast(kName, in[0].shape(), in[1].shape()), in[0].dtype());
}

void grad_add(const Node&, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = dx[1] = dy[0];
}
void grad_sub(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = dy[0];
  if (node.needs(1)) dx[1] = ops::neg(dy[0]);
}
void grad_mul(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  if (node.needs(0)) dx[0] = ops::mul(dy[0], node.input(1));
  if (node.needs(1)) dx[1] = ops::mul(dy[0], node.input(0));
}
// y = a / b: da = dy / b, db = -dy y / b
void grad_div(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor da = ops::div(dy[0], node.input(1));
  if (node.needs(1)) dx[1] = ops::neg(ops::mul(da, node.output(0)));
  dx[0] = da;
}
}  // namespace

const Op kOp_add{.id = OpId::add,
                 .name = kAdd,
                 .infer = infer<kAdd>,
                 .cost = cost_per_element<1>,
                 .grad = grad_add};
const Op kOp_sub{.id = OpId::sub,
                 .name = kSub,
                 .infer = infer<kSub>,
                 .cost = cost_per_element<1>,
                 .grad = grad_sub};
const Op kOp_mul{.id = OpId::mul,
                 .name = kMul,
                 .infer = infer<kMul>,
                 .cost = cost_per_element<1>,
                 .grad = grad_mul,
                 .saved_inputs = bit(0) | bit(1)};
const Op kOp_div{.id = OpId::div,
                 .name = kDiv,
                 .infer = infer<kDiv>,
                 .cost = cost_per_element<1>,
                 .grad = grad_div,
                 .saved_inputs = bit(1),
                 .saved_outputs = bit(0)};

namespace ops {
Tensor add(const Tensor& a, const Tensor& b) { return launch(OpId::add, NoAttrs{}, {a, b}); }
Tensor sub(const Tensor& a, const Tensor& b) { return launch(OpId::sub, NoAttrs{}, {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return launch(OpId::mul, NoAttrs{}, {a, b}); }
Tensor div(const Tensor& a, const Tensor& b) { return launch(OpId::div, NoAttrs{}, {a, b}); }
}  // namespace ops
}  // namespace engine
