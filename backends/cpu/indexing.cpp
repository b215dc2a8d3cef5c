// slice, concat, pad, gather, scatter_add, embedding. Elements that are only moved are moved whole,
// so there their size alone matters; neighbours are moved together. (flip is a strided copy:
// shape.cpp.)
#include <atomic>
#include <cstring>

#include "backends/cpu/as_f32.h"
#include "backends/cpu/kernels.h"
#include "core/error.h"
#include "core/op_attrs.h"

namespace engine::cpu {

namespace {

std::byte* bytes_at(const Tensor& t) { return static_cast<std::byte*>(t.raw()); }

// A tensor as [outer, n, inner] around an axis, inner in bytes.
struct Around {
  int64_t outer, n, inner;
};
Around around(const Tensor& t, int axis) {
  return {t.shape().product(0, axis), t.size(axis),
          t.shape().product(axis + 1, t.rank()) * static_cast<int64_t>(size_of(t.dtype()))};
}

// rows of `bytes`, `from_step` and `to_step` apart
void copy_rows(const std::byte* from, int64_t from_step, std::byte* to, int64_t to_step,
               int64_t bytes, int64_t rows, bool stream) {
  if (bytes == 0) return;  // nothing is at null
  parallel_items(rows, bytes / 4, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      store_bytes(to + r * to_step, from + r * from_step, static_cast<size_t>(bytes), stream);
  });
}

// Elements begin, begin + step, ... of an axis to neighbours, or (kBack) neighbours to these.
template <bool kBack>
void slice_axis(const Tensor& whole, const Tensor& part, const SliceAttrs& a) {
  const Around w = around(whole, a.axis), p = around(part, a.axis);
  std::byte* at = bytes_at(whole) + a.begin * w.inner;
  const bool stream = exceeds_caches(part);
  const auto copy = [stream](std::byte* in_whole, int64_t whole_step, std::byte* in_part,
                             int64_t part_step, int64_t bytes, int64_t rows) {
    if (kBack)
      copy_rows(in_part, part_step, in_whole, whole_step, bytes, rows, stream);
    else
      copy_rows(in_whole, whole_step, in_part, part_step, bytes, rows, stream);
  };
  if (a.step == 1) {
    copy(at, w.n * w.inner, bytes_at(part), p.n * p.inner, p.n * p.inner, p.outer);
    return;
  }
  for (int64_t o = 0; o < p.outer; ++o) {
    copy(at + o * w.n * w.inner, a.step * w.inner, bytes_at(part) + o * p.n * p.inner, p.inner,
         p.inner, p.n);
  }
}

void set_zero(const Tensor& t) {
  std::byte* at = bytes_at(t);
  const bool stream = exceeds_caches(t);
  parallel_for(static_cast<int64_t>(t.bytes()), 4 * kGrain, [=](int64_t begin, int64_t end) {
    store(at, begin, end, stream, [](int64_t) { return std::byte{}; });
  });
}

// For each axis of a padded tensor, the element of x that each place shows; -1: none.
struct PadMap {
  std::vector<std::vector<int64_t>> source;

  PadMap(const Shape& x, const PadAttrs& a) {
    for (int axis = 0; axis < x.rank(); ++axis) {
      const auto k = static_cast<size_t>(axis);
      const int64_t size = x[axis], last = size - 1;
      std::vector<int64_t>& places = source.emplace_back();
      for (int64_t i = -a.begin[k]; i < size + a.end[k]; ++i) {
        int64_t from = i;
        if (i < 0)
          from = a.mode == PadMode::reflect ? -i : (a.mode == PadMode::replicate ? 0 : -1);
        else if (i > last)
          from = a.mode == PadMode::reflect ? 2 * last - i
                                            : (a.mode == PadMode::replicate ? last : -1);
        places.push_back(from);
      }
    }
  }
  // The first element in x of the row that the padded row shows; -1: none.
  int64_t row(int64_t index, const Shape& padded, const Shape& x) const {
    int64_t offset = 0, stride = x.rank() > 0 ? x[-1] : 1;
    for (int axis = x.rank() - 2; axis >= 0; --axis) {
      const int64_t from =
          source[static_cast<size_t>(axis)][static_cast<size_t>(index % padded[axis])];
      if (from < 0) return -1;
      index /= padded[axis];
      offset += from * stride;
      stride *= x[axis];
    }
    return offset;
  }
};

template <class T>
void pad_as(const Tensor& x, const Tensor& y, const PadAttrs& a, T value) {
  const PadMap map(x.shape(), a);
  const T* in = static_cast<const T*>(x.raw());
  T* out = static_cast<T*>(y.raw());
  if (x.rank() == 0) {
    out[0] = in[0];
    return;
  }
  const int64_t width = y.size(-1), size = x.size(-1);
  const int64_t left = a.begin[static_cast<size_t>(x.rank() - 1)];
  const std::vector<int64_t>& columns = map.source.back();
  if (width == 0) return;
  const bool stream = exceeds_caches(y);
  parallel_items(y.numel() / width, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* to = out + row * width;
      const int64_t offset = map.row(row, y.shape(), x.shape());
      if (offset < 0 || size == 0) {
        store(to, 0, width, stream, [value](int64_t) { return value; });
        continue;
      }
      const auto edge = [&](int64_t i) {
        const int64_t from = columns[static_cast<size_t>(i)];
        to[i] = from < 0 ? value : in[offset + from];
      };
      for (int64_t i = 0; i < left; ++i) edge(i);
      store_bytes(reinterpret_cast<std::byte*>(to + left),
                  reinterpret_cast<const std::byte*>(in + offset),
                  static_cast<size_t>(size) * sizeof(T), stream);
      for (int64_t i = left + size; i < width; ++i) edge(i);
    }
  });
}

// An image of the first axis is a thread's own where that axis is not padded; else one thread adds
// all.
template <class T>
void pad_backward_as(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &dx = args.outputs[0];
  const auto& a = args.attrs.as<PadAttrs>();
  const T* in = dy.data<T>();
  if (dx.numel() == 0) return;
  if (dx.rank() == 0) {
    dx.data<T>()[0] = in[0];
    return;
  }
  const F32Output output(args, dx);
  float* sums = output.data();
  const PadMap map(dx.shape(), a);
  const int64_t width = dy.size(-1);
  const std::vector<int64_t>& columns = map.source.back();
  const bool apart = dx.rank() > 1 && a.begin[0] == 0 && a.end[0] == 0;
  const int64_t items = apart ? dx.size(0) : 1;
  const int64_t elements = dx.numel() / items, rows = dy.numel() / width / items;
  parallel_items(items, elements, [&](int64_t begin, int64_t end) {
    std::fill(sums + begin * elements, sums + end * elements, 0.f);
    for (int64_t row = begin * rows; row < end * rows; ++row) {
      const int64_t offset = map.row(row, dy.shape(), dx.shape());
      if (offset < 0) continue;
      for (int64_t i = 0; i < width; ++i) {
        const int64_t to = columns[static_cast<size_t>(i)];
        if (to >= 0) sums[offset + to] += static_cast<float>(in[row * width + i]);
      }
    }
  });
  output.store();
}

// First, so that nothing is written before. An exception may not leave a parallel region: that only
// tells whether there is a wrong index.
void check_ids(const char* op, const Tensor& ids, int64_t limit) {
  const int64_t* id = ids.data<int64_t>();
  std::atomic<bool> wrong = false;
  parallel_for(ids.numel(), kGrain, [&](int64_t begin, int64_t end) {
    uint64_t largest = 0;  // a negative one is larger than any limit
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, static_cast<uint64_t>(id[i]));
    if (largest >= static_cast<uint64_t>(limit) && begin < end) wrong = true;
  });
  for (int64_t i = 0; wrong && i < ids.numel(); ++i) {
    check(id[i] >= 0 && id[i] < limit, op, "expected indices in [0, {}), got {} at position {}",
          limit, id[i], i);
  }
}

// Where element i of an index tensor lies in x, but for its place along the axis, with the stride
// of the axis.
struct IndexWalk {
  const Shape& index;
  const Shape& x;
  int axis;

  int64_t base(int64_t i) const {
    int64_t offset = 0, stride = 1;
    for (int k = x.rank() - 1; k >= 0; --k) {
      if (k != axis) offset += i % index[k] * stride;
      i /= index[k];
      stride *= x[k];
    }
    return offset;
  }
  int64_t stride() const { return x.product(axis + 1, x.rank()); }
};

template <class T>
void gather_as(const Tensor& x, const Tensor& index, const Tensor& y, int axis) {
  const IndexWalk walk{index.shape(), x.shape(), axis};
  const T* in = static_cast<const T*>(x.raw());
  T* out = static_cast<T*>(y.raw());
  const int64_t* ids = index.data<int64_t>();
  const int64_t width = y.rank() > 0 ? y.size(-1) : 1, stride = walk.stride();
  if (y.numel() == 0) return;
  const bool stream = exceeds_caches(y);
  parallel_items(y.numel() / width, width * 2, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = in + walk.base(row * width);
      const int64_t* id = ids + row * width;
      T* to = out + row * width;
      if (stride == 1) {  // along the last axis
        store(to, 0, width, stream, [=](int64_t j) { return from[id[j]]; });
      } else {
        store(to, 0, width, stream, [=](int64_t j) { return from[j + id[j] * stride]; });
      }
    }
  });
}

}  // namespace

void kernels::slice(KernelArgs& args) {
  slice_axis<false>(args.inputs[0], args.outputs[0], args.attrs.as<SliceAttrs>());
}
void kernels::slice_backward(KernelArgs& args) {
  set_zero(args.outputs[0]);
  slice_axis<true>(args.outputs[0], args.inputs[0], args.attrs.as<SliceAttrs>());
}

void kernels::concat(KernelArgs& args) {
  const int axis = args.attrs.as<AxisAttrs>().axis;
  const Tensor& y = args.outputs[0];
  const Around whole = around(y, axis);
  int64_t offset = 0;
  for (const Tensor& x : args.inputs) {
    const Around part = around(x, axis);
    const int64_t bytes = part.n * part.inner;
    if (bytes > 0)
      copy_rows(bytes_at(x), bytes, bytes_at(y) + offset, whole.n * whole.inner, bytes, part.outer,
                exceeds_caches(y));
    offset += bytes;
  }
}

void kernels::pad(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &y = args.outputs[0];
  const auto& a = args.attrs.as<PadAttrs>();
  with_dtype(x.dtype(), [&]<class T>(T) { pad_as(x, y, a, convert<T>(a.value)); });
}
void kernels::pad_backward(KernelArgs& args) {
  with_floating(args.inputs[0].dtype(), [&]<class T>(T) { pad_backward_as<T>(args); });
}

void kernels::gather(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &index = args.inputs[1], &y = args.outputs[0];
  const int axis = args.attrs.as<AxisAttrs>().axis;
  check_ids("gather", index, x.size(axis));
  with_bits(x.dtype(), [&]<class T>(T) { gather_as<T>(x, index, y, axis); });
}

// Places that share all but their position along the axis are one thread's, in order.
void kernels::scatter_add(KernelArgs& args) {
  const Tensor &x = args.inputs[0], &index = args.inputs[1], &source = args.inputs[2],
               &y = args.outputs[0];
  const int axis = args.attrs.as<AxisAttrs>().axis;
  check_ids("scatter_add", index, x.size(axis));
  const IndexWalk walk{index.shape(), x.shape(), axis};
  const int64_t* id = index.data<int64_t>();
  const int64_t n = index.size(axis), inner = index.shape().product(axis + 1, index.rank());
  with_floating(x.dtype(), [&]<class T>(T) {
    const T *in = x.data<T>(), *add = source.data<T>();
    const F32Output output(args, y);
    float* sums = output.data();
    parallel_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] = static_cast<float>(in[i]);
    });
    const int64_t lines = n > 0 ? index.numel() / n : 0, stride = walk.stride();
    parallel_items(lines, n * 8, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t first = line / inner * n * inner + line % inner;
        const int64_t base = walk.base(first);
        for (int64_t j = 0; j < n; ++j) {
          const int64_t i = first + j * inner;
          sums[base + id[i] * stride] += static_cast<float>(add[i]);
        }
      }
    });
    output.store();
  });
}

void kernels::embedding(KernelArgs& args) {
  const Tensor &weight = args.inputs[0], &ids = args.inputs[1], &y = args.outputs[0];
  check_ids("embedding", ids, weight.size(0));
  const int64_t bytes = weight.size(1) * static_cast<int64_t>(size_of(weight.dtype()));
  const int64_t* id = ids.data<int64_t>();
  const bool stream = exceeds_caches(y);
  parallel_items(ids.numel(), bytes / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      store_bytes(bytes_at(y) + i * bytes, bytes_at(weight) + id[i] * bytes,
                  static_cast<size_t>(bytes), stream);
  });
}

// A thread adds up some of the columns for all ids, in their order.
void kernels::embedding_backward(KernelArgs& args) {
  const Tensor &dy = args.inputs[0], &ids = args.inputs[1], &dweight = args.outputs[0];
  const int64_t width = dweight.size(1), rows = dweight.size(0), n = ids.numel();
  const int64_t* id = ids.data<int64_t>();
  constexpr int64_t kColumns = 64;
  with_floating(dy.dtype(), [&]<class T>(T) {
    const T* in = dy.data<T>();
    const F32Output output(args, dweight);
    float* sums = output.data();
    parallel_items((width + kColumns - 1) / kColumns, (rows + n) * kColumns,
                   [&](int64_t begin, int64_t end) {
                     const int64_t first = begin * kColumns, last = std::min(width, end * kColumns);
                     for (int64_t r = 0; r < rows; ++r)
                       std::fill(sums + r * width + first, sums + r * width + last, 0.f);
                     for (int64_t i = 0; i < n; ++i) {
                       float* to = sums + id[i] * width;
                       for (int64_t k = first; k < last; ++k)
                         to[k] += static_cast<float>(in[i * width + k]);
                     }
                   });
    output.store();
  });
}

}  // namespace engine::cpu
