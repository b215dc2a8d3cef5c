#include "models/checkpoint.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "models/files/safetensors.h"

namespace engine {

namespace {

namespace fs = std::filesystem;

constexpr char kWhere[] = "checkpoint";
constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".safetensors";
constexpr char kBest[] = "best.safetensors";
// In the file's metadata: the format, then a key for each number and each property of the run.
constexpr char kFormatKey[] = "format", kFormat[] = "engine checkpoint 1";
constexpr std::string_view kNumber = "number ", kRun = "run ";

std::string name_of(int64_t step) { return fmt::format("{}{:010}{}", kPrefix, step, kSuffix); }

std::optional<int64_t> parse(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The step of a checkpoint's name; nothing for other names.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const size_t length = name.size() - kPrefix.size() - kSuffix.size();
  const std::optional<int64_t> step = parse(std::string_view(name).substr(kPrefix.size(), length));
  return step && name_of(*step) == name ? step : std::nullopt;
}

// All checkpoints of a folder by step.
std::map<int64_t, fs::path> checkpoints_in(const std::string& folder) {
  std::map<int64_t, fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto step = step_of(at->path().filename().string())) found[*step] = at->path();
  }
  check(!error || error == std::errc::no_such_file_or_directory, kWhere,
        "cannot read the folder '{}': {}", folder, error.message());
  return found;
}

using Texts = std::map<std::string, std::string>;

// One line for each key that the two maps do not share with one value.
std::string differences(const char* what, const Texts& expected, const Texts& got) {
  std::string list;
  for (const auto& [key, value] : expected) {
    const auto found = got.find(key);
    if (found == got.end())
      list += fmt::format("\n  {} '{}': expected, got none", what, key);
    else if (found->second != value)
      list += fmt::format("\n  {} '{}': expected {}, got {:.200}", what, key, value, found->second);
  }
  for (const auto& [key, value] : got) {
    if (!expected.contains(key)) list += fmt::format("\n  {} '{:.200}': not expected", what, key);
  }
  return list;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, int64_t keep)
    : folder_(std::move(folder)), keep_(keep) {
  check(keep >= 1, kWhere, "expected to keep at least 1 checkpoint, got {}", keep);
  std::error_code error;
  fs::create_directories(folder_, error);
  check(!error, kWhere, "cannot make the folder '{}': {}", folder_, error.message());
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool ours = name.starts_with(kPrefix) || name.starts_with(kBest);
    const bool whole = step_of(name) || name == kBest;
    std::error_code ignored;
    if (ours && !whole && name.ends_with(".tmp")) fs::remove(at->path(), ignored);
  }
  check(!error, kWhere, "cannot read the folder '{}': {}", folder_, error.message());
}

std::optional<std::string> CheckpointFolder::newest(const std::string& folder) {
  const auto found = checkpoints_in(folder);
  if (found.empty()) return std::nullopt;
  return found.rbegin()->second.string();
}

void CheckpointFolder::save(const TrainingState& state, int64_t step, bool best) {
  const NoGradScope no_grad;
  const std::string name = name_of(step), path = (fs::path(folder_) / name).string();
  std::map<std::string, std::string> metadata{{kFormatKey, kFormat}};
  for (const auto& [key, value] : state.numbers)
    metadata[fmt::format("{}{}", kNumber, key)] = std::to_string(value);
  for (const auto& [key, value] : state.run) metadata[fmt::format("{}{}", kRun, key)] = value;
  std::vector<SafetensorsItem> items;
  for (const auto& [key, tensor] : state.tensors) {
    check(ops::is_finite(tensor), kWhere, "'{}' is not written: {} is not finite after step {}",
          path, key, step);
    items.push_back({key, tensor.dtype(), tensor.shape(),
                     [tensor = tensor] { return to_device(tensor.detach(), kCpu); }});
  }
  write_safetensors(path, std::move(items), metadata);
  if (best) mark_best(name);
  remove_old();
}

// A link that is renamed over the old one: at any moment it leads to a whole file.
void CheckpointFolder::mark_best(const std::string& name) const {
  const fs::path link = fs::path(folder_) / kBest;
  const fs::path fresh = link.string() + ".tmp";
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(name, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  check(!error, kWhere, "cannot make the link '{}': {}", link.string(), error.message());
}

void CheckpointFolder::remove_old() const {
  std::error_code error;
  const fs::path best = fs::read_symlink(fs::path(folder_) / kBest, error).filename();
  const auto found = checkpoints_in(folder_);
  auto left = static_cast<int64_t>(found.size());
  for (const auto& [step, path] : found) {
    if (left-- <= keep_) break;
    if (path.filename() != best) fs::remove(path, error);
  }
}

void load_checkpoint(const std::string& path, TrainingState& state) {
  const NoGradScope no_grad;
  const SafetensorsFile file(path);
  const auto& metadata = file.metadata();
  const auto format = metadata.find(kFormatKey);
  check(format != metadata.end() && format->second == kFormat, kWhere,
        "{}: expected a file of the format '{}', got {}", path, kFormat,
        format == metadata.end() ? "a safetensors file that says no format"
                                 : fmt::format("'{:.100}'", format->second));
  std::map<std::string, int64_t> numbers;
  Texts run;
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kRun)) run[key.substr(kRun.size())] = value;
    if (!key.starts_with(kNumber)) continue;
    const std::optional<int64_t> number = parse(value);
    check(number.has_value(), kWhere, "{}: expected a whole number as '{:.100}', got '{:.100}'",
          path, key, value);
    numbers[key.substr(kNumber.size())] = *number;
  }
  Texts expected, got;
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const auto& [key, tensor] : state.tensors)
    expected[key] = fmt::format("{}{}", name(tensor.dtype()), to_string(tensor.shape()));
  for (const SafetensorsEntry& entry : file.entries()) {
    entries[entry.name] = &entry;
    const ElementType& type = entry.type;
    const bool as_stored = type.bytes == size_of(type.dtype);
    got[entry.name] =
        fmt::format("{}{}", as_stored ? name(type.dtype) : type.name, to_string(entry.shape));
  }
  const std::string list =
      differences("run", state.run, run) + differences("tensor", expected, got);
  check(list.empty(), kWhere, "{}: this checkpoint does not fit the run:{}", path, list);
  for (const auto& [key, value] : state.numbers)
    check(numbers.contains(key), kWhere, "{}: expected the number '{}', got none", path, key);
  for (const auto& [key, tensor] : state.tensors) {
    if (tensor.numel() == 0) continue;
    const Tensor value = file.read(*entries.at(key));
    backend(tensor.device()).copy_from_host(tensor.raw(), value.raw(), value.bytes());
    tensor.impl()->storage->bump_version();
  }
  state.numbers = std::move(numbers);
}

}  // namespace engine
