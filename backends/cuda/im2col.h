// The parts of a convolution by matrix products that are not products.
#pragma once

#include <compare>

#include "core/tensor.h"

namespace engine::cuda {

/// A convolution's sizes. Its patches are the rows of a matrix with one column for each group,
/// kernel position and channel of the group, in this order.
struct ConvShape {
  int64_t batch, in_h, in_w, c_in, out_h, out_w, c_out, kernel_h, kernel_w;
  int64_t stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, groups;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t columns() const { return taps() * c_in; }
  int64_t out_pixels() const { return out_h * out_w; }
  int64_t in_pixels() const { return in_h * in_w; }
  auto operator<=>(const ConvShape&) const = default;
};

/// columns [rows, c.columns()] = the patches of the output pixels [first, first + rows) of x.
void im2col(const ConvShape& c, DType dtype, const void* x, int64_t first, int64_t rows,
            void* columns);
/// dx [images] (+)= the elements of columns that came from it. The columns are the patches of
/// output pixels [first, first + rows), counted from the first of the images. `start`: dx holds
/// nothing yet.
void col2im(const ConvShape& c, const float* columns, int64_t first, int64_t rows, int64_t images,
            bool start, float* dx);
/// y [n] = relu(x + bias), the bias, if any, repeated each `channels` elements, relu if wanted.
void finish_conv(DType dtype, int64_t n, int64_t channels, const float* x, const void* bias,
                 bool relu, void* y);
/// Partial sums in sum_columns's scratch: doubles for each column.
int64_t partial_sums(int64_t rows);
/// sums [columns] = the sums of x [rows, columns] over its rows.
void sum_columns(DType dtype, int64_t rows, int64_t columns, const void* x, double* partial,
                 void* sums);

}  // namespace engine::cuda
