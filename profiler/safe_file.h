// Whole files that are either complete or not there: what a run writes never takes the place of a
// good file half done, whatever fails on the way (a full disk, an exception, a kill).
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace engine {

/// The place that writing to `path` has to replace: symbolic links are followed, so that the file
/// behind a link is replaced and not the link. Throws std::runtime_error, naming `path`, where
/// something other than a writable regular file is there.
std::string output_target(const std::string& path);

/// Writes to a temporary name beside the target; commit() puts the whole file in the target's place
/// in one step (rename(2)). Every error throws std::runtime_error with the path and the system's
/// reason; after an error, or when destroyed without commit(), the temporary is gone and the target
/// is as it was.
class SafeFile {
 public:
  explicit SafeFile(const std::string& path);
  ~SafeFile();
  SafeFile(const SafeFile&) = delete;
  SafeFile& operator=(const SafeFile&) = delete;

  void write(std::string_view bytes);
  /// Once, as the last call.
  void commit();

 private:
  [[noreturn]] void fail();
  void discard();

  std::string path_;  // as the caller named it, for messages
  std::string target_;
  std::string temporary_;
  std::FILE* file_ = nullptr;  // null once committed or discarded
};

}  // namespace engine
