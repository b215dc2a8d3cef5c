// A regular file opened for reading, or the bytes of one. Its size is known from the start, so that
// what a header claims can be held against it before any memory is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace engine {

class InputFile {
 public:
  /// `part` is the name in brackets of every Error, a literal: "[npy] FILE: expected ...".
  InputFile(const char* part, const std::string& path);
  /// A file that is in memory, `name` in errors; `bytes` must stay as long as it.
  InputFile(const char* part, const std::string& name, std::span<const std::byte> bytes)
      : part_(part), path_(name), bytes_(bytes), size_(bytes.size()) {}
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Reads exactly `bytes` from `offset` on; throws Error where the file ends before.
  void read(uint64_t offset, void* to, size_t bytes) const;

 private:
  const char* part_;
  std::string path_;
  int descriptor_ = -1;               // or
  std::span<const std::byte> bytes_;  // what a file in memory holds
  uint64_t size_ = 0;
};

}  // namespace engine
