// Reader of zip archives (PKWARE's APPNOTE): members stored or deflated, below 4 GiB, in one file.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/files/input_file.h"

namespace engine {

struct ZipEntry {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint32_t packed = 0;  ///< bytes in the archive
  uint32_t size = 0;    ///< bytes unpacked; no more than `packed` can unpack to
  uint64_t data = 0;    ///< where its bytes begin in the archive
};

/// The members in the order of the central directory. Members that overlap are refused, so that all
/// of them together unpack to no more than the file can hold (a thousand times its size, deflate's
/// limit). `part` is as for InputFile.
std::vector<ZipEntry> list_zip(const char* part, const InputFile& file);

/// Unpacks one member as a stream; `where` names it in errors.
class ZipMember {
 public:
  ZipMember(const char* part, const std::string& where, const InputFile& file,
            const ZipEntry& entry);
  ~ZipMember() { inflateEnd(&stream_); }
  ZipMember(const ZipMember&) = delete;
  ZipMember& operator=(const ZipMember&) = delete;

  /// The next `bytes` bytes; throws Error where there are not so many.
  void read(void* to, size_t bytes);
  /// After the last byte: throws Error unless the stream ends here and its checksum is right.
  void finish();

 private:
  // Unpacks into the `bytes` at `to` until they are full or the stream ends; the number unpacked.
  size_t unpack(void* to, size_t bytes);

  const char* part_;
  const std::string& where_;
  const InputFile& file_;
  const ZipEntry& entry_;
  uint32_t fetched_ = 0;  // packed bytes taken from the file
  uLong crc_ = 0;
  bool ended_ = false;
  std::vector<unsigned char> buffer_;
  z_stream stream_{};
};

}  // namespace engine
