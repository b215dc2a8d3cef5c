// Both libraries report an error by longjmp, which must not pass an object with a destructor: calls
// of theirs stand in small functions (`guarded`) that hold none, and what lives on is a member.
#include "models/data/image.h"

#include <fmt/ranges.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>

// After <cstdio>, which jpeglib.h needs; jerror.h numbers the messages by what jpeglib.h says.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "core/error.h"
#include "models/files/input_file.h"
#include "profiler/safe_file.h"

namespace engine {

namespace {

constexpr const char* kPart = "image";
constexpr std::string_view kPng = "\x89PNG", kJpeg = "\xff\xd8\xff";
constexpr uint64_t kMaxFile = uint64_t{1} << 30;
// The most that deflate gains. A block of 8 x 8 pixels of a JPEG takes at least one bit of
// Huffman codes.
constexpr uint64_t kPngRowBytesPerByte = 1032, kJpegPixelsPerByte = 512;
// A progressive file has about 10; each is a pass over the whole image.
constexpr int kMaxScans = 100;

using Bytes = std::span<const std::byte>;

Image make_image(const std::string& name, int64_t height, int64_t width) {
  check(height >= 1 && width >= 1 && height <= kMaxPixels / width, kPart,
        "{}: expected an image of 1 to {} pixels, got {} x {}", name, kMaxPixels, width, height);
  return {height, width, {}};
}

class PngReader {
 public:
  PngReader(Bytes bytes, const std::string& name)
      : left_(bytes),
        name_(name),
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning)),
        info_(png_ == nullptr ? nullptr : png_create_info_struct(png_)) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Image read() {
    check(info_ != nullptr, kPart, "{}: expected memory to read it, got none", name_);
    const size_t size = left_.size();
    guarded([this] {
      png_set_read_fn(png_, this, on_read);
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the limit is below
      png_read_info(png_, info_);
    });
    Image image =
        make_image(name_, png_get_image_height(png_, info_), png_get_image_width(png_, info_));
    const uint64_t packed =
        (png_get_rowbytes(png_, info_) + 1) * static_cast<uint64_t>(image.height);
    check(packed <= kPngRowBytesPerByte * size, kPart,
          "{}: expected no more pixels than {} bytes can hold, got {} x {}", name_, size,
          image.width, image.height);
    guarded([this] {
      png_set_expand(png_);  // palettes, and grey of fewer bits
      png_set_strip_16(png_);
      png_set_gray_to_rgb(png_);
      png_set_strip_alpha(png_);
      passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    const size_t row = png_get_rowbytes(png_, info_);
    check(row == static_cast<size_t>(3 * image.width), kPart, "{}: expected to convert it to RGB",
          name_);
    image.pixels.resize(row * static_cast<size_t>(image.height));
    uint8_t* pixels = image.pixels.data();
    guarded([this, pixels, row, height = image.height] {
      for (int pass = 0; pass < passes_; ++pass) {
        uint8_t* at = pixels;
        for (int64_t i = 0; i < height; ++i, at += row) png_read_row(png_, at, nullptr);
      }
      png_read_end(png_, nullptr);
    });
    return image;
  }

 private:
  template <class Calls>
  void guarded(const Calls& calls) {
    if (setjmp(png_jmpbuf(png_)) != 0)
      fail(kPart, "{}: expected an intact PNG file, got '{}'", name_, message_.data());
    calls();
  }

  static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->message_.data(), self->message_.size(), "%s", message);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->left_.size()) png_error(png, "the file ends too early");
    std::memcpy(to, self->left_.data(), count);
    self->left_ = self->left_.subspan(count);
  }

  Bytes left_;
  const std::string& name_;
  std::array<char, 200> message_{};
  int passes_ = 1;
  png_structp png_;
  png_infop info_;
};

class JpegReader {
 public:
  JpegReader(Bytes bytes, const std::string& name) : bytes_(bytes), name_(name) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    progress_.progress_monitor = on_progress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }  // also if it was never created
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Image read() {
    guarded([this] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()),
                   static_cast<unsigned long>(bytes_.size()));
      jpeg_read_header(&info_, TRUE);
    });
    check(!info_.arith_code, kPart, "{}: expected Huffman codes, got arithmetic ones", name_);
    Image image = make_image(name_, info_.image_height, info_.image_width);
    check(static_cast<uint64_t>(image.height * image.width) <= kJpegPixelsPerByte * bytes_.size(),
          kPart, "{}: expected no more pixels than {} bytes can hold, got {} x {}", name_,
          bytes_.size(), image.width, image.height);
    const bool cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    guarded([this, cmyk] {
      info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
      jpeg_start_decompress(&info_);
    });
    const auto row = static_cast<size_t>(3 * image.width);
    image.pixels.resize(row * static_cast<size_t>(image.height));
    std::vector<uint8_t> inks(cmyk ? static_cast<size_t>(4 * image.width) : 0);
    guarded([this, row, to = image.pixels.data(), line = inks.data(), count = inks.size()] {
      uint8_t* at = to;
      while (info_.output_scanline < info_.output_height) {
        uint8_t* into = count > 0 ? line : at;
        jpeg_read_scanlines(&info_, &into, 1);
        for (size_t i = 0; i < count; ++i) {
          if (i % 4 != 3) at[i / 4 * 3 + i % 4] = ink(line[i], line[i / 4 * 4 + 3]);
        }
        at += row;
      }
      jpeg_finish_decompress(&info_);
    });
    return image;
  }

 private:
  // The colour that is left when two inks absorb, each given as 255 for none.
  static uint8_t ink(unsigned colour, unsigned black) {
    return static_cast<uint8_t>((colour * black + 127) / 255);
  }

  template <class Calls>
  void guarded(const Calls& calls) {
    if (setjmp(jump_) != 0)
      fail(kPart, "{}: expected an intact JPEG file, got '{}'", name_, message_.data());
    calls();
  }

  static JpegReader& self(j_common_ptr info) {
    return *static_cast<JpegReader*>(info->client_data);
  }
  static void on_error(j_common_ptr info) {
    JpegReader& reader = self(info);
    info->err->format_message(info, reader.message_.data());
    longjmp(reader.jump_, 1);
  }
  // The library would paint over what is missing and go on.
  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_JPEG_EOF:
      case JWRN_MUST_RESYNC:
        on_error(info);
    }
  }
  static void on_progress(j_common_ptr info) {
    JpegReader& reader = self(info);
    if (reader.info_.input_scan_number <= kMaxScans) return;
    std::snprintf(reader.message_.data(), reader.message_.size(), "more than %d scans", kMaxScans);
    longjmp(reader.jump_, 1);
  }

  Bytes bytes_;
  const std::string& name_;
  std::array<char, JMSG_LENGTH_MAX> message_{};
  std::jmp_buf jump_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

}  // namespace

Image decode_image(Bytes bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kPng)) return PngReader(bytes, name).read();
  if (text.starts_with(kJpeg)) return JpegReader(bytes, name).read();
  if (bytes.empty()) fail(kPart, "{}: expected a PNG or JPEG file, got an empty one", name);
  const std::span start(reinterpret_cast<const unsigned char*>(bytes.data()),
                        std::min<size_t>(bytes.size(), 4));
  fail(kPart, "{}: expected a PNG or JPEG file (first bytes 89 50 4e 47 or ff d8 ff), got {:02x}",
       name, fmt::join(start, " "));
}

Image read_image(const std::string& path) {
  const InputFile file(kPart, path);
  check(file.size() <= kMaxFile, kPart, "{}: expected a file of at most {} bytes, got {}", path,
        kMaxFile, file.size());
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  return decode_image(bytes, path);
}

void write_png(const std::string& path, const Image& image) {
  make_image(path, image.height, image.width);
  check(image.pixels.size() == static_cast<size_t>(3 * image.height * image.width), kPart,
        "{}: expected 3 values for each of {} x {} pixels, got {}", path, image.width, image.height,
        image.pixels.size());
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = bytes.size();
  const bool written = png_image_write_to_memory(&header, bytes.data(), &size, 0,
                                                 image.pixels.data(), 0, nullptr) != 0;
  check(written, kPart, "{}: expected to make a PNG file, got '{}'", path, header.message);
  SafeFile file(path);
  file.write(std::string_view(bytes).substr(0, size));
  file.commit();
}

}  // namespace engine
