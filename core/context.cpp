#include "core/context.h"

#include <deque>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/op.h"

namespace engine {

FusionPolicy FusionPolicy::parse(std::string_view text) {
  if (text == "on") return on();
  if (text == "off") return off();
  std::bitset<kOps> enabled;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const Op* found = find_op(item);
    if (found == nullptr || found->decompose == nullptr) {
      std::string known;
      for (int i = 0; i < kOps; ++i) {
        const Op& candidate = engine::op(static_cast<OpId>(i));
        if (candidate.decompose != nullptr) known += fmt::format(" {}", candidate.name);
      }
      fail("fusion",
           "expected on, off or a comma-separated list of fused ops, got '{}'; fused ops are:{}",
           item, known);
    }
    enabled.set(static_cast<size_t>(found->id));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return FusionPolicy(enabled);
}

namespace {

// Paths are only ever added, so a number stays valid and a reference into the deque too.
struct ModulePaths {
  std::mutex mutex;
  std::deque<std::string> paths{""};
  std::map<std::string, int32_t, std::less<>> ids{{"", 0}};
};

ModulePaths& module_paths() {
  static ModulePaths instance;
  return instance;
}

}  // namespace

int32_t intern_module_path(int32_t parent, std::string_view name) {
  ModulePaths& all = module_paths();
  const std::lock_guard lock(all.mutex);
  std::string path = all.paths[static_cast<size_t>(parent)];
  if (!path.empty() && !name.empty()) path += '.';
  path += name;
  const auto [found, added] = all.ids.emplace(path, static_cast<int32_t>(all.paths.size()));
  if (added) all.paths.push_back(std::move(path));
  return found->second;
}

const std::string& module_path(int32_t id) {
  ModulePaths& all = module_paths();
  const std::lock_guard lock(all.mutex);
  return all.paths[static_cast<size_t>(id)];
}

std::vector<std::string> all_module_paths() {
  ModulePaths& all = module_paths();
  const std::lock_guard lock(all.mutex);
  return {all.paths.begin(), all.paths.end()};
}

}  // namespace engine
