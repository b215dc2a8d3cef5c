#include "tools/bench_cases.h"

#include <fmt/format.h>

#include <tuple>

#include "core/launch.h"
#include "core/ops.h"
#include "tools/bench_onednn.h"

namespace engine::tools {

namespace {

Tensor random(const Shape& shape, Device device) {
  Tensor x = empty(shape, DType::f32, device);
  ops::normal_(x, 0.0, 1.0);
  return x;
}

// i64 positions in [0, limit), far from each other.
Tensor positions(const Shape& shape, int64_t limit, Device device) {
  std::vector<int64_t> list(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = static_cast<int64_t>(i * 2654435761u % static_cast<uint64_t>(limit));
  return from_host(shape, list, device);
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
    list.push_back({name, [shapes = std::move(shapes), call = std::move(call)](Device device) {
                      std::vector<Tensor> inputs;
                      for (const Shape& shape : shapes) inputs.push_back(random(shape, device));
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
  void in_place(const std::string& op, const Shape& shape, void (*f)(const Tensor&)) {
    add(op, text(shape), {shape}, [f](const std::vector<Tensor>& in) { f(in[0]); });
  }
  void binary(const std::string& op, const Shape& a, const Shape& b, Binary f) {
    add(op, text(a) + (a == b ? "" : " by " + text(b)), {a, b},
        [f](const std::vector<Tensor>& in) { f(in[0], in[1]); });
  }
  // A random tensor and positions of another shape.
  void with_positions(const std::string& op, const Shape& shape, const Shape& index, int64_t limit,
                      void (*f)(const Tensor&, const Tensor&)) {
    list.push_back({fmt::format("{} {} at {}", op, text(shape), text(index)), [=](Device device) {
                      return [x = random(shape, device), i = positions(index, limit, device), f] {
                        f(x, i);
                      };
                    }});
  }
  void pair(OpId id, const std::string& op, const Shape& shape, const Attrs& attrs = {}) {
    add(op, text(shape), {shape, shape}, [id, attrs](const std::vector<Tensor>& in) {
      launch(id, attrs, {in[0], in[1]});
    });
  }
};

const Shape kLarge{64, 1024, 256};    // 64 MiB
const Shape kSmall{64, 1024, 32};     // 8 MiB
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
  c.binary("sub", kLarge, kLarge, ops::sub);
  c.binary("div", kLarge, kLarge, ops::div);
  c.binary("maximum", kLarge, kLarge, ops::maximum);
  c.binary("minimum", kLarge, kLarge, ops::minimum);
  c.binary("pow", kSmall, kSmall, ops::pow);
  c.binary("eq", kLarge, kLarge, ops::eq);
  c.binary("where by lt", kLarge, kLarge,
           [](const Tensor& a, const Tensor& b) { return ops::where(ops::lt(a, b), a, b); });
  c.unary("scale", kLarge, [](const Tensor& x) { return ops::scale(x, 2); });
  c.unary("shift", kLarge, [](const Tensor& x) { return ops::shift(x, 2); });
  c.unary("neg", kLarge, ops::neg);
  c.unary("abs", kLarge, ops::abs);
  c.unary("rsqrt", kLarge, ops::rsqrt);
  c.unary("pow 2", kLarge, [](const Tensor& x) { return ops::pow(x, 2); });
  c.unary("clamp", kLarge, [](const Tensor& x) { return ops::clamp(x, -1, 1); });
  c.unary("leaky_relu", kLarge, [](const Tensor& x) { return ops::leaky_relu(x); });
  c.unary("sigmoid", kLarge, ops::sigmoid);
  const ActivationAttrs activation;
  for (const auto& [id, name, attrs] :
       {std::tuple<OpId, const char*, Attrs>{OpId::abs_backward, "abs_backward", {}},
        {OpId::clamp_backward, "clamp_backward", ClampAttrs{-1, 1}},
        {OpId::leaky_relu_backward, "leaky_relu_backward", activation},
        {OpId::gelu_tanh_backward, "gelu_tanh_backward", activation},
        {OpId::silu_backward, "silu_backward", activation},
        {OpId::sigmoid_backward, "sigmoid_backward", activation},
        {OpId::tanh_backward, "tanh_backward", activation},
        {OpId::softplus_backward, "softplus_backward", activation},
        {OpId::elu_backward, "elu_backward", activation}}) {
    c.pair(id, name, kLarge, attrs);
  }
  c.in_place("fill_", kLarge, [](const Tensor& x) { ops::fill_(x, 1); });
  c.in_place("uniform_", kLarge, [](const Tensor& x) { ops::uniform_(x, 0, 1); });
  c.in_place("normal_", kLarge, [](const Tensor& x) { ops::normal_(x, 0, 1); });
  c.in_place("scale_", kLarge, [](const Tensor& x) { ops::scale_(x, 1); });
  c.add("accumulate_", text(kLarge), {kLarge, kLarge},
        [](const std::vector<Tensor>& in) { ops::accumulate_(in[0], in[1]); });
  c.unary("cast to bf16", kLarge, [](const Tensor& x) { return ops::cast(x, DType::bf16); });
  c.unary("dropout", kLarge, [](const Tensor& x) { return ops::dropout(x, 0.5, true); });
  c.unary("permute to 0,2,1", kLarge, [](const Tensor& x) { return ops::transpose(x, 1, 2); });
}

void shapes(Cases& c) {
  c.unary("slice every second row", kRows,
          [](const Tensor& x) { return ops::slice(x, 0, 0, 16384, 2); });
  c.unary("slice the middle columns", kRows,
          [](const Tensor& x) { return ops::slice(x, 1, 256, 768); });
  c.pair(OpId::concat, "concat along 1", kRows, AxisAttrs{1});
  c.unary("flip rows", kRows, [](const Tensor& x) {
    const int64_t axis[] = {0};
    return ops::flip(x, axis);
  });
  for (const PadMode mode : {PadMode::constant, PadMode::reflect}) {
    c.add(mode == PadMode::constant ? "pad by zeros" : "pad by reflection", text(kImages),
          {kImages}, [mode](const std::vector<Tensor>& in) {
            const int64_t margin[] = {0, 1, 1, 0};
            ops::pad(in[0], margin, margin, mode);
          });
  }
  c.unary("broadcast_to 64x1024x256", Shape{1024, 1},
          [](const Tensor& x) { return ops::broadcast_to(x, kLarge); });
  // Tables of 32 MiB, read at random.
  c.with_positions("embedding", Shape{8192, 1024}, Shape{16384}, 8192,
                   [](const Tensor& x, const Tensor& i) { ops::embedding(x, i); });
  c.with_positions("gather columns", Shape{16384, 512}, kRows, 512,
                   [](const Tensor& x, const Tensor& i) { ops::gather(x, 1, i); });
  c.with_positions("scatter_add columns", kRows, kRows, 1024,
                   [](const Tensor& x, const Tensor& i) { ops::scatter_add(x, 1, i, x); });
  c.with_positions("embedding_backward", kRows, Shape{16384}, 8192,
                   [](const Tensor& dy, const Tensor& i) {
                     launch(OpId::embedding_backward, EmbeddingAttrs{8192}, {dy, i});
                   });
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
  c.unary("argmax over columns", kRows, [](const Tensor& x) { return ops::argmax(x, 1); });
  c.unary("var over columns", kRows, [](const Tensor& x) {
    const int64_t axis[] = {1};
    return ops::var(x, axis);
  });
  c.unary("logsumexp over columns", kRows, [](const Tensor& x) {
    const int64_t axis[] = {1};
    return ops::logsumexp(x, axis);
  });
  c.unary("masked_softmax, causal", Shape{16, 1024, 1024},
          [](const Tensor& x) { return ops::masked_softmax(x, {}, true); });
  c.unary("softmax", kRows, [](const Tensor& x) { return ops::softmax(x); });
  c.unary("log_softmax", kRows, [](const Tensor& x) { return ops::log_softmax(x); });
  c.add("extremum_backward", text(kRows), {{16384}, kRows, {16384}},
        [](const std::vector<Tensor>& in) {
          launch(OpId::extremum_backward, ReduceAttrs{2, false}, {in[0], in[1], in[2]});
        });
  c.add("var_backward", text(kRows), {{16384}, kRows}, [](const std::vector<Tensor>& in) {
    launch(OpId::var_backward, VarAttrs{2, false, 1}, {in[0], in[1]});
  });
  c.add("logsumexp_backward", text(kRows), {{16384}, kRows, {16384}},
        [](const std::vector<Tensor>& in) {
          launch(OpId::logsumexp_backward, ReduceAttrs{2, false}, {in[0], in[1], in[2]});
        });
  c.pair(OpId::softmax_backward, "softmax_backward", kRows, AxisAttrs{1});
  c.pair(OpId::log_softmax_backward, "log_softmax_backward", kRows, AxisAttrs{1});
}

// The upstream gradient and the rows' log-sum-exp of the cross-entropy case, made once.
struct RowTensors {
  Tensor one, zeros;
};
const RowTensors& row_tensors(Device device) {
  static const RowTensors instance{full({}, 1, DType::f32, device),
                                   full({kRows[0]}, 0, DType::f32, device)};
  return instance;
}

void losses(Cases& c) {
  c.with_positions("cross_entropy", kRows, Shape{16384}, 1024,
                   [](const Tensor& x, const Tensor& t) { ops::cross_entropy(x, t); });
  c.with_positions(
      "cross_entropy_backward", kRows, Shape{16384}, 1024, [](const Tensor& x, const Tensor& t) {
        const RowTensors& rows = row_tensors(x.device());
        launch(OpId::cross_entropy_backward, LossAttrs{}, {rows.one, x, t, {}, rows.zeros});
      });
  c.with_positions("nll_loss", kRows, Shape{16384}, 1024,
                   [](const Tensor& x, const Tensor& t) { ops::nll_loss(x, t); });
  c.binary("mse_loss", kLarge, kLarge,
           [](const Tensor& a, const Tensor& b) { return ops::mse_loss(a, b); });
  for (const auto& [id, name] : {std::pair{OpId::mse_loss_backward, "mse_loss_backward"},
                                 {OpId::l1_loss_backward, "l1_loss_backward"},
                                 {OpId::smooth_l1_loss_backward, "smooth_l1_loss_backward"},
                                 {OpId::bce_with_logits_backward, "bce_with_logits_backward"}}) {
    c.add(name, text(kLarge), {{}, kLarge, kLarge}, [id](const std::vector<Tensor>& in) {
      Tensor outputs[2];
      launch(id, PointwiseLossAttrs{}, in, outputs);
    });
  }
  c.binary("l1_loss", kLarge, kLarge,
           [](const Tensor& a, const Tensor& b) { return ops::l1_loss(a, b); });
  c.binary("smooth_l1_loss", kLarge, kLarge,
           [](const Tensor& a, const Tensor& b) { return ops::smooth_l1_loss(a, b); });
  c.binary("bce_with_logits", kLarge, kLarge,
           [](const Tensor& a, const Tensor& b) { return ops::bce_with_logits(a, b); });
}

void sequences(Cases& c) {
  const Shape heads{8, 8, 512, 64};
  c.add("attention, causal", text(heads), {heads, heads, heads},
        [](const std::vector<Tensor>& in) { ops::attention(in[0], in[1], in[2], {}, true); });
  c.add("lstm", "64 steps of 32x256 to 256", {{64, 32, 256}, {1024, 256}, {1024, 256}},
        [](const std::vector<Tensor>& in) { ops::lstm(in[0], in[1], in[2]); });
  c.add("gru", "64 steps of 32x256 to 256", {{64, 32, 256}, {768, 256}, {768, 256}},
        [](const std::vector<Tensor>& in) { ops::gru(in[0], in[1], in[2]); });
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
  c.add("group_norm_backward", text(kImages), {kImages, kImages, {64}, {64, 8}, {64, 8}},
        backward(OpId::group_norm_backward, GroupNormAttrs{1e-5, 8, kAll}));
  c.add("rms_norm_backward", text(kRows), {kRows, kRows, {1024}, {16384}},
        [](const std::vector<Tensor>& in) {
          Tensor outputs[2];
          launch(OpId::rms_norm_backward, RowNormAttrs{1e-5, 1, 3}, in, outputs);
        });
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
  const Pool2dAttrs pool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const Shape pooled{64, 28, 28, 64};
  c.add("avg_pool2d_backward", "3x3 of " + text(kImages), {pooled},
        [pool](const std::vector<Tensor>& in) {
          launch(OpId::avg_pool2d_backward, Pool2dBackwardAttrs{pool, {56, 56}}, {in[0]});
        });
  c.list.push_back(
      {"max_pool2d_backward 3x3 of " + text(kImages), [pool, pooled](Device device) {
         Tensor positions = empty(pooled, DType::u8, device);
         ops::fill_(positions, 4);  // the middle
         return [pool, positions, dy = random(pooled, device)] {
           launch(OpId::max_pool2d_backward, Pool2dBackwardAttrs{pool, {56, 56}}, {dy, positions});
         };
       }});
  for (const ResampleMode mode : {ResampleMode::nearest, ResampleMode::bilinear}) {
    c.add(mode == ResampleMode::nearest ? "interpolate_backward nearest 2x"
                                        : "interpolate_backward bilinear 2x",
          text(kImages), {kImages}, [mode](const std::vector<Tensor>& in) {
            launch(OpId::interpolate_backward, ResampleAttrs{{56, 56}, {28, 28}, mode, false},
                   {in[0]});
          });
  }
  c.add("adaptive_avg_pool2d to 1x1", text(kImages), {kImages},
        [](const std::vector<Tensor>& in) { ops::adaptive_avg_pool2d(in[0], 1, 1); });
  for (const ResampleMode mode : {ResampleMode::nearest, ResampleMode::bilinear}) {
    c.add(mode == ResampleMode::nearest ? "interpolate nearest 2x" : "interpolate bilinear 2x",
          text(pooled), {pooled},
          [mode](const std::vector<Tensor>& in) { ops::interpolate(in[0], 56, 56, mode); });
  }
  c.add("conv_transpose2d", "32x28x28x64 by 64x3x3x32 stride 2", {{32, 28, 28, 64}, {64, 3, 3, 32}},
        [](const std::vector<Tensor>& in) {
          ops::conv_transpose2d(in[0], in[1], {}, {{2, 2}, {1, 1}, {1, 1}}, {1, 1});
        });
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
    shapes(cases);
    reductions(cases);
    losses(cases);
    normalisations(cases);
    images(cases);
    matrices(cases);
    sequences(cases);
    optimizers(cases);
    return std::move(cases.list);
  }();
  return list;
}

}  // namespace engine::tools
