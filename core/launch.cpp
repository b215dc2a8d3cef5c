#include "core/launch.h"

#include <algorithm>

#include "core/autograd.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"

namespace engine {

namespace {

thread_local LaunchCount counts;

Device common_device(const Op& op, std::span<const Tensor> inputs) {
  const Tensor* first = nullptr;
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (first == nullptr) {
      first = &input;
    } else {
      check(input.device() == first->device(), op.name,
            "expected all tensors on one device, got {} on {} and {} on {}", describe(*first),
            first->device(), describe(input), input.device());
    }
  }
  check(first != nullptr, op.name, "expected at least one defined tensor, got none");
  return first->device();
}

Cost cost_of(const Op& op, const Attrs& attrs, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs) {
  if (op.cost != nullptr) return op.cost(inputs, outputs, attrs);
  return {0, bytes_of(inputs), bytes_of(outputs)};
}

// The event of one launch. With no profiler active, constructing and destroying it costs a branch.
class LaunchEvent {
 public:
  LaunchEvent(const Op& op, const Context& ctx) : profiler_(Profiler::active()) {
    if (profiler_ != nullptr) [[unlikely]]
      open(op, ctx);
  }
  ~LaunchEvent() {
    if (profiler_ != nullptr) [[unlikely]]
      close();
  }
  LaunchEvent(const LaunchEvent&) = delete;
  LaunchEvent& operator=(const LaunchEvent&) = delete;

  bool recording() const { return profiler_ != nullptr; }
  Event& get() { return profiler_->at(position_); }
  int64_t id() { return recording() ? get().id : 0; }

  void begin_device(Backend& device_backend) {
    backend_ = &device_backend;
    flow_ = backend_->allocator().flow();
    outer_peak_ = backend_->allocator().exchange_window_peak();
    // Backends never go away, and neither does the text of their device's name.
    get().device = profiler_->intern(to_string(backend_->device()));
  }
  void begin_kernel() { get().device_begin_ns = backend_->timer().mark(); }
  void end_kernel(const char* implementation, const Scratch& scratch) {
    Event& event = get();
    event.device_end_ns = backend_->timer().mark();
    event.implementation = implementation;
    event.scratch_bytes = scratch.total();
    timer_ = &backend_->timer();
  }
  void describe_tensors(const Op& op, const Attrs& attrs, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) {
    Event& event = get();
    event.inputs = shapes(inputs);
    event.outputs = shapes(outputs);
    const Cost cost = cost_of(op, attrs, inputs, outputs);
    event.flops = cost.flops;
    event.bytes_read = cost.bytes_read;
    event.bytes_written = cost.bytes_written;
  }

 private:
  void open(const Op& op, const Context& ctx) {
    position_ = profiler_->open(EventKind::op, op.name, ctx.phase);
    Event& event = get();
    event.module = ctx.module;
    event.forward_id = ctx.forward_event;
  }
  void close() {
    if (backend_ != nullptr) {
      const MemoryFlow now = backend_->allocator().flow();
      Event& event = get();
      event.allocated_bytes = now.allocated - flow_.allocated;
      event.freed_bytes = now.freed - flow_.freed;
      event.peak_bytes = backend_->allocator().merge_window_peak(outer_peak_);
    }
    profiler_->close(position_, timer_);
  }
  ShapeList shapes(std::span<const Tensor> tensors) {
    ShapeList list = profiler_->begin_shapes();
    for (const Tensor& t : tensors) {
      if (t.defined()) {
        profiler_->add_shape(list, static_cast<int>(t.dtype()), t.shape().begin(), t.rank());
      }
    }
    return list;
  }

  Profiler* profiler_;
  size_t position_ = 0;
  Backend* backend_ = nullptr;
  DeviceTimer* timer_ = nullptr;
  MemoryFlow flow_;
  int64_t outer_peak_ = 0;
};

bool wants_gradient(const Op& op, std::span<const Tensor> inputs) {
  if (op.grad == nullptr) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

bool overlap(const Tensor& a, const Tensor& b) {
  const TensorImpl &x = *a.impl(), &y = *b.impl();
  return x.storage == y.storage && x.offset < y.offset + static_cast<size_t>(b.bytes()) &&
         y.offset < x.offset + static_cast<size_t>(a.bytes());
}

// What a kernel writes it may not read in other places as well: an output that was given lies apart
// from all inputs. What it changes in place lies apart from the others too, or (x += x) is the
// same.
void check_apart(const Op& op, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  for (const Tensor& output : outputs) {
    if (!output.defined()) continue;
    for (const Tensor& input : inputs) {
      check(!input.defined() || !overlap(output, input), op.name,
            "expected an output apart from the inputs, got {} and {} that share memory",
            describe(output), describe(input));
    }
  }
  for (size_t i = 0; op.mutated >> i != 0; ++i) {
    if ((op.mutated & bit(static_cast<int>(i))) == 0 || !inputs[i].defined()) continue;
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (j == i || !inputs[j].defined() || !overlap(inputs[i], inputs[j])) continue;
      const bool same = (op.mutated & bit(static_cast<int>(j))) == 0 &&
                        inputs[i].impl()->offset == inputs[j].impl()->offset &&
                        inputs[i].bytes() == inputs[j].bytes();
      check(same, op.name, "expected to change {} apart from {}, which shares memory with it",
            describe(inputs[i]), describe(inputs[j]));
    }
  }
}

void check_mutable(const Op& op, std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool changes = (op.mutated & bit(static_cast<int>(i))) != 0 && inputs[i].defined();
    check(!changes || !inputs[i].requires_grad(), op.name,
          "cannot change {} in place while its operations are recorded for backward: use a "
          "NoGradScope, or detach() it",
          describe(inputs[i]));
  }
}

void allocate_outputs(const Op& op, const OutputSpecs& specs, Device device,
                      std::span<Tensor> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputSpec& spec = specs.specs[i];
    Tensor& output = outputs[i];
    if (!spec.needed) {
      output = {};
    } else if (!output.defined()) {
      output = empty(spec.shape, spec.dtype, device);
    } else {
      check(
          output.shape() == spec.shape && output.dtype() == spec.dtype && output.device() == device,
          op.name, "expected an output tensor {}{} on {}, got {} on {}", name(spec.dtype),
          spec.shape, device, describe(output), output.device());
      output.impl()->storage->bump_version();
    }
  }
}

void run_kernel(const Op& op, Kernel kernel, Backend& device_backend, const Attrs& attrs,
                std::span<const Tensor> inputs, std::span<Tensor> outputs, LaunchEvent& event) {
  check(kernel != nullptr, op.name, "has no kernel on {}", device_backend.device());
  Scratch scratch(device_backend.allocator());
  KernelArgs args{inputs, outputs, attrs, scratch};
  ++counts.kernels;
  if (!event.recording()) [[likely]] {
    kernel(args);
    return;
  }
  event.begin_kernel();
  kernel(args);
  event.end_kernel(args.implementation, scratch);
}

// The first op whose result is not finite is the origin, or got what is not finite from outside.
void look_for_non_finite(const Op& op, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs) {
  const ContextScope once(&Context::find_non_finite, false);
  const NoGradScope no_grad;
  if (std::all_of(outputs.begin(), outputs.end(), ops::is_finite)) return;
  const std::string& module = module_path(context().module);
  const std::string where =
      module.empty() ? op.name : fmt::format("{} in module {}", op.name, module);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (ops::is_finite(inputs[i])) continue;
    throw NonFiniteError(
        fmt::format("{} is the first op to meet it, in its input {}, {}: a "
                    "parameter or the data",
                    where, i + 1, to_string(describe(inputs[i]))));
  }
  throw NonFiniteError(fmt::format("{} is the first op to make it, from finite inputs", where));
}

}  // namespace

// A friend of Node: launch is the only one who records.
struct NodeRecorder {
  static int64_t record(const Op& op, const Attrs& attrs, std::span<const Tensor> inputs,
                        std::span<Tensor> outputs, int64_t event_id) {
    auto node = make_ref<Node>(op, attrs, inputs, outputs);
    node->forward_event_ = event_id;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !is_floating(outputs[i].dtype())) continue;
      outputs[i].impl()->node = node;
      outputs[i].impl()->output = static_cast<int>(i);
    }
    int64_t bytes = 0;
    const auto count = [&bytes](const Node::Saved& saved) {
      if (!saved.tensor.defined()) return;
      const MemoryCategory category = saved.tensor.impl()->storage->category();
      if (category == MemoryCategory::activation || category == MemoryCategory::input) {
        bytes += bytes_of(saved.tensor);
      }
    };
    for (const Node::Input& input : node->inputs_) count(input.saved);
    for (const Node::Output& output : node->outputs_) count(output.saved);
    return bytes;
  }
};

LaunchCount launch_count() { return counts; }

void launch(OpId id, const Attrs& attrs, std::span<const Tensor> inputs,
            std::span<Tensor> outputs) {
  const Op& op = engine::op(id);
  Context& ctx = context();
  ++counts.launches;
  const ContextScope launching(&Context::op, op.name);
  LaunchEvent event(op, ctx);
  try {
    const Device device = common_device(op, inputs);
    OutputSpecs specs;
    op.infer(inputs, attrs, specs);
    check(static_cast<size_t>(specs.count) == outputs.size(), op.name,
          "has {} outputs, the caller expected {}", specs.count, outputs.size());
    check_apart(op, inputs, outputs);
    if (op.mutated != 0 && ctx.grad_enabled) check_mutable(op, inputs);
    Backend& device_backend = backend(device);
    if (event.recording()) [[unlikely]]
      event.begin_device(device_backend);

    const Kernel kernel = op.view ? nullptr : device_backend.kernel(id);
    if (op.decompose != nullptr && (kernel == nullptr || !ctx.fusion.enabled(id))) {
      if (event.recording()) [[unlikely]] {
        event.get().kind = EventKind::group;
        event.get().variant = Variant::decomposed;
      }
      const ContextScope group(&Context::group, ctx.group != nullptr ? ctx.group : op.name);
      op.decompose(inputs, attrs, outputs);
      return;
    }

    if (op.view) {
      const size_t offset = op.view_offset != nullptr ? op.view_offset(inputs, attrs) : 0;
      outputs[0] = inputs[0].view(specs.specs[0].shape, offset);
    } else {
      allocate_outputs(op, specs, device, outputs);
      run_kernel(op, kernel, device_backend, attrs, inputs, outputs, event);
    }
    if (ctx.find_non_finite) [[unlikely]]
      look_for_non_finite(op, inputs, outputs);
    for (size_t i = 0; op.mutated >> i != 0; ++i) {
      const bool changed = (op.mutated & bit(static_cast<int>(i))) != 0 && inputs[i].defined();
      if (changed) inputs[i].impl()->storage->bump_version();
    }
    if (event.recording()) [[unlikely]] {
      if (op.view) event.get().implementation = "view";
      if (op.decompose != nullptr) event.get().variant = Variant::fused;
      event.describe_tensors(op, attrs, inputs, outputs);
    }
    if (ctx.grad_enabled && wants_gradient(op, inputs)) {
      const int64_t saved = NodeRecorder::record(op, attrs, inputs, outputs, event.id());
      if (event.recording()) [[unlikely]]
        event.get().saved_bytes = saved;
    }
  } catch (const OutOfMemoryError& error) {
    if (error.what()[0] == '[') throw;  // a part of this op has said where
    const std::string& module = module_path(ctx.module);
    throw OutOfMemoryError(fmt::format("[{}]{}{} {}", op.name, module.empty() ? "" : " in module ",
                                       module, error.what()));
  }
}

Tensor launch(OpId id, const Attrs& attrs, std::initializer_list<Tensor> inputs, Tensor out) {
  launch(id, attrs, std::span(inputs.begin(), inputs.size()), std::span(&out, 1));
  return out;
}

}  // namespace engine
