#include "backends/cpu/store.h"

#include <fstream>

namespace engine::cpu {

namespace {

// Of the last cache that this processor has. The system's own word: sysconf counts the caches of a
// whole socket on some processors.
size_t last_cache_bytes() {
  size_t kilobytes = 0;
  for (const char* level : {"2", "3"}) {
    size_t found = 0;
    if (std::ifstream(std::string("/sys/devices/system/cpu/cpu0/cache/index") + level + "/size") >>
        found)
      kilobytes = found;
  }
  constexpr size_t kUsual = size_t{32} << 20;
  return kilobytes > 0 ? kilobytes << 10 : kUsual;
}

}  // namespace

bool exceeds_caches(size_t bytes) {
  static const size_t most = last_cache_bytes() / 2;
  return bytes > most;
}

}  // namespace engine::cpu
