// NumPy's files good and bad, written here byte by byte, and archives of them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "models/files/npy.h"
#include "tests/archives.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

const Member kOnes{"ones.npy", array("<f4", "(2,)", floats({1, 1}))};

// Reads a file that is not right and checks that the Error names it and has `part`.
void check_error(const std::string& bytes, const std::string& part, bool archive = false) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad", bytes);
  const std::string what = error_of([&] { archive ? (void)read_npz(path) : (void)read_npy(path); });
  CHECK(what.starts_with("[npy] " + path + ": "));
  CHECK_THAT(what, ContainsSubstring("expected "));
  CHECK_THAT(what, ContainsSubstring("got "));
  CHECK_THAT(what, ContainsSubstring(part));
}

// An archive of kOnes, damaged: the bytes at `at` of the first place where `mark` stands are
// replaced.
std::string damaged_zip(const std::string& mark, size_t at, const std::string& bytes,
                        bool deflated = false) {
  std::string archive = zip({{kOnes.name, kOnes.bytes, deflated}});
  return archive.replace(archive.find(mark) + at, bytes.size(), bytes);
}

}  // namespace

TEST_CASE("npy: files of known bytes are read", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const auto read = [&](const std::string& bytes) { return read_npy(folder.write("x", bytes)); };
  const std::string six = floats({1, 2, 3, 4, 5, 6});
  Tensor x = read(array("<f4", "(2, 3)", six));
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  // In Fortran's order the first axis runs fastest: columns (1, 2), (3, 4), (5, 6).
  x = read(array("<f4", "(2, 3)", six, true));
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.to_vector<float>() == std::vector<float>{1, 3, 5, 2, 4, 6});
  x = read(array("<f4", "(1, 2, 3)", six, true));
  CHECK(x.shape() == Shape{1, 2, 3});
  CHECK(x.to_vector<float>() == std::vector<float>{1, 3, 5, 2, 4, 6});
  CHECK(read(array("<f4", "(6,)", six, true)).shape() == Shape{6});
  x = read(array("<i4", "(2,)", little_endian(0xffffffff, 4) + little_endian(5, 4)));
  CHECK(x.to_vector<int32_t>() == std::vector<int32_t>{-1, 5});
  x = read(array("<i8", "()", little_endian(uint64_t{1} << 40, 8)));
  CHECK(x.shape() == Shape{});
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{int64_t{1} << 40});
  CHECK(read(array("|u1", "(2,)", "\x01\xff")).to_vector<uint8_t>() ==
        std::vector<uint8_t>{1, 255});
  CHECK(read(array("<u2", "(2,)", "\x02\x01\xff\xff")).to_vector<int32_t>() ==
        std::vector<int32_t>{258, 65535});
  CHECK(read(array("<f2", "(2,)", std::string("\x00\x3c\x01\x00", 4))).to_vector<float>() ==
        std::vector<float>{1, std::ldexp(1.f, -24)});
  CHECK(read(array("<f8", "(1,)", little_endian(std::bit_cast<uint64_t>(0.1), 8)))
            .to_vector<float>() == std::vector<float>{0.1f});
  CHECK(read(array("<f4", "(0, 3)", "")).shape() == Shape{0, 3});
  CHECK(read(array("<f4", "(3, 0, 2)", "", true)).shape() == Shape{3, 0, 2});
  // Other orders, quotes and spaces that Python's literals allow; versions 2 and 3.
  const std::string header = R"({"shape":(2,),'fortran_order' :False,"descr":"<f4"}   )";
  for (const int version : {1, 2, 3}) {
    CHECK(read(npy(header, floats({7, 8}), version)).to_vector<float>() ==
          std::vector<float>{7, 8});
  }
}

TEST_CASE("npy: a file of known bytes is written, and every dtype returns", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const std::string path = folder.file("x.npy");
  write_npy(path, from_host(Shape{2}, std::vector<float>{1, -2}));
  // 10 bytes, the header and a newline: a multiple of 64.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  header.resize(117, ' ');
  CHECK(read_bytes(path) == std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" +
                                std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  const auto check_return = [&](const auto& values, const Shape& shape) {
    using T = typename std::decay_t<decltype(values)>::value_type;
    write_npy(path, from_host(shape, values));
    const Tensor x = read_npy(path);
    CHECK(x.shape() == shape);
    CHECK(x.template to_vector<T>() == values);
  };
  check_return(std::vector<float>{1, INFINITY, 1e-45f, -0.5f}, Shape{2, 1, 2});
  check_return(std::vector<int32_t>{-3}, Shape{});
  check_return(std::vector<int64_t>{INT64_MIN, INT64_MAX}, Shape{1, 2});
  check_return(std::vector<uint8_t>{0, 128, 255}, Shape{3});
  check_return(std::vector<float>{}, Shape{2, 0});
  CHECK_THAT(error_of([&] { write_npy(path, empty(Shape{1}, DType::bf16)); }),
             ContainsSubstring("got bf16[1]: cast it first"));
}

TEST_CASE("npy: bad files are named", "[files]") {
  cpu::register_backend();
  check_error("", "got 0 bytes");
  check_error("\x93NUMPY", "got 6 bytes");
  check_error("PK\x03\x04 and so on, and on", "got something else");
  check_error(npy("{}", "", 4), "got 4.0");
  check_error("\x93NUMPY" + std::string("\x01\x01", 2) + "1234", "got 1.1");
  check_error("\x93NUMPY" + std::string("\x01\x00\xff\xff", 4) + "{}",
              "got 65535 with 2 bytes left");
  check_error("\x93NUMPY" + std::string("\x02\x00\xff\xff\xff\xff", 6), "got 4294967295");
  check_error(npy(std::string(10001, ' '), ""), "at most 10000 bytes");
  const auto header_error = [](const std::string& header, const std::string& part) {
    check_error(npy(header, "1234"), part);
  };
  header_error("", "expected '{', got the header's end");
  header_error("{", "got the header's end");
  header_error("{}", "got 0 of them");
  header_error("[]", "expected '{' at byte 0 of the header, got byte 0x5b");
  header_error("{'descr': '<f4'", "expected '}', got the header's end");
  header_error("{'descr", "expected a key in quotes");
  header_error("{'descr': [('a', '<f4')]}", "the type of an array of plain numbers");
  header_error("{'descr': '<f4', 'descr': '<f4'}", "'descr' once, got it twice");
  header_error("{'colour': 1}", "got 'colour'");
  header_error("{'fortran_order': 0}", "expected True or False at byte 18");
  header_error("{'shape': 4}", "expected '(' at byte 10");
  header_error("{'shape': (1 2)}", "expected ')' at byte 13");
  header_error("{'shape': (,)}", "a size from 0 to 2^63 - 1 at byte 11");
  header_error("{'shape': (-1,)}", "a size from 0 to 2^63 - 1 at byte 11");
  header_error("{'shape': (1.5,)}", "expected ')' at byte 12");
  header_error("{'shape': (9223372036854775808,)}", "a size from 0 to 2^63 - 1");
  header_error("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x",
               "the header's end at byte");
  for (const char* descr : {">f4", "<f16", "|O", "<U3", "|b1", "<c8", "|i1", "<M8[s]", ""}) {
    check_error(array(descr, "(1,)", "1234"), std::string("got '") + descr + "'");
  }
  check_error(array("<f4", "(1,)", "123"), "the data of <f4 (1), got 3 bytes");
  check_error(array("<f4", "(1,)", "12345"), "the data of <f4 (1), got 5 bytes");
  check_error(array("<f4", "(2, 3)", ""), "the data of <f4 (2 x 3), got 0 bytes");
  check_error(array("<f4", "(1000000000000,)", "1234"), "got 4 bytes");
  check_error(array("<f4", "(4294967296, 4294967296)", "1234"), "fewer than 2^63 elements");
  check_error(array("<f4", "(4611686018427387904,)", ""), "got 0 bytes");
  check_error(array("|u1", "(1,1,1,1,1,1,1,1,1)", "1"), "at most 8 dimensions, got 9");
}

TEST_CASE("npz: arrays stored and deflated are read in order", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  std::vector<float> many(100000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 1000);
  const std::vector<Member> members{{"b.npy", array("<f4", "(100000,)", floats(many)), true},
                                    kOnes,
                                    {"empty.npy", array("<f4", "(0,)", ""), true},
                                    {"a/c.npy", array("|u1", "(2,)", "\x01\x02")}};
  const auto arrays = read_npz(folder.write("x.npz", zip(members)));
  REQUIRE(arrays.size() == 4);
  CHECK(arrays[0].first == "b");
  CHECK(arrays[0].second.to_vector<float>() == many);
  CHECK(arrays[1].first == "ones");
  CHECK(arrays[1].second.to_vector<float>() == std::vector<float>{1, 1});
  CHECK(arrays[2].second.shape() == Shape{0});
  CHECK(arrays[3].first == "a/c");
  CHECK(arrays[3].second.to_vector<uint8_t>() == std::vector<uint8_t>{1, 2});
  CHECK(read_npz(folder.write("none.npz", zip({}))).empty());
  // A comment may follow the directory, even one that looks like a directory's end.
  std::string commented = zip({kOnes});
  commented.replace(commented.size() - 2, 2, little_endian(26, 2));
  CHECK(read_npz(folder.write("c.npz", commented + "PK\x05\x06" + std::string(22, 'x'))).size() ==
        1);
}

TEST_CASE("npz: bad archives are named", "[files]") {
  cpu::register_backend();
  const auto zip_error = [](const std::string& bytes, const std::string& part) {
    check_error(bytes, part, true);
  };
  const std::string good = zip({kOnes});
  zip_error("", "expected a zip archive, got none");
  zip_error(std::string(100, 'x'), "expected a zip archive, got none");
  zip_error(good.substr(0, good.size() - 1), "expected a zip archive, got none");
  zip_error(good + "x", "expected a zip archive, got none");
  zip_error(kOnes.bytes, "expected a zip archive, got none");
  zip_error(zip({{"text", "x"}}), "text: expected a member named .npy");
  zip_error(zip({kOnes, kOnes}), "ones.npy: expected it once, got it twice");
  zip_error(zip({{"x.npy", "no array at all"}}), "x.npy: expected a .npy file");
  zip_error(zip({{"x.npy", kOnes.bytes + "1"}}), "x.npy: expected the data");
  const std::string end = "PK\x05\x06", entry = "PK\x01\x02", local = "PK\x03\x04";
  zip_error(damaged_zip(end, 4, "\x01"), "a part of one");
  zip_error(damaged_zip(end, 10, "\xff\xff"), "zip64");
  zip_error(damaged_zip(end, 8, std::string("\x02\x00\x02\x00", 4)), "a directory of 2 members");
  zip_error(damaged_zip(end, 8, std::string("\x00\x00\x00\x00", 4)), "bytes more");
  zip_error(damaged_zip(end, 12, "\x01"), "expected a directory that ends at byte");
  zip_error(damaged_zip(entry, 0, "x"), "a damaged one at number 0");
  zip_error(damaged_zip(entry, 8, "\x01"), "got an encrypted one");
  zip_error(damaged_zip(entry, 10, "\x0c"), "got method 12");
  zip_error(damaged_zip(entry, 20, "\xff\xff\xff\xff"), "zip64");
  zip_error(damaged_zip(entry, 24, "\x01"), "expected a size that");
  zip_error(damaged_zip(entry, 24, "\xff\xff\xff\x0f", true), "expected a size that");
  zip_error(damaged_zip(entry, 28, "\xff\xff"), "a truncated one at number 0");
  zip_error(damaged_zip(entry, 42, "\xff\xff"), "a member before the directory");
  zip_error(damaged_zip(entry, 42, "\x01"), "expected a member at byte 1, got none");
  zip_error(damaged_zip(entry, 46, "\n"), "control characters");
  zip_error(damaged_zip(entry, 16, "xxxx"), "expected the checksum");
  zip_error(damaged_zip(entry, 16, "xxxx", true), "expected the checksum");
  zip_error(damaged_zip(local, 26, "\xff\xff"), "got one that overlaps");
  zip_error(damaged_zip(local, 42, "\xff", true), "expected intact deflate data, got '");
  // Two members in the same bytes: how a small archive would unpack to any size.
  std::string twice = zip({{"a.npy", std::string(1000, 'x')}, {"b.npy", std::string(1000, 'x')}});
  twice.erase(twice.rfind(local), 1030 + 9);
  zip_error(twice, "got ");
}

TEST_CASE("npy: no damage to a file crashes its reader", "[files]") {
  cpu::register_backend();
  CHECK(survive_damage(array("<f4", "(2, 3)", floats({1, 2, 3, 4, 5, 6}), true),
                       [](const std::string& path) { read_npy(path); }) >= 24 * 7);
  survive_damage(array("<u2", "(2,)", "1234"), "in memory: ", [](const std::string& bytes) {
    decode_npy(std::as_bytes(std::span(bytes)), "in memory");
  });
  for (const bool deflated : {false, true}) {
    survive_damage(zip({{kOnes.name, kOnes.bytes, deflated}, {"b.npy", array("|u1", "(1,)", "1")}}),
                   "in memory: ", [](const std::string& bytes) {
                     decode_npz(std::as_bytes(std::span(bytes)), "in memory");
                   });
  }
}
