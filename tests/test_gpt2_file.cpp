// A file of GPT-2's weights as Hugging Face's library saves it: tests/data/gpt2.safetensors, made
// by tests/data/make_gpt2_file.py.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/context.h"
#include "models/files/safetensors.h"
#include "models/files/weights.h"
#include "models/networks.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

const std::string kFile = ENGINE_TEST_DATA "/gpt2.safetensors";
const std::string kPrefix = "transformer.";

std::unique_ptr<Model> small_gpt() {
  return make_gpt({.input = Shape{3}, .classes = 5, .layers = 2, .width = 4, .heads = 2});
}

Tensor& tensor_of(Named& tensors, const std::string& name) {
  return std::find_if(tensors.begin(), tensors.end(),
                      [&](const auto& t) { return t.first == name; })
      ->second;
}

}  // namespace

TEST_CASE("weights: a GPT-2 of Hugging Face loads and computes the same", "[files]") {
  cpu::register_backend();
  const NoGradScope no_grad;
  const auto gpt = small_gpt();
  load_weights(kFile, *gpt);
  Named run = read_all(ENGINE_TEST_DATA "/gpt2_run.safetensors");
  const std::vector<float> expected = tensor_of(run, "logits").to_vector<float>();
  const std::vector<float> got = (*gpt)(tensor_of(run, "ids")).to_vector<float>();
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i], expected[i]);
    CHECK(std::abs(got[i] - expected[i]) <= 2e-6f * (1 + std::abs(expected[i])));
  }

  // What is saved are a GPT2Model's keys with the same values, and nothing else.
  const TemporaryFolder folder;
  save_weights(folder.file("saved"), *gpt);
  Named saved = read_all(folder.file("saved"));
  CHECK(saved.size() == 2 + 2 * 12 + 2);
  Named original = read_all(kFile);
  for (const auto& [name, tensor] : saved) {
    CAPTURE(name);
    const Tensor& source = tensor_of(original, kPrefix + name);
    REQUIRE(source.shape() == tensor.shape());
    CHECK(source.to_vector<float>() == tensor.to_vector<float>());
  }
  const auto other = small_gpt();
  load_weights(folder.file("saved"), *other);  // without the prefix and what is redundant
  CHECK((*other)(tensor_of(run, "ids")).to_vector<float>() == got);
}

TEST_CASE("weights: what a GPT-2's file has beside its weights must be right", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const auto error_with = [&](const std::string& name, const Tensor& value) {
    Named tensors = read_all(kFile);
    const auto known = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& t) { return t.first == name; });
    if (known == tensors.end())
      tensors.emplace_back(name, value);
    else
      known->second = value;
    const std::string path = folder.file("wrong");
    write_safetensors(path, tensors);
    std::string error = error_of([&] { load_weights(path, *small_gpt()); });
    const size_t at = error.find('\n');
    return at == std::string::npos ? error : error.substr(at + 1);
  };
  CHECK(error_with("lm_head.weight", full(Shape{5, 4}, 1)) ==
        "  lm_head.weight: expected wte.weight's values, got F32[5, 4]");
  CHECK(error_with("transformer.h.1.attn.bias", full(Shape{1, 1, 3, 3}, 1, DType::u8)) ==
        "  transformer.h.1.attn.bias: expected a causal mask [1, 1, 3, 3], got U8[1, 1, 3, 3]");
  CHECK(error_with("transformer.h.0.attn.masked_bias", full(Shape{}, 0)) ==
        "  transformer.h.0.attn.masked_bias: expected -1e4, got F32[]");
  CHECK(error_with("transformer.score.weight", full(Shape{2}, 0)) ==
        "  transformer.score.weight: expected no such tensor, got F32[2]");
  CHECK(error_with("transformer.h.0.attn.c_attn.weight", full(Shape{12, 4}, 0)) ==
        "  h.0.attn.c_attn.weight: expected f32[4, 12], got shape [12, 4]");
  CHECK(error_with("wte.weight", full(Shape{5, 4}, 0)).find("expected each tensor once") !=
        std::string::npos);
}
