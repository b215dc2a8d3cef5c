// Files of named tensors in the safetensors format: the length of a JSON header (u64), the header
// (dtype, shape and place of every tensor), then the data, with no hole and no overlap.
// Format: https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "models/files/elements.h"
#include "models/files/input_file.h"

namespace engine {

struct SafetensorsEntry {
  std::string name;
  ElementType type{};
  Shape shape;
  uint64_t begin = 0, end = 0;  ///< bytes within the data
};

/// A file opened for reading. The constructor checks all that the header says, so that afterwards
/// only the disk can fail. Throws Error("[safetensors] FILE: tensor 'NAME': expected ..., got
/// ...").
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  /// In the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensor of one of the entries, on the CPU. F16 and F64 become f32.
  Tensor read(const SafetensorsEntry& entry) const;

 private:
  void read_header();
  void check_data() const;

  InputFile file_;
  uint64_t data_ = 0;  // where the data begins in the file
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written. `value` is called once, when its turn comes, and gives a tensor of this
/// dtype and shape, on any device.
struct SafetensorsItem {
  std::string name;
  DType dtype;
  Shape shape;
  std::function<Tensor()> value;
};

/// Writes the whole file or leaves what is there as it is (SafeFile). The bytes are those that the
/// safetensors library writes: tensors by dtype, the widest first, then by name.
void write_safetensors(const std::string& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata = {});
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace engine
