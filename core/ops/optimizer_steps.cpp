// sgd_step_ and adam_step_: one kernel steps all parameters of a flat buffer. any_non_finite:
// whether their gradients can be used.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kSgd[] = "sgd_step_", kAdam[] = "adam_step_", kAnyNonFinite[] = "any_non_finite";

template <const char* kName>
void infer_step(std::span<const Tensor> in, const Attrs& attrs, OutputSpecs& out) {
  const bool plain_sgd = in.size() == 3 && !in[2].defined();  // without momentum, no buffer
  infer_in_place<kName>(plain_sgd ? in.first(2) : in, attrs, out);
  check_f32(kName, in[0]);
}

// The gradient is read; parameter and state are read and written.
Cost cost_step(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&, int64_t flops) {
  const int64_t read = bytes_of(in);
  return {flops * in[0].numel(), read, read - bytes_of(in[1])};
}
// SGD: weight decay 2, momentum 3, Nesterov 2, step 2, each where it is used.
Cost cost_sgd(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  const auto& a = attrs.as<SgdAttrs>();
  return cost_step(
      in, out, attrs,
      2 + (a.weight_decay != 0 ? 2 : 0) + (a.momentum != 0 ? 3 : 0) + (a.nesterov ? 2 : 0));
}
// Adam: decay 2, m 3, v 4, root and bias corrections 4, step 2.
Cost cost_adam(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  return cost_step(in, out, attrs, 13 + (attrs.as<AdamAttrs>().weight_decay != 0 ? 2 : 0));
}

void infer_any_non_finite(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_floating(kAnyNonFinite, in[0]);
  out.add(Shape{}, DType::u8);
}
Cost cost_any_non_finite(std::span<const Tensor> in, std::span<const Tensor>, const Attrs&) {
  return {in[0].numel(), bytes_of(in[0]), 1};
}
}  // namespace

const Op kOp_sgd_step_{.id = OpId::sgd_step_,
                       .name = kSgd,
                       .infer = infer_step<kSgd>,
                       .cost = cost_sgd,
                       .mutated = bit(0) | bit(2)};
const Op kOp_adam_step_{.id = OpId::adam_step_,
                        .name = kAdam,
                        .infer = infer_step<kAdam>,
                        .cost = cost_adam,
                        .mutated = bit(0) | bit(2) | bit(3)};
const Op kOp_any_non_finite{.id = OpId::any_non_finite,
                            .name = kAnyNonFinite,
                            .infer = infer_any_non_finite,
                            .cost = cost_any_non_finite};

namespace ops {
void sgd_step_(const Tensor& parameter, const Tensor& gradient, const Tensor& momentum_buffer,
               const SgdAttrs& attrs) {
  check(momentum_buffer.defined() == (attrs.momentum != 0), kSgd,
        "expected a momentum buffer exactly when momentum is used, momentum is {}", attrs.momentum);
  const Tensor inputs[] = {parameter, gradient, momentum_buffer};
  launch(OpId::sgd_step_, attrs, inputs, {});
}
void adam_step_(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
                const AdamAttrs& attrs) {
  const Tensor inputs[] = {parameter, gradient, m, v};
  launch(OpId::adam_step_, attrs, inputs, {});
}
Tensor any_non_finite(const Tensor& x) { return launch(OpId::any_non_finite, NoAttrs{}, {x}); }
bool is_finite(const Tensor& x) {
  return !x.defined() || !is_floating(x.dtype()) || any_non_finite(x).to_vector<uint8_t>()[0] == 0;
}
}  // namespace ops
}  // namespace engine
