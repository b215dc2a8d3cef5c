// Images as files: PNG (ISO/IEC 15948) and JPEG (ITU-T T.81) are read by libpng and libjpeg, and
// PNG is written. What a file is, its first bytes say, not its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine {

/// 8-bit RGB, [height, width, 3]; at least 1 x 1.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

/// The most pixels that an image is read with: 400 MB.
inline constexpr int64_t kMaxPixels = int64_t{1} << 27;

/// The image that these bytes are, `name` in errors. Whatever it is becomes RGB as by Pillow's
/// convert("RGB"): grey is repeated, a palette looked up, transparency left out, of 16 bits the
/// upper 8 are kept, CMYK is taken as Adobe writes it (inverted). An orientation that a camera
/// noted is not applied. Throws Error("[image] NAME: expected ..., got ...") for another format,
/// damage, a missing part, more than kMaxPixels, and for a header that claims more pixels than so
/// many bytes can hold: before memory is asked for.
Image decode_image(std::span<const std::byte> bytes, const std::string& name);
Image read_image(const std::string& path);

/// Writes the whole file or leaves what is there as it is (SafeFile).
void write_png(const std::string& path, const Image& image);

}  // namespace engine
