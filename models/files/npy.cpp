#include "models/files/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>

#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "models/files/elements.h"
#include "models/files/input_file.h"
#include "models/files/zip.h"
#include "profiler/safe_file.h"

namespace engine {

namespace {

constexpr const char* kPart = "npy";
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = 10000;  // NumPy's own limit

constexpr std::array<ElementType, 8> kTypes{{{"<f4", DType::f32, 4},
                                             {"<f2", DType::f32, 2},
                                             {"<f8", DType::f32, 8},
                                             {"<i4", DType::i32, 4},
                                             {"<i8", DType::i64, 8},
                                             {"|u1", DType::u8, 1},
                                             {"<u2", DType::i32, 2},
                                             {"<u1", DType::u8, 1}}};

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads the Python literal of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
// }.
class HeaderParser {
 public:
  HeaderParser(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  Header parse() {
    Header header;
    std::set<std::string> seen;
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key in quotes");
      check(seen.insert(key).second, kPart, "{}: expected the header's '{:.40}' once, got it twice",
            where_, key);
      expect(':');
      if (key == "descr") {
        header.descr = string("the type of an array of plain numbers in quotes");
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = tuple();
      } else {
        fail(kPart, "{}: expected a header of descr, fortran_order and shape, got '{:.40}'", where_,
             key);
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    check(seen.size() == 3, kPart,
          "{}: expected a header of descr, fortran_order and shape, got {} of them", where_,
          seen.size());
    skip_space();
    if (at_ != text_.size()) wrong("the header's end");
    return header;
  }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size()); }

  [[noreturn]] void wrong(const char* expected) const {
    if (at_ == text_.size()) fail(kPart, "{}: expected {}, got the header's end", where_, expected);
    fail(kPart, "{}: expected {} at byte {} of the header, got byte {:#04x}", where_, expected, at_,
         static_cast<unsigned char>(text_[at_]));
  }

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) wrong(std::array{'\'', c, '\'', '\0'}.data());
  }

  std::string string(const char* what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : text_.npos;
    if (end == text_.npos) wrong(what);
    const size_t begin = std::exchange(at_, end + 1) + 1;
    return std::string(text_.substr(begin, end - begin));
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"False", "True"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    wrong("True or False");
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> numbers;
    expect('(');
    while (!accept(')')) {
      int64_t number = 0;
      skip_space();
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (error != std::errc() || number < 0) wrong("a size from 0 to 2^63 - 1");
      at_ = static_cast<size_t>(end - text_.data());
      numbers.push_back(number);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return numbers;
  }

  const std::string& where_;
  std::string_view text_;
  size_t at_ = 0;
};

using Read = std::function<void(void*, size_t)>;

// The array of a .npy file of `size` bytes that `read` delivers; `where` names it in errors.
Tensor parse_npy(const std::string& where, uint64_t size, const Read& read) {
  std::array<char, 12> start{};
  check(size >= start.size(), kPart, "{}: expected a .npy file, got {} bytes", where, size);
  read(start.data(), 8);
  check(std::string_view(start.data(), 6) == kMagic, kPart,
        "{}: expected a .npy file (first bytes \\x93NUMPY), got something else", where);
  const int version = start[6];
  check(version >= 1 && version <= 3 && start[7] == 0, kPart,
        "{}: expected version 1.0, 2.0 or 3.0, got {}.{}", where, version, int{start[7]});
  const size_t length_bytes = version == 1 ? 2 : 4;
  read(start.data() + 8, length_bytes);
  uint32_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= uint32_t{static_cast<unsigned char>(start[8 + i])} << 8 * i;
  }
  size -= 8 + length_bytes;
  check(length <= std::min<uint64_t>(size, kMaxHeader), kPart,
        "{}: expected a header of at most {} bytes within the file, got {} with {} bytes left",
        where, kMaxHeader, length, size);
  std::string text(length, '\0');
  read(text.data(), length);
  size -= length;

  const Header header = HeaderParser(where, text).parse();
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const ElementType& known) {
    return known.name == header.descr;
  });
  check(
      type != kTypes.end(), kPart,
      "{}: expected elements <f4, <f2, <f8, <i4, <i8, <u2 or |u1, got '{:.40}': convert them with "
      "astype()",
      where, header.descr);
  check(header.shape.size() <= Shape::kMaxRank, kPart, "{}: expected at most {} dimensions, got {}",
        where, Shape::kMaxRank, header.shape.size());
  std::vector<int64_t> stored = header.shape;
  if (header.fortran_order) std::reverse(stored.begin(), stored.end());
  Shape shape;
  try {
    shape = Shape(stored);
  } catch (const Error& error) {
    fail(kPart, "{}: {}", where, error.what());
  }
  uint64_t bytes = 0;
  const bool overflow =
      __builtin_mul_overflow(static_cast<uint64_t>(shape.numel()), uint64_t{type->bytes}, &bytes);
  check(!overflow && bytes == size, kPart, "{}: expected the data of {} ({}), got {} bytes", where,
        header.descr, fmt::join(header.shape, " x "), size);
  Tensor tensor = read_elements(*type, shape, read);
  if (header.fortran_order && shape.rank() > 1) {
    const NoGradScope no_grad;
    std::vector<int64_t> reversed(stored.size());
    std::iota(reversed.rbegin(), reversed.rend(), int64_t{0});
    tensor = ops::permute(tensor, reversed);
  }
  return tensor;
}

Tensor array_of(const InputFile& file) {
  uint64_t offset = 0;
  return parse_npy(file.path(), file.size(), [&](void* to, size_t bytes) {
    file.read(offset, to, bytes);
    offset += bytes;
  });
}

std::vector<std::pair<std::string, Tensor>> arrays_of(const InputFile& file) {
  std::vector<std::pair<std::string, Tensor>> arrays;
  std::set<std::string> names;
  for (const ZipEntry& entry : list_zip(kPart, file)) {
    const std::string where = fmt::format("{}: {:.200}", file.path(), entry.name);
    check(entry.name.ends_with(".npy"), kPart, "{}: expected a member named .npy, got another",
          where);
    check(names.insert(entry.name).second, kPart, "{}: expected it once, got it twice", where);
    ZipMember member(kPart, where, file, entry);
    Tensor tensor =
        parse_npy(where, entry.size, [&](void* to, size_t bytes) { member.read(to, bytes); });
    member.finish();
    arrays.emplace_back(entry.name.substr(0, entry.name.size() - 4), std::move(tensor));
  }
  return arrays;
}

}  // namespace

Tensor read_npy(const std::string& path) { return array_of(InputFile(kPart, path)); }

std::vector<std::pair<std::string, Tensor>> read_npz(const std::string& path) {
  return arrays_of(InputFile(kPart, path));
}

Tensor decode_npy(std::span<const std::byte> bytes, const std::string& name) {
  return array_of(InputFile(kPart, name, bytes));
}

std::vector<std::pair<std::string, Tensor>> decode_npz(std::span<const std::byte> bytes,
                                                       const std::string& name) {
  return arrays_of(InputFile(kPart, name, bytes));
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const ElementType& known) {
    return known.dtype == tensor.dtype() && known.bytes == size_of(tensor.dtype());
  });
  check(type != kTypes.end(), kPart, "{}: expected f32, i32, i64 or u8, got {}: cast it first",
        path, describe(tensor));
  // Python's tuple of one has a comma; the text ends with a newline where the data is aligned.
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type->name,
                  fmt::join(tensor.shape(), ", "), tensor.rank() == 1 ? "," : "");
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  const Tensor value = to_device(tensor.detach(), kCpu);
  SafeFile file(path);
  file.write(kMagic);
  file.write(std::string_view("\x01\x00", 2));
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  file.write({static_cast<const char*>(value.raw()), value.bytes()});
  file.commit();
}

}  // namespace engine
