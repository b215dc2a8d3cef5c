// Patches of images as rows of a matrix and back, and what is left after the products.
#include "backends/cuda/divider.h"
#include "backends/cuda/elementwise.h"
#include "backends/cuda/im2col.h"

namespace engine::cuda {

namespace {

template <class T, class Divider>
struct Im2col {
  ConvShape c;
  Divider channels, kernel_w, kernel_h, groups, out_w, out_h;
  int64_t first, rows;
  const T* x;
  T* columns;
};

template <class T, class Divider>
__global__ void im2col_kernel(Im2col<T, Divider> p) {
  using Index = typename Divider::Index;
  const ConvShape& c = p.c;
  const int64_t n = p.rows * c.kernel_h * c.kernel_w * c.c_in, own = c.c_in / c.groups;
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    Index rest = static_cast<Index>(i);
    const int64_t channel = p.channels.divide(rest), kw = p.kernel_w.divide(rest),
                  kh = p.kernel_h.divide(rest), group = p.groups.divide(rest);
    rest = static_cast<Index>(rest + p.first);
    const int64_t ow = p.out_w.divide(rest), oh = p.out_h.divide(rest);
    const int64_t h = oh * c.stride_h - c.pad_top + kh * c.dilation_h,
                  w = ow * c.stride_w - c.pad_left + kw * c.dilation_w;
    const bool inside = h >= 0 && h < c.in_h && w >= 0 && w < c.in_w;
    const int64_t pixel = (static_cast<int64_t>(rest) * c.in_h + h) * c.in_w + w;
    p.columns[i] = inside ? p.x[pixel * c.c_in + group * own + channel] : T(0.f);
  }
}

template <class Divider>
struct Col2im {
  ConvShape c;
  Divider channels, groups, in_w, in_h;
  int64_t first, rows, elements;
  bool start;
  const float* columns;
  float* dx;
};

// Each element of dx takes its own terms, in the order of the kernel's positions.
template <class Divider>
__global__ void col2im_kernel(Col2im<Divider> p) {
  using Index = typename Divider::Index;
  const ConvShape& c = p.c;
  const int64_t own = c.c_in / c.groups, taps = c.kernel_h * c.kernel_w, width = taps * c.c_in;
  for (int64_t i = grid_index(); i < p.elements; i += grid_step()) {
    Index rest = static_cast<Index>(i);
    const int64_t channel = p.channels.divide(rest), group = p.groups.divide(rest),
                  w = p.in_w.divide(rest), h = p.in_h.divide(rest), image = rest;
    float sum = p.start ? 0.f : p.dx[i];
    for (int64_t kh = 0; kh < c.kernel_h; ++kh) {
      const int64_t top = h + c.pad_top - kh * c.dilation_h, oh = top / c.stride_h;
      if (top < 0 || oh * c.stride_h != top || oh >= c.out_h) continue;
      for (int64_t kw = 0; kw < c.kernel_w; ++kw) {
        const int64_t left = w + c.pad_left - kw * c.dilation_w, ow = left / c.stride_w;
        if (left < 0 || ow * c.stride_w != left || ow >= c.out_w) continue;
        const int64_t row = (image * c.out_h + oh) * c.out_w + ow - p.first;
        if (row < 0 || row >= p.rows) continue;
        sum += p.columns[row * width + (group * taps + kh * c.kernel_w + kw) * own + channel];
      }
    }
    p.dx[i] = sum;
  }
}

template <class T>
__global__ void finish_kernel(int64_t n, int64_t channels, const float* x, const T* bias, bool relu,
                              T* y) {
  for (int64_t i = grid_index(); i < n; i += grid_step()) {
    float value = x[i];
    if (bias != nullptr) value += static_cast<float>(bias[i % channels]);
    y[i] = T(relu ? relu_value(value) : value);
  }
}

// Rows that one thread adds up: in f32 so many that nothing is lost, then in double.
constexpr int64_t kShortSum = 16, kLeastRows = 128, kMostPartials = 1024;

int64_t rows_per_partial(int64_t rows) {
  return std::max(kLeastRows, (rows + kMostPartials - 1) / kMostPartials);
}

template <class T>
__global__ void partial_sums_kernel(int64_t rows, int64_t columns, int64_t each, int64_t partials,
                                    const T* x, double* partial) {
  for (int64_t i = grid_index(); i < partials * columns; i += grid_step()) {
    const int64_t column = i % columns, begin = i / columns * each;
    const int64_t end = begin + each < rows ? begin + each : rows;
    double sum = 0;
    for (int64_t row = begin; row < end;) {
      const int64_t stop = row + kShortSum < end ? row + kShortSum : end;
      float part = 0;
      for (; row < stop; ++row) part += static_cast<float>(x[row * columns + column]);
      sum += static_cast<double>(part);
    }
    partial[i] = sum;
  }
}

template <class T>
__global__ void final_sums_kernel(int64_t columns, int64_t partials, const double* partial,
                                  T* sums) {
  for (int64_t column = grid_index(); column < columns; column += grid_step()) {
    double sum = 0;
    for (int64_t i = 0; i < partials; ++i) sum += partial[i * columns + column];
    sums[column] = T(static_cast<float>(sum));
  }
}

}  // namespace

void im2col(const ConvShape& c, DType dtype, const void* x, int64_t first, int64_t rows,
            void* columns) {
  const int64_t n = rows * c.columns();
  with_divider(std::max(n, c.batch * c.out_pixels()), [&]<class Divider>(Divider) {
    with_floating(dtype, [&]<class T>(T) {
      const Im2col<T, Divider> p{c,
                                 Divider(c.c_in / c.groups),
                                 Divider(c.kernel_w),
                                 Divider(c.kernel_h),
                                 Divider(c.groups),
                                 Divider(c.out_w),
                                 Divider(c.out_h),
                                 first,
                                 rows,
                                 static_cast<const T*>(x),
                                 static_cast<T*>(columns)};
      launch_kernel(im2col_kernel<T, Divider>, blocks_for(n), kThreads, 0, p);
    });
  });
}

void col2im(const ConvShape& c, const float* columns, int64_t first, int64_t rows, int64_t images,
            bool start, float* dx) {
  const int64_t n = images * c.in_pixels() * c.c_in;
  with_divider(n, [&]<class Divider>(Divider) {
    const Col2im<Divider> p{c,
                            Divider(c.c_in / c.groups),
                            Divider(c.groups),
                            Divider(c.in_w),
                            Divider(c.in_h),
                            first,
                            rows,
                            n,
                            start,
                            columns,
                            dx};
    launch_kernel(col2im_kernel<Divider>, blocks_for(n), kThreads, 0, p);
  });
}

void finish_conv(DType dtype, int64_t n, int64_t channels, const float* x, const void* bias,
                 bool relu, void* y) {
  with_floating(dtype, [&]<class T>(T) {
    launch_kernel(finish_kernel<T>, blocks_for(n), kThreads, 0, n, channels, x,
                  static_cast<const T*>(bias), relu, static_cast<T*>(y));
  });
}

int64_t partial_sums(int64_t rows) {
  const int64_t each = rows_per_partial(rows);
  return (rows + each - 1) / each;
}

void sum_columns(DType dtype, int64_t rows, int64_t columns, const void* x, double* partial,
                 void* sums) {
  const int64_t partials = partial_sums(rows);
  with_floating(dtype, [&]<class T>(T) {
    launch_kernel(partial_sums_kernel<T>, blocks_for(partials * columns), kThreads, 0, rows,
                  columns, rows_per_partial(rows), partials, static_cast<const T*>(x), partial);
    launch_kernel(final_sums_kernel<T>, blocks_for(columns), kThreads, 0, columns, partials,
                  static_cast<const double*>(partial), static_cast<T*>(sums));
  });
}

}  // namespace engine::cuda
