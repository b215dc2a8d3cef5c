// reshape (a view), permute and broadcast_to (copies).
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kReshape[] = "reshape", kPermute[] = "permute", kBroadcastTo[] = "broadcast_to";

void infer_reshape(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const Shape& shape = attrs.as<ShapeAttrs>().shape;
  check(shape.numel() == in[0].numel(), kReshape, "expected a shape of {} elements for {}, got {}",
        in[0].numel(), describe(in[0]), shape);
  out.add(shape, in[0].dtype());
}
Cost cost_reshape(std::span<const Tensor>, std::span<const Tensor>, const Attrs&) { return {}; }
void grad_reshape(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = ops::reshape(dy[0], node.input_shape(0));
}

void infer_permute(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  Shape shape = in[0].shape();
  for (int i = 0; i < in[0].rank(); ++i) {
    shape = shape.with(i, in[0].size(attrs.as<PermuteAttrs>().order[static_cast<size_t>(i)]));
  }
  out.add(shape, in[0].dtype());
}
void grad_permute(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const auto& order = node.attrs<PermuteAttrs>().order;
  std::array<int64_t, Shape::kMaxRank> inverse{};
  const auto rank = static_cast<size_t>(dy[0].rank());
  for (size_t i = 0; i < rank; ++i)
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  dx[0] = ops::permute(dy[0], std::span(inverse.data(), rank));
}

void infer_broadcast(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const Shape& shape = attrs.as<ShapeAttrs>().shape;
  check(broadcast(kBroadcastTo, in[0].shape(), shape) == shape, kBroadcastTo,
        "expected a shape that {} can be repeated to, got {}", describe(in[0]), shape);
  out.add(shape, in[0].dtype());
}
void grad_broadcast(const Node&, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = dy[0];
}
}  // namespace

const Op kOp_reshape{.id = OpId::reshape,
                     .name = kReshape,
                     .infer = infer_reshape,
                     .cost = cost_reshape,
                     .grad = grad_reshape,
                     .view = true};
const Op kOp_permute{
    .id = OpId::permute, .name = kPermute, .infer = infer_permute, .grad = grad_permute};
const Op kOp_broadcast_to{.id = OpId::broadcast_to,
                          .name = kBroadcastTo,
                          .infer = infer_broadcast,
                          .grad = grad_broadcast};

namespace ops {

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined(kReshape, x);
  return x.shape() == shape ? x : launch(OpId::reshape, ShapeAttrs{shape}, {x});
}

Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims) {
  std::vector<int64_t> sizes(dims);
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    check_defined(kReshape, x);
    check(std::find(open + 1, sizes.end(), -1) == sizes.end(), kReshape,
          "expected at most one dimension of -1, got {} for {}", fmt::join(dims, ", "),
          describe(x));
    *open = 1;
    const int64_t rest = Shape(sizes).numel();
    check(rest != 0 && x.numel() % rest == 0, kReshape,
          "cannot infer the dimension -1: {} does not divide by {}", describe(x), rest);
    *open = x.numel() / rest;
  }
  return reshape(x, Shape(sizes));
}

Tensor flatten(const Tensor& x, int start, int end) {
  const int first = axis_of("flatten", start, x);
  const int last = axis_of("flatten", end, x);
  check(first <= last, "flatten", "expected start <= end, got {} and {}", start, end);
  std::vector<int64_t> dims(x.shape().begin(), x.shape().begin() + first);
  dims.push_back(x.shape().product(first, last + 1));
  dims.insert(dims.end(), x.shape().begin() + last + 1, x.shape().end());
  return reshape(x, Shape(dims));
}

Tensor permute(const Tensor& x, std::span<const int64_t> order) {
  check_defined(kPermute, x);
  check(static_cast<int>(order.size()) == x.rank(), kPermute, "expected {} axes for {}, got {}",
        x.rank(), describe(x), order.size());
  PermuteAttrs attrs{};
  uint32_t seen = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const int axis = axis_of(kPermute, order[i], x);
    check((seen & bit(axis)) == 0, kPermute, "expected each axis once, got axis {} twice", axis);
    seen |= bit(axis);
    attrs.order[i] = static_cast<int8_t>(axis);
  }
  return launch(OpId::permute, attrs, {x});
}

Tensor transpose(const Tensor& x, int a, int b) {
  std::array<int64_t, Shape::kMaxRank> order{};
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[static_cast<size_t>(axis_of("transpose", a, x))],
            order[static_cast<size_t>(axis_of("transpose", b, x))]);
  return permute(x, std::span(order.data(), static_cast<size_t>(x.rank())));
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  check_defined(kBroadcastTo, x);
  return x.shape() == shape ? x : launch(OpId::broadcast_to, ShapeAttrs{shape}, {x});
}

}  // namespace ops
}  // namespace engine
