#include "profiler/profiler.h"

#include <stdexcept>

namespace engine {

thread_local Profiler* Profiler::active_ = nullptr;

const char* name(Phase phase) {
  switch (phase) {
    case Phase::other:
      return "other";
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::loss:
      return "loss";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
    case Phase::copy:
      return "copy";
  }
  return "?";
}

const char* name(EventKind kind) {
  switch (kind) {
    case EventKind::op:
      return "op";
    case EventKind::group:
      return "group";
    case EventKind::range:
      return "range";
  }
  return "?";
}

const char* name(Variant variant) {
  switch (variant) {
    case Variant::plain:
      return "plain";
    case Variant::fused:
      return "fused";
    case Variant::decomposed:
      return "decomposed";
  }
  return "?";
}

Profiler::Profiler() {
  recording_.module_paths.emplace_back();
  // The first profiled step should not pay for growing these.
  recording_.events.reserve(4096);
  recording_.shape_pool.reserve(32768);
}

void Profiler::begin_step(int64_t index, bool warmup, bool profiled) {
  if (active_ != nullptr) throw std::runtime_error("[profiler] begin_step inside a step");
  StepRecord step;
  step.index = index;
  step.warmup = warmup;
  step.profiled = profiled;
  step.begin_ns = host_clock_ns();
  recording_.steps.push_back(step);
  if (profiled) active_ = this;
}

void Profiler::end_step() {
  StepRecord& step = recording_.steps.back();
  step.wall_ns = host_clock_ns() - step.begin_ns;
  if (active_ == this) active_ = nullptr;
  if (!open_.empty()) throw std::runtime_error("[profiler] end_step with an open event");
  for (const Unresolved& u : unresolved_) {
    Event& event = recording_.events[u.position];
    event.device_begin_ns = u.timer->nanoseconds(event.device_begin_ns);
    event.device_end_ns = u.timer->nanoseconds(event.device_end_ns);
  }
  unresolved_.clear();
}

void Profiler::set_loss(double loss) {
  recording_.steps.back().loss = loss;
  recording_.steps.back().has_loss = true;
}

size_t Profiler::open(EventKind kind, const char* op, Phase phase) {
  const size_t position = recording_.events.size();
  Event& event = recording_.events.emplace_back();
  event.id = static_cast<int64_t>(position) + 1;
  event.parent = open_.empty() ? 0 : recording_.events[open_.back()].id;
  event.step = recording_.steps.back().index;
  event.op = op;
  event.kind = kind;
  event.phase = phase;
  open_.push_back(position);
  event.host_begin_ns = host_clock_ns();
  return position;
}

void Profiler::close(size_t position, DeviceTimer* timer) {
  if (open_.empty() || open_.back() != position) {
    throw std::runtime_error("[profiler] events must be closed innermost first");
  }
  open_.pop_back();
  if (timer != nullptr) unresolved_.push_back({position, timer});
  recording_.events[position].host_end_ns = host_clock_ns();
}

ShapeList Profiler::begin_shapes() const {
  return {static_cast<int64_t>(recording_.shape_pool.size()), 0};
}

void Profiler::add_shape(ShapeList& list, int dtype, const int64_t* dims, int rank) {
  auto& pool = recording_.shape_pool;
  pool.push_back(dtype);
  pool.push_back(rank);
  pool.insert(pool.end(), dims, dims + rank);
  ++list.tensors;
}

const char* Profiler::intern(std::string_view text) {
  const auto found = interned_.find(text);
  if (found != interned_.end()) return found->second;
  const std::string& copy = texts_.emplace_back(text);
  interned_.emplace(copy, copy.c_str());
  return copy.c_str();
}

}  // namespace engine
