#include "models/files/zip.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace engine {

namespace {

constexpr std::string_view kEnd = "PK\x05\x06", kCentral = "PK\x01\x02", kLocal = "PK\x03\x04";
constexpr size_t kEndBytes = 22, kCentralBytes = 46, kLocalBytes = 30;
constexpr uint64_t kDeflateRatio = 1032;  // the most that deflate gains
constexpr size_t kChunk = size_t{1} << 16;

uint16_t u16(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<unsigned char>(bytes[at]) |
                               static_cast<unsigned char>(bytes[at + 1]) << 8);
}
uint32_t u32(std::string_view bytes, size_t at) {
  return u16(bytes, at) | uint32_t{u16(bytes, at + 2)} << 16;
}

struct Directory {
  size_t members = 0;
  uint64_t begin = 0;
  std::string bytes;
};

// The central directory, found through the record at the file's end, which a comment may follow.
Directory read_directory(const char* part, const InputFile& file) {
  const auto size = static_cast<size_t>(std::min<uint64_t>(file.size(), kEndBytes + 0xffff));
  const uint64_t tail_begin = file.size() - size;
  std::string tail(size, '\0');
  file.read(tail_begin, tail.data(), size);
  size_t at = size < kEndBytes ? tail.npos : tail.rfind(kEnd, size - kEndBytes);
  while (at != tail.npos && at + kEndBytes + u16(tail, at + 20) != size) {
    at = at == 0 ? tail.npos : tail.rfind(kEnd, at - 1);
  }
  check(at != tail.npos, part, "{}: expected a zip archive, got none, or a truncated one",
        file.path());
  const std::string_view end = std::string_view(tail).substr(at, kEndBytes);
  const uint32_t bytes = u32(end, 12), begin = u32(end, 16);
  check(u16(end, 10) != 0xffff && begin != 0xffffffff, part,
        "{}: expected an archive below 4 GiB with fewer than 65535 members, got a zip64 one",
        file.path());
  check(u32(end, 4) == 0 && u16(end, 8) == u16(end, 10), part,
        "{}: expected an archive in one file, got a part of one", file.path());
  check(uint64_t{begin} + bytes == tail_begin + at, part,
        "{}: expected a directory that ends at byte {}, got one of {} bytes at {}", file.path(),
        tail_begin + at, bytes, begin);
  Directory directory{.members = u16(end, 10), .begin = begin, .bytes = std::string(bytes, '\0')};
  file.read(begin, directory.bytes.data(), bytes);
  return directory;
}

}  // namespace

std::vector<ZipEntry> list_zip(const char* part, const InputFile& file) {
  const Directory directory = read_directory(part, file);
  std::vector<ZipEntry> entries;
  std::string_view left = directory.bytes;
  uint64_t all_packed = 0;
  for (size_t i = 0; i < directory.members; ++i) {
    check(left.size() >= kCentralBytes && left.starts_with(kCentral), part,
          "{}: expected a directory of {} members, got a damaged one at number {}", file.path(),
          directory.members, i);
    const size_t name_bytes = u16(left, 28);
    const size_t record = kCentralBytes + name_bytes + u16(left, 30) + u16(left, 32);
    check(record <= left.size(), part,
          "{}: expected a directory of {} members, got a truncated one at number {}", file.path(),
          directory.members, i);
    const uint32_t flags = u16(left, 8), method = u16(left, 10), local = u32(left, 42);
    ZipEntry entry{.name = std::string(left.substr(kCentralBytes, name_bytes)),
                   .deflated = method == 8,
                   .crc = u32(left, 16),
                   .packed = u32(left, 20),
                   .size = u32(left, 24)};
    left.remove_prefix(record);
    // What is wrong with the bytes of a name does not matter here, but messages are text.
    check(std::all_of(entry.name.begin(), entry.name.end(),
                      [](unsigned char c) { return c >= 0x20 && c != 0x7f; }),
          part, "{}: expected names without control characters, got one in member {}", file.path(),
          i);
    check((flags & 1) == 0, part,
          "{}: {:.200}: expected a member in the clear, got an encrypted one", file.path(),
          entry.name);
    check(method == 0 || method == 8, part,
          "{}: {:.200}: expected a member stored (0) or deflated (8), got method {}", file.path(),
          entry.name, method);
    check(entry.packed != 0xffffffff && entry.size != 0xffffffff && local != 0xffffffff, part,
          "{}: {:.200}: expected a member below 4 GiB, got a zip64 one", file.path(), entry.name);
    check(entry.deflated ? entry.size <= entry.packed * kDeflateRatio : entry.size == entry.packed,
          part, "{}: {:.200}: expected a size that {} packed bytes can have, got {}", file.path(),
          entry.name, entry.packed, entry.size);

    std::string header(kLocalBytes, '\0');
    check(uint64_t{local} + kLocalBytes <= directory.begin, part,
          "{}: {:.200}: expected a member before the directory, got one at byte {}", file.path(),
          entry.name, local);
    file.read(local, header.data(), kLocalBytes);
    check(header.starts_with(kLocal), part, "{}: {:.200}: expected a member at byte {}, got none",
          file.path(), entry.name, local);
    entry.data = uint64_t{local} + kLocalBytes + u16(header, 26) + u16(header, 28);
    all_packed += entry.packed;
    check(entry.data + entry.packed <= directory.begin && all_packed <= directory.begin, part,
          "{}: {:.200}: expected members one after the other, got one that overlaps", file.path(),
          entry.name);
    entries.push_back(std::move(entry));
  }
  check(left.empty(), part, "{}: expected a directory of {} members, got {} bytes more",
        file.path(), directory.members, left.size());
  return entries;
}

ZipMember::ZipMember(const char* part, const std::string& where, const InputFile& file,
                     const ZipEntry& entry)
    : part_(part), where_(where), file_(file), entry_(entry), buffer_(kChunk) {
  // Negative: deflate without zlib's own frame.
  check(inflateInit2(&stream_, -MAX_WBITS) == Z_OK, part,
        "{}: expected memory to unpack it, got none", where);
}

void ZipMember::read(void* to, size_t bytes) {
  if (bytes == 0) return;  // `to` may be null, which crc32_z takes for a fresh start
  size_t got = 0;
  if (entry_.deflated) {
    got = unpack(to, bytes);
  } else {
    got = std::min<size_t>(bytes, entry_.packed - fetched_);
    file_.read(entry_.data + fetched_, to, got);
    fetched_ += static_cast<uint32_t>(got);
  }
  check(got == bytes, part_, "{}: expected {} bytes more, got {}", where_, bytes, got);
  crc_ = crc32_z(crc_, static_cast<const Bytef*>(to), bytes);
}

size_t ZipMember::unpack(void* to, size_t bytes) {
  stream_.next_out = static_cast<Bytef*>(to);
  size_t left = bytes;
  while (left > 0 && !ended_) {
    if (stream_.avail_in == 0) {
      const size_t count = std::min<size_t>(kChunk, entry_.packed - fetched_);
      file_.read(entry_.data + fetched_, buffer_.data(), count);
      fetched_ += static_cast<uint32_t>(count);
      stream_.next_in = buffer_.data();
      stream_.avail_in = static_cast<uInt>(count);
    }
    const auto offered = static_cast<uInt>(std::min<size_t>(left, kChunk));
    stream_.avail_out = offered;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    left -= offered - stream_.avail_out;
    ended_ = status == Z_STREAM_END;
    // Without input and without progress zlib reports Z_BUF_ERROR: the stream is cut short.
    check(status == Z_OK || ended_, part_, "{}: expected intact deflate data, got '{}'", where_,
          stream_.msg != nullptr ? stream_.msg : zError(status));
  }
  return bytes - left;
}

void ZipMember::finish() {
  unsigned char more = 0;
  check(!entry_.deflated || unpack(&more, 1) == 0, part_, "{}: expected {} bytes, got more", where_,
        entry_.size);
  check(fetched_ == entry_.packed && stream_.avail_in == 0, part_,
        "{}: expected {} packed bytes, got {} that are not used", where_, entry_.packed,
        entry_.packed - fetched_ + stream_.avail_in);
  check(crc_ == entry_.crc, part_, "{}: expected the checksum {:08x}, got {:08x}: fetch it again",
        where_, entry_.crc, crc_);
}

}  // namespace engine
