#include <cmath>
#include <limits>

#include "tests/reference/reference.h"

namespace engine::reference {

namespace {

int64_t at_nhwc(const Shape& s, int64_t n, int64_t h, int64_t w, int64_t c) {
  return ((n * s[1] + h) * s[2] + w) * s[3] + c;
}

// One axis of a pooling window: [first, last) clipped to the image, and its size before that, which
// ends where the padding ends.
struct Window {
  int64_t first, last, padded;
};
Window window(const Pool2dAttrs& a, size_t axis, int64_t size, int64_t out) {
  const int64_t start = out * a.stride[axis] - a.padding[axis];
  const int64_t end = std::min<int64_t>(start + a.kernel[axis], size + a.padding[axis]);
  return {std::max<int64_t>(start, 0), std::min(end, size), end - start};
}

int64_t pooled_size(const Pool2dAttrs& a, size_t axis, int64_t size) {
  const double steps =
      static_cast<double>(size + 2 * a.padding[axis] - a.kernel[axis]) / a.stride[axis];
  int64_t out = static_cast<int64_t>(a.ceil_mode ? std::ceil(steps) : std::floor(steps)) + 1;
  // The last window must begin inside the image or the padding before it.
  if (a.ceil_mode && (out - 1) * a.stride[axis] >= size + a.padding[axis]) --out;
  return out;
}

Array pool(const Array& x, const Pool2dAttrs& a,
           const std::function<double(const std::vector<double>&, int64_t padded)>& f) {
  const Shape& s = x.shape;
  Array y(Shape{s[0], pooled_size(a, 0, s[1]), pooled_size(a, 1, s[2]), s[3]});
  std::vector<double> elements;
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t oh = 0; oh < y.shape[1]; ++oh) {
      for (int64_t ow = 0; ow < y.shape[2]; ++ow) {
        const Window rows = window(a, 0, s[1], oh), columns = window(a, 1, s[2], ow);
        for (int64_t c = 0; c < s[3]; ++c) {
          elements.clear();
          for (int64_t h = rows.first; h < rows.last; ++h) {
            for (int64_t w = columns.first; w < columns.last; ++w) {
              elements.push_back(x[at_nhwc(s, n, h, w, c)]);
            }
          }
          y[at_nhwc(y.shape, n, oh, ow, c)] = f(elements, rows.padded * columns.padded);
        }
      }
    }
  }
  return y;
}

}  // namespace

Array conv2d(const Arrays& inputs, const Conv2dAttrs& a) {
  const Array &x = inputs[0], &weight = inputs[1];
  const Shape &xs = x.shape, &ws = weight.shape;
  const auto out_size = [&](size_t axis, int64_t size, int64_t kernel) {
    const int64_t extent = a.dilation[axis] * (kernel - 1) + 1;
    return (size + a.padding_begin[axis] + a.padding_end[axis] - extent) / a.stride[axis] + 1;
  };
  Array y(Shape{xs[0], out_size(0, xs[1], ws[1]), out_size(1, xs[2], ws[2]), ws[0]});
  const int64_t per_group = ws[0] / a.groups;
  for (int64_t n = 0; n < y.shape[0]; ++n) {
    for (int64_t oh = 0; oh < y.shape[1]; ++oh) {
      for (int64_t ow = 0; ow < y.shape[2]; ++ow) {
        for (int64_t o = 0; o < ws[0]; ++o) {
          double sum = inputs.size() > 2 ? inputs[2][o] : 0;
          for (int64_t kh = 0; kh < ws[1]; ++kh) {
            const int64_t h = oh * a.stride[0] - a.padding_begin[0] + kh * a.dilation[0];
            if (h < 0 || h >= xs[1]) continue;
            for (int64_t kw = 0; kw < ws[2]; ++kw) {
              const int64_t w = ow * a.stride[1] - a.padding_begin[1] + kw * a.dilation[1];
              if (w < 0 || w >= xs[2]) continue;
              const int64_t in = at_nhwc(xs, n, h, w, o / per_group * ws[3]);
              const int64_t filter = at_nhwc(ws, o, kh, kw, 0);
              for (int64_t c = 0; c < ws[3]; ++c) sum += x[in + c] * weight[filter + c];
            }
          }
          y[at_nhwc(y.shape, n, oh, ow, o)] = sum;
        }
      }
    }
  }
  return y;
}

Array max_pool2d(const Array& x, const Pool2dAttrs& attrs) {
  return pool(x, attrs, [](const std::vector<double>& elements, int64_t) {
    double best = -std::numeric_limits<double>::infinity();
    for (const double e : elements) {
      if (std::isnan(e)) return e;
      best = std::max(best, e);
    }
    return best;
  });
}

Array avg_pool2d(const Array& x, const Pool2dAttrs& attrs) {
  return pool(x, attrs, [&](const std::vector<double>& elements, int64_t padded) {
    double sum = 0;
    for (const double e : elements) sum += e;
    const auto count = static_cast<int64_t>(elements.size());
    return sum / static_cast<double>(attrs.count_include_pad ? padded : count);
  });
}

// Each pixel of x, times the weights of its channel, is added to the outputs around its place.
Array conv_transpose2d(const Arrays& inputs, const Conv2dAttrs& a,
                       std::array<int32_t, 2> output_padding) {
  const Array &x = inputs[0], &weight = inputs[1];
  const Shape &xs = x.shape, &ws = weight.shape;
  const auto out_size = [&](size_t axis, int64_t size, int64_t kernel) {
    return (size - 1) * a.stride[axis] - a.padding_begin[axis] - a.padding_end[axis] +
           a.dilation[axis] * (kernel - 1) + output_padding[axis] + 1;
  };
  Array y(Shape{xs[0], out_size(0, xs[1], ws[1]), out_size(1, xs[2], ws[2]), ws[3] * a.groups});
  for (int64_t i = 0; i < y.shape.numel(); ++i)
    y[i] = inputs.size() > 2 ? inputs[2][i % y.shape[3]] : 0;
  const int64_t per_group = ws[0] / a.groups;
  for (int64_t i = 0; i < xs.numel(); ++i) {
    const int64_t c = i % xs[3], w = i / xs[3] % xs[2], h = i / xs[3] / xs[2] % xs[1],
                  n = i / xs[3] / xs[2] / xs[1];
    for (int64_t kh = 0; kh < ws[1]; ++kh) {
      for (int64_t kw = 0; kw < ws[2]; ++kw) {
        const int64_t oh = h * a.stride[0] - a.padding_begin[0] + kh * a.dilation[0];
        const int64_t ow = w * a.stride[1] - a.padding_begin[1] + kw * a.dilation[1];
        if (oh < 0 || oh >= y.shape[1] || ow < 0 || ow >= y.shape[2]) continue;
        for (int64_t o = 0; o < ws[3]; ++o) {
          y[at_nhwc(y.shape, n, oh, ow, c / per_group * ws[3] + o)] +=
              x[i] * weight[at_nhwc(ws, c, kh, kw, o)];
        }
      }
    }
  }
  return y;
}

namespace {

// y = rows (over the height) x columns (over the width), where weight(axis, out, in) says what an
// input position counts for an output position.
Array resample(const Array& x, int64_t height, int64_t width,
               const std::function<double(size_t axis, int64_t out, int64_t in)>& weight) {
  const Shape& s = x.shape;
  Array y(Shape{s[0], height, width, s[3]});
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t c = i % s[3], ow = i / s[3] % width, oh = i / s[3] / width % height,
                  n = i / s[3] / width / height;
    for (int64_t h = 0; h < s[1]; ++h) {
      for (int64_t w = 0; w < s[2]; ++w)
        y[i] += weight(0, oh, h) * weight(1, ow, w) * x[at_nhwc(s, n, h, w, c)];
    }
  }
  return y;
}

}  // namespace

Array adaptive_avg_pool2d(const Array& x, int64_t height, int64_t width) {
  return resample(x, height, width, [&](size_t axis, int64_t out, int64_t in) {
    const int64_t size = x.shape[axis == 0 ? 1 : 2], outputs = axis == 0 ? height : width;
    const double step = static_cast<double>(size) / static_cast<double>(outputs);
    const auto begin = static_cast<int64_t>(std::floor(static_cast<double>(out) * step + 1e-9));
    const auto end = static_cast<int64_t>(std::ceil(static_cast<double>(out + 1) * step - 1e-9));
    return in >= begin && in < end ? 1.0 / static_cast<double>(end - begin) : 0.0;
  });
}

// Bilinear: a hat of width 1 around the place that the output position has in the image.
Array interpolate(const Array& x, int64_t height, int64_t width, ResampleMode mode,
                  bool align_corners) {
  return resample(x, height, width, [&](size_t axis, int64_t out, int64_t in) {
    const double size = static_cast<double>(x.shape[axis == 0 ? 1 : 2]),
                 outputs = static_cast<double>(axis == 0 ? height : width),
                 at = static_cast<double>(out), position = static_cast<double>(in);
    if (mode == ResampleMode::nearest)
      return position == std::floor(at * size / outputs + 1e-9) ? 1.0 : 0.0;
    double place = align_corners ? (outputs > 1 ? at * (size - 1) / (outputs - 1) : 0.0)
                                 : (at + 0.5) * size / outputs - 0.5;
    place = std::min(std::max(place, 0.0), size - 1);
    return std::max(0.0, 1 - std::abs(place - position));
  });
}

}  // namespace engine::reference
