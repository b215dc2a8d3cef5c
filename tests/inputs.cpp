// How the harness's cases describe their inputs.
#include <algorithm>

#include "tests/harness.h"

namespace engine::test {

// FNV-1a: a seed of the case's own, the same with every standard library.
Numbers::Numbers(const std::string& seed) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : seed) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  engine_.seed(hash);
}

// The standard's distributions differ between libraries; its engines do not.
double Numbers::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
}
int64_t Numbers::below(int64_t limit) {
  return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit));
}

Input Input::no_grad() const {
  Input copy = *this;
  copy.differentiable = false;
  return copy;
}

Input Input::as(DType other) const {
  Input copy = *this;
  copy.dtype = other;
  copy.differentiable &= is_floating(other);
  return copy;
}

Input uniform(const Shape& shape, double low, double high) {
  return {shape, [low, high](Numbers& numbers, int64_t count) {
            std::vector<double> list(static_cast<size_t>(count));
            for (double& v : list) v = numbers.uniform(low, high);
            return list;
          }};
}

Input values(const Shape& shape, std::vector<double> list) {
  return {shape, [list = std::move(list)](Numbers&, int64_t) { return list; }};
}

Input constant(const Shape& shape, double value) {
  return values(shape, std::vector<double>(static_cast<size_t>(shape.numel()), value));
}

Input apart(const Shape& shape, double gap, double positive) {
  return {
      shape, [gap, positive](Numbers& numbers, int64_t count) {
        std::vector<double> list(static_cast<size_t>(count));
        const double step = std::max(gap, 2.0 / static_cast<double>(count + 1));
        const auto below_zero = static_cast<int64_t>(static_cast<double>(count) * (1 - positive));
        for (int64_t i = 0; i < count; ++i) {
          list[static_cast<size_t>(i)] = (static_cast<double>(i - below_zero) + 0.5) * step;
        }
        for (size_t i = list.size(); i > 1; --i) {
          std::swap(list[i - 1], list[static_cast<size_t>(numbers.below(static_cast<int64_t>(i)))]);
        }
        return list;
      }};
}

Input below(const Shape& shape, int64_t limit) {
  return {shape,
          [limit](Numbers& numbers, int64_t count) {
            std::vector<double> list(static_cast<size_t>(count));
            for (double& v : list) v = static_cast<double>(numbers.below(limit));
            return list;
          },
          DType::i64, false};
}

Input labels(std::vector<double> list) {
  const Shape shape{static_cast<int64_t>(list.size())};
  return values(shape, std::move(list)).as(DType::i64);
}

OpCase without_gradient(OpCase c) {
  for (Input& input : c.inputs) input.differentiable = false;
  return c;
}

}  // namespace engine::test
