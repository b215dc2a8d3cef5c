#include "models/data/idx.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "core/error.h"

namespace engine {

namespace {

// The third byte of the magic number is the type (8: u8), the fourth the rank.
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
constexpr int64_t kMaxBytes = int64_t{1} << 40;
constexpr size_t kChunk = size_t{1} << 20;

// The bytes of a file, unpacked if they are gzip. zlib's own gzread would do, but it ignores what
// follows a compressed stream, and a file with a damaged tail must not pass.
class UnpackedFile {
 public:
  explicit UnpackedFile(const std::string& path) : path_(path), buffer_(size_t{1} << 16) {
    std::error_code ignored;
    check(!std::filesystem::is_directory(path, ignored), "idx",
          "{}: expected a file, got a directory", path);
    check(!std::filesystem::is_other(path, ignored), "idx",
          "{}: expected a regular file, got a device, pipe or socket", path);
    file_.reset(std::fopen(path.c_str(), "rb"));
    check(file_ != nullptr, "idx", "{}: expected a readable file, got '{}'", path,
          std::strerror(errno));
    check(refill(), "idx", "{}: expected an IDX file, got an empty file", path);
    gzip_ = stream_.avail_in >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b;
    check(gzip_ || !path.ends_with(".gz"), "idx",
          "{}: expected gzip data (first bytes 1f 8b), got {:02x}: if the file is not compressed, "
          "remove .gz from its name",
          path, fmt::join(std::span(buffer_).first(std::min(stream_.avail_in, 2u)), " "));
    in_member_ = gzip_;
    // Last, because a constructor that throws runs no destructor. +16: gzip, with its checksum.
    check(inflateInit2(&stream_, MAX_WBITS + 16) == Z_OK, "idx",
          "{}: expected memory to unpack it, got none", path);
  }
  ~UnpackedFile() { inflateEnd(&stream_); }
  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;

  const std::string& path() const { return path_; }

  // Reads up to `size` (at most kChunk) bytes; fewer only at the end of the file, which is then
  // known to be intact.
  size_t read(uint8_t* out, size_t size) {
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0 && !refill()) {
        check(!in_member_, "idx",
              "{}: expected complete gzip data, got a truncated file: fetch it again", path_);
        break;
      }
      if (gzip_) {
        unpack();
      } else {
        copy();
      }
    }
    return size - stream_.avail_out;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  bool refill() {
    stream_.next_in = buffer_.data();
    stream_.avail_in =
        static_cast<uInt>(std::fread(buffer_.data(), 1, buffer_.size(), file_.get()));
    check(std::ferror(file_.get()) == 0, "idx", "{}: expected to read the file, got '{}'", path_,
          std::strerror(errno));
    return stream_.avail_in > 0;
  }

  void unpack() {
    if (!in_member_) {
      // A gzip file is one or more compressed members in a row; whatever follows one must be one.
      inflateReset(&stream_);
      in_member_ = true;
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      in_member_ = false;
      return;
    }
    check(status == Z_OK, "idx", "{}: expected intact gzip data, got '{}': fetch the file again",
          path_, stream_.msg != nullptr ? stream_.msg : zError(status));
  }

  void copy() {
    const uInt count = std::min(stream_.avail_in, stream_.avail_out);
    std::memcpy(stream_.next_out, stream_.next_in, count);
    stream_.next_in += count;
    stream_.avail_in -= count;
    stream_.next_out += count;
    stream_.avail_out -= count;
  }

  std::string path_;
  std::vector<uint8_t> buffer_;
  std::unique_ptr<std::FILE, Close> file_;
  z_stream stream_{};  // its input and output positions serve files that are not compressed too
  bool gzip_ = false;
  bool in_member_ = false;  // between the beginning and the end of a gzip member
};

uint32_t read_u32(UnpackedFile& file, const char* what) {
  std::array<uint8_t, 4> bytes{};
  const size_t got = file.read(bytes.data(), bytes.size());
  check(got == bytes.size(), "idx", "{}: expected the header's {} (4 bytes), got {} bytes",
        file.path(), what, got);
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

const char* magic_hint(uint32_t magic) {
  switch (magic) {
    case kImagesMagic:
      return " (images)";
    case kLabelsMagic:
      return " (labels)";
    default:
      return magic >> 16 == 0x1f8b ? " (still gzipped: it was compressed twice)" : "";
  }
}

// The values of the whole file, whose magic number must be `magic`; fills in its dimensions.
std::vector<uint8_t> read_values(const std::string& path, uint32_t magic, std::span<int64_t> dims) {
  UnpackedFile file(path);
  const uint32_t got_magic = read_u32(file, "magic number");
  check(got_magic == magic, "idx", "{}: expected magic number {}{}, got {}{}", path, magic,
        magic_hint(magic), got_magic, magic_hint(got_magic));
  for (int64_t& dim : dims) dim = read_u32(file, "dimensions");
  int64_t bytes = 1;
  for (const int64_t dim : dims) {
    check(dim > 0, "idx", "{}: expected dimensions of at least 1, got {}", path,
          fmt::join(dims, " x "));
    check(dim <= kMaxBytes / bytes, "idx", "{}: expected at most 2^40 values, got {}", path,
          fmt::join(dims, " x "));
    bytes *= dim;
  }
  // The header may lie, so memory grows with what really comes.
  std::vector<uint8_t> values;
  while (values.size() < static_cast<size_t>(bytes)) {
    const size_t old_size = values.size();
    const size_t wanted = std::min(kChunk, static_cast<size_t>(bytes) - old_size);
    values.resize(old_size + wanted);
    const size_t got = file.read(values.data() + old_size, wanted);
    check(got == wanted, "idx", "{}: expected {} values, as its header says ({}), got {}", path,
          bytes, fmt::join(dims, " x "), old_size + got);
  }
  // Asking for one byte more also takes gzip data to its end, where the checksum is.
  uint8_t more = 0;
  check(file.read(&more, 1) == 0, "idx",
        "{}: expected {} values, as its header says ({}), got more", path, bytes,
        fmt::join(dims, " x "));
  return values;
}

}  // namespace

std::string find_idx_file(const std::string& dir, const std::string& name,
                          const std::string& how_to_get) {
  const std::string plain = (std::filesystem::path(dir) / name).string();
  const std::string packed = plain + ".gz";
  for (const std::string& path : {plain, packed}) {
    // A file that is there and may not be looked at is found too: opening it names the reason.
    std::error_code ignored;
    if (std::filesystem::status(path, ignored).type() != std::filesystem::file_type::not_found) {
      return path;
    }
  }
  fail("idx", "{}: expected this file or {}, got neither: {}", plain, packed, how_to_get);
}

IdxImages read_idx_images(const std::string& path) {
  std::array<int64_t, 3> dims{};
  std::vector<uint8_t> pixels = read_values(path, kImagesMagic, dims);
  return {dims[0], dims[1], dims[2], std::move(pixels)};
}

std::vector<uint8_t> read_idx_labels(const std::string& path, int64_t classes) {
  std::array<int64_t, 1> dims{};
  std::vector<uint8_t> labels = read_values(path, kLabelsMagic, dims);
  for (size_t i = 0; i < labels.size(); ++i) {
    check(labels[i] < classes, "idx", "{}: expected labels in [0, {}), got {} at position {}", path,
          classes, labels[i], i);
  }
  return labels;
}

}  // namespace engine
