#include "tools/bench_cases.h"

#include <fmt/format.h>

#include "core/launch.h"
#include "core/ops.h"
#include "tools/bench_onednn.h"

namespace engine::tools {

namespace {

Tensor random(const Shape& shape) {
  Tensor x = empty(shape);
  ops::normal_(x, 0.0, 1.0);
  return x;
}

std::string text(const Shape& shape) {
  std::string result;
  for (const int64_t size : shape.dims()) {
    result += (result.empty() ? "" : "x") + std::to_string(size);
  }
  return result;
}

class Cases {
 public:
  std::vector<BenchCase> list;

  // A call on random tensors of these shapes.
  void add(const std::string& op, const std::string& detail, std::vector<Shape> shapes,
           std::function<void(const std::vector<Tensor>&)> call) {
    const std::string name = fmt::format("{} {}", op, detail);
    list.push_back({name, [shapes = std::move(shapes), call = std::move(call)] {
                      std::vector<Tensor> inputs;
                      for (const Shape& shape : shapes) inputs.push_back(random(shape));
                      return [inputs, call] { call(inputs); };
                    }});
  }

  // oneDNN's own call beside the last case.
  void against(std::function<std::function<void()>()> rival) {
    list.back().rival = std::move(rival);
  }

  using Unary = Tensor (*)(const Tensor&);
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  void unary(const std::string& op, const Shape& shape, Unary f) {
    add(op, text(shape), {shape}, [f](const std::vector<Tensor>& in) { f(in[0]); });
  }
  void binary(const std::string& op, const Shape& a, const Shape& b, Binary f) {
    add(op, text(a) + (a == b ? "" : " by " + text(b)), {a, b},
        [f](const std::vector<Tensor>& in) { f(in[0], in[1]); });
  }
  void pair(OpId id, const std::string& op, const Shape& shape, const Attrs& attrs = {}) {
    add(op, text(shape), {shape, shape}, [id, attrs](const std::vector<Tensor>& in) {
      launch(id, attrs, {in[0], in[1]});
    });
  }
};

const Shape kLarge{64, 1024, 256};    // 64 MiB
const Shape kRows{16384, 1024};       // 64 MiB
const Shape kImages{64, 56, 56, 64};  // 49 MiB

void elementwise(Cases& c) {
  c.binary("copy_", kLarge, kLarge, [](const Tensor& a, const Tensor& b) {
    ops::copy_(a, b);
    return a;
  });
  c.binary("add", kLarge, kLarge, ops::add);
  c.binary("mul", kLarge, Shape{256}, ops::mul);
  c.binary("mul", kLarge, Shape{64, 1024, 1}, ops::mul);
  c.unary("relu", kLarge, ops::relu);
  c.pair(OpId::relu_backward, "relu_backward", kLarge);
  c.unary("exp", kLarge, ops::exp);
  c.unary("log", kLarge, ops::log);
  c.unary("sqrt", kLarge, ops::sqrt);
  c.unary("gelu", kLarge, ops::gelu);
  c.pair(OpId::gelu_backward, "gelu_backward", kLarge, ActivationAttrs{});
  c.unary("gelu_tanh", kLarge, ops::gelu_tanh);
  c.unary("silu", kLarge, ops::silu);
  c.unary("tanh", kLarge, ops::tanh);
  c.unary("softplus", kLarge, [](const Tensor& x) { return ops::softplus(x); });
  c.unary("elu", kLarge, [](const Tensor& x) { return ops::elu(x); });
  c.binary("maximum", kLarge, kLarge, ops::maximum);
  c.binary("where by lt", kLarge, kLarge,
           [](const Tensor& a, const Tensor& b) { return ops::where(ops::lt(a, b), a, b); });
  c.unary("dropout", kLarge, [](const Tensor& x) { return ops::dropout(x, 0.5, true); });
  c.unary("permute to 0,2,1", kLarge, [](const Tensor& x) { return ops::transpose(x, 1, 2); });
}

void reductions(Cases& c) {
  c.unary("sum of all", kLarge, [](const Tensor& x) { return ops::sum(x); });
  c.unary("sum over rows", kRows, [](const Tensor& x) {
    const int64_t axis[] = {0};
    return ops::sum(x, axis);
  });
  c.unary("sum over columns", kRows, [](const Tensor& x) {
    const int64_t axis[] = {1};
    return ops::sum(x, axis);
  });
  c.unary("max over columns", kRows, [](const Tensor& x) {
    const int64_t axis[] = {1};
    return ops::max(x, axis);
  });
  c.unary("softmax", kRows, [](const Tensor& x) { return ops::softmax(x); });
  c.unary("log_softmax", kRows, [](const Tensor& x) { return ops::log_softmax(x); });
  c.pair(OpId::softmax_backward, "softmax_backward", kRows, AxisAttrs{1});
  c.pair(OpId::log_softmax_backward, "log_softmax_backward", kRows, AxisAttrs{1});
}

// Two passes over memory each: the statistics need all of a channel before an element can be
// written.
void normalisations(Cases& c) {
  c.add("batch_norm", text(kImages), {kImages, {64}, {64}},
        [](const std::vector<Tensor>& in) { ops::batch_norm(in[0], in[1], in[2], {}, {}, true); });
  c.add("group_norm in 8", text(kImages), {kImages, {64}, {64}},
        [](const std::vector<Tensor>& in) { ops::group_norm(in[0], 8, in[1], in[2]); });
  c.add("instance_norm", text(kImages), {kImages, {64}, {64}},
        [](const std::vector<Tensor>& in) { ops::instance_norm(in[0], in[1], in[2]); });
  c.add("layer_norm", text(kRows), {kRows, {1024}, {1024}},
        [](const std::vector<Tensor>& in) { ops::layer_norm(in[0], 1, in[1], in[2]); });
  c.add("rms_norm", text(kRows), {kRows, {1024}},
        [](const std::vector<Tensor>& in) { ops::rms_norm(in[0], 1, in[1]); });
  const auto backward = [](OpId id, const Attrs& attrs) {
    return [id, attrs](const std::vector<Tensor>& in) {
      Tensor outputs[3];
      launch(id, attrs, in, outputs);
    };
  };
  constexpr uint32_t kAll = 7;
  c.add("batch_norm_backward", text(kImages), {kImages, kImages, {64}, {64}, {64}},
        backward(OpId::batch_norm_backward, BatchNormAttrs{1e-5, true, kAll}));
  c.add("layer_norm_backward", text(kRows), {kRows, kRows, {1024}, {16384}, {16384}},
        backward(OpId::layer_norm_backward, RowNormAttrs{1e-5, 1, kAll}));
}

void images(Cases& c) {
  for (const Pool2dAttrs& pool :
       {Pool2dAttrs{.kernel = {2, 2}, .stride = {2, 2}},
        Pool2dAttrs{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}}) {
    const std::string detail = fmt::format("{0}x{0} of {1}", pool.kernel[0], text(kImages));
    c.add("max_pool2d", detail, {kImages},
          [pool](const std::vector<Tensor>& in) { ops::max_pool2d(in[0], pool); });
    c.add("avg_pool2d", detail, {kImages},
          [pool](const std::vector<Tensor>& in) { ops::avg_pool2d(in[0], pool); });
  }
  struct Convolution {
    Shape image, weight;
    int32_t stride, padding;
  };
  for (const Convolution& s : {Convolution{{64, 28, 28, 1}, {6, 5, 5, 1}, 1, 2},
                               Convolution{{64, 14, 14, 6}, {16, 5, 5, 6}, 1, 0},
                               Convolution{{64, 32, 32, 3}, {64, 3, 3, 3}, 1, 1},
                               Convolution{{64, 32, 32, 64}, {64, 3, 3, 64}, 1, 1},
                               Convolution{{64, 8, 8, 256}, {256, 3, 3, 256}, 1, 1},
                               Convolution{{16, 56, 56, 64}, {128, 1, 1, 64}, 2, 0}}) {
    Conv2dAttrs attrs;
    attrs.stride = {s.stride, s.stride};
    attrs.padding_begin = attrs.padding_end = {s.padding, s.padding};
    const auto size = [&](int i) {
      return (s.image[i] + 2 * s.padding - s.weight[i]) / s.stride + 1;
    };
    const Shape output{s.image[0], size(1), size(2), s.weight[0]};
    const std::string detail =
        fmt::format("{} by {} stride {}", text(s.image), text(s.weight), s.stride);
    c.add("conv2d", detail, {s.image, s.weight},
          [attrs](const std::vector<Tensor>& in) { ops::conv2d(in[0], in[1], {}, attrs); });
    const auto rival = [&](ConvPass pass) {
      c.against([=] { return onednn_conv(pass, s.image, s.weight, output, attrs); });
    };
    rival(ConvPass::forward);
    const Conv2dBackwardAttrs data{attrs, {s.image[1], s.image[2]}};
    c.add("conv2d_backward_data", detail, {output, s.weight},
          [data](const std::vector<Tensor>& in) {
            launch(OpId::conv2d_backward_data, data, {in[0], in[1]});
          });
    rival(ConvPass::backward_data);
    const Conv2dBackwardAttrs weight{attrs, {s.weight[1], s.weight[2]}};
    c.add("conv2d_backward_weight", detail, {s.image, output},
          [weight](const std::vector<Tensor>& in) {
            Tensor outputs[2];
            launch(OpId::conv2d_backward_weight, weight, in, outputs);
          });
    rival(ConvPass::backward_weight);
  }
}

void matrices(Cases& c) {
  struct Product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
  };
  for (const Product& p :
       {Product{2048, 2048, 2048, false, false}, Product{64, 512, 784, false, true},
        Product{512, 784, 64, true, false}, Product{2048, 1536, 384, false, true},
        Product{16, 16, 16, false, false}}) {
    const Shape a = p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k};
    const Shape b = p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
    c.add("matmul",
          fmt::format("{}{} by {}{}", text(a), p.transpose_a ? "^T" : "", text(b),
                      p.transpose_b ? "^T" : ""),
          {a, b}, [p](const std::vector<Tensor>& in) {
            ops::matmul(in[0], in[1], p.transpose_a, p.transpose_b);
          });
    c.against([p] { return onednn_matmul(p.m, p.n, p.k, {p.transpose_a, p.transpose_b}); });
  }
}

void optimizers(Cases& c) {
  const Shape flat{16 << 20};
  c.add("sgd_step_", text(flat), {flat, flat, flat}, [](const std::vector<Tensor>& in) {
    ops::sgd_step_(in[0], in[1], in[2],
                   {.lr = 1e-6f,
                    .momentum = 0.9f,
                    .dampening = 0.f,
                    .weight_decay = 1e-4f,
                    .nesterov = false,
                    .first_step = false});
  });
  c.add("adam_step_", text(flat), {flat, flat, flat, flat}, [](const std::vector<Tensor>& in) {
    const Tensor v = in[3];
    ops::adam_step_(in[0], in[1], in[2], v,
                    {.lr = 1e-6f,
                     .beta1 = 0.9f,
                     .beta2 = 0.999f,
                     .eps = 1e-8f,
                     .weight_decay = 0.f,
                     .decoupled = false,
                     .bias_correction1 = 0.5f,
                     .bias_correction2 = 0.5f});
  });
  c.unary("sum_squares", flat, ops::sum_squares);
}

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> list = [] {
    Cases cases;
    elementwise(cases);
    reductions(cases);
    normalisations(cases);
    images(cases);
    matrices(cases);
    optimizers(cases);
    return std::move(cases.list);
  }();
  return list;
}

}  // namespace engine::tools
