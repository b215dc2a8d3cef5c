#include "profiler/memory.h"

#include <cstdio>
#include <cstring>

namespace engine {

const char* name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameter:
      return "parameter";
    case MemoryCategory::gradient:
      return "gradient";
    case MemoryCategory::optimizer_state:
      return "optimizer state";
    case MemoryCategory::activation:
      return "activation";
    case MemoryCategory::workspace:
      return "workspace";
    case MemoryCategory::input:
      return "input";
  }
  return "?";
}

ResidentSetSize resident_set_size() {
  ResidentSetSize rss;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return rss;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    long long kib = 0;
    if (std::sscanf(line, "VmRSS: %lld", &kib) == 1) rss.current = kib * 1024;
    if (std::sscanf(line, "VmHWM: %lld", &kib) == 1) rss.peak = kib * 1024;
  }
  std::fclose(file);
  return rss;
}

}  // namespace engine
