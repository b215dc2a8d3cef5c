// The smallest program that uses an installed engine: two matrices, one product, one number.
#include <iostream>

#include "backends/cpu/cpu_backend.h"
#include "core/ops.h"

int main() {
  engine::cpu::register_backend();
  const engine::Tensor row = engine::full({1, 2}, 3.0);
  const engine::Tensor column = engine::full({2, 1}, 3.0);
  std::cout << engine::ops::matmul(row, column).item() << '\n';
}
