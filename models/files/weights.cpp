#include "models/files/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "models/files/safetensors.h"

namespace engine {

namespace {

constexpr std::array<int64_t, 4> kToFile{0, 3, 1, 2};    // OHWI -> OIHW
constexpr std::array<int64_t, 4> kFromFile{0, 2, 3, 1};  // OIHW -> OHWI

struct Weight {
  std::string name;
  Tensor tensor;
  bool permuted;  // channels-last here, channels-first in files

  Shape file_shape() const {
    const Shape& s = tensor.shape();
    return permuted ? Shape{s[0], s[3], s[1], s[2]} : s;
  }
};

std::vector<Weight> weights_of(const Module& module) {
  std::vector<Weight> weights;
  for (auto& [name, tensor] : module.named_parameters()) {
    weights.push_back({name, tensor, tensor.rank() == 4});
  }
  for (auto& [name, tensor] : module.named_buffers()) weights.push_back({name, tensor, false});
  return weights;
}

std::string mismatches(const std::vector<Weight>& weights,
                       std::map<std::string, const SafetensorsEntry*> unexpected) {
  std::string list;
  for (const Weight& weight : weights) {
    const std::string expected =
        fmt::format("{}{}", name(weight.tensor.dtype()), to_string(weight.file_shape()));
    const auto found = unexpected.find(weight.name);
    if (found == unexpected.end()) {
      list += fmt::format("\n  {}: expected {}, got none", weight.name, expected);
      continue;
    }
    const SafetensorsEntry& entry = *found->second;
    if (entry.type.dtype != weight.tensor.dtype() &&
        !(weight.tensor.dtype() == DType::f32 && entry.type.dtype == DType::bf16)) {
      list +=
          fmt::format("\n  {}: expected {}, got dtype {}", weight.name, expected, entry.type.name);
    }
    if (entry.shape != weight.file_shape()) {
      list += fmt::format("\n  {}: expected {}, got shape {}", weight.name, expected,
                          to_string(entry.shape));
    }
    unexpected.erase(found);
  }
  for (const auto& [name, entry] : unexpected) {
    list += fmt::format("\n  {:.200}: expected no such tensor, got {}{}", name, entry->type.name,
                        to_string(entry->shape));
  }
  return list;
}

}  // namespace

void save_weights(const std::string& path, const Module& module,
                  const std::map<std::string, std::string>& metadata) {
  const NoGradScope no_grad;
  std::vector<SafetensorsItem> items;
  for (Weight& weight : weights_of(module)) {
    items.push_back({weight.name, weight.tensor.dtype(), weight.file_shape(), [weight] {
                       const Tensor value = to_device(weight.tensor.detach(), kCpu);
                       return weight.permuted ? ops::permute(value, kToFile) : value;
                     }});
  }
  write_safetensors(path, std::move(items), metadata);
}

void load_weights(const std::string& path, Module& module) {
  const NoGradScope no_grad;
  const SafetensorsFile file(path);
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : file.entries()) entries[entry.name] = &entry;
  const std::vector<Weight> weights = weights_of(module);
  const std::string list = mismatches(weights, entries);
  check(list.empty(), "weights", "{}: expected the network's tensors, got:{}", path, list);
  for (const Weight& weight : weights) {
    Tensor value = file.read(*entries.at(weight.name));
    if (value.dtype() != weight.tensor.dtype()) value = ops::cast(value, weight.tensor.dtype());
    if (weight.permuted) value = ops::permute(value, kFromFile);
    if (value.numel() == 0) continue;
    backend(weight.tensor.device()).copy_from_host(weight.tensor.raw(), value.raw(), value.bytes());
    weight.tensor.impl()->storage->bump_version();
  }
}

}  // namespace engine
