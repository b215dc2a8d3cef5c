// Module: a part of a network, with named parameters, buffers and children. Names and nesting are
// PyTorch's, so a state dict's keys are the same.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace engine {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Runs forward() with this module's path as the one that events and errors name.
  Tensor operator()(const Tensor& x);

  /// All parameters with their full names ("conv1.weight"), in order of registration, depth first.
  /// One that is there twice, as in a shared layer, is listed once, under its first name.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;
  std::vector<Tensor> parameters() const;
  /// All buffers (state that is not trained) with their full names.
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  int64_t parameter_count() const;

  /// Training or evaluation mode, for this module and all below it.
  void train(bool on = true);
  bool training() const { return training_; }

 protected:
  virtual Tensor forward(const Tensor& x) = 0;

  /// Registers a trainable tensor; it will require gradients.
  Tensor register_parameter(std::string name, Tensor value);
  Tensor register_buffer(std::string name, Tensor value);
  /// Registers a child and returns it.
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> child) {
    check_child(child.get(), name);
    child->name_ = name;
    children_.emplace_back(std::move(name), child);
    return child;
  }

 private:
  struct Path {
    int32_t parent = -1;
    int32_t id = 0;
  };
  static void check_child(const Module* child, const std::string& name);
  void collect(const std::string& prefix, bool buffers,
               std::vector<std::pair<std::string, Tensor>>& into) const;

  std::vector<std::pair<std::string, Tensor>> parameters_;
  std::vector<std::pair<std::string, Tensor>> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::string name_;  // in the parent
  Path path_;         // as of the last call: a module may be shared between parents
  bool training_ = true;
};

}  // namespace engine
