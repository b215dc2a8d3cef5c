#include "core/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/context.h"
#include "core/error.h"

namespace engine {

Shape::Shape(std::span<const int64_t> dims) {
  check(dims.size() <= kMaxRank, op_or("shape"), "expected at most {} dimensions, got {}: [{}]",
        kMaxRank, dims.size(), fmt::join(dims, ", "));
  rank_ = static_cast<int>(dims.size());
  bool overflow = false;
  bool empty = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    check(dims[i] >= 0, op_or("shape"), "expected dimensions >= 0, got [{}]",
          fmt::join(dims, ", "));
    dims_[i] = dims[i];
    empty |= dims[i] == 0;
    overflow |= __builtin_mul_overflow(numel_, dims[i], &numel_);
  }
  if (empty) {
    numel_ = 0;
  } else {
    check(!overflow, op_or("shape"), "expected fewer than 2^63 elements, got [{}]",
          fmt::join(dims, ", "));
  }
}

Shape Shape::with(int axis, int64_t size) const {
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)] = size;
  return Shape(std::span(dims.data(), static_cast<size_t>(rank_)));
}

int64_t Shape::product(int first, int last) const {
  int64_t result = 1;
  for (int i = first; i < last; ++i) result *= (*this)[i];
  return result;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.dims(), ", "));
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, Shape::kMaxRank> dims{};
  for (int i = 1; i <= rank; ++i) {
    const int64_t da = i <= a.rank() ? a[-i] : 1;
    const int64_t db = i <= b.rank() ? b[-i] : 1;
    check(da == db || da == 1 || db == 1, op,
          "expected shapes that broadcast, got {} and {}: sizes {} and {} differ at axis {}", a, b,
          da, db, -i);
    dims[static_cast<size_t>(rank - i)] = da == 1 ? db : da;
  }
  return Shape(std::span(dims.data(), static_cast<size_t>(rank)));
}

int normalize_axis(const char* op, int64_t axis, int rank) {
  check(axis >= -rank && axis < rank, op, "expected an axis in [{}, {}), got {}", -rank, rank,
        axis);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace engine
