#include "layers/module.h"

#include <algorithm>

#include "core/context.h"
#include "core/error.h"

namespace engine {

Tensor Module::operator()(const Tensor& x) {
  const int32_t parent = context().module;
  if (path_.parent != parent) path_ = {parent, intern_module_path(parent, name_)};
  const ContextScope scope(&Context::module, path_.id);
  return forward(x);
}

void Module::check_child(const Module* child, const std::string& name) {
  check(child != nullptr, "module", "expected a module as child '{}', got null", name);
}

void Module::collect(const std::string& prefix, bool buffers,
                     std::vector<std::pair<std::string, Tensor>>& into) const {
  for (const auto& [name, tensor] : buffers ? buffers_ : parameters_) {
    const bool known = std::any_of(into.begin(), into.end(), [&](const auto& other) {
      return other.second.impl() == tensor.impl();
    });
    if (!known) into.emplace_back(prefix + name, tensor);
  }
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", buffers, into);
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Tensor>> result;
  collect("", false, result);
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, tensor] : named_parameters()) result.push_back(std::move(tensor));
  return result;
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const {
  std::vector<std::pair<std::string, Tensor>> result;
  collect("", true, result);
  return result;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, child] : children_) child->train(on);
}

Tensor Module::register_parameter(std::string name, Tensor value) {
  value.set_requires_grad(true);
  parameters_.emplace_back(std::move(name), value);
  return value;
}

Tensor Module::register_buffer(std::string name, Tensor value) {
  buffers_.emplace_back(std::move(name), value);
  return value;
}

}  // namespace engine
