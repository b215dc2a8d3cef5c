// lstm and gru over a sequence, with their backward ops: one kernel call for all steps. The part of
// the gates that comes from x is one `linear` before it.
//   LSTM: c = f c + i g, y = o tanh(c);                 gates i, f, g, o
//   GRU:  y = (1 - z) n + z y, n = tanh(x_n + r h_n);   gates r, z, n
// where i, f, o, r, z are sigmoids and g is a tanh of their part of x_gates + y w_hh^T.
#include "core/ops/common.h"

namespace engine {

namespace {
constexpr char kLstm[] = "lstm", kLstmBackward[] = "lstm_backward", kGru[] = "gru",
               kGruBackward[] = "gru_backward";

// gates [T, N, kGates H] of x and w_hh [kGates H, H]
template <int64_t kGates>
void check_sequence(const char* op, const Tensor& gates, const Tensor& w_hh) {
  check_floating(op, gates);
  check_one_dtype(op, gates, w_hh);
  check(gates.rank() == 3 && gates.size(0) >= 1 && w_hh.rank() == 2 && w_hh.size(1) >= 1 &&
            w_hh.size(0) == kGates * w_hh.size(1) && gates.size(2) == w_hh.size(0),
        op, "expected gates [T, N, {0}H] with T >= 1 and w_hh [{0}H, H], got {1} and {2}", kGates,
        describe(gates), describe(w_hh));
}
void check_state(const char* op, const Tensor& state, const Tensor& gates, const Tensor& w_hh) {
  const Shape shape{gates.size(1), w_hh.size(1)};
  check(state.shape() == shape && state.dtype() == gates.dtype(), op,
        "expected a state {}{}, got {}", name(gates.dtype()), shape, describe(state));
}
Shape hidden_shape(std::span<const Tensor> in) { return in[0].shape().with(-1, in[1].size(1)); }

// A multiply-add for each weight, sequence and step, and some 20 FLOPs for each element of the
// states.
int64_t flops_of(const Shape& gates, const Tensor& w_hh) {
  return gates[0] * gates[1] * (2 * w_hh.numel() + 20 * w_hh.size(1));
}

// inputs gates of x, w_hh, h0, c0 -> y, cells, and for backward the gates after their functions
void infer_lstm(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_sequence<4>(kLstm, in[0], in[1]);
  check_state(kLstm, in[2], in[0], in[1]);
  check_state(kLstm, in[3], in[0], in[1]);
  out.add(hidden_shape(in), in[0].dtype());
  out.add(hidden_shape(in), in[0].dtype());
  out.add(in[0].shape(), in[0].dtype());
}
// inputs gates of x, w_hh, b_hh (or undefined), h0 -> y, and for backward r, z, n and h_n
void infer_gru(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  check_sequence<3>(kGru, in[0], in[1]);
  const Tensor& bias = in[2];
  check(!bias.defined() ||
            (bias.rank() == 1 && bias.size(0) == in[1].size(0) && bias.dtype() == in[0].dtype()),
        kGru, "expected b_hh {}[{}], got {}", name(in[0].dtype()), in[1].size(0), describe(bias));
  check_state(kGru, in[3], in[0], in[1]);
  out.add(hidden_shape(in), in[0].dtype());
  out.add(in[0].shape().with(-1, 4 * in[1].size(1)), in[0].dtype());
}
Cost cost_forward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {flops_of(in[0].shape(), in[1]), bytes_of(in), bytes_of(out)};
}

// inputs dy, dcells (or undefined), gates, cells, c0, w_hh -> dgates, dh0, dc0
void infer_lstm_backward(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  out.add(in[2].shape(), in[0].dtype());
  out.add(in[4].shape(), in[0].dtype());
  out.add(in[4].shape(), in[0].dtype());
}
// inputs dy, y, gates, h0, w_hh -> d(gates of x), d(gates of h), dh0
void infer_gru_backward(std::span<const Tensor> in, const Attrs&, OutputSpecs& out) {
  const Shape gates = in[0].shape().with(-1, in[4].size(0));
  out.add(gates, in[0].dtype());
  out.add(gates, in[0].dtype());
  out.add(in[3].shape(), in[0].dtype());
}
Cost cost_backward(std::span<const Tensor> in, std::span<const Tensor> out, const Attrs&) {
  return {flops_of(in[0].shape(), in[in.size() - 1]), bytes_of(in), bytes_of(out)};
}

Tensor as_rows(const Tensor& t) {
  return ops::reshape(t, Shape{t.shape().product(0, t.rank() - 1), t.size(-1)});
}

// The gradient of w_hh: that of the gates of h times the state before each step.
Tensor weight_gradient(const Tensor& dgates, const Tensor& y, const Tensor& h0,
                       Tensor destination) {
  const Tensor parts[] = {ops::reshape(h0, Shape{1, h0.size(0), h0.size(1)}),
                          ops::slice(y, 0, 0, y.size(0) - 1)};
  const Tensor before = ops::concat(parts, 0);
  return ops::matmul(as_rows(dgates), as_rows(before), true, false, std::move(destination));
}

void grad_lstm(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor inputs[] = {dy[0],          dy[1],         node.output(2),
                           node.output(1), node.input(3), node.input(1)};
  Tensor outputs[3];
  launch(OpId::lstm_backward, NoAttrs{}, inputs, outputs);
  dx[0] = outputs[0];
  if (node.needs(1))
    dx[1] = weight_gradient(outputs[0], node.output(0), node.input(2), node.grad_destination(1));
  dx[2] = outputs[1];
  dx[3] = outputs[2];
}
void grad_gru(const Node& node, std::span<const Tensor> dy, std::span<Tensor> dx) {
  const Tensor inputs[] = {dy[0], node.output(0), node.output(1), node.input(3), node.input(1)};
  Tensor outputs[3];
  launch(OpId::gru_backward, NoAttrs{}, inputs, outputs);
  dx[0] = outputs[0];
  if (node.needs(1))
    dx[1] = weight_gradient(outputs[1], node.output(0), node.input(3), node.grad_destination(1));
  if (node.needs(2)) {
    const int64_t steps[] = {0, 1};
    dx[2] = ops::sum(outputs[1], steps, false, node.grad_destination(2));
  }
  dx[3] = outputs[2];
}

// Step t of a sequence, and gate i of a step's.
Tensor step_of(const Tensor& sequence, int64_t t) {
  return ops::reshape(ops::slice(sequence, 0, t, t + 1), Shape{sequence.size(1), sequence.size(2)});
}
Tensor gate_of(const Tensor& gates, int64_t i, int64_t hidden) {
  return ops::slice(gates, 1, i * hidden, (i + 1) * hidden);
}

void decompose_lstm(std::span<const Tensor> in, const Attrs&, std::span<Tensor> out) {
  const int64_t hidden = in[1].size(1);
  Tensor h = in[2], c = in[3];
  std::vector<Tensor> states, cells;
  for (int64_t t = 0; t < in[0].size(0); ++t) {
    const Tensor gates = ops::add(step_of(in[0], t), ops::linear(h, in[1]));
    const auto gate = [&](int64_t i) { return gate_of(gates, i, hidden); };
    c = ops::add(ops::mul(ops::sigmoid(gate(1)), c),
                 ops::mul(ops::sigmoid(gate(0)), ops::tanh(gate(2))));
    h = ops::mul(ops::sigmoid(gate(3)), ops::tanh(c));
    states.push_back(h);
    cells.push_back(c);
  }
  out[0] = ops::stack(states);
  out[1] = ops::stack(cells);
}
void decompose_gru(std::span<const Tensor> in, const Attrs&, std::span<Tensor> out) {
  const int64_t hidden = in[1].size(1);
  Tensor h = in[3];
  std::vector<Tensor> states;
  for (int64_t t = 0; t < in[0].size(0); ++t) {
    const Tensor of_x = step_of(in[0], t), of_h = ops::linear(h, in[1], in[2]);
    const auto both = [&](int64_t i) {
      return ops::add(gate_of(of_x, i, hidden), gate_of(of_h, i, hidden));
    };
    const Tensor r = ops::sigmoid(both(0)), z = ops::sigmoid(both(1));
    const Tensor n =
        ops::tanh(ops::add(gate_of(of_x, 2, hidden), ops::mul(r, gate_of(of_h, 2, hidden))));
    h = ops::add(n, ops::mul(z, ops::sub(h, n)));
    states.push_back(h);
  }
  out[0] = ops::stack(states);
}
}  // namespace

const Op kOp_lstm{.id = OpId::lstm,
                  .name = kLstm,
                  .infer = infer_lstm,
                  .cost = cost_forward,
                  .grad = grad_lstm,
                  .decompose = decompose_lstm,
                  .saved_inputs = bit(1) | bit(2) | bit(3),
                  .saved_outputs = bit(0) | bit(1) | bit(2)};
const Op kOp_lstm_backward{.id = OpId::lstm_backward,
                           .name = kLstmBackward,
                           .infer = infer_lstm_backward,
                           .cost = cost_backward};
const Op kOp_gru{.id = OpId::gru,
                 .name = kGru,
                 .infer = infer_gru,
                 .cost = cost_forward,
                 .grad = grad_gru,
                 .decompose = decompose_gru,
                 .saved_inputs = bit(1) | bit(3),
                 .saved_outputs = bit(0) | bit(1)};
const Op kOp_gru_backward{.id = OpId::gru_backward,
                          .name = kGruBackward,
                          .infer = infer_gru_backward,
                          .cost = cost_backward};

namespace ops {

namespace {
void check_input(const char* op, const Tensor& x, const Tensor& w_hh) {
  for (const Tensor* t : {&x, &w_hh}) check_defined(op, *t);
  check(x.rank() == 3 && x.size(0) >= 1 && w_hh.rank() == 2, op,
        "expected x [T, N, I] with T >= 1 and w_hh [gates H, H], got {} and {}", describe(x),
        describe(w_hh));
}
Tensor state_or_zeros(const Tensor& state, const Tensor& x, const Tensor& w_hh) {
  return state.defined() ? state : full({x.size(1), w_hh.size(1)}, 0, x.dtype(), x.device());
}
}  // namespace

LstmOutputs lstm(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                 const Tensor& b_hh, const Tensor& h0, const Tensor& c0) {
  check_input(kLstm, x, w_hh);
  const Tensor bias =
      b_ih.defined() && b_hh.defined() ? add(b_ih, b_hh) : (b_ih.defined() ? b_ih : b_hh);
  const Tensor inputs[] = {linear(x, w_ih, bias), w_hh, state_or_zeros(h0, x, w_hh),
                           state_or_zeros(c0, x, w_hh)};
  Tensor outputs[3];
  launch(OpId::lstm, NoAttrs{}, inputs, outputs);
  return {outputs[0], outputs[1]};
}

Tensor gru(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
           const Tensor& b_hh, const Tensor& h0) {
  check_input(kGru, x, w_hh);
  const Tensor inputs[] = {linear(x, w_ih, b_ih), w_hh, b_hh, state_or_zeros(h0, x, w_hh)};
  Tensor outputs[2];
  launch(OpId::gru, NoAttrs{}, inputs, outputs);
  return outputs[0];
}
}  // namespace ops
}  // namespace engine
