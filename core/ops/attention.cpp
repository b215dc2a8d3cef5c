// masked_softmax and attention.
#include <cmath>

#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kMaskedSoftmax[] = "masked_softmax", kAttention[] = "attention";

void check_mask(const char* op, const Tensor& mask, const Shape& scores) {
  if (!mask.defined()) return;
  check(mask.dtype() == DType::u8 && broadcast(op, mask.shape(), scores) == scores, op,
        "expected a mask u8 that broadcasts to {}, got {}", scores, describe(mask));
}

void infer_masked_softmax(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_floating(kMaskedSoftmax, in[0]);
  check(in[0].rank() >= 2, kMaskedSoftmax, "expected scores [..., Q, K], got {}", describe(in[0]));
  check_mask(kMaskedSoftmax, in[1], in[0].shape());
  out.add(in[0].shape(), in[0].dtype());
}
// Hidden columns are 0 in the output, so softmax's gradient is right for them too.
void grad_masked_softmax(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor y = node.output(0);
  dx[0] = launch(OpId::softmax_backward, AxisAttrs{y.rank() - 1}, {dy[0], y});
}

// inputs q [..., Q, D], k [..., K, D], v [..., K, V], mask
Shape scores_shape(std::span<const Tensor> in) { return in[0].shape().with(-1, in[1].size(-2)); }

void infer_attention(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  const Tensor &q = in[0], &k = in[1], &v = in[2];
  check_floating(kAttention, q);
  check_one_dtype(kAttention, q, k);
  check_one_dtype(kAttention, q, v);
  const int axes = q.rank();
  check(axes >= 2 && k.rank() == axes && v.rank() == axes && k.size(-1) == q.size(-1) &&
            q.size(-1) >= 1 && k.shape() == q.shape().with(-2, k.size(-2)) &&
            v.shape() == k.shape().with(-1, v.size(-1)),
        kAttention, "expected q [..., Q, D], k [..., K, D] and v [..., K, V], got {}, {} and {}",
        describe(q), describe(k), describe(v));
  check_mask(kAttention, in[3], scores_shape(in));
  out.add(q.shape().with(-1, v.size(-1)), q.dtype());
}
void decompose_attention(std::span<const Tensor> in, const Attrs& attrs, std::span<Tensor> out) {
  const auto& a = attrs.as<AttentionAttrs>();
  // The queries are scaled, which are fewer than the scores.
  const Tensor scores = ops::matmul(ops::scale(in[0], a.scale), in[1], false, true);
  Tensor weights = in[3].defined() || a.causal ? ops::masked_softmax(scores, in[3], a.causal)
                                               : ops::softmax(scores);
  if (a.dropout > 0) weights = launch(OpId::dropout, DropoutAttrs{a.stream, a.dropout}, {weights});
  out[0] = ops::matmul(weights, in[2]);
}
}  // namespace

const Op kOp_masked_softmax{.id = OpId::masked_softmax,
                            .name = kMaskedSoftmax,
                            .infer = infer_masked_softmax,
                            .cost = cost_per_element<5>,
                            .grad = grad_masked_softmax,
                            .saved_outputs = bit(0)};
const Op kOp_attention{.id = OpId::attention,
                       .name = kAttention,
                       .infer = infer_attention,
                       .decompose = decompose_attention};

namespace ops {
Tensor masked_softmax(const Tensor& x, const Tensor& mask, bool causal) {
  return launch(OpId::masked_softmax, MaskedSoftmaxAttrs{causal}, {x, mask});
}
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal,
                 double dropout, std::optional<double> scale, Generator& generator) {
  for (const Tensor* t : {&q, &k, &v}) check_defined(kAttention, *t);
  check(dropout >= 0 && dropout <= 1, kAttention,
        "expected a dropout probability in [0, 1], got {}", dropout);
  check(q.rank() >= 2 && k.rank() >= 2, kAttention,
        "expected q [..., Q, D] and k [..., K, D], got {} and {}", describe(q), describe(k));
  AttentionAttrs attrs{{},
                       scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))),
                       static_cast<float>(dropout),
                       causal};
  if (dropout > 0)
    attrs.stream = generator.take(q.numel() / std::max<int64_t>(1, q.size(-1)) * k.size(-2));
  return launch(OpId::attention, attrs, {q, k, v, mask});
}
}  // namespace ops
}  // namespace engine
