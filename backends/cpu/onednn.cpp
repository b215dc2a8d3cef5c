#include "backends/cpu/onednn.h"

#include <fmt/format.h>
#include <omp.h>

#include <set>
#include <unordered_map>

#include "core/context.h"
#include "core/error.h"

namespace engine::cpu {

namespace {

const dnnl::stream& onednn_stream() {
  thread_local const dnnl::stream stream(onednn_engine());
  return stream;
}

const char* isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse4.1";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    default:
      return "other instruction set";
  }
}

// Implementation names come from oneDNN without ownership; events point at them for good.
const char* keep(const std::string& text) {
  thread_local std::set<std::string> texts;
  return texts.insert(text).first->c_str();
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

std::string onednn_description() {
  const dnnl_version_t* v = dnnl::version();
  return fmt::format("oneDNN {}.{}.{} ({})", v->major, v->minor, v->patch, isa_name());
}

bool onednn_computes_bf16() {
  static const bool yes = [] {
    const onednn::Desc matrix({16, 16}, dnnl::memory::data_type::bf16,
                              dnnl::memory::format_tag::ab);
    try {
      onednn::matmul(matrix, matrix, onednn::Desc(), matrix, dnnl::primitive_attr());
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return yes;
}

PrimitiveKey::PrimitiveKey(int kind, std::initializer_list<int64_t> values) {
  check(values.size() + 2 <= kCapacity, "onednn", "a primitive's key holds {} values, got {}",
        kCapacity - 2, values.size());
  values_[count_++] = kind;
  values_[count_++] = omp_get_max_threads();
  for (const int64_t value : values) values_[count_++] = value;
}

PrimitiveKey PrimitiveKey::companion(int kind) const {
  PrimitiveKey result = *this;
  check(count_ < kCapacity, "onednn", "a primitive's key holds {} values", kCapacity);
  result.values_[result.count_++] = kind;
  return result;
}

size_t PrimitiveKey::hash() const {
  uint64_t h = 1469598103934665603ull;  // FNV-1a, by words
  for (size_t i = 0; i < count_; ++i)
    h = (h ^ static_cast<uint64_t>(values_[i])) * 1099511628211ull;
  return h ^ (h >> 32);
}

Primitive Primitive::make(dnnl::primitive primitive,
                          std::initializer_list<std::pair<int, dnnl::memory::desc>> arguments,
                          const dnnl::memory::desc& scratchpad, const char* implementation) {
  Primitive result;
  result.primitive = std::move(primitive);
  for (const auto& [index, desc] : arguments) {
    result.arguments.push_back({index, dnnl::memory(desc, onednn_engine(), DNNL_MEMORY_NONE)});
  }
  result.scratchpad_bytes = scratchpad.get_size();
  if (result.scratchpad_bytes > 0) {
    result.arguments.push_back(
        {DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad, onednn_engine(), DNNL_MEMORY_NONE)});
  }
  result.implementation = keep(fmt::format("onednn:{}", implementation));
  return result;
}

void Primitive::run(KernelArgs& args, std::initializer_list<void*> pointers) const {
  std::array<dnnl_exec_arg_t, 8> list;
  size_t count = 0;
  const auto add = [&](const Argument& argument, void* pointer) {
    argument.memory.set_data_handle(pointer);
    list[count++] = {argument.index, argument.memory.get()};
  };
  for (void* pointer : pointers) add(arguments[count], pointer);
  if (scratchpad_bytes > 0) add(arguments[count], args.scratch.get(scratchpad_bytes));
  const dnnl_status_t status = dnnl_primitive_execute(primitive.get(), onednn_stream().get(),
                                                      static_cast<int>(count), list.data());
  check(status == dnnl_success, "onednn", "{} failed: {}", implementation, dnnl_status2str(status));
  args.implementation = implementation;
}

std::shared_ptr<const Primitive> cached_primitive(const PrimitiveKey& key,
                                                  const std::function<Primitive()>& build) {
  struct Hash {
    size_t operator()(const PrimitiveKey& k) const { return k.hash(); }
  };
  thread_local std::unordered_map<PrimitiveKey, std::shared_ptr<const Primitive>, Hash> cache;
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() >= 1024) cache.clear();
  try {
    return cache.emplace(key, std::make_shared<const Primitive>(build())).first->second;
  } catch (const dnnl::error& error) {
    fail("onednn", "cannot build the primitive: {}", error.what());
  }
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

OnednnThreads::OnednnThreads() : previous_(omp_get_max_threads()) {
  if (context().deterministic) omp_set_num_threads(1);
}
OnednnThreads::~OnednnThreads() { omp_set_num_threads(previous_); }

}  // namespace engine::cpu
