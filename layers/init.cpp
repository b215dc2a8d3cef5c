#include "layers/init.h"

#include <cmath>

#include "core/context.h"
#include "core/ops.h"

namespace engine {

Tensor init_uniform_fan_in(const Shape& shape, int64_t fan_in, Device device,
                           Generator& generator) {
  const ContextScope memory(&Context::memory, MemoryCategory::parameter);
  Tensor result = empty(shape, DType::f32, device);
  const double bound = fan_in > 0 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.0;
  ops::uniform_(result, -bound, bound, generator);
  return result;
}

Tensor init_constant(const Shape& shape, double value, Device device) {
  const ContextScope memory(&Context::memory, MemoryCategory::parameter);
  return full(shape, value, DType::f32, device);
}

Tensor init_normal(const Shape& shape, double mean, double stddev, Device device,
                   Generator& generator) {
  const ContextScope memory(&Context::memory, MemoryCategory::parameter);
  Tensor result = empty(shape, DType::f32, device);
  ops::normal_(result, mean, stddev, generator);
  return result;
}

}  // namespace engine
