// fill_, uniform_, normal_, copy_, accumulate_, scale_: writing into memory that exists.
#include <cmath>

#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kFill[] = "fill_", kUniform[] = "uniform_", kNormal[] = "normal_", kCopy[] = "copy_",
               kAccumulate[] = "accumulate_", kScale[] = "scale_";

Cost cost_write(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  return {0, 0, bytes_of(in[0])};
}
Cost cost_copy(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  return {0, bytes_of(in[1]), bytes_of(in[0])};
}
Cost cost_accumulate(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  const auto bytes = bytes_of(in[0]);
  return {in[0].numel(), 2 * bytes, bytes};
}

Cost cost_scale(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  const auto bytes = bytes_of(in[0]);
  return {in[0].numel(), bytes, bytes};
}

// The range of an integer type in doubles: below `end`, as its largest value may not be one.
bool holds(DType dtype, double value) {
  const double whole = std::trunc(value);
  switch (dtype) {
    case DType::i32:
      return whole >= -0x1p31 && whole < 0x1p31;
    case DType::i64:
      return whole >= -0x1p63 && whole < 0x1p63;
    case DType::u8:
      return whole >= 0 && whole < 256;
    default:
      return true;
  }
}

void infer_fill(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs&) {
  const double value = attrs.as<FillAttrs>().value;
  check(holds(in[0].dtype(), value), kFill, "expected a value that {} can hold, got {}",
        name(in[0].dtype()), value);
}

void infer_accumulate(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  check_floating(kAccumulate, in[0]);
  infer_in_place<kAccumulate>(in, attrs, out);
}

template <const char* kName>
void infer_floating_in_place(std::span<const Tensor> in, const Attrs&, OutputSpecs&) {
  check_floating(kName, in[0]);
}
}  // namespace

const Op kOp_fill_{
    .id = OpId::fill_, .name = kFill, .infer = infer_fill, .cost = cost_write, .mutated = bit(0)};
const Op kOp_uniform_{.id = OpId::uniform_,
                      .name = kUniform,
                      .infer = infer_floating_in_place<kUniform>,
                      .cost = cost_write,
                      .mutated = bit(0)};
const Op kOp_normal_{.id = OpId::normal_,
                     .name = kNormal,
                     .infer = infer_floating_in_place<kNormal>,
                     .cost = cost_write,
                     .mutated = bit(0)};
const Op kOp_copy_{.id = OpId::copy_,
                   .name = kCopy,
                   .infer = infer_in_place<kCopy>,
                   .cost = cost_copy,
                   .mutated = bit(0)};
const Op kOp_accumulate_{.id = OpId::accumulate_,
                         .name = kAccumulate,
                         .infer = infer_accumulate,
                         .cost = cost_accumulate,
                         .mutated = bit(0)};
const Op kOp_scale_{.id = OpId::scale_,
                    .name = kScale,
                    .infer = infer_floating_in_place<kScale>,
                    .cost = cost_scale,
                    .mutated = bit(0)};

namespace ops {

void fill_(const Tensor& x, double value) {
  launch(OpId::fill_, FillAttrs{value}, std::span(&x, 1), {});
}

namespace {
void random(OpId id, const Tensor& x, double low, double high, Generator& generator) {
  const RandomAttrs attrs{generator.take(x.numel()), static_cast<float>(low),
                          static_cast<float>(high)};
  launch(id, attrs, std::span(&x, 1), {});
}
}  // namespace

void uniform_(const Tensor& x, double low, double high, Generator& generator) {
  check(low <= high, kUniform, "expected low <= high, got {} and {}", low, high);
  random(OpId::uniform_, x, low, high, generator);
}
void normal_(const Tensor& x, double mean, double stddev, Generator& generator) {
  check(stddev >= 0, kNormal, "expected a standard deviation >= 0, got {}", stddev);
  random(OpId::normal_, x, mean, stddev, generator);
}

void copy_(const Tensor& destination, const Tensor& source) {
  const Tensor inputs[] = {destination, source};
  launch(OpId::copy_, NoAttrs{}, inputs, {});
}
void accumulate_(const Tensor& destination, const Tensor& source) {
  const Tensor inputs[] = {destination, source};
  launch(OpId::accumulate_, NoAttrs{}, inputs, {});
}

void scale_(const Tensor& x, double factor) {
  launch(OpId::scale_, ScalarAttrs{static_cast<float>(factor)}, std::span(&x, 1), {});
}

}  // namespace ops
}  // namespace engine
