// lstm and gru with their backward ops, in f32. Each step is a product with the recurrent weights
// and one elementwise kernel over the states; the order is that of core/ops/recurrent.cpp.
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

// into [N, gates H] = h w_hh^T, and into [N, H] = dgates w_hh
void recur(KernelArgs& args, const Sequence& s, int64_t gates, const float* h, const float* w_hh,
           float* into) {
  gemm(args, {1, s.batch, gates * s.hidden, s.hidden, false, true, false, DType::f32}, h, w_hh,
       nullptr, into);
}
void recur_backward(KernelArgs& args, const Sequence& s, int64_t gates, const float* dgates,
                    const float* w_hh, float* into) {
  gemm(args, {1, s.batch, s.hidden, gates * s.hidden, false, false, false, DType::f32}, dgates,
       w_hh, nullptr, into);
}

__device__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// One step of n = N H states: gates of x and of h, the cells before -> gates, cells, y.
__global__ void lstm_kernel(int64_t n, int64_t H, const float* of_x, const float* of_h,
                            const float* c, float* gates, float* cells, float* y) {
  for (int64_t at = grid_index(); at < n; at += grid_step()) {
    const int64_t row = at / H * 4 * H + at % H;
    const auto sum = [&](int64_t gate) { return of_x[row + gate * H] + of_h[row + gate * H]; };
    const float i = sigmoid(sum(0)), f = sigmoid(sum(1)), g = tanhf(sum(2)), o = sigmoid(sum(3));
    const float cell = f * c[at] + i * g;
    gates[row] = i;
    gates[row + H] = f;
    gates[row + 2 * H] = g;
    gates[row + 3 * H] = o;
    cells[at] = cell;
    y[at] = o * tanhf(cell);
  }
}
// dcells may be null. dh holds what the later steps give the states, dc what they give the cells.
__global__ void lstm_backward_kernel(int64_t n, int64_t H, const float* dy, const float* dcells,
                                     const float* gates, const float* cells, const float* before,
                                     const float* dh, float* dc, float* dgates) {
  for (int64_t at = grid_index(); at < n; at += grid_step()) {
    const int64_t row = at / H * 4 * H + at % H;
    const float i = gates[row], f = gates[row + H], g = gates[row + 2 * H], o = gates[row + 3 * H];
    const float squashed = tanhf(cells[at]), gradient = dy[at] + dh[at];
    const float given = dcells != nullptr ? dcells[at] : 0.f;
    const float dcell = dc[at] + given + gradient * o * (1.f - squashed * squashed);
    dgates[row] = dcell * g * i * (1.f - i);
    dgates[row + H] = dcell * before[at] * f * (1.f - f);
    dgates[row + 2 * H] = dcell * i * (1.f - g * g);
    dgates[row + 3 * H] = gradient * squashed * o * (1.f - o);
    dc[at] = dcell * f;
  }
}

// bias may be null. Kept for backward: r, z, n and the new gate's part of h.
__global__ void gru_kernel(int64_t n, int64_t H, const float* of_x, const float* of_h,
                           const float* bias, const float* before, float* gates, float* y) {
  for (int64_t at = grid_index(); at < n; at += grid_step()) {
    const int64_t b = at / H, j = at % H, row = b * 3 * H + j, kept = b * 4 * H + j;
    const auto h = [&](int64_t gate) {
      return of_h[row + gate * H] + (bias != nullptr ? bias[gate * H + j] : 0.f);
    };
    const float r = sigmoid(of_x[row] + h(0)), z = sigmoid(of_x[row + H] + h(1)), of_state = h(2);
    const float fresh = tanhf(of_x[row + 2 * H] + r * of_state);
    gates[kept] = r;
    gates[kept + H] = z;
    gates[kept + 2 * H] = fresh;
    gates[kept + 3 * H] = of_state;
    y[at] = fresh + z * (before[at] - fresh);
  }
}
// direct: what goes to the states before without the recurrent weights.
__global__ void gru_backward_kernel(int64_t n, int64_t H, const float* dy, const float* gates,
                                    const float* before, const float* dh, float* dx, float* dg,
                                    float* direct) {
  for (int64_t at = grid_index(); at < n; at += grid_step()) {
    const int64_t b = at / H, j = at % H, row = b * 3 * H + j, kept = b * 4 * H + j;
    const float r = gates[kept], z = gates[kept + H], fresh = gates[kept + 2 * H],
                of_state = gates[kept + 3 * H];
    const float gradient = dy[at] + dh[at], dn = gradient * (1.f - z) * (1.f - fresh * fresh);
    dx[row] = dg[row] = dn * of_state * r * (1.f - r);
    dx[row + H] = dg[row + H] = gradient * (before[at] - fresh) * z * (1.f - z);
    dx[row + 2 * H] = dn;
    dg[row + 2 * H] = dn * r;
    direct[at] = gradient * z;
  }
}

void set_zero(float* x, int64_t n) {
  ENGINE_CUDA(cudaMemsetAsync(x, 0, static_cast<size_t>(n) * sizeof(float), stream()));
}

}  // namespace

void kernels::lstm(KernelArgs& args) {
  const Sequence s(args.outputs[0]);
  if (s.batch == 0) return;
  const float *of_x = as_f32(args, args.inputs[0]), *w_hh = as_f32(args, args.inputs[1]),
              *h = as_f32(args, args.inputs[2]), *c = as_f32(args, args.inputs[3]);
  const F32Output y(args, args.outputs[0]), cells(args, args.outputs[1]),
      gates(args, args.outputs[2]);
  float* of_h = scratch_floats(args, 4 * s.state());
  for (int64_t t = 0; t < s.steps; ++t) {
    float *y_t = y.data() + t * s.state(), *c_t = cells.data() + t * s.state();
    recur(args, s, 4, h, w_hh, of_h);
    launch_kernel(lstm_kernel, blocks_for(s.state()), kThreads, 0, s.state(), s.hidden,
                  of_x + 4 * t * s.state(), of_h, c, gates.data() + 4 * t * s.state(), c_t, y_t);
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
  set_zero(dh.data(), s.state());
  set_zero(dc.data(), s.state());
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const int64_t at = t * s.state();
    launch_kernel(lstm_backward_kernel, blocks_for(s.state()), kThreads, 0, s.state(), s.hidden,
                  dy + at, dcells != nullptr ? dcells + at : nullptr, gates + 4 * at, cells + at,
                  t > 0 ? cells + at - s.state() : c0, dh.data(), dc.data(),
                  dgates.data() + 4 * at);
    recur_backward(args, s, 4, dgates.data() + 4 * at, w_hh, dh.data());
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
  float* of_h = scratch_floats(args, 3 * s.state());
  for (int64_t t = 0; t < s.steps; ++t) {
    float* y_t = y.data() + t * s.state();
    recur(args, s, 3, h, w_hh, of_h);
    launch_kernel(gru_kernel, blocks_for(s.state()), kThreads, 0, s.state(), s.hidden,
                  of_x + 3 * t * s.state(), of_h, bias, h, gates.data() + 4 * t * s.state(), y_t);
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
  float *direct = scratch_floats(args, s.state()), *through = scratch_floats(args, s.state());
  set_zero(dh.data(), s.state());
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const int64_t at = t * s.state();
    launch_kernel(gru_backward_kernel, blocks_for(s.state()), kThreads, 0, s.state(), s.hidden,
                  dy + at, gates + 4 * at, t > 0 ? y + at - s.state() : h0, dh.data(),
                  of_x.data() + 3 * at, of_h.data() + 3 * at, direct);
    recur_backward(args, s, 3, of_h.data() + 3 * at, w_hh, through);
    map_elements(s.state(), Plus{}, dh.data(), static_cast<const float*>(direct),
                 static_cast<const float*>(through));
  }
  of_x.store();
  of_h.store();
  dh.store();
}

}  // namespace engine::cuda
