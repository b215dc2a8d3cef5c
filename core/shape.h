// The dimensions of a tensor, held inline: shapes are made on every op call.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace engine {

/// Up to kMaxRank dimensions, each >= 0; the product fits int64_t. Rank 0 is a scalar of one
/// element. Row-major: the last dimension is contiguous.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  /// Throws Error on more than kMaxRank dimensions, a negative one, or an overflowing product.
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t numel() const { return numel_; }
  /// The dimension at `axis`; negative axes count from the end. The caller knows that it exists.
  int64_t operator[](int axis) const {
    return dims_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)];
  }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  std::span<const int64_t> dims() const { return {begin(), static_cast<size_t>(rank_)}; }

  /// A copy with the dimension at `axis` replaced.
  Shape with(int axis, int64_t size) const;
  /// Product of the dimensions in [first, last).
  int64_t product(int first, int last) const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int64_t numel_ = 1;
  int rank_ = 0;
};

/// "[64, 1, 28, 28]".
std::string to_string(const Shape& shape);

/// The shape that `a` and `b` broadcast to by NumPy's rule; throws "[op] ..." naming both when they
/// do not.
Shape broadcast(const char* op, const Shape& a, const Shape& b);

/// `axis` with negatives counted from the end; throws "[op] axis out of range" otherwise.
int normalize_axis(const char* op, int64_t axis, int rank);

}  // namespace engine
