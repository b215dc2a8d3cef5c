// Reductions over any axes: what the kernels of reduce.cpp and centered.cpp are made of. The input
// is seen as alternating kept and reduced axes; it is cut into pieces by size alone, and the
// pieces' results are put together in order, so the result does not depend on the number of
// threads.
#pragma once

#include <array>
#include <limits>

#include "backends/cpu/elementwise.h"
#include "core/backend.h"

namespace engine::cpu::reduction {

inline constexpr int64_t kPiece = 16384;   // elements that one work item reads, about
inline constexpr int64_t kColumns = 1024;  // width of a block of columns
inline constexpr int64_t kNarrow = 64;     // accumulators for rows of few columns

// Sums are in double: exact enough for 10^9 elements.
struct Add {
  using Value = double;
  static constexpr double kStart = 0;
  static double apply(double a, double b) { return a + b; }
};
// The larger (smaller) one, or NaN if either is.
struct Larger {
  using Value = float;
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static float apply(float a, float b) { return a > b || a != a ? a : b; }
};
struct Smaller {
  using Value = float;
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  static float apply(float a, float b) { return a < b || a != a ? a : b; }
};

// A set of axes, outermost first, that positions are counted along.
struct Axes {
  std::array<int64_t, Shape::kMaxRank> size{}, stride{};
  int count = 0;
  int64_t total = 1;

  void add(int64_t n, int64_t step) {
    size[static_cast<size_t>(count)] = n;
    stride[static_cast<size_t>(count++)] = step;
    total *= n;
  }
  int64_t offset(int64_t position) const {
    int64_t result = 0;
    for (int i = count - 1; i >= 0; --i) {
      const auto k = static_cast<size_t>(i);
      result += position % size[k] * stride[k];
      position /= size[k];
    }
    return result;
  }
};

// The input as kept axes x reduced axes x a contiguous run, which is reduced or kept.
struct Layout {
  Axes kept, reduced;  // without the run
  int64_t run = 1;
  bool run_reduced = true;
};

inline Layout layout_of(const Shape& shape, uint32_t axes) {
  // Merge neighbouring axes of one kind, dropping those of size 1.
  std::array<int64_t, Shape::kMaxRank> size{};
  std::array<bool, Shape::kMaxRank> reduced{};
  size_t count = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const bool r = (axes >> i & 1) != 0;
    if (count > 0 && reduced[count - 1] == r) {
      size[count - 1] *= shape[i];
    } else {
      size[count] = shape[i];
      reduced[count++] = r;
    }
  }
  Layout layout;
  if (count == 0) return layout;
  layout.run = size[count - 1];
  layout.run_reduced = reduced[count - 1];
  std::array<int64_t, Shape::kMaxRank> stride{};
  int64_t step = layout.run;
  for (size_t i = count - 1; i-- > 0;) {
    stride[i] = step;
    step *= size[i];
  }
  for (size_t i = 0; i + 1 < count; ++i)
    (reduced[i] ? layout.reduced : layout.kept).add(size[i], stride[i]);
  return layout;
}

// An element of the input as what is accumulated.
template <class Value, class T>
Value value_of(T x) {
  return static_cast<Value>(static_cast<float>(x));
}

// Several accumulators let the additions overlap. f maps an element before it is combined.
template <class R, class T, class F>
typename R::Value reduce_run(const T* x, int64_t n, F f) {
  using Value = typename R::Value;
  constexpr int64_t kLanes = 32;
  Value lane[kLanes];
  std::fill(lane, lane + kLanes, R::kStart);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] = R::apply(lane[j], f(value_of<Value>(x[i + j])));
  }
  for (int64_t j = 0; i < n; ++i, ++j) lane[j] = R::apply(lane[j], f(value_of<Value>(x[i])));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lane[j] = R::apply(lane[j], lane[j + width]);
  }
  return lane[0];
}

// Columns of `rows` adjacent rows of `width` floats, into partial[0 .. width). Rows side by side
// make one wide row whose columns are folded at the end.
template <class R, class T, class F>
void reduce_narrow(const T* x, int64_t rows, int64_t width, F f, typename R::Value* partial) {
  using Value = typename R::Value;
  Value wide[kNarrow];
  const int64_t together = kNarrow / width, span = together * width;
  std::fill(wide, wide + span, R::kStart);
  int64_t row = 0;
  for (; row + together <= rows; row += together) {
    for (int64_t i = 0; i < span; ++i)
      wide[i] = R::apply(wide[i], f(value_of<Value>(x[row * width + i])));
  }
  for (int64_t i = 0; i < (rows - row) * width; ++i)
    wide[i] = R::apply(wide[i], f(value_of<Value>(x[row * width + i])));
  for (int64_t i = 0; i < span; ++i) partial[i % width] = R::apply(partial[i % width], wide[i]);
}

// out = finish(R over f(in, center)), `outputs` elements, one for each kept position of `shape`,
// each with its own center (0 where none are given).
template <class R, class T, class Out, class F, class Finish>
void reduce(Scratch& scratch, const T* in, const Shape& shape, uint32_t axes, Out* out,
            int64_t outputs, F f, Finish finish, const float* centers = nullptr) {
  using Value = typename R::Value;
  if (outputs == 0) return;
  if (shape.numel() == 0) {
    std::fill(out, out + outputs, Out(finish(R::kStart)));
    return;
  }
  const Layout layout = layout_of(shape, axes);
  const int64_t rows = layout.reduced.total;
  // What one item takes: some rows of a block of columns (kept run), or some rows, or a part of one
  // row (reduced run).
  const int64_t width = std::min(layout.run, layout.run_reduced ? kPiece : kColumns);
  const int64_t blocks = (layout.run + width - 1) / width;
  // Rows of columns leave a partial sum for each column: four times as many rows, so that few are
  // left.
  const int64_t chunk = std::max<int64_t>(1, (layout.run_reduced ? kPiece : 4 * kPiece) / width);
  const int64_t chunks = (rows + chunk - 1) / chunk;
  const int64_t partial_width = layout.run_reduced ? 1 : width;
  const int64_t items = layout.kept.total * chunks * blocks;
  auto* partials = scratch.array<Value>(items * partial_width);

  // A few columns, row after row in memory, fill no vector: several rows are taken as one.
  const bool narrow = centers == nullptr && !layout.run_reduced && layout.run <= kNarrow / 2 &&
                      layout.reduced.count == 1 && layout.reduced.stride[0] == layout.run;

  // Item = (kept * blocks + block) * chunks + piece: what is put together lies side by side.
  parallel_items(items, std::min(rows, chunk) * width, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t block = item / chunks % blocks, first = item % chunks * chunk,
                    last = std::min(rows, first + chunk);
      const T* base = in + layout.kept.offset(item / chunks / blocks) + block * width;
      const int64_t columns = std::min(width, layout.run - block * width);
      Value* partial = partials + item * partial_width;
      std::fill(partial, partial + partial_width, R::kStart);
      const int64_t output = item / chunks / blocks * (layout.run_reduced ? 1 : layout.run) +
                             (layout.run_reduced ? 0 : block * width);
      const auto about = [&f](Value c) { return [&f, c](Value v) { return f(v, c); }; };
      const auto plain = about(0);
      if (narrow) {
        reduce_narrow<R>(base + first * width, last - first, width, plain, partial);
        continue;
      }
      for (int64_t row = first; row < last; ++row) {
        const T* run = base + layout.reduced.offset(row);
        if (layout.run_reduced) {
          const Value center = centers != nullptr ? static_cast<Value>(centers[output]) : 0;
          partial[0] = R::apply(partial[0], reduce_run<R>(run, columns, about(center)));
        } else if (centers != nullptr) {
          for (int64_t i = 0; i < columns; ++i) {
            const auto center = static_cast<Value>(centers[output + i]);
            partial[i] = R::apply(partial[i], f(value_of<Value>(run[i]), center));
          }
        } else {
          for (int64_t i = 0; i < columns; ++i)
            partial[i] = R::apply(partial[i], plain(value_of<Value>(run[i])));
        }
      }
    }
  });

  if (layout.run_reduced) {
    const int64_t pieces = chunks * blocks;
    parallel_items(outputs, pieces, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        Value total = partials[o * pieces];
        for (int64_t i = 1; i < pieces; ++i) total = R::apply(total, partials[o * pieces + i]);
        out[o] = Out(finish(total));
      }
    });
  } else {
    parallel_items(layout.kept.total * blocks, chunks * width, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const int64_t first = o % blocks * width, columns = std::min(width, layout.run - first);
        Value* total = partials + o * chunks * width;
        for (int64_t c = 1; c < chunks; ++c) {
          for (int64_t i = 0; i < columns; ++i) total[i] = R::apply(total[i], total[c * width + i]);
        }
        for (int64_t i = 0; i < columns; ++i)
          out[o / blocks * layout.run + first + i] = Out(finish(total[i]));
      }
    });
  }
}

// Calls f(output, for_each) for every output, where for_each(visit) calls visit(i) for the elements
// that it was made of.
template <class F>
void for_outputs(const Layout& layout, int64_t outputs, int64_t elements, F f) {
  if (elements == 0) return;
  // An output stands for one kept position of the outer axes and, if the run is kept, one column.
  const int64_t columns = layout.run_reduced ? 1 : layout.run;
  const int64_t run = layout.run_reduced ? layout.run : 1;
  parallel_items(outputs, elements / outputs, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t base = layout.kept.offset(o / columns) + o % columns;
      f(o, [&](auto&& visit) {
        for (int64_t row = 0; row < layout.reduced.total; ++row) {
          const int64_t start = base + layout.reduced.offset(row);
          for (int64_t i = start; i < start + run; ++i) visit(i);
        }
      });
    }
  });
}

inline constexpr auto kIdentity = [](auto v, auto) { return v; };
inline constexpr auto kToFloat = [](auto v) { return static_cast<float>(v); };

}  // namespace engine::cpu::reduction
