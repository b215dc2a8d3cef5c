#include "core/backend.h"

#include "core/error.h"

namespace engine {

namespace {
// One device per kind: the index of a second CUDA device would be an entry of its own here.
std::array<std::unique_ptr<Backend>, kDeviceKinds>& backends() {
  static std::array<std::unique_ptr<Backend>, kDeviceKinds> instance;
  return instance;
}
}  // namespace

std::string to_string(Device device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return fmt::format("cuda:{}", device.index);
    case DeviceKind::meta:
      return "meta";
  }
  return "?";
}

void Attrs::wrong_type() {
  fail("attrs", "an op read its attributes as another type than was stored");
}

void register_backend(std::unique_ptr<Backend> backend) {
  auto& slot = backends()[static_cast<size_t>(backend->device().kind)];
  if (slot == nullptr) slot = std::move(backend);  // a second registration changes nothing
}

Backend& backend(Device device) {
  Backend* found = backends()[static_cast<size_t>(device.kind)].get();
  check(found != nullptr, "backend",
        "expected a registered device, got '{}': call its register_backend() first",
        to_string(device));
  return *found;
}

bool has_backend(DeviceKind kind) { return backends()[static_cast<size_t>(kind)] != nullptr; }

}  // namespace engine
