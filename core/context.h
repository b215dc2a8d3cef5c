// The settings that every op call of a thread consults, and the scopes that change them.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/op_list.h"
#include "profiler/event.h"
#include "profiler/memory.h"

namespace engine {

/// Which fused ops may run as one kernel: none, all, or those named. Consulted in `launch` alone.
class FusionPolicy {
 public:
  static FusionPolicy on() { return FusionPolicy(std::bitset<kOps>().set()); }
  static FusionPolicy off() { return FusionPolicy({}); }
  /// "on", "off" or a comma-separated list of fused ops' names; throws Error naming the known ones.
  static FusionPolicy parse(std::string_view text);
  bool enabled(OpId op) const { return enabled_[static_cast<size_t>(op)]; }

 private:
  explicit FusionPolicy(std::bitset<kOps> enabled) : enabled_(enabled) {}
  std::bitset<kOps> enabled_;
};

struct Context {
  FusionPolicy fusion = FusionPolicy::on();
  /// Bitwise equal results for any number of threads, at some cost in speed.
  bool deterministic = false;
  bool grad_enabled = true;
  /// Look at every result of an op, and throw NonFiniteError at the first NaN or infinity.
  bool find_non_finite = false;
  Phase phase = Phase::other;
  MemoryCategory memory = MemoryCategory::activation;
  int32_t module = 0;           ///< see module_path()
  const char* op = nullptr;     ///< the op being launched; null between launches
  const char* group = nullptr;  ///< the decomposed fused op whose parts are being called
  int64_t forward_event = 0;    ///< in a backward walk: the event of the forward op
};

/// This thread's context.
inline Context& context() {
  thread_local Context instance;
  return instance;
}

/// The op being launched, or else the part that speaks: what an error names.
inline const char* op_or(const char* part) {
  const char* op = context().op;
  return op != nullptr ? op : part;
}

/// Sets one member of the context for a scope: ContextScope scope(&Context::phase, Phase::loss).
template <class T>
class ContextScope {
 public:
  ContextScope(T Context::*member, T value)
      : member_(member), previous_(std::exchange(context().*member, value)) {}
  ~ContextScope() { context().*member_ = previous_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  T Context::*member_;
  T previous_;
};

/// No op called in this scope is recorded for backward.
class NoGradScope : ContextScope<bool> {
 public:
  NoGradScope() : ContextScope(&Context::grad_enabled, false) {}
};

/// Module paths ("layer1.0.conv1") are numbered once, so that a node or an event holds a number.
/// 0 is the empty path.
int32_t intern_module_path(int32_t parent, std::string_view name);
const std::string& module_path(int32_t id);
std::vector<std::string> all_module_paths();

}  // namespace engine
