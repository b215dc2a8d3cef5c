#include "profiler/safe_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace engine {

namespace {

[[noreturn]] void fail_to_write(const std::string& path, int error) {
  throw std::runtime_error(fmt::format("cannot write '{}': {}", path, std::strerror(error)));
}

}  // namespace

std::string output_target(const std::string& path) {
  std::error_code error;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  // A link to what is not there yet is left as it is; what it points to is to be made.
  for (int hops = 0; !error && std::filesystem::is_symlink(target); ++hops) {
    if (hops == 40) fail_to_write(path, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (!error) target = std::filesystem::weakly_canonical(target.parent_path() / next, error);
  }
  if (error) fail_to_write(path, error.value());
  const std::filesystem::file_status status = std::filesystem::status(target, error);
  if (!std::filesystem::exists(status)) return target.string();
  if (std::filesystem::is_directory(status)) fail_to_write(path, EISDIR);
  if (!std::filesystem::is_regular_file(status)) {
    throw std::runtime_error(fmt::format("cannot write '{}': not a regular file", path));
  }
  // rename() would replace even a file that its owner has protected from being written.
  if (::access(target.c_str(), W_OK) != 0) fail_to_write(path, errno);
  return target.string();
}

SafeFile::SafeFile(const std::string& path) : path_(path), target_(output_target(path)) {
  // O_EXCL: two writers of one target never share a temporary.
  int descriptor = -1;
  for (int attempt = 0; descriptor < 0; ++attempt) {
    temporary_ = fmt::format("{}.{}-{}.tmp", target_, ::getpid(), attempt);
    descriptor = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) fail_to_write(path_, errno);
  }
  file_ = ::fdopen(descriptor, "w");
  if (file_ == nullptr) {
    const int error = errno;
    ::close(descriptor);
    ::unlink(temporary_.c_str());
    fail_to_write(path_, error);
  }
}

SafeFile::~SafeFile() { discard(); }

void SafeFile::write(std::string_view bytes) {
  if (file_ == nullptr) throw std::runtime_error(fmt::format("'{}' is closed already", path_));
  if (bytes.empty()) return;  // nothing may be at null
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
}

void SafeFile::commit() {
  if (file_ == nullptr) throw std::runtime_error(fmt::format("'{}' is closed already", path_));
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail();
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0 || std::rename(temporary_.c_str(), target_.c_str()) != 0) fail();
}

void SafeFile::fail() {
  const int error = errno;
  discard();
  ::unlink(temporary_.c_str());
  fail_to_write(path_, error);
}

void SafeFile::discard() {
  if (file_ == nullptr) return;
  std::fclose(std::exchange(file_, nullptr));
  ::unlink(temporary_.c_str());
}

}  // namespace engine
