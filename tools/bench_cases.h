// The calls that engine-bench times: one per kernel family and typical shape.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/device.h"

namespace engine::tools {

struct BenchCase {
  std::string name;  ///< the op, then the shape: "softmax 4096x1024"
  /// Makes the inputs on a device and returns the call to time.
  std::function<std::function<void()>(Device)> prepare;
  /// On the CPU, oneDNN's own call for the same work, where there is one.
  std::function<std::function<void()>()> rival = nullptr;
};

const std::vector<BenchCase>& bench_cases();

}  // namespace engine::tools
