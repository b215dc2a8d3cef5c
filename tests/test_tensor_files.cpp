// safetensors files good and bad, written here byte by byte; a module's weights in PyTorch's
// layout.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "layers/layers.h"
#include "models/files/safetensors.h"
#include "models/files/weights.h"
#include "tests/catch.h"
#include "tests/files.h"

using namespace engine;
using namespace engine::test;

namespace {

std::string safetensors(const std::string& header, const std::string& data = "") {
  return little_endian(header.size(), 8) + header + data;
}

// One tensor "x" with these fields, and `data`.
std::string one_tensor(const std::string& fields, const std::string& data) {
  return safetensors(R"({"x":{)" + fields + "}}", data);
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

void check_same(const Named& got, const Named& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(expected[i].first);
    CHECK(got[i].first == expected[i].first);
    CHECK(got[i].second.dtype() == expected[i].second.dtype());
    CHECK(got[i].second.shape() == expected[i].second.shape());
    CHECK(bytes_of(got[i].second) == bytes_of(expected[i].second));
  }
}

// Reads a file that is not right and checks that the Error names it and has `part`.
void check_error(const std::string& bytes, const std::string& part) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.safetensors", bytes);
  const std::string what = error_of([&] { read_all(path); });
  CHECK(what.starts_with("[safetensors] " + path + ": "));
  CHECK_THAT(what, ContainsSubstring("expected "));
  CHECK_THAT(what, ContainsSubstring("got "));
  CHECK_THAT(what, ContainsSubstring(part));
}

// Of the tensor "x".
void check_tensor_error(const std::string& fields, const std::string& data,
                        const std::string& part) {
  check_error(one_tensor(fields, data), "tensor 'x': ");
  check_error(one_tensor(fields, data), part);
}

// Every dtype, a scalar and an empty tensor, in the order of a written file.
Named some_tensors() {
  return {{"long", from_host(Shape{2}, std::vector<int64_t>{-2, int64_t{1} << 40})},
          {"a.weight",
           from_host(Shape{2, 3}, std::vector<float>{0, -0.0f, 1.5f, INFINITY, 1e-45f, -7})},
          {"empty", empty(Shape{3, 0, 2})},
          {"scalar", from_host(Shape{}, std::vector<float>{42})},
          {"int", from_host(Shape{3}, std::vector<int32_t>{1, -1, 1 << 30})},
          {"brain", from_host(Shape{1, 2}, std::vector{BFloat16(1.0f), BFloat16(-3.0f)})},
          {"bytes", from_host(Shape{5}, std::vector<uint8_t>{0, 1, 127, 128, 255})}};
}

// Parameters of every kind, and a buffer.
class Network : public Module {
 public:
  explicit Network(int64_t features = 5) {
    conv_ = register_module("conv",
                            std::make_shared<Conv2d>(2, 3, Conv2dOptions{.kernel = {1, 2}}, kCpu));
    fc_ = register_module("fc", std::make_shared<Linear>(features, 2, kCpu));
    register_buffer("count", from_host(Shape{}, std::vector<int64_t>{7}));
  }

 protected:
  Tensor forward(const Tensor& x) override { return x; }

 private:
  std::shared_ptr<Module> conv_, fc_;
};

std::string all_bytes(const Module& module) {
  std::string bytes;
  for (const auto& [name, tensor] : module.named_parameters()) bytes += bytes_of(tensor);
  for (const auto& [name, tensor] : module.named_buffers()) bytes += bytes_of(tensor);
  return bytes;
}

Tensor tensor_of(const Module& module, const std::string& wanted) {
  for (const auto& [name, tensor] : module.named_parameters()) {
    if (name == wanted) return tensor;
  }
  for (const auto& [name, tensor] : module.named_buffers()) {
    if (name == wanted) return tensor;
  }
  FAIL(wanted);
  return {};
}

Tensor counting(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), first);
  return from_host(shape, values);
}

}  // namespace

TEST_CASE("safetensors: a file of known bytes is read", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  // The header's keys, and the tensors, in an order that no writer here has.
  const std::string path = folder.write(
      "known", safetensors(R"({ "b":{"data_offsets":[8,10],"dtype":"BF16","shape":[1]},)"
                           R"("__metadata__":{"format":"pt","n\u00e9":""},)"
                           R"("a":{"shape":[1,2],"dtype":"F32","data_offsets":[0,8]}} )",
                           std::string("\0\0\x80\x3f\0\0\0\xc0\x40\x40", 10)));
  check_same(read_all(path), {{"a", from_host(Shape{1, 2}, std::vector<float>{1, -2})},
                              {"b", from_host(Shape{1}, std::vector{BFloat16(3.0f)})}});
  CHECK(SafetensorsFile(path).metadata() ==
        std::map<std::string, std::string>{{"format", "pt"}, {"n\xc3\xa9", ""}});
  CHECK(read_all(folder.write("none", safetensors("{}"))).empty());
  CHECK(read_all(folder.write("padded", safetensors("{}      "))).empty());
}

TEST_CASE("safetensors: a file of known bytes is written", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const std::string path = folder.file("written");
  write_safetensors(path,
                    {{"b", from_host(Shape{1}, std::vector<uint8_t>{9})},
                     {"c", from_host(Shape{2}, std::vector<float>{1, -2})},
                     {"a", from_host(Shape{}, std::vector<uint8_t>{8})}},
                    {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"U8","shape":[],"data_offsets":[8,9]},)"
                       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})";
  header.resize(192, ' ');
  CHECK(read_bytes(path) == std::string("\xc0\0\0\0\0\0\0\0", 8) + header +
                                std::string("\0\0\x80\x3f\0\0\0\xc0\x08\x09", 10));
  write_safetensors(path, Named{});
  CHECK(read_bytes(path) == std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST_CASE("safetensors: every dtype returns bit by bit", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const std::string path = folder.file("all");
  Named tensors = some_tensors();
  const std::map<std::string, std::string> metadata{{"", "\"\\\n"}, {"k", "v"}};
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(path, tensors, metadata);
  std::reverse(tensors.begin(), tensors.end());
  // Where data is empty, its place in the file ties with the next tensor's.
  check_same(read_all(path), tensors);
  CHECK(SafetensorsFile(path).metadata() == metadata);
}

TEST_CASE("safetensors: half and double precision become f32", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  // 1, -2, 65504 (the largest), 2^-24 (the smallest), 2^-14 - 2^-24 (the largest subnormal),
  // -0, infinity, NaN
  const std::string halves("\x00\x3c\x00\xc0\xff\x7b\x01\x00\xff\x03\x00\x80\x00\x7c\x01\x7e", 16);
  Tensor x = read_all(folder.write(
      "h", one_tensor(R"("dtype":"F16","shape":[8],"data_offsets":[0,16])", halves)))[0]
                 .second;
  std::vector<float> got = x.to_vector<float>();
  CHECK(std::isnan(got.back()));
  got.pop_back();
  CHECK(got == std::vector<float>{1, -2, 65504, 5.9604644775390625e-8f, 6.0975551605224609375e-5f,
                                  0, INFINITY});
  CHECK(std::signbit(got[5]));

  std::string doubles;
  for (const double value : {1.0, 0.1, -1e300}) {
    doubles += little_endian(std::bit_cast<uint64_t>(value), 8);
  }
  x = read_all(folder.write(
      "d", one_tensor(R"("dtype":"F64","shape":[3],"data_offsets":[0,24])", doubles)))[0]
          .second;
  CHECK(x.to_vector<float>() == std::vector<float>{1, 0.1f, -INFINITY});
}

TEST_CASE("safetensors: an empty tensor and a scalar are valid", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  Named got = read_all(folder.write(
      "empty", safetensors(R"({"z":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                           R"("a":{"dtype":"F16","shape":[0],"data_offsets":[4,4]},)"
                           R"("b":{"dtype":"F32","shape":[0,1000000000000],"data_offsets":[0,0]}})",
                           "1234")));
  REQUIRE(got.size() == 3);
  CHECK(got[0].first == "b");
  CHECK(got[0].second.shape() == Shape{0, 1000000000000});
  CHECK(got[1].second.shape() == Shape{});
  CHECK(got[2].second.numel() == 0);
}

TEST_CASE("safetensors: a file whose header is not one", "[files]") {
  cpu::register_backend();
  check_error("", "got a file of 0 bytes");
  check_error("1234567", "got a file of 7 bytes");
  check_error(little_endian(0, 8), "got an empty one");
  check_error(little_endian(3, 8) + "{}", "a header of 3 bytes, got a file of 10");
  check_error(little_endian(UINT64_MAX, 8) + "{}", "got 18446744073709551615");
  check_error(little_endian(100'000'001, 8) + "{}", "at most 100000000 bytes, got 100000001");
  check_error(safetensors(" {}"), "got a byte 0x20");
  check_error(safetensors("[]"), "got a byte 0x5b");
  check_error(safetensors("\xef\xbb\xbf{}"), "got a byte 0xef");
  check_error(safetensors("{"), "syntax error at its byte");
  check_error(safetensors("{} {}"), "syntax error at its byte");
  check_error(safetensors(R"({"x":})"), "syntax error");
  check_error(safetensors("{\"\xff\":{}}"), "syntax error");
  check_error(safetensors(std::string("{}\0x", 4)), "a zero byte at its byte 2");
  check_error(safetensors(R"({"x":1e999})"), "syntax error");
  check_error(safetensors("{\"x\":" + std::string(100000, '[')), "tensor 'x': ");
}

TEST_CASE("safetensors: a header whose values are of the wrong kind", "[files]") {
  cpu::register_backend();
  for (const char* value : {"null", "true", "1", "-1", "1.5", "\"s\"", "[]"}) {
    check_error(safetensors(std::string(R"({"x":)") + value + "}"),
                "tensor 'x': expected an object, got ");
  }
  check_error(safetensors(R"({"__metadata__":{"k":1}})"), "expected a string for 'k', got 1");
  check_error(safetensors(R"({"__metadata__":{"k":{}}})"), "expected a string for 'k'");
  check_error(safetensors(R"({"__metadata__":{"k":"","k":""}})"), "'k' once, got it twice");
  check_error(safetensors(R"({"__metadata__":{},"__metadata__":{}})"), "got it twice");
  check_error(safetensors(R"({"__metadata__":"k"})"), "expected an object");
  check_tensor_error(R"("dtype":1)", "", "dtype to be a string, got 1");
  check_tensor_error(R"("dtype":["F32"])", "", "dtype to be a string, got an array");
  check_tensor_error(R"("shape":4)", "", "shape to be an array of integers, got 4");
  check_tensor_error(R"("shape":{})", "", "shape to be an array of integers, got an object");
  check_tensor_error(R"("shape":[[1]])", "", "in shape, got an array");
  check_tensor_error(R"("shape":["1"])", "", "in shape, got a string");
  check_tensor_error(R"("shape":[-1])", "", "in shape, got -1");
  check_tensor_error(R"("shape":[1.0])", "", "in shape, got 1.0");
  check_tensor_error(R"("shape":[1e2])", "", "in shape, got 1e2");
  check_tensor_error(R"("shape":[9223372036854775808])", "", "in shape, got 9223372036854775808");
  check_tensor_error(R"("shape":[18446744073709551616])", "", "in shape, got 18446744073709551616");
  check_tensor_error(R"("shape":[1,1,1,1,1,1,1,1,1])", "", "at most 8 numbers in shape");
  check_tensor_error(R"("data_offsets":[-4,0])", "", "in data_offsets, got -4");
  check_tensor_error(R"("data_offsets":[0,4.5])", "", "in data_offsets, got 4.5");
  check_tensor_error(R"("data_offsets":[0])", "", "begin and end, got 1");
  check_tensor_error(R"("data_offsets":[0,1,2])", "", "begin and end, got 3");
  check_tensor_error(R"("data_offsets":null)", "", "got null");
  check_tensor_error(R"("colour":1)", "", "got 'colour'");
  check_tensor_error(R"("dtype":"F32","dtype":"F32")", "", "dtype once, got it twice");
  check_tensor_error(R"("dtype":"F32","shape":[])", "", "got 2 of them");
  check_tensor_error("", "", "got 0 of them");
  for (const char* dtype : {"F8_E4M3", "F8_E5M2", "I8", "U64", "C64", "f32", ""}) {
    check_tensor_error(
        std::string(R"("dtype":")") + dtype + R"(","shape":[1],"data_offsets":[0,1])", "x",
        std::string("got '") + dtype + "'");
  }
}

TEST_CASE("safetensors: data that is not what the header says", "[files]") {
  cpu::register_backend();
  const auto f32 = [](const std::string& shape, const std::string& offsets) {
    return R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets;
  };
  check_tensor_error(f32("[1]", "[4,0]"), "1234", "end is not before the begin, got [4, 0]");
  check_tensor_error(f32("[1]", "[0,3]"), "123", "hold F32 [1], got [0, 3]");
  check_tensor_error(f32("[1000,1000]", "[0,4]"), "1234", "hold F32 [1000, 1000], got [0, 4]");
  check_tensor_error(f32("[4294967296,4294967296]", "[0,4]"), "1234", "fewer than 2^63 elements");
  // 2^62 elements of four bytes: 2^64, which would wrap to none.
  check_tensor_error(f32("[4611686018427387904]", "[0,0]"), "", "got [0, 0]");
  check_tensor_error(f32("[0]", "[0,4]"), "1234", "got [0, 4]");
  check_tensor_error(f32("[1]", "[4,8]"), "12345678",
                     "at byte 0, with no hole and no overlap, got 4");
  check_tensor_error(f32("[0]", "[9,9]"), "", "at byte 0, with no hole and no overlap, got 9");
  check_tensor_error(f32("[2]", "[0,8]"), "1234567", "a file whose data ends at 7");
  // Sizes that agree with each other and not with the file: nothing is allocated for them.
  check_tensor_error(f32("[1000000000000]", "[0,4000000000000]"), "1234", "data ends at 4");
  check_error(one_tensor(f32("[1]", "[0,4]"), "12345"),
              "expected 4 bytes of data, as its header says, got 5");
  check_error(safetensors("{}", "1"), "expected 0 bytes of data");
  const auto two = [&](const std::string& a, const std::string& b) {
    return safetensors(R"({"a":{)" + f32("[2]", a) + R"(},"b":{)" + f32("[2]", b) + "}}",
                       std::string(20, 'x'));
  };
  check_error(two("[0,8]", "[4,12]"), "tensor 'b': expected its data at byte 8");
  check_error(two("[0,8]", "[0,8]"), "tensor 'b': expected its data at byte 8");
  check_error(two("[0,8]", "[12,20]"), "tensor 'b': expected its data at byte 8");
  check_error(
      safetensors(R"({"a":{)" + f32("[0]", "[0,0]") + R"(},"a":{)" + f32("[0]", "[0,0]") + "}}"),
      "tensor 'a': expected it once, got it twice");
}

TEST_CASE("safetensors: paths that are not files", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const auto error = [](const std::string& path) {
    return error_of([&] { SafetensorsFile file(path); });
  };
  CHECK(error(folder.file("none")) ==
        "[safetensors] " + folder.file("none") +
            ": expected a readable file, got 'No such file or directory'");
  CHECK_THAT(error(folder.path()), ContainsSubstring("a regular file, got a directory"));
  CHECK_THAT(error("/dev/zero"), ContainsSubstring("a regular file, got a device"));
}

TEST_CASE("safetensors: no damage to a file crashes its reader", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  write_safetensors(folder.file("good"), some_tensors(), {{"format", "pt"}});
  const int loaded = survive_damage(read_bytes(folder.file("good")),
                                    [](const std::string& path) { read_all(path); });
  // Damage to the data, to a name and to the metadata cannot be seen.
  CHECK(loaded > 500);
}

TEST_CASE("safetensors: what cannot be written is refused and the old file stays", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const std::string path = folder.write("file", "old");
  const Tensor x = from_host(Shape{1}, std::vector<float>{1});
  const auto error = [&](const Named& tensors) {
    return error_of([&] { write_safetensors(path, tensors); });
  };
  CHECK_THAT(error({{"a", x}, {"a", x}}),
             ContainsSubstring("tensor 'a': expected a name of its own"));
  CHECK_THAT(error({{"__metadata__", x}}), ContainsSubstring("expected a name of its own"));
  CHECK_THAT(error({{"\xff", x}}), ContainsSubstring("in UTF-8"));
  CHECK_THAT(error_of([&] {
               write_safetensors(path, {{"a", DType::f32, Shape{2}, [&] { return x; }}});
             }),
             ContainsSubstring("tensor 'a': expected f32[2], got f32[1]"));
  CHECK(read_bytes(path) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("weights: a file has PyTorch's names and layouts", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  const std::string path = folder.file("weights");
  Network network;
  // Channels-last [3, 1, 2, 2]: element (o, 0, w, i) is 4 o + 2 w + i.
  const Tensor weight = tensor_of(network, "conv.weight");
  REQUIRE(weight.shape() == Shape{3, 1, 2, 2});
  std::iota(weight.data<float>(), weight.data<float>() + 12, 0.f);
  save_weights(path, network, {{"format", "pt"}});
  const Named saved = read_all(path);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : saved) names.push_back(name);
  CHECK(names ==
        std::vector<std::string>{"count", "conv.bias", "conv.weight", "fc.bias", "fc.weight"});
  // Channels-first [3, 2, 1, 2]: (o, i, 0, w).
  CHECK(saved[2].second.shape() == Shape{3, 2, 1, 2});
  CHECK(saved[2].second.to_vector<float>() ==
        std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11});
  CHECK(bytes_of(saved[4].second) == bytes_of(tensor_of(network, "fc.weight")));
  CHECK(SafetensorsFile(path).metadata() == std::map<std::string, std::string>{{"format", "pt"}});

  Network other;
  const Tensor kept = tensor_of(other, "conv.weight");
  tensor_of(other, "count").data<int64_t>()[0] = 0;
  const uint32_t version = kept.impl()->storage->version();
  load_weights(path, other);
  CHECK(all_bytes(other) == all_bytes(network));
  CHECK(kept.to_vector<float>() == weight.to_vector<float>());  // the same memory
  CHECK(kept.requires_grad());
  CHECK(kept.impl()->storage->version() > version);  // a backward pass that saved it is refused
}

TEST_CASE("weights: lower and double precision are converted", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  Linear linear(2, 1, kCpu);
  const auto load = [&](const std::string& dtype, int size, const std::string& weight,
                        const std::string& bias) {
    load_weights(
        folder.write(dtype,
                     safetensors(fmt::format(R"({{"weight":{{"dtype":"{0}","shape":[1,2],)"
                                             R"("data_offsets":[0,{1}]}},"bias":{{"dtype":)"
                                             R"("{0}","shape":[1],"data_offsets":[{1},{2}]}}}})",
                                             dtype, 2 * size, 3 * size),
                                 weight + bias)),
        linear);
    std::vector<float> values = tensor_of(linear, "weight").to_vector<float>();
    values.push_back(tensor_of(linear, "bias").to_vector<float>()[0]);
    return values;
  };
  CHECK(load("BF16", 2, "\x80\x3f\x40\xc0", std::string("\x00\x3f", 2)) ==
        std::vector<float>{1, -3, 0.5f});
  CHECK(load("F16", 2, std::string("\x00\x3c\x00\xc0", 4), std::string("\x00\x38", 2)) ==
        std::vector<float>{1, -2, 0.5f});
  const auto f64 = [](double value) { return little_endian(std::bit_cast<uint64_t>(value), 8); };
  CHECK(load("F64", 8, f64(0.1) + f64(4), f64(-1)) == std::vector<float>{0.1f, 4, -1});
}

TEST_CASE("weights: every mismatch is in one error and nothing is changed", "[files]") {
  cpu::register_backend();
  const TemporaryFolder folder;
  Network network;
  const std::string before = all_bytes(network);
  // conv.bias is missing, the wrong network's fc comes, conv.weight is in the engine's own layout.
  const std::string path = folder.file("wrong");
  write_safetensors(path, {{"fc.weight", counting({2, 6}, 0)},
                           {"fc.bias", from_host(Shape{2}, std::vector<int32_t>{1, 2})},
                           {"conv.weight", counting({3, 1, 2, 2}, 0)},
                           {"count", from_host(Shape{}, std::vector<int32_t>{1})},
                           {"head.weight", counting({4}, 0)},
                           {"extra", counting({}, 0)}});
  CHECK(error_of([&] { load_weights(path, network); }) ==
        "[weights] " + path +
            ": expected the network's tensors, got:"
            "\n  conv.weight: expected f32[3, 2, 1, 2], got shape [3, 1, 2, 2]"
            "\n  conv.bias: expected f32[3], got none"
            "\n  fc.weight: expected f32[2, 5], got shape [2, 6]"
            "\n  fc.bias: expected f32[2], got dtype I32"
            "\n  count: expected i64[], got dtype I32"
            "\n  extra: expected no such tensor, got F32[]"
            "\n  head.weight: expected no such tensor, got F32[4]");
  CHECK(all_bytes(network) == before);
}
