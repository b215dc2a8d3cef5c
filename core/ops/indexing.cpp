// Ops that take elements from other places: slice (and its view along the first axis), concat,
// flip, pad, gather, scatter_add, embedding, with their backward ops; split, stack and repeat are
// made of them.
#include <fmt/ranges.h>

#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kSlice[] = "slice", kSliceRows[] = "slice_rows", kSliceBackward[] = "slice_backward",
               kConcat[] = "concat", kFlip[] = "flip", kPad[] = "pad",
               kPadBackward[] = "pad_backward", kGather[] = "gather", kScatterAdd[] = "scatter_add",
               kEmbedding[] = "embedding", kEmbeddingBackward[] = "embedding_backward";

void infer_slice(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<SliceAttrs>();
  out.add(in[0].shape().with(a.axis, a.length), in[0].dtype());
}
Cost cost_move(std::span<const Tensor>, std::span<const Tensor> out, const Attrs&) {
  return {0, bytes_of(out), bytes_of(out)};
}
Cost cost_view(std::span<const Tensor>, std::span<const Tensor>, const Attrs&) { return {}; }
size_t offset_of_rows(std::span<const Tensor> in, const Attrs& attrs) {
  const auto begin = static_cast<size_t>(attrs.as<SliceAttrs>().begin);
  return begin * static_cast<size_t>(in[0].shape().product(1, in[0].rank())) *
         size_of(in[0].dtype());
}
void grad_slice(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  SliceAttrs attrs = node.attrs<SliceAttrs>();
  attrs.full = node.input_shape(0)[attrs.axis];
  dx[0] = launch(OpId::slice_backward, attrs, {dy[0]});
}
// dy -> dx, with zeros where nothing was taken
void infer_slice_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<SliceAttrs>();
  out.add(in[0].shape().with(a.axis, a.full), in[0].dtype());
}

void infer_concat(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const int axis = attrs.as<AxisAttrs>().axis;
  int64_t size = 0;
  for (const Tensor& t : in) {
    check(t.rank() == in[0].rank() && t.dtype() == in[0].dtype() &&
              t.shape().with(axis, 0) == in[0].shape().with(axis, 0),
          kConcat, "expected one dtype, and one shape but for axis {}, got {} and {}", axis,
          describe(in[0]), describe(t));
    size += t.size(axis);
  }
  out.add(in[0].shape().with(axis, size), in[0].dtype());
}
void grad_concat(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const int axis = node.attrs<AxisAttrs>().axis;
  int64_t begin = 0;
  for (size_t i = 0; i < dx.size(); ++i) {
    const int64_t size = node.input_shape(static_cast<int>(i))[axis];
    if (node.needs(static_cast<int>(i))) dx[i] = ops::slice(dy[0], axis, begin, begin + size);
    begin += size;
  }
}

void infer_flip(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  out.add(in[0].shape(), in[0].dtype());
}
void grad_flip(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::flip, node.attrs(), {dy[0]});
}

void infer_pad(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<PadAttrs>();
  Shape shape = in[0].shape();
  for (int i = 0; i < shape.rank(); ++i) {
    const auto axis = static_cast<size_t>(i);
    const int64_t size = shape[i], begin = a.begin[axis], end = a.end[axis];
    check(begin >= 0 && end >= 0, kPad, "expected paddings of at least 0, got {} and {} at axis {}",
          begin, end, i);
    const bool any = begin > 0 || end > 0;
    check(a.mode == PadMode::constant || !any || size > 0, kPad,
          "expected an axis that is not empty, got paddings {} and {} at axis {} of {}", begin, end,
          i, describe(in[0]));
    check(a.mode != PadMode::reflect || !any || std::max(begin, end) < size, kPad,
          "expected reflected paddings below the axis's size, got {} and {} at axis {} of {}",
          begin, end, i, describe(in[0]));
    shape = shape.with(i, begin + size + end);
  }
  out.add(shape, in[0].dtype());
}
void grad_pad(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::pad_backward, node.attrs(), {dy[0]});
}
// dy -> dx: each element gets the gradients of all places that show it
void infer_pad_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const auto& a = attrs.as<PadAttrs>();
  check_floating(kPadBackward, in[0]);
  Shape shape = in[0].shape();
  for (int i = 0; i < shape.rank(); ++i) {
    const auto axis = static_cast<size_t>(i);
    shape = shape.with(i, shape[i] - a.begin[axis] - a.end[axis]);
  }
  out.add(shape, in[0].dtype());
}

// inputs x, index i64: of one rank, index nowhere larger than x but along the axis
void check_index(const char* op, const Tensor& x, const Tensor& index, int axis) {
  bool fits = index.dtype() == DType::i64 && index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index.size(i) <= x.size(i);
  check(fits, op,
        "expected an index i64 of the rank of {}, and no larger but along axis {}, got {}",
        describe(x), axis, describe(index));
}
void infer_gather(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_index(kGather, in[0], in[1], attrs.as<AxisAttrs>().axis);
  out.add(in[1].shape(), in[0].dtype());
}
void grad_gather(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor zeros = full(node.input_shape(0), 0.0, dy[0].dtype(), dy[0].device());
  dx[0] = launch(OpId::scatter_add, node.attrs(), {zeros, node.input(1), dy[0]});
}
// inputs x, index, source -> x with source[i] added at index[i]
void infer_scatter_add(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kScatterAdd, in[0]);
  check_index(kScatterAdd, in[0], in[1], attrs.as<AxisAttrs>().axis);
  check(in[2].shape() == in[1].shape() && in[2].dtype() == in[0].dtype(), kScatterAdd,
        "expected a source {}{}, got {}", name(in[0].dtype()), in[1].shape(), describe(in[2]));
  out.add(in[0].shape(), in[0].dtype());
}
void grad_scatter_add(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = dy[0];
  if (node.needs(2)) dx[2] = launch(OpId::gather, node.attrs(), {dy[0], node.input(1)});
}

// inputs weight [rows, width], ids i64 [...] -> [..., width]
void infer_embedding(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check(in[0].rank() == 2 && in[1].dtype() == DType::i64, kEmbedding,
        "expected weight [rows, width] and ids i64, got {} and {}", describe(in[0]),
        describe(in[1]));
  std::vector<int64_t> dims(in[1].shape().begin(), in[1].shape().end());
  dims.push_back(in[0].size(1));
  out.add(Shape(dims), in[0].dtype());
}
Cost cost_embedding(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {0, bytes_of(in[1]) + bytes_of(out), bytes_of(out)};
}
void grad_embedding(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  dx[0] = launch(OpId::embedding_backward, EmbeddingAttrs{node.input_shape(0)[0]},
                 {dy[0], node.input(1)}, node.grad_destination(0));
}
// inputs dy [..., width], ids -> dweight: the sums of the rows with the same id
void infer_embedding_backward(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kEmbeddingBackward, in[0]);
  out.add(Shape{attrs.as<EmbeddingAttrs>().rows, in[0].size(-1)}, in[0].dtype());
}
Cost cost_accumulate(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {in[0].numel(), bytes_of(in), bytes_of(out)};
}
}  // namespace

const Op kOp_slice{
    .id = OpId::slice, .name = kSlice, .infer = infer_slice, .cost = cost_move, .grad = grad_slice};
const Op kOp_slice_rows{.id = OpId::slice_rows,
                        .name = kSliceRows,
                        .infer = infer_slice,
                        .cost = cost_view,
                        .grad = grad_slice,
                        .view = true,
                        .view_offset = offset_of_rows};
const Op kOp_slice_backward{
    .id = OpId::slice_backward, .name = kSliceBackward, .infer = infer_slice_backward};
const Op kOp_concat{
    .id = OpId::concat, .name = kConcat, .infer = infer_concat, .grad = grad_concat};
const Op kOp_flip{.id = OpId::flip, .name = kFlip, .infer = infer_flip, .grad = grad_flip};
const Op kOp_pad{.id = OpId::pad, .name = kPad, .infer = infer_pad, .grad = grad_pad};
const Op kOp_pad_backward{.id = OpId::pad_backward,
                          .name = kPadBackward,
                          .infer = infer_pad_backward,
                          .cost = cost_accumulate};
const Op kOp_gather{.id = OpId::gather,
                    .name = kGather,
                    .infer = infer_gather,
                    .cost = cost_embedding,
                    .grad = grad_gather,
                    .saved_inputs = bit(1)};
const Op kOp_scatter_add{.id = OpId::scatter_add,
                         .name = kScatterAdd,
                         .infer = infer_scatter_add,
                         .cost = cost_accumulate,
                         .grad = grad_scatter_add,
                         .saved_inputs = bit(1)};
const Op kOp_embedding{.id = OpId::embedding,
                       .name = kEmbedding,
                       .infer = infer_embedding,
                       .cost = cost_embedding,
                       .grad = grad_embedding,
                       .saved_inputs = bit(1)};
const Op kOp_embedding_backward{.id = OpId::embedding_backward,
                                .name = kEmbeddingBackward,
                                .infer = infer_embedding_backward,
                                .cost = cost_accumulate};

namespace ops {

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  const int along = axis_of(kSlice, axis, x);
  const int64_t size = x.size(along);
  const int64_t first = begin < 0 ? begin + size : begin, last = end < 0 ? end + size : end;
  check(0 <= first && first <= last && last <= size && step >= 1, kSlice,
        "expected 0 <= begin <= end <= {} and a step of at least 1 at axis {} of {}, got {}, {} "
        "and {}",
        size, along, describe(x), begin, end, step);
  const SliceAttrs attrs{along, first, step, (last - first + step - 1) / step, 0};
  return launch(along == 0 && step == 1 ? OpId::slice_rows : OpId::slice, attrs, {x});
}

std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int axis) {
  const int along = axis_of("split", axis, x);
  int64_t rest = x.size(along);
  for (const int64_t size : sizes) {
    if (size < 0 || size > rest) rest = -1;
    if (rest >= 0) rest -= size;
  }
  check(rest == 0, "split", "expected sizes >= 0 that add up to {} at axis {} of {}, got [{}]",
        x.size(along), along, describe(x), fmt::join(sizes, ", "));
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice(x, along, begin, begin + size));
    begin += size;
  }
  return parts;
}

Tensor concat(std::span<const Tensor> tensors, int axis) {
  check(!tensors.empty() && tensors[0].defined(), kConcat,
        "expected at least one tensor, got none");
  Tensor result;
  launch(OpId::concat, AxisAttrs{normalize_axis(kConcat, axis, tensors[0].rank())}, tensors,
         std::span(&result, 1));
  return result;
}

Tensor stack(std::span<const Tensor> tensors, int axis) {
  check(!tensors.empty() && tensors[0].defined(), "stack",
        "expected at least one tensor, got none");
  const int along = normalize_axis("stack", axis, tensors[0].rank() + 1);
  std::vector<Tensor> wider;
  for (const Tensor& t : tensors) {
    check(t.shape() == tensors[0].shape(), "stack", "expected tensors of one shape, got {} and {}",
          describe(tensors[0]), describe(t));
    std::vector<int64_t> dims(t.shape().begin(), t.shape().end());
    dims.insert(dims.begin() + along, 1);
    wider.push_back(reshape(t, Shape(dims)));
  }
  return concat(wider, along);
}

Tensor flip(const Tensor& x, std::span<const int64_t> axes) {
  FlipAttrs attrs{0};
  for (const int64_t axis : axes) {
    const uint32_t one = bit(axis_of(kFlip, axis, x));
    check((attrs.axes & one) == 0, kFlip, "expected each axis once, got axis {} twice", axis);
    attrs.axes |= one;
  }
  return launch(OpId::flip, attrs, {x});
}

Tensor pad(const Tensor& x, std::span<const int64_t> begin, std::span<const int64_t> end,
           PadMode mode, double value) {
  check_defined(kPad, x);
  const auto rank = static_cast<size_t>(x.rank());
  check(begin.size() == rank && end.size() == rank, kPad,
        "expected two paddings for each axis of {}, got {} and {}", describe(x), begin.size(),
        end.size());
  PadAttrs attrs{};
  attrs.mode = mode;
  attrs.value = value;
  for (size_t i = 0; i < rank; ++i) {
    constexpr int64_t kMost = int64_t{1} << 30;
    check(begin[i] <= kMost && end[i] <= kMost, kPad, "expected paddings up to {}, got {} and {}",
          kMost, begin[i], end[i]);
    attrs.begin[i] = static_cast<int32_t>(std::max<int64_t>(begin[i], -1));
    attrs.end[i] = static_cast<int32_t>(std::max<int64_t>(end[i], -1));
  }
  return launch(OpId::pad, attrs, {x});
}

Tensor repeat(const Tensor& x, std::span<const int64_t> times) {
  check_defined("repeat", x);
  const size_t rank = times.size(), extra = rank - static_cast<size_t>(x.rank());
  check(static_cast<int>(rank) >= x.rank() && 2 * rank <= Shape::kMaxRank, "repeat",
        "expected a number for each axis of {}, up to {}, got {}", describe(x), Shape::kMaxRank / 2,
        rank);
  // Each axis n becomes [1, n], is repeated to [times, n] and merged again.
  std::vector<int64_t> apart, wide, merged;
  for (size_t i = 0; i < rank; ++i) {
    check(times[i] >= 0, "repeat", "expected numbers of at least 0, got {}", times[i]);
    const int64_t size = i < extra ? 1 : x.size(static_cast<int>(i - extra));
    apart.insert(apart.end(), {1, size});
    wide.insert(wide.end(), {times[i], size});
  }
  const Tensor repeated = broadcast_to(reshape(x, Shape(apart)), Shape(wide));
  for (size_t i = 0; i < rank; ++i) merged.push_back(wide[2 * i] * wide[2 * i + 1]);
  return reshape(repeated, Shape(merged));
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  return launch(OpId::gather, AxisAttrs{axis_of(kGather, axis, x)}, {x, index});
}
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  return launch(OpId::scatter_add, AxisAttrs{axis_of(kScatterAdd, axis, x)}, {x, index, source});
}
Tensor embedding(const Tensor& weight, const Tensor& ids) {
  return launch(OpId::embedding, NoAttrs{}, {weight, ids});
}

}  // namespace ops
}  // namespace engine
