// Image files of every kind against the pixels that Pillow reads in them
// (tests/data/images.safetensors, by make_images.py beside it), damaged files, and images at other
// sizes.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "models/data/image.h"
#include "models/data/resize.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

const std::map<std::string, Tensor>& examples() {
  static const std::map<std::string, Tensor> all = [] {
    cpu::register_backend();
    const Named named = read_all(ENGINE_TEST_DATA "/images.safetensors");
    return std::map<std::string, Tensor>(named.begin(), named.end());
  }();
  return all;
}

std::string file_of(const std::string& name) {
  const std::vector<uint8_t> bytes = examples().at(name + ".file").to_vector<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

Image decode(const std::string& bytes) {
  return decode_image(std::as_bytes(std::span(bytes)), "x");
}

Image image_of(const std::string& name) {
  const Tensor& tensor = examples().at(name);
  return {tensor.size(0), tensor.size(1), tensor.to_vector<uint8_t>()};
}

// The largest difference of two images of one size.
int distance(const Image& a, const Image& b) {
  REQUIRE(a.height == b.height);
  REQUIRE(a.width == b.width);
  REQUIRE(a.pixels.size() == b.pixels.size());
  int most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max(most, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return most;
}

std::string big_endian(uint32_t number) {
  std::string text = little_endian(number, 4);
  std::reverse(text.begin(), text.end());
  return text;
}

std::string chunk(const std::string& kind, const std::string& data) {
  const std::string both = kind + data;
  return big_endian(static_cast<uint32_t>(data.size())) + both +
         big_endian(static_cast<uint32_t>(
             crc32_z(0, reinterpret_cast<const Bytef*>(both.data()), both.size())));
}

// A grey PNG of 8 bits that claims this size, with `data` where its compressed rows should be.
std::string png(uint32_t width, uint32_t height, const std::string& data) {
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big_endian(width) + big_endian(height) + std::string("\x08\0\0\0\0", 5)) +
         chunk("IDAT", data) + chunk("IEND", "");
}

void check_error(const std::string& bytes, const std::string& part) {
  const std::string what = error_of([&] { decode(bytes); });
  CHECK(what.starts_with("[image] x: expected "));
  CHECK_THAT(what, ContainsSubstring(part));
}

}  // namespace

TEST_CASE("image: PNG files of every colour type and depth are what Pillow reads", "[data]") {
  int seen = 0;
  for (const auto& [name, tensor] : examples()) {
    if (!name.starts_with("png.") || !name.ends_with(".rgb")) continue;
    INFO(name);
    CHECK(distance(decode(file_of(name.substr(0, name.size() - 4))), image_of(name)) == 0);
    ++seen;
  }
  CHECK(seen == 18);
}

TEST_CASE("image: JPEG files of every colour space are what Pillow reads", "[data]") {
  int seen = 0;
  for (const auto& [name, tensor] : examples()) {
    if (!name.starts_with("jpeg.") || !name.ends_with(".rgb")) continue;
    INFO(name);
    CHECK(distance(decode(file_of(name.substr(0, name.size() - 4))), image_of(name)) <= 2);
    ++seen;
  }
  CHECK(seen == 9);
}

TEST_CASE("image: a file is read by its content and not by its name", "[data]") {
  const TemporaryFolder folder;
  CHECK(distance(read_image(folder.write("x.jpg", file_of("png.rgb8"))),
                 image_of("png.rgb8.rgb")) == 0);
  CHECK(distance(read_image(folder.write("x.png", file_of("jpeg.rgb"))),
                 image_of("jpeg.rgb.rgb")) <= 2);
  const std::string path = folder.write("x.txt", "GIF89a and so on");
  CHECK(error_of([&] { read_image(path); }) ==
        "[image] " + path +
            ": expected a PNG or JPEG file (first bytes 89 50 4e 47 or ff d8 ff), got 47 49 46 38");
  CHECK_THAT(error_of([&] { read_image(folder.path()); }), ContainsSubstring("got a directory"));
  CHECK_THAT(error_of([&] { read_image(folder.file("none")); }), ContainsSubstring("No such file"));
}

TEST_CASE("image: every truncation is an error", "[data]") {
  for (const char* name : {"png.palette4", "png.interlaced", "jpeg.grey", "jpeg.progressive"}) {
    const std::string good = file_of(name);
    for (size_t length = 0; length < good.size(); ++length) {
      INFO(name << " cut at " << length);
      CHECK(error_of([&] { decode(good.substr(0, length)); }).starts_with("[image] x: expected "));
    }
  }
  check_error("", "got an empty one");
}

TEST_CASE("image: no damage to a file crashes its reader", "[data]") {
  for (const char* name : {"png.rgba8", "png.palette2", "png.interlaced_grey1", "jpeg.small"}) {
    survive_damage(file_of(name), "x: ", [](const std::string& bytes) { decode(bytes); });
  }
}

TEST_CASE("image: a header may not claim what the file cannot hold", "[data]") {
  const std::string some = file_of("png.rgb8").substr(60, 20);
  check_error(png(0, 1, some), "intact PNG");
  check_error(png(1, 0, some), "intact PNG");
  check_error(png(1u << 31, 1, some), "intact PNG");
  check_error(png(0x7fffffff, 0x7fffffff, some),
              "1 to 134217728 pixels, got 2147483647 x 2147483647");
  check_error(png(1u << 14, (1u << 13) + 1, some), "1 to 134217728 pixels, got 16384 x 8193");
  check_error(png(1u << 14, 1u << 13, some), "no more pixels than 77 bytes can hold");
  check_error(png(7, 5, "not packed at all"), "intact PNG");
  std::string large = file_of("jpeg.rgb");
  const size_t frame = large.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  large.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);
  check_error(large, "1 to 134217728 pixels, got 65280 x 65280");
  large.replace(frame + 5, 4, std::string("\x08\x00\x08\x00", 4));
  check_error(large, "can hold, got 2048 x 2048");
  large.replace(frame + 5, 4, std::string("\x00\x00\x08\x00", 4));
  check_error(large, "intact JPEG");
}

TEST_CASE("image: a PNG file that is written is the same image", "[data]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.png");
  for (const char* name : {"png.rgb8.rgb", "png.one_pixel.rgb", "resize.from"}) {
    write_png(path, image_of(name));
    CHECK(distance(read_image(path), image_of(name)) == 0);
  }
  const std::string before = read_bytes(path);
  CHECK_THAT(error_of([&] {
               write_png(path, {2, 2, {1, 2, 3}});
             }),
             ContainsSubstring("3 values for each of 2 x 2 pixels, got 3"));
  CHECK_THAT(error_of([&] { write_png(path, {}); }), ContainsSubstring("got 0 x 0"));
  CHECK(read_bytes(path) == before);
  std::filesystem::create_directory(folder.file("d.png"));
  CHECK_THROWS(write_png(folder.file("d.png"), image_of("png.rgb8.rgb")));
}

TEST_CASE("image: other sizes are those of Pillow and torchvision", "[data]") {
  const Image from = image_of("resize.from");
  Image high{from.width, from.height, std::vector<uint8_t>(from.pixels.size())};
  for (size_t h = 0; h < 23; ++h) {
    for (size_t w = 0; w < 31; ++w) {
      for (size_t c = 0; c < 3; ++c)
        high.pixels[(w * 23 + h) * 3 + c] = from.pixels[(h * 31 + w) * 3 + c];
    }
  }
  int seen = 0;
  for (const auto& [name, tensor] : examples()) {
    INFO(name);
    if (name.starts_with("resize.") && name != "resize.from") {
      CHECK(distance(resize(from, tensor.size(0), tensor.size(1)), image_of(name)) <= 1);
      ++seen;
    } else if (name.starts_with("crop")) {
      const Image& source = name.starts_with("crop_high.") ? high : from;
      CHECK(distance(resize_and_crop(source, tensor.size(0), tensor.size(1)), image_of(name)) <= 1);
      ++seen;
    }
  }
  CHECK(seen == 12);
  CHECK(distance(resize_and_crop(from, 23, 31), from) == 0);
  // A long image is never held at its full size: 10^7 columns of height 1.
  const Image long_one{1, 10'000'000, std::vector<uint8_t>(30'000'000, 9)};
  CHECK(resize_and_crop(long_one, 224, 224).pixels == std::vector<uint8_t>(3 * 224 * 224, 9));
  CHECK_THAT(error_of([&] { resize(from, 0, 1); }), ContainsSubstring("got 1 x 0"));
}
