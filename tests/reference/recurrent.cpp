#include <cmath>

#include "tests/reference/reference.h"

namespace engine::reference {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// row `o` of w [outputs, inputs] times the vector that begins at v
double dot(const Array& w, int64_t o, const std::vector<double>& v) {
  double sum = 0;
  for (size_t i = 0; i < v.size(); ++i) sum += w[o * w.shape[1] + static_cast<int64_t>(i)] * v[i];
  return sum;
}

// Runs a cell over each sequence: step(x, h, c) changes the states h and c of one sequence.
using State = std::vector<double>;
Array run(const Arrays& in, bool cells,
          const std::function<void(const State& x, State& h, State& c)>& step) {
  const int64_t steps = in[0].shape[0], batch = in[0].shape[1], width = in[0].shape[2],
                hidden = in[2].shape[1];
  Array y(Shape{steps, batch, cells ? 2 * hidden : hidden});
  const auto part = [](const Array& a, int64_t row, int64_t n) {
    return State(a.values.begin() + row * n, a.values.begin() + (row + 1) * n);
  };
  for (int64_t n = 0; n < batch; ++n) {
    State h = part(in[5], n, hidden), c = cells ? part(in[6], n, hidden) : State{};
    for (int64_t t = 0; t < steps; ++t) {
      step(part(in[0], t * batch + n, width), h, c);
      double* to = y.values.data() + (t * batch + n) * y.shape[2];
      to = std::copy(h.begin(), h.end(), to);
      if (cells) std::copy(c.begin(), c.end(), to);
    }
  }
  return y;
}

}  // namespace

Array lstm(const Arrays& in) {
  const int64_t hidden = in[2].shape[1];
  return run(in, true, [&](const State& x, State& h, State& c) {
    const State before = h;
    for (int64_t j = 0; j < hidden; ++j) {
      const auto gate = [&](int64_t k) {
        const int64_t o = k * hidden + j;
        return dot(in[1], o, x) + in[3][o] + dot(in[2], o, before) + in[4][o];
      };
      double& cell = c[static_cast<size_t>(j)];
      cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * std::tanh(gate(2));
      h[static_cast<size_t>(j)] = sigmoid(gate(3)) * std::tanh(cell);
    }
  });
}

Array gru(const Arrays& in) {
  const int64_t hidden = in[2].shape[1];
  return run(in, false, [&](const State& x, State& h, State&) {
    const State before = h;
    for (int64_t j = 0; j < hidden; ++j) {
      const auto of_x = [&](int64_t k) {
        return dot(in[1], k * hidden + j, x) + in[3][k * hidden + j];
      };
      const auto of_h = [&](int64_t k) {
        return dot(in[2], k * hidden + j, before) + in[4][k * hidden + j];
      };
      const double r = sigmoid(of_x(0) + of_h(0)), z = sigmoid(of_x(1) + of_h(1));
      const double n = std::tanh(of_x(2) + r * of_h(2));
      h[static_cast<size_t>(j)] = (1 - z) * n + z * before[static_cast<size_t>(j)];
    }
  });
}

}  // namespace engine::reference
