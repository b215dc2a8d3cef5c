// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>

namespace engine {

enum class DeviceKind : uint8_t { cpu, cuda, meta };
inline constexpr int kDeviceKinds = 3;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{DeviceKind::cpu, 0};
inline constexpr Device kMeta{DeviceKind::meta, 0};

/// "cpu", "cuda:0" or "meta".
std::string to_string(Device device);

}  // namespace engine
