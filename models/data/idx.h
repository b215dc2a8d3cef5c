// Reader of IDX files, the format of MNIST and its successors: a big-endian header (magic number,
// dimensions), then the values. Files are read as they are or gzip-compressed (RFC 1952).
// Format: "The IDX file format" on Yann LeCun's page of the MNIST database.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace engine {

/// Grey images, u8 [count, height, width]; every dimension is at least 1.
struct IdxImages {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

/// The path of `dir`/`name` or, where that does not exist, `dir`/`name`.gz. Throws Error with both
/// paths and `how_to_get` when neither exists.
std::string find_idx_file(const std::string& dir, const std::string& name,
                          const std::string& how_to_get);

/// Both readers tell gzip by the first bytes of the file and check the whole file before they
/// return: header, exact length, gzip's checksum. They allocate no more than the file holds, plus
/// one MiB, whatever its header claims. Throw Error("[idx] FILE: expected ..., got ...").
IdxImages read_idx_images(const std::string& path);
/// At least one label, each in [0, classes).
std::vector<uint8_t> read_idx_labels(const std::string& path, int64_t classes);

}  // namespace engine
