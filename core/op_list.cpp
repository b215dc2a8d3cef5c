// The table behind op(OpId).
#include "core/op_list.h"

#include <string_view>

#include "core/op.h"

namespace engine {

namespace {
constexpr const Op* kTable[] = {
#define ENGINE_ENTRY(name) &kOp_##name,
    ENGINE_OPS(ENGINE_ENTRY)
#undef ENGINE_ENTRY
};
}  // namespace

const Op& op(OpId id) { return *kTable[static_cast<size_t>(id)]; }

const Op* find_op(std::string_view name) {
  for (const Op* candidate : kTable) {
    if (name == candidate->name) return candidate;
  }
  return nullptr;
}

}  // namespace engine
