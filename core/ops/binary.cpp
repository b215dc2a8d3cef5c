// add, sub, mul, div, pow, maximum, minimum, comparisons and where, with broadcasting. Gradients
// come in the output's shape; the backward walk sums them over broadcast axes.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kAdd[] = "add", kSub[] = "sub", kMul[] = "mul", kDiv[] = "div", kPow[] = "pow",
               kMaximum[] = "maximum", kMinimum[] = "minimum", kEq[] = "eq", kNe[] = "ne",
               kLt[] = "lt", kLe[] = "le", kGt[] = "gt", kGe[] = "ge", kWhere[] = "where";

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

// da = dy b a^(b - 1), 0 where b is 0; db = dy a^b log(a), 0 where a is 0 and b is not
// negative (it would be 0 times infinity).
void grad_pow(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor a = node.input(0), b = node.input(1);
  const Tensor zero = full(Shape{}, 0.0, dy[0].dtype(), dy[0].device());
  if (node.needs(0)) {
    const Tensor slope = ops::mul(b, ops::pow(a, ops::shift(b, -1)));
    dx[0] = ops::mul(dy[0], ops::where(ops::eq(b, zero), zero, slope));
  }
  if (node.needs(1)) {
    const Tensor y = node.output(0);
    const Tensor slope = ops::mul(y, ops::log(a));
    const Tensor at_zero = ops::where(ops::lt(b, zero), slope, zero);
    dx[1] = ops::mul(dy[0], ops::where(ops::eq(a, zero), at_zero, slope));
  }
}

// The larger (or smaller) operand takes dy, equal ones half each. A NaN is neither: both take dy.
template <bool kMaximum>
void grad_extreme(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor a = node.input(0), b = node.input(1);
  const Tensor zero = full(Shape{}, 0.0, dy[0].dtype(), dy[0].device());
  const Tensor shared = ops::where(ops::eq(a, b), ops::scale(dy[0], 0.5), dy[0]);
  if (node.needs(0)) dx[0] = ops::where(kMaximum ? ops::lt(a, b) : ops::gt(a, b), zero, shared);
  if (node.needs(1)) dx[1] = ops::where(kMaximum ? ops::gt(a, b) : ops::lt(a, b), zero, shared);
}

template <const char* kName>
void infer_comparison(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  infer<kName>(in, attrs, out);
  out.specs[0].dtype = DType::u8;
}
template <OpId kId, const char* kName>
constexpr Op comparison() {
  return {.id = kId, .name = kName, .infer = infer_comparison<kName>, .cost = cost_per_element<1>};
}

// inputs condition u8, a, b
void infer_where(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check(in[0].dtype() == DType::u8, kWhere, "expected a condition of u8, got {}", describe(in[0]));
  check_one_dtype(kWhere, in[1], in[2]);
  out.add(broadcast(kWhere, broadcast(kWhere, in[0].shape(), in[1].shape()), in[2].shape()),
          in[1].dtype());
}
void grad_where(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor zero = full(Shape{}, 0.0, dy[0].dtype(), dy[0].device());
  if (node.needs(1)) dx[1] = ops::where(node.input(0), dy[0], zero);
  if (node.needs(2)) dx[2] = ops::where(node.input(0), zero, dy[0]);
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
const Op kOp_pow{.id = OpId::pow,
                 .name = kPow,
                 .infer = infer<kPow>,
                 .cost = cost_per_element<1>,
                 .grad = grad_pow,
                 .saved_inputs = bit(0) | bit(1),
                 .saved_outputs = bit(0)};
const Op kOp_maximum{.id = OpId::maximum,
                     .name = kMaximum,
                     .infer = infer<kMaximum>,
                     .cost = cost_per_element<1>,
                     .grad = grad_extreme<true>,
                     .saved_inputs = bit(0) | bit(1)};
const Op kOp_minimum{.id = OpId::minimum,
                     .name = kMinimum,
                     .infer = infer<kMinimum>,
                     .cost = cost_per_element<1>,
                     .grad = grad_extreme<false>,
                     .saved_inputs = bit(0) | bit(1)};
const Op kOp_eq = comparison<OpId::eq, kEq>();
const Op kOp_ne = comparison<OpId::ne, kNe>();
const Op kOp_lt = comparison<OpId::lt, kLt>();
const Op kOp_le = comparison<OpId::le, kLe>();
const Op kOp_gt = comparison<OpId::gt, kGt>();
const Op kOp_ge = comparison<OpId::ge, kGe>();
const Op kOp_where{.id = OpId::where,
                   .name = kWhere,
                   .infer = infer_where,
                   .cost = cost_per_element<1>,
                   .grad = grad_where,
                   .saved_inputs = bit(0)};

namespace ops {
Tensor pow(const Tensor& a, const Tensor& b) { return launch(OpId::pow, NoAttrs{}, {a, b}); }
Tensor maximum(const Tensor& a, const Tensor& b) {
  return launch(OpId::maximum, NoAttrs{}, {a, b});
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return launch(OpId::minimum, NoAttrs{}, {a, b});
}
Tensor eq(const Tensor& a, const Tensor& b) { return launch(OpId::eq, NoAttrs{}, {a, b}); }
Tensor ne(const Tensor& a, const Tensor& b) { return launch(OpId::ne, NoAttrs{}, {a, b}); }
Tensor lt(const Tensor& a, const Tensor& b) { return launch(OpId::lt, NoAttrs{}, {a, b}); }
Tensor le(const Tensor& a, const Tensor& b) { return launch(OpId::le, NoAttrs{}, {a, b}); }
Tensor gt(const Tensor& a, const Tensor& b) { return launch(OpId::gt, NoAttrs{}, {a, b}); }
Tensor ge(const Tensor& a, const Tensor& b) { return launch(OpId::ge, NoAttrs{}, {a, b}); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return launch(OpId::where, NoAttrs{}, {condition, a, b});
}
Tensor add(const Tensor& a, const Tensor& b) { return launch(OpId::add, NoAttrs{}, {a, b}); }
Tensor sub(const Tensor& a, const Tensor& b) { return launch(OpId::sub, NoAttrs{}, {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return launch(OpId::mul, NoAttrs{}, {a, b}); }
Tensor div(const Tensor& a, const Tensor& b) { return launch(OpId::div, NoAttrs{}, {a, b}); }
}  // namespace ops
}  // namespace engine
