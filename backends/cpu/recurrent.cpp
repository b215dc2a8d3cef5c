// lstm and gru with their backward ops, in f32. Each step is a product with the recurrent weights
// and a loop over the states, sequence by sequence; the order is that of core/ops/recurrent.cpp.
#include "backends/cpu/as_f32.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/vector_math.h"

namespace engine::cpu {

namespace {

struct Sequence {
  int64_t steps, batch, hidden;

  explicit Sequence(const Tensor& y) : steps(y.size(0)), batch(y.size(1)), hidden(y.size(2)) {}
  int64_t state() const { return batch * hidden; }  // elements of one step's states
};

// into [N, gates H] = h w_hh^T
void recur(KernelArgs& args, const Sequence& s, int64_t gates, const float* h, const float* w_hh,
           float* into) {
  gemm(args, {1, s.batch, gates * s.hidden, s.hidden, false, true}, h, w_hh, into);
}
// into [N, H] = dgates w_hh
void recur_backward(KernelArgs& args, const Sequence& s, int64_t gates, const float* dgates,
                    const float* w_hh, float* into) {
  gemm(args, {1, s.batch, s.hidden, gates * s.hidden, false, false}, dgates, w_hh, into);
}

// Calls f(n) for each sequence of a batch; `work`: multiplications for each.
template <class F>
void for_sequences(const Sequence& s, F f) {
  parallel_items(s.batch, s.hidden * 32, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) f(n);
  });
}

}  // namespace

void kernels::lstm(KernelArgs& args) {
  const Sequence s(args.outputs[0]);
  if (s.batch == 0) return;
  const float *of_x = as_f32(args, args.inputs[0]), *w_hh = as_f32(args, args.inputs[1]),
              *h = as_f32(args, args.inputs[2]), *c = as_f32(args, args.inputs[3]);
  const F32Output y(args, args.outputs[0]), cells(args, args.outputs[1]),
      gates(args, args.outputs[2]);
  float* of_h = args.scratch.array<float>(4 * s.state());
  for (int64_t t = 0; t < s.steps; ++t) {
    recur(args, s, 4, h, w_hh, of_h);
    float *y_t = y.data() + t * s.state(), *c_t = cells.data() + t * s.state();
    for_sequences(s, [&](int64_t n) {
      const int64_t at = (t * s.batch + n) * 4 * s.hidden, H = s.hidden;
      const float *a = of_x + at, *b = of_h + n * 4 * H, *before = c + n * H;
      float *g = gates.data() + at, *to_c = c_t + n * H, *to_y = y_t + n * H;
      for (int64_t j = 0; j < 2 * H; ++j) g[j] = vector_sigmoid(a[j] + b[j]);
      for (int64_t j = 2 * H; j < 3 * H; ++j) g[j] = vector_tanh(a[j] + b[j]);
      for (int64_t j = 3 * H; j < 4 * H; ++j) g[j] = vector_sigmoid(a[j] + b[j]);
      for (int64_t j = 0; j < H; ++j) to_c[j] = g[H + j] * before[j] + g[j] * g[2 * H + j];
      for (int64_t j = 0; j < H; ++j) to_y[j] = g[3 * H + j] * vector_tanh(to_c[j]);
    });
    h = y_t;
    c = c_t;
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
  std::fill(dh.data(), dh.data() + s.state(), 0.f);
  std::fill(dc.data(), dc.data() + s.state(), 0.f);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const int64_t state = t * s.state();
    const float* before = t > 0 ? cells + state - s.state() : c0;
    for_sequences(s, [&](int64_t n) {
      const int64_t H = s.hidden, row = n * H, at = state + row;
      const float* g = gates + 4 * at;
      float *d = dgates.data() + 4 * at, *dc_n = dc.data() + row;
      const float* dh_n = dh.data() + row;
      if (dcells != nullptr) {
        for (int64_t j = 0; j < H; ++j) dc_n[j] += dcells[at + j];
      }
      for (int64_t j = 0; j < H; ++j) {
        const float i = g[j], f = g[H + j], cell = g[2 * H + j], o = g[3 * H + j];
        const float squashed = vector_tanh(cells[at + j]), gradient = dy[at + j] + dh_n[j];
        const float dcell = dc_n[j] + gradient * o * (1.f - squashed * squashed);
        d[j] = dcell * cell * i * (1.f - i);
        d[H + j] = dcell * before[row + j] * f * (1.f - f);
        d[2 * H + j] = dcell * i * (1.f - cell * cell);
        d[3 * H + j] = gradient * squashed * o * (1.f - o);
        dc_n[j] = dcell * f;
      }
    });
    recur_backward(args, s, 4, dgates.data() + 4 * state, w_hh, dh.data());
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
  for (int64_t t = 0; t < s.steps; ++t) {
    recur(args, s, 3, h, w_hh, of_h);
    float* y_t = y.data() + t * s.state();
    for_sequences(s, [&](int64_t n) {
      const int64_t H = s.hidden, row = t * s.batch + n;
      const float *a = of_x + row * 3 * H, *before = h + n * H;
      float *b = of_h + n * 3 * H, *g = gates.data() + row * 4 * H, *to = y_t + n * H;
      if (bias != nullptr) {
        for (int64_t j = 0; j < 3 * H; ++j) b[j] += bias[j];
      }
      for (int64_t j = 0; j < 2 * H; ++j) g[j] = vector_sigmoid(a[j] + b[j]);
      for (int64_t j = 0; j < H; ++j) {
        g[3 * H + j] = b[2 * H + j];
        g[2 * H + j] = vector_tanh(a[2 * H + j] + g[j] * b[2 * H + j]);
      }
      for (int64_t j = 0; j < H; ++j) {
        const float fresh = g[2 * H + j];
        to[j] = fresh + g[H + j] * (before[j] - fresh);
      }
    });
    h = y_t;
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
  std::fill(dh.data(), dh.data() + s.state(), 0.f);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const int64_t state = t * s.state();
    const float* before = t > 0 ? y + state - s.state() : h0;
    for_sequences(s, [&](int64_t n) {
      const int64_t H = s.hidden, row = n * H, at = state + row;
      const float* g = gates + 4 * at;
      float *dx = of_x.data() + 3 * at, *dg = of_h.data() + 3 * at;
      for (int64_t j = 0; j < H; ++j) {
        const float r = g[j], z = g[H + j], fresh = g[2 * H + j], of_state = g[3 * H + j];
        const float gradient = dy[at + j] + dh.data()[row + j];
        const float dn = gradient * (1.f - z) * (1.f - fresh * fresh);
        dx[j] = dg[j] = dn * of_state * r * (1.f - r);
        dx[H + j] = dg[H + j] = gradient * (before[row + j] - fresh) * z * (1.f - z);
        dx[2 * H + j] = dn;
        dg[2 * H + j] = dn * r;
        direct[row + j] = gradient * z;
      }
    });
    recur_backward(args, s, 3, of_h.data() + 3 * state, w_hh, through);
    for (int64_t i = 0; i < s.state(); ++i) dh.data()[i] = direct[i] + through[i];
  }
  of_x.store();
  of_h.store();
  dh.store();
}

}  // namespace engine::cpu
