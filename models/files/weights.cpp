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

enum class Layout : uint8_t { same, image, transposed };

struct Weight {
  std::string name;
  Tensor tensor;
  Layout layout;

  Shape file_shape() const {
    const Shape& s = tensor.shape();
    if (layout == Layout::image) return Shape{s[0], s[3], s[1], s[2]};
    return layout == Layout::transposed ? Shape{s[1], s[0]} : s;
  }
  Tensor to_file(const Tensor& value) const {
    if (layout == Layout::image) return ops::permute(value, std::array<int64_t, 4>{0, 3, 1, 2});
    return layout == Layout::transposed ? ops::transpose(value, 0, 1) : value;
  }
  Tensor from_file(const Tensor& value) const {
    if (layout == Layout::image) return ops::permute(value, std::array<int64_t, 4>{0, 2, 3, 1});
    return layout == Layout::transposed ? ops::transpose(value, 0, 1) : value;
  }
};

std::vector<Weight> weights_of(const Module& module) {
  const auto* format = dynamic_cast<const WeightsFormat*>(&module);
  std::vector<Weight> weights;
  for (auto& [name, tensor] : module.named_parameters()) {
    const bool transposed = format && format->transposed(name);
    weights.push_back({name, tensor,
                       tensor.rank() == 4 ? Layout::image
                       : transposed       ? Layout::transposed
                                          : Layout::same});
  }
  for (auto& [name, tensor] : module.named_buffers()) {
    weights.push_back({name, tensor, Layout::same});
  }
  return weights;
}

using Entries = std::map<std::string, const SafetensorsEntry*, std::less<>>;  // by the names here

// What a file's tensor that the module lacks should have been; empty if it may be there.
std::string objection(const SafetensorsFile& file, const Entries& entries, const std::string& name,
                      const SafetensorsEntry& entry, const WeightsFormat* format) {
  if (!format) return "no such tensor";
  const auto read = [&](std::string_view other) {
    const auto found = entries.find(other);
    return found == entries.end() ? Tensor() : file.read(*found->second);
  };
  return format->objection(name, file.read(entry), read);
}

std::string mismatches(const SafetensorsFile& file, const std::vector<Weight>& weights,
                       const Entries& entries, const WeightsFormat* format) {
  std::string list;
  Entries unexpected = entries;
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
    const std::string expected = objection(file, entries, name, *entry, format);
    if (expected.empty()) continue;
    list += fmt::format("\n  {:.200}: expected {}, got {}{}", entry->name, expected,
                        entry->type.name, to_string(entry->shape));
  }
  return list;
}

}  // namespace

void save_weights(const std::string& path, const Module& module,
                  const std::map<std::string, std::string>& metadata) {
  const NoGradScope no_grad;
  std::vector<SafetensorsItem> items;
  for (Weight& weight : weights_of(module)) {
    items.push_back({weight.name, weight.tensor.dtype(), weight.file_shape(),
                     [weight] { return weight.to_file(to_device(weight.tensor.detach(), kCpu)); }});
  }
  write_safetensors(path, std::move(items), metadata);
}

void load_weights(const std::string& path, Module& module) {
  const NoGradScope no_grad;
  const SafetensorsFile file(path);
  const auto* format = dynamic_cast<const WeightsFormat*>(&module);
  Entries entries;
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string here = format ? format->name_here(entry.name) : entry.name;
    const auto [other, fresh] = entries.emplace(here, &entry);
    check(fresh, "weights", "{}: expected each tensor once, got '{:.200}' and '{:.200}'", path,
          other->second->name, entry.name);
  }
  const std::vector<Weight> weights = weights_of(module);
  const std::string list = mismatches(file, weights, entries, format);
  check(list.empty(), "weights", "{}: expected the network's tensors, got:{}", path, list);
  for (const Weight& weight : weights) {
    Tensor value = file.read(*entries.find(weight.name)->second);
    if (value.dtype() != weight.tensor.dtype()) value = ops::cast(value, weight.tensor.dtype());
    value = weight.from_file(value);
    if (value.numel() == 0) continue;
    backend(weight.tensor.device()).copy_from_host(weight.tensor.raw(), value.raw(), value.bytes());
    weight.tensor.impl()->storage->bump_version();
  }
}

}  // namespace engine
