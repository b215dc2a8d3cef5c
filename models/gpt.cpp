// gpt, gpt2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: layer
// norms before attention and MLP, learned positions, logits by the token embedding transposed.
// 124,439,808 parameters with 12 layers of width 768, a context of 1024 and 50,257 tokens. Names,
// and the layouts of files, are those of Hugging Face's GPT2Model; a GPT2LMHeadModel's file is read
// as well.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/context.h"
#include "core/error.h"
#include "layers/layers.h"
#include "layers/normalization.h"
#include "models/files/weights.h"
#include "models/networks.h"

namespace engine {

namespace {

constexpr double kInitStddev = 0.02;
constexpr std::string_view kPrefix = "transformer.";

class SelfAttention : public Module {
 public:
  SelfAttention(int64_t width, int64_t heads, double dropout, Device device)
      : heads_(heads), dropout_(dropout) {
    c_attn_ = register_module("c_attn", std::make_shared<Linear>(width, 3 * width, device));
    c_proj_ = register_module("c_proj", std::make_shared<Linear>(width, width, device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    const int64_t n = x.size(0), t = x.size(1), width = x.size(2), depth = width / heads_;
    // One copy into [3, N, heads, T, depth], of which q, k and v are views.
    const Tensor qkv = ops::permute(ops::reshape((*c_attn_)(x), {n, t, 3, heads_, depth}),
                                    std::array<int64_t, 5>{2, 0, 3, 1, 4});
    const auto part = [&](int64_t i) {
      return ops::reshape(ops::slice(qkv, 0, i, i + 1), {n, heads_, t, depth});
    };
    const Tensor y =
        ops::attention(part(0), part(1), part(2), {}, /*causal=*/true, training() ? dropout_ : 0);
    return (*c_proj_)(
        ops::reshape(ops::permute(y, std::array<int64_t, 4>{0, 2, 1, 3}), {n, t, width}));
  }

 private:
  int64_t heads_;
  double dropout_;
  std::shared_ptr<Linear> c_attn_, c_proj_;
};

class Mlp : public Module {
 public:
  Mlp(int64_t width, Device device) {
    c_fc_ = register_module("c_fc", std::make_shared<Linear>(width, 4 * width, device));
    c_proj_ = register_module("c_proj", std::make_shared<Linear>(4 * width, width, device));
  }

 protected:
  Tensor forward(const Tensor& x) override { return (*c_proj_)(ops::gelu_tanh((*c_fc_)(x))); }

 private:
  std::shared_ptr<Linear> c_fc_, c_proj_;
};

class Block : public Module {
 public:
  Block(int64_t width, int64_t heads, double dropout, Device device) : dropout_(dropout) {
    ln_1_ = register_module("ln_1", std::make_shared<LayerNorm>(Shape{width}, device));
    attn_ = register_module("attn", std::make_shared<SelfAttention>(width, heads, dropout, device));
    ln_2_ = register_module("ln_2", std::make_shared<LayerNorm>(Shape{width}, device));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(width, device));
  }

 protected:
  Tensor forward(const Tensor& x) override {
    const auto dropped = [&](const Tensor& y) { return ops::dropout(y, dropout_, training()); };
    const Tensor y = ops::add(x, dropped((*attn_)((*ln_1_)(x))));
    return ops::add(y, dropped((*mlp_)((*ln_2_)(y))));
  }

 private:
  double dropout_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<SelfAttention> attn_;
  std::shared_ptr<Mlp> mlp_;
};

class Gpt : public Module, public WeightsFormat {
 public:
  explicit Gpt(const ModelOptions& o)
      : context_(o.input.rank() == 1 ? o.input[0] : 0), dropout_(o.dropout.value_or(0)) {
    const int64_t layers = o.layers ? o.layers : 6, width = o.width ? o.width : 384,
                  heads = o.heads ? o.heads : 6;
    check(context_ >= 1, "gpt", "expected an input [T] of at least 1 token, got {}", o.input);
    check(layers >= 1 && heads >= 1 && width >= 1 && width % heads == 0, "gpt",
          "expected at least 1 layer, and a width that is a multiple of the heads, got {} layers "
          "of width {} with {} heads",
          layers, width, heads);
    wte_ = register_module("wte", std::make_shared<Embedding>(o.classes, width, o.device));
    wpe_ = register_module("wpe", std::make_shared<Embedding>(context_, width, o.device));
    tokens_ = wte_->parameters()[0];
    positions_ = wpe_->parameters()[0];
    for (int64_t i = 0; i < layers; ++i) {
      h_.push_back(register_module("h." + std::to_string(i),
                                   std::make_shared<Block>(width, heads, dropout_, o.device)));
    }
    ln_f_ = register_module("ln_f", std::make_shared<LayerNorm>(Shape{width}, o.device));

    // The residual stream sums two outputs a layer; their weights are smaller, so that its variance
    // does not grow with the depth.
    const NoGradScope no_grad;
    for (const auto& [name, parameter] : named_parameters()) {
      if (name.ends_with(".bias")) {
        ops::fill_(parameter, 0);
      } else if (parameter.rank() == 2) {
        const bool residual = name.ends_with(".c_proj.weight");
        ops::normal_(
            parameter, 0,
            residual ? kInitStddev / std::sqrt(2.0 * static_cast<double>(layers)) : kInitStddev);
      }
    }
  }

  // Conv1D, which Hugging Face's GPT-2 has for linear layers, holds [in, out].
  bool transposed(std::string_view name) const override {
    return name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") ||
           name.ends_with(".c_fc.weight");
  }

  std::string name_here(std::string_view name) const override {
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    return std::string(name);
  }

  // What files hold beside the parameters: the weight of the logits, which is the token embedding;
  // and, in older ones, each layer's causal mask and the score that it gives to what is hidden.
  std::string objection(std::string_view name, const Tensor& value,
                        const std::function<Tensor(std::string_view)>& read) const override {
    if (name == "lm_head.weight")
      return equal(value, read("wte.weight")) ? "" : "wte.weight's values";
    if (name.starts_with("h.") && name.ends_with(".attn.bias")) {
      return is_causal_mask(value) ? "" : fmt::format("a causal mask [1, 1, {0}, {0}]", context_);
    }
    if (name.starts_with("h.") && name.ends_with(".attn.masked_bias")) {
      const bool low = value.numel() == 1 && ops::cast(value, DType::f32).item() < -9e3;
      return low ? "" : "-1e4";
    }
    return WeightsFormat::objection(name, value, read);
  }

 protected:
  Tensor forward(const Tensor& ids) override {
    check(
        ids.rank() == 2 && ids.dtype() == DType::i64 && ids.size(1) >= 1 && ids.size(1) <= context_,
        "gpt", "expected ids i64 [N, T] with T from 1 to {}, got {}", context_, describe(ids));
    Tensor y = ops::add((*wte_)(ids), ops::slice(positions_, 0, 0, ids.size(1)));
    y = ops::dropout(y, dropout_, training());
    for (const auto& block : h_) y = (*block)(y);
    return ops::linear((*ln_f_)(y), tokens_);
  }

 private:
  static bool equal(const Tensor& a, const Tensor& b) {
    return a.defined() && b.defined() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
           std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  }
  // [1, 1, T, T], ones up to the diagonal, as u8, bool or floating.
  bool is_causal_mask(const Tensor& mask) const {
    if (mask.shape() != Shape{1, 1, context_, context_}) return false;
    const std::vector<float> values = ops::cast(mask, DType::f32).to_vector<float>();
    for (int64_t i = 0; i < mask.numel(); ++i) {
      const float expected = i % context_ <= i / context_ ? 1.f : 0.f;
      if (values[static_cast<size_t>(i)] != expected) return false;
    }
    return true;
  }

  int64_t context_;
  double dropout_;
  std::shared_ptr<Embedding> wte_, wpe_;
  Tensor tokens_, positions_;  // the embeddings' weights
  std::vector<std::shared_ptr<Block>> h_;
  std::shared_ptr<LayerNorm> ln_f_;
};

}  // namespace

std::unique_ptr<Model> make_gpt(const ModelOptions& options) {
  return std::make_unique<Gpt>(options);
}

}  // namespace engine
