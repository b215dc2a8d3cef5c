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

}  // namespace engine::reference
