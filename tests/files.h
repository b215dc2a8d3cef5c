// What tests of file formats share: a folder that goes with its owner, whole files as strings, the
// text of an Error, and the damage that every reader must survive.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "models/files/safetensors.h"
#include "tests/catch.h"

namespace engine::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "engine-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The text of the Error that `f` throws; empty when it throws none.
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

using Named = std::vector<std::pair<std::string, Tensor>>;

/// All tensors of a safetensors file, in its order.
inline Named read_all(const std::string& path) {
  const SafetensorsFile file(path);
  Named tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    tensors.emplace_back(entry.name, file.read(entry));
  }
  return tensors;
}

/// `number` as `bytes` little-endian bytes.
inline std::string little_endian(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? number >> 8 * i : 0);
  return text;
}

/// Calls `load` on what is made from `good` by cutting it at every length and by changing every
/// byte to each of several others. Each call must return or throw an Error that has `name`; returns
/// how many calls returned. Run under the sanitizers, this is where a reader that trusts its input
/// falls.
inline int survive_damage(const std::string& good, const std::string& name,
                          const std::function<void(const std::string& bytes)>& load) {
  int loaded = 0;
  const auto try_one = [&](const std::string& bytes) {
    try {
      load(bytes);
      ++loaded;
    } catch (const Error& error) {
      if (std::string(error.what()).find(name) == std::string::npos) FAIL_CHECK(error.what());
    }
  };
  for (size_t length = 0; length < good.size(); ++length) try_one(good.substr(0, length));
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x02, 0x08, 0x10, 0x20, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      try_one(bytes);
    }
    try_one(good.substr(0, i) + good.substr(i + 1));
  }
  return loaded;
}

/// The same with files, of which `load` gets the path.
inline int survive_damage(const std::string& good,
                          const std::function<void(const std::string& path)>& load) {
  const TemporaryFolder folder;
  return survive_damage(good, folder.file("damaged"),
                        [&](const std::string& bytes) { load(folder.write("damaged", bytes)); });
}

}  // namespace engine::test
