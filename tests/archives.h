// NumPy's files and archives of them, byte by byte, for the tests of what reads them.
#pragma once

#include <zlib.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/files.h"

namespace engine::test {

inline std::string npy(const std::string& header, const std::string& data, int version = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
         little_endian(header.size(), version == 1 ? 2 : 4) + header + data;
}

inline std::string array(const std::string& descr, const std::string& shape,
                         const std::string& data, bool fortran = false) {
  return npy("{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
                 ", 'shape': " + shape + ", }\n",
             data);
}

inline std::string floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += little_endian(std::bit_cast<uint32_t>(value), 4);
  return bytes;
}

struct Member {
  std::string name, bytes;
  bool deflated = false;
};

inline std::string deflate_raw(const std::string& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(bytes.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string zip(const std::vector<Member>& members) {
  std::string archive, directory;
  for (const Member& member : members) {
    const std::string packed = member.deflated ? deflate_raw(member.bytes) : member.bytes;
    const uLong crc =
        crc32_z(0, reinterpret_cast<const Bytef*>(member.bytes.data()), member.bytes.size());
    // Version, flags, method, time, date, checksum, sizes, length of the name and of what follows.
    const std::string common =
        little_endian(20, 2) + little_endian(0, 2) + little_endian(member.deflated ? 8 : 0, 2) +
        little_endian(0, 4) + little_endian(crc, 4) + little_endian(packed.size(), 4) +
        little_endian(member.bytes.size(), 4) + little_endian(member.name.size(), 2);
    directory += "PK\x01\x02" + little_endian(20, 2) + common +
                 little_endian(0, 2 + 2 + 2 + 2 + 4) + little_endian(archive.size(), 4) +
                 member.name;
    archive += "PK\x03\x04" + common + little_endian(4, 2) + member.name + "xtra" + packed;
  }
  const std::string end = "PK\x05\x06" + little_endian(0, 4) + little_endian(members.size(), 2) +
                          little_endian(members.size(), 2) + little_endian(directory.size(), 4) +
                          little_endian(archive.size(), 4) + little_endian(0, 2);
  return archive + directory + end;
}

}  // namespace engine::test
