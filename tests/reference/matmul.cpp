#include "tests/reference/index.h"
#include "tests/reference/reference.h"

namespace engine::reference {

Array matmul(const Array& a, const Array& b, bool transpose_a, bool transpose_b) {
  const int64_t m = a.shape[transpose_a ? -1 : -2], depth = a.shape[transpose_a ? -2 : -1];
  const int64_t n = b.shape[transpose_b ? -2 : -1];
  const auto batch_of = [](const Shape& s) {
    return Shape(s.dims().first(static_cast<size_t>(s.rank() - 2)));
  };
  const Shape batch_a = batch_of(a.shape), batch_b = batch_of(b.shape);
  const Shape batch = broadcast_shape(batch_a, batch_b);
  std::vector<int64_t> dims(batch.begin(), batch.end());
  dims.insert(dims.end(), {m, n});
  Array y{Shape(dims)};
  for (int64_t p = 0; p < batch.numel(); ++p) {
    const auto index = coordinates(batch, p);
    const int64_t first_a = broadcast_position(batch_a, index) * m * depth;
    const int64_t first_b = broadcast_position(batch_b, index) * depth * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += a[first_a + (transpose_a ? k * m + i : i * depth + k)] *
                 b[first_b + (transpose_b ? j * depth + k : k * n + j)];
        }
        y[(p * m + i) * n + j] = sum;
      }
    }
  }
  return y;
}

Array linear(const Arrays& inputs) {
  const Array &x = inputs[0], &weight = inputs[1];
  const int64_t in = weight.shape[1], out = weight.shape[0];
  Array y(x.shape.with(-1, out));
  const int64_t rows = x.shape.product(0, x.shape.rank() - 1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = inputs.size() > 2 ? inputs[2][o] : 0;
      for (int64_t i = 0; i < in; ++i) sum += x[row * in + i] * weight[o * in + i];
      y[row * out + o] = sum;
    }
  }
  return y;
}

}  // namespace engine::reference
