#include "core/autograd.h"

#include <algorithm>
#include <queue>

#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "profiler/profiler.h"

namespace engine {

namespace {

thread_local uint64_t next_number = 1;

// A graph that is dropped without a walk may be long: nodes are released from a list, since each
// one's destructor calling the next one's would exhaust the stack.
thread_local std::vector<Ref<Node>>* releasing = nullptr;

// The gradient of an input that was broadcast: summed over the axes that it was repeated along.
Tensor sum_to_shape(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const int extra = grad.rank() - shape.rank();
  std::vector<int64_t> axes;
  for (int i = 0; i < grad.rank(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && grad.size(i) != 1)) axes.push_back(i);
  }
  Tensor result = axes.empty() ? grad : ops::sum(grad, axes, /*keepdim=*/true);
  return result.shape() == shape ? result : ops::reshape(result, shape);
}

bool sole_owner(const Tensor& tensor) {
  return tensor.impl()->use_count() == 1 && tensor.impl()->storage->use_count() == 1;
}

void collect_in_leaf(TensorImpl& leaf, Tensor grad) {
  if (leaf.grad_written) {
    ops::accumulate_(leaf.grad, grad);
  } else if (!leaf.grad.defined() && sole_owner(grad)) {
    leaf.grad = std::move(grad);
  } else {
    if (!leaf.grad.defined()) leaf.grad = empty(grad.shape(), grad.dtype(), grad.device());
    if (leaf.grad.raw() != grad.raw())
      ops::copy_(leaf.grad, grad);  // else written by its op already
  }
  leaf.grad_written = true;
}

void collect_in_output(Tensor& sum, Tensor grad) {
  if (!sum.defined()) {
    sum = std::move(grad);
  } else if (sole_owner(sum)) {
    ops::accumulate_(sum, grad);
  } else {
    sum = ops::add(sum, grad);
  }
}

}  // namespace

Node::Node(const Op& op, const Attrs& attrs, std::span<const Tensor> inputs,
           std::span<Tensor> outputs)
    : op_(&op),
      attrs_(attrs),
      number_(next_number++),
      module_(context().module),
      group_(context().group),
      forward_event_(0),
      inputs_(inputs.size()),
      outputs_(outputs.size()) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const TensorImpl& tensor = *inputs[i].impl();
    Input& input = inputs_[i];
    input.shape = tensor.shape;
    input.dtype = tensor.dtype;
    input.needs = tensor.requires_grad || tensor.node;
    input.node = tensor.node;
    input.output = tensor.output;
    if (tensor.requires_grad) input.leaf = inputs[i].impl_ref();
    if ((op.saved_inputs & bit(static_cast<int>(i))) != 0) input.saved = save(inputs[i]);
    device_ = inputs[i].device();
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;
    outputs_[i].shape = outputs[i].shape();
    outputs_[i].dtype = outputs[i].dtype();
    if ((op.saved_outputs & bit(static_cast<int>(i))) != 0) outputs_[i].saved = save(outputs[i]);
  }
}

Node::~Node() {
  std::vector<Ref<Node>> list;
  const bool outermost = releasing == nullptr;
  if (outermost) releasing = &list;
  for (Input& input : inputs_) {
    if (input.node) releasing->push_back(std::move(input.node));
  }
  if (!outermost) return;
  while (!list.empty()) {
    const Ref<Node> node = std::move(list.back());
    list.pop_back();
  }
  releasing = nullptr;
}

// A saved tensor is kept without its history: an output that held its own node would never go away.
Node::Saved Node::save(const Tensor& tensor) {
  return {tensor.detach(), tensor.impl()->storage->version()};
}

Tensor Node::restore(const Saved& saved, const char* what, int i) const {
  if (saved.tensor.defined()) {
    check(saved.tensor.impl()->storage->version() == saved.version, op_->name,
          "{} {} ({}) was changed in place after this op saved it for backward", what, i,
          describe(saved.tensor));
  }
  return saved.tensor;
}

Tensor Node::input(int i) const {
  return restore(inputs_[static_cast<size_t>(i)].saved, "input", i);
}
Tensor Node::output(int i) const {
  return restore(outputs_[static_cast<size_t>(i)].saved, "output", i);
}

Tensor Node::grad_destination(int i) const {
  const Input& input = inputs_[static_cast<size_t>(i)];
  if (!input.leaf || input.leaf->grad_written || !input.leaf->grad.defined()) return {};
  for (size_t j = 0; j < inputs_.size(); ++j) {
    if (static_cast<int>(j) != i && inputs_[j].leaf == input.leaf)
      return {};  // both would write there
  }
  return input.leaf->grad.detach();
}

void Node::free_saved() {
  freed_ = true;
  for (Input& input : inputs_) {
    input.saved = {};
    input.node = {};
    input.leaf = {};
  }
  for (Output& output : outputs_) {
    output.saved = {};
    output.grad = {};
  }
}

void run_backward(const Tensor& root, Tensor upstream) {
  check(root.defined() && root.requires_grad(), "backward",
        "expected a tensor computed from leaves that require gradients (gradients of gradients are "
        "not "
        "recorded), got {}",
        describe(root));
  const NoGradScope no_grad;
  const ContextScope phase(&Context::phase, Phase::backward);
  const ContextScope memory(&Context::memory, MemoryCategory::gradient);
  const Ref<Node>& last = root.impl()->node;
  const ContextScope seed(&Context::forward_event, last ? last->forward_event_ : 0);
  if (!upstream.defined()) {
    check(root.numel() == 1, "backward", "expected a scalar, or an upstream gradient for {}",
          describe(root));
    upstream = full(root.shape(), 1.0, root.dtype(), root.device());
  }
  check(upstream.shape() == root.shape() && upstream.dtype() == root.dtype(), "backward",
        "expected an upstream gradient like {}, got {}", describe(root), describe(upstream));
  if (root.impl()->requires_grad) {
    collect_in_leaf(*root.impl(), upstream);
    return;
  }

  // Consumers have higher numbers than producers, so the highest number first is a topological
  // order.
  const auto lower = [](const Ref<Node>& a, const Ref<Node>& b) { return a->number_ < b->number_; };
  std::priority_queue<Ref<Node>, std::vector<Ref<Node>>, decltype(lower)> queue(lower);
  // A walk that fails has used up its graph as one that ends: what it visited is freed either way.
  struct Visited {
    std::vector<Ref<Node>> nodes;
    ~Visited() {
      for (const Ref<Node>& node : nodes) node->free_saved();
    }
  } visited;
  const auto enqueue = [&](const Ref<Node>& node) {
    check(!node->freed_, node->op().name,
          "its graph was freed by an earlier backward pass: run the forward pass again before a "
          "second one");
    if (std::exchange(node->queued_, true)) return;
    visited.nodes.push_back(node);
    queue.push(node);
  };
  enqueue(root.impl()->node);
  root.impl()->node->outputs_[static_cast<size_t>(root.impl()->output)].grad = std::move(upstream);

  while (!queue.empty()) {
    const Ref<Node> node = queue.top();
    queue.pop();
    const ContextScope module(&Context::module, node->module_);
    const ContextScope forward(&Context::forward_event, node->forward_event_);
    Span span(EventKind::group, node->group_ != nullptr ? node->group_ : node->op().name,
              Phase::backward);
    if (Event* event = span.event()) {
      event->module = node->module_;
      event->forward_id = node->forward_event_;
      if (node->group_ != nullptr)
        event->variant = Variant::decomposed;
      else if (node->op().decompose != nullptr)
        event->variant = Variant::fused;
    }

    std::vector<Tensor> dy(node->outputs_.size());
    for (size_t i = 0; i < dy.size(); ++i) {
      Node::Output& output = node->outputs_[i];
      dy[i] = std::move(output.grad);
      if (!dy[i].defined() && is_floating(output.dtype) && i == 0) {
        dy[i] = full(output.shape, 0.0, output.dtype, node->device_);
      }
    }
    std::vector<Tensor> dx(node->inputs_.size());
    node->op().grad(*node, dy, dx);
    dy.clear();

    for (size_t i = 0; i < dx.size(); ++i) {
      Node::Input& input = node->inputs_[i];
      if (!input.needs || !dx[i].defined()) continue;
      Tensor grad = sum_to_shape(std::exchange(dx[i], {}), input.shape);
      if (grad.dtype() != input.dtype) grad = ops::cast(grad, input.dtype);
      if (input.leaf) {
        collect_in_leaf(*input.leaf, std::move(grad));
      } else {
        enqueue(input.node);
        collect_in_output(input.node->outputs_[static_cast<size_t>(input.output)].grad,
                          std::move(grad));
      }
    }
    node->free_saved();
  }
}

}  // namespace engine
