// lstm and gru with their backward ops, in f32. Each step is a product with the recurrent weights
// and a kernel over the states, one thread for each element; the order is that of
// core/ops/recurrent.cpp.
#include "backends/cuda/as_f32.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels.h"

namespace engine::cuda {

namespace {

struct Sequence {
  int64_t steps, batch, hidden;

  explicit Sequence(const Tensor& y) : steps(y.size(0)), batch(y.size(1)), hidden(y.size(2)) {}
  int64_t state() const { return batch * hidden; }  // elements of one step's states
};

// into [N, gates H] = h w_hh^T
void recur(Products& products, const Sequence& s, int64_t gates, const float* h, const float* w_hh,
           float* into) {
  products.run({1, s.batch, gates * s.hidden, s.hidden, false, true, false, DType::f32}, h, w_hh,
               nullptr, into);
}
// into [N, H] = dgates w_hh
void recur_backward(Products& products, const Sequence& s, int64_t gates, const float* dgates,
                    const float* w_hh, float* into) {
  products.run({1, s.batch, s.hidden, gates * s.hidden, false, false, false, DType::f32}, dgates,
               w_hh, nullptr, into);
}

__device__ inline float sigmoid_value(float x) { return 1.f / (1.f + expf(-x)); }

// Calls step.at(row, j, i) for element j of sequence `row`, the element i of a step's states.
template <class Step>
__global__ void step_kernel(int64_t n, int64_t hidden, Step step) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    const int64_t row = i / hidden;
    step.at(row, i - row * hidden, i);
  }
}
template <class Step>
void run_step(const Sequence& s, const Step& step) {
  launch_kernel(step_kernel<Step>, blocks_for(s.state()), kThreads, 0, s.state(), s.hidden, step);
}

struct LstmStep {
  int64_t hidden;
  const float *of_x, *of_h, *before;
  float *gates, *cells, *y;

  __device__ void at(int64_t row, int64_t j, int64_t i) const {
    const int64_t first = row * 4 * hidden + j;
    const auto sum = [&](int gate) {
      return of_x[first + gate * hidden] + of_h[first + gate * hidden];
    };
    const float in = sigmoid_value(sum(0)), forget = sigmoid_value(sum(1)), cell = tanhf(sum(2)),
                out = sigmoid_value(sum(3));
    gates[first] = in;
    gates[first + hidden] = forget;
    gates[first + 2 * hidden] = cell;
    gates[first + 3 * hidden] = out;
    const float after = forget * before[i] + in * cell;
    cells[i] = after;
    y[i] = out * tanhf(after);
  }
};

// dh and dc: the gradients that the step after this one left; the last step has none.
struct LstmBackwardStep {
  int64_t hidden;
  const float *dy, *dcells, *gates, *cells, *before, *dh;
  float *dgates, *dc;
  bool last;

  __device__ void at(int64_t row, int64_t j, int64_t i) const {
    const int64_t first = row * 4 * hidden + j;
    const float in = gates[first], forget = gates[first + hidden], cell = gates[first + 2 * hidden],
                out = gates[first + 3 * hidden];
    const float squashed = tanhf(cells[i]), gradient = dy[i] + (last ? 0.f : dh[i]);
    float after = last ? 0.f : dc[i];
    if (dcells != nullptr) after += dcells[i];
    const float dcell = after + gradient * out * (1.f - squashed * squashed);
    dgates[first] = dcell * cell * in * (1.f - in);
    dgates[first + hidden] = dcell * before[i] * forget * (1.f - forget);
    dgates[first + 2 * hidden] = dcell * in * (1.f - cell * cell);
    dgates[first + 3 * hidden] = gradient * squashed * out * (1.f - out);
    dc[i] = dcell * forget;
  }
};

struct GruStep {
  int64_t hidden;
  const float *of_x, *of_h, *bias, *before;
  float *gates, *y;

  __device__ void at(int64_t row, int64_t j, int64_t i) const {
    const int64_t first = row * 3 * hidden + j, to = row * 4 * hidden + j;
    const auto state_part = [&](int gate) {
      const float part = of_h[first + gate * hidden];
      return bias != nullptr ? part + bias[j + gate * hidden] : part;
    };
    const float r = sigmoid_value(of_x[first] + state_part(0)),
                z = sigmoid_value(of_x[first + hidden] + state_part(1)), of_state = state_part(2),
                fresh = tanhf(of_x[first + 2 * hidden] + r * of_state);
    gates[to] = r;
    gates[to + hidden] = z;
    gates[to + 2 * hidden] = fresh;
    gates[to + 3 * hidden] = of_state;
    y[i] = fresh + z * (before[i] - fresh);
  }
};

// The gradient of the state after the step is dy, what came `direct` from the next step, and what
// came `through` its gates.
struct GruBackwardStep {
  int64_t hidden;
  const float *dy, *gates, *before, *through;
  float *of_x, *of_h, *direct;
  bool last;

  __device__ void at(int64_t row, int64_t j, int64_t i) const {
    const int64_t from = row * 4 * hidden + j, first = row * 3 * hidden + j;
    const float r = gates[from], z = gates[from + hidden], fresh = gates[from + 2 * hidden],
                of_state = gates[from + 3 * hidden];
    const float gradient = last ? dy[i] : dy[i] + (direct[i] + through[i]);
    const float dn = gradient * (1.f - z) * (1.f - fresh * fresh);
    const float dr = dn * of_state * r * (1.f - r),
                dz = gradient * (before[i] - fresh) * z * (1.f - z);
    of_x[first] = dr;
    of_h[first] = dr;
    of_x[first + hidden] = dz;
    of_h[first + hidden] = dz;
    of_x[first + 2 * hidden] = dn;
    of_h[first + 2 * hidden] = dn * r;
    direct[i] = gradient * z;
  }
};

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

}  // namespace

void kernels::lstm(KernelArgs& args) {
  const Sequence s(args.outputs[0]);
  if (s.batch == 0) return;
  const float *of_x = as_f32(args, args.inputs[0]), *w_hh = as_f32(args, args.inputs[1]),
              *h = as_f32(args, args.inputs[2]), *c = as_f32(args, args.inputs[3]);
  const F32Output y(args, args.outputs[0]), cells(args, args.outputs[1]),
      gates(args, args.outputs[2]);
  float* of_h = args.scratch.array<float>(4 * s.state());
  Products products(args);
  for (int64_t t = 0; t < s.steps; ++t) {
    recur(products, s, 4, h, w_hh, of_h);
    const int64_t state = t * s.state();
    run_step(s, LstmStep{s.hidden, of_x + 4 * state, of_h, c, gates.data() + 4 * state,
                         cells.data() + state, y.data() + state});
    h = y.data() + state;
    c = cells.data() + state;
  }
  y.store();
  cells.store();
  gates.store();
}

// inputs dy, dcells (or undefined), gates, cells, c0, w_hh -> dgates, dh0, dc0
void kernels::lstm_backward(KernelArgs& args) {
  const Sequence s(args.inputs[0]);
  if (s.batch == 0) return;
  const float *dy = as_f32(args, args.inputs[0]), *dcells = as_f32(args, args.inputs[1]),
              *gates = as_f32(args, args.inputs[2]), *cells = as_f32(args, args.inputs[3]),
              *c0 = as_f32(args, args.inputs[4]), *w_hh = as_f32(args, args.inputs[5]);
  const F32Output dgates(args, args.outputs[0]), dh(args, args.outputs[1]),
      dc(args, args.outputs[2]);
  Products products(args);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const int64_t state = t * s.state();
    run_step(s, LstmBackwardStep{s.hidden, dy + state, dcells != nullptr ? dcells + state : nullptr,
                                 gates + 4 * state, cells + state,
                                 t > 0 ? cells + state - s.state() : c0, dh.data(),
                                 dgates.data() + 4 * state, dc.data(), t == s.steps - 1});
    recur_backward(products, s, 4, dgates.data() + 4 * state, w_hh, dh.data());
  }
  dgates.store();
  dh.store();
  dc.store();
}

void kernels::gru(KernelArgs& args) {
  const Sequence s(args.outputs[0]);
  if (s.batch == 0) return;
  const float *of_x = as_f32(args, args.inputs[0]), *w_hh = as_f32(args, args.inputs[1]),
              *bias = as_f32(args, args.inputs[2]), *h = as_f32(args, args.inputs[3]);
  const F32Output y(args, args.outputs[0]), gates(args, args.outputs[1]);
  float* of_h = args.scratch.array<float>(3 * s.state());
  Products products(args);
  for (int64_t t = 0; t < s.steps; ++t) {
    recur(products, s, 3, h, w_hh, of_h);
    const int64_t state = t * s.state();
    run_step(s, GruStep{s.hidden, of_x + 3 * state, of_h, bias, h, gates.data() + 4 * state,
                        y.data() + state});
    h = y.data() + state;
  }
  y.store();
  gates.store();
}

// inputs dy, y, gates, h0, w_hh -> d(gates of x), d(gates of h), dh0
void kernels::gru_backward(KernelArgs& args) {
  const Sequence s(args.inputs[0]);
  if (s.batch == 0) return;
  const float *dy = as_f32(args, args.inputs[0]), *y = as_f32(args, args.inputs[1]),
              *gates = as_f32(args, args.inputs[2]), *h0 = as_f32(args, args.inputs[3]),
              *w_hh = as_f32(args, args.inputs[4]);
  const F32Output of_x(args, args.outputs[0]), of_h(args, args.outputs[1]),
      dh(args, args.outputs[2]);
  float *direct = args.scratch.array<float>(s.state()),
        *through = args.scratch.array<float>(s.state());
  Products products(args);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const int64_t state = t * s.state();
    run_step(s,
             GruBackwardStep{s.hidden, dy + state, gates + 4 * state,
                             t > 0 ? y + state - s.state() : h0, through, of_x.data() + 3 * state,
                             of_h.data() + 3 * state, direct, t == s.steps - 1});
    recur_backward(products, s, 3, of_h.data() + 3 * state, w_hh, through);
  }
  map_elements(s.state(), Add{}, dh.data(), static_cast<const float*>(direct),
               static_cast<const float*>(through));
  of_x.store();
  of_h.store();
  dh.store();
}

}  // namespace engine::cuda
