#include "tools/bench_onednn.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "backends/cpu/onednn.h"

namespace engine::tools {

namespace {

using dnnl::memory;

dnnl::stream& stream() {
  static dnnl::stream instance(cpu::onednn_engine());
  return instance;
}

memory filled(const memory::desc& desc) {
  memory result(desc, cpu::onednn_engine());
  auto* values = static_cast<float*>(result.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i)
    values[i] = static_cast<float>(i % 17) / 16.f - 0.5f;
  return result;
}

template <class Primitive>
std::function<void()> runner(const Primitive& primitive,
                             std::unordered_map<int, memory> arguments) {
  return [primitive, arguments = std::move(arguments)] {
    primitive.execute(stream(), arguments);
    stream().wait();
  };
}

}  // namespace

std::function<void()> onednn_matmul(int64_t m, int64_t n, int64_t k, const MatmulAttrs& attrs) {
  const auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
    return memory::desc({rows, columns}, memory::data_type::f32,
                        transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
  };
  const memory::desc a = matrix(m, k, attrs.transpose_a), b = matrix(k, n, attrs.transpose_b),
                     y = matrix(m, n, false);
  const auto pd = cpu::onednn::matmul(a, b, {}, y, {});
  return runner(
      dnnl::matmul(pd),
      {{DNNL_ARG_SRC, filled(a)}, {DNNL_ARG_WEIGHTS, filled(b)}, {DNNL_ARG_DST, filled(y)}});
}

std::function<void()> onednn_conv(ConvPass pass, const Shape& image, const Shape& weight,
                                  const Shape& output, const Conv2dAttrs& a) {
  const auto nhwc = [](const Shape& s) {
    return memory::desc({s[0], s[3], s[1], s[2]}, memory::data_type::f32, memory::format_tag::nhwc);
  };
  const memory::desc x = nhwc(image), y = nhwc(output),
                     w({weight[0], weight[3], weight[1], weight[2]}, memory::data_type::f32,
                       memory::format_tag::any);
  const memory::dims stride{a.stride[0], a.stride[1]},
      dilation{a.dilation[0] - 1, a.dilation[1] - 1}, begin{a.padding_begin[0], a.padding_begin[1]},
      end{a.padding_end[0], a.padding_end[1]};
  const auto forward = cpu::onednn::conv_forward(x, w, {}, y, stride, dilation, begin, end, {});
  if (pass == ConvPass::forward) {
    return runner(dnnl::convolution_forward(forward),
                  {{DNNL_ARG_SRC, filled(x)},
                   {DNNL_ARG_WEIGHTS, filled(forward.weights_desc())},
                   {DNNL_ARG_DST, filled(y)}});
  }
  if (pass == ConvPass::backward_data) {
    const auto pd =
        cpu::onednn::conv_backward_data(x, w, y, stride, dilation, begin, end, {}, forward);
    return runner(dnnl::convolution_backward_data(pd),
                  {{DNNL_ARG_DIFF_DST, filled(y)},
                   {DNNL_ARG_WEIGHTS, filled(pd.weights_desc())},
                   {DNNL_ARG_DIFF_SRC, filled(x)}});
  }
  const auto pd =
      cpu::onednn::conv_backward_weights(x, w, {}, y, stride, dilation, begin, end, {}, forward);
  return runner(dnnl::convolution_backward_weights(pd),
                {{DNNL_ARG_SRC, filled(x)},
                 {DNNL_ARG_DIFF_DST, filled(y)},
                 {DNNL_ARG_DIFF_WEIGHTS, filled(pd.diff_weights_desc())}});
}

}  // namespace engine::tools
