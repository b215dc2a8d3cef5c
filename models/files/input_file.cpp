#include "models/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace engine {

InputFile::InputFile(const char* part, const std::string& path) : part_(part), path_(path) {
  // The calls stand before their checks: the order in which arguments are evaluated is open, and
  // errno must be read last.
  struct stat status {};
  const bool found = ::stat(path.c_str(), &status) == 0;
  check(found, part, "{}: expected a readable file, got '{}'", path, std::strerror(errno));
  check(S_ISREG(status.st_mode), part, "{}: expected a regular file, got a {}", path,
        S_ISDIR(status.st_mode) ? "directory" : "device, pipe or socket");
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor_ >= 0, part, "{}: expected a readable file, got '{}'", path,
        std::strerror(errno));
  if (::fstat(descriptor_, &status) == 0) size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(uint64_t offset, void* to, size_t bytes) const {
  auto* at = static_cast<char*>(to);
  if (descriptor_ < 0) {
    check(offset <= size_ && bytes <= size_ - offset, part_,
          "{}: expected {} more bytes from position {} on, got the file's end", path_, bytes,
          offset);
    if (bytes > 0) std::memcpy(at, bytes_.data() + offset, bytes);
    return;
  }
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, part_, "{}: expected to read the file, got '{}'", path_, std::strerror(errno));
    check(got > 0, part_, "{}: expected {} more bytes from position {} on, got the file's end",
          path_, bytes, offset);
    at += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace engine
