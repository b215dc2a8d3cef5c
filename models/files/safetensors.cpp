#include "models/files/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "core/error.h"
#include "profiler/safe_file.h"

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPart = "safetensors";
constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;  // the safetensors library's own limit

// In the order in which the data of a file is written. BOOL is only read.
constexpr std::array<ElementType, 8> kTypes{{{"I64", DType::i64, 8},
                                             {"F64", DType::f32, 8},
                                             {"F32", DType::f32, 4},
                                             {"I32", DType::i32, 4},
                                             {"BF16", DType::bf16, 2},
                                             {"F16", DType::f32, 2},
                                             {"U8", DType::u8, 1},
                                             {"BOOL", DType::u8, 1}}};

size_t type_index(DType dtype) {
  return static_cast<size_t>(std::find_if(kTypes.begin(), kTypes.end(),
                                          [&](const ElementType& type) {
                                            return type.dtype == dtype &&
                                                   type.bytes == size_of(dtype);
                                          }) -
                             kTypes.begin());
}

// Takes the header's JSON value by value. No document is built: a hostile one would need many times
// the memory of its text.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { unexpected(text); }
  bool binary(Json::binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(uint64_t value) override {
    constexpr auto limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if ((place_ != Place::shape && place_ != Place::offsets) || value > limit) {
      unexpected(std::to_string(value));
    }
    check(numbers_.size() < Shape::kMaxRank, kPart,
          "{}: tensor '{:.200}': expected at most {} numbers in {}, got more", path_, entry_.name,
          Shape::kMaxRank, field_);
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      metadata[field_] = std::move(value);
    } else if (place_ == Place::tensor && field_ == "dtype") {
      const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                     [&](const ElementType& known) { return known.name == value; });
      check(type != kTypes.end(), kPart,
            "{}: tensor '{:.200}': expected dtype F32, BF16, F16, F64, I32, I64, U8 or BOOL, got "
            "'{:.200}'",
            path_, entry_.name, value);
      entry_.type = *type;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = entry_.name == kMetadata ? Place::metadata : Place::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::header) {
      check(names_.insert(value).second, kPart,
            "{}: tensor '{:.200}': expected it once, got it twice", path_, value);
      entry_ = {};
      entry_.name = value;
      seen_.clear();
      return true;
    }
    field_ = value;
    if (place_ == Place::metadata) {
      check(!metadata.contains(value), kPart,
            "{}: {}: expected the key '{:.200}' once, got it twice", path_, kMetadata, value);
      return true;
    }
    check(value == "dtype" || value == "shape" || value == "data_offsets", kPart,
          "{}: tensor '{:.200}': expected dtype, shape and data_offsets, got '{:.200}'", path_,
          entry_.name, value);
    check(std::find(seen_.begin(), seen_.end(), value) == seen_.end(), kPart,
          "{}: tensor '{:.200}': expected {} once, got it twice", path_, entry_.name, value);
    seen_.push_back(value);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      check(seen_.size() == 3, kPart,
            "{}: tensor '{:.200}': expected dtype, shape and data_offsets, got {} of them", path_,
            entry_.name, seen_.size());
      entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (place_ == Place::shape) {
      try {
        entry_.shape = Shape(numbers_);
      } catch (const Error& error) {
        fail(kPart, "{}: tensor '{:.200}': {}", path_, entry_.name, error.what());
      }
    } else {
      check(numbers_.size() == 2, kPart,
            "{}: tensor '{:.200}': expected two data_offsets, begin and end, got {}", path_,
            entry_.name, numbers_.size());
      entry_.begin = static_cast<uint64_t>(numbers_[0]);
      entry_.end = static_cast<uint64_t>(numbers_[1]);
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    fail(kPart, "{}: expected a header in JSON, got a syntax error at its byte {}", path_,
         position);
  }

 private:
  enum class Place : uint8_t { outside, header, metadata, tensor, shape, offsets };

  [[noreturn]] void unexpected(std::string_view got) const {
    switch (place_) {
      case Place::outside:
        break;  // the file's first byte has been looked at
      case Place::metadata:
        fail(kPart, "{}: {}: expected a string for '{:.200}', got {}", path_, kMetadata, field_,
             got);
      case Place::tensor:
        fail(kPart, "{}: tensor '{:.200}': expected {} to be {}, got {}", path_, entry_.name,
             field_, field_ == "dtype" ? "a string" : "an array of integers", got);
      case Place::shape:
      case Place::offsets:
        fail(kPart, "{}: tensor '{:.200}': expected integers from 0 to 2^63 - 1 in {}, got {:.40}",
             path_, entry_.name, field_, got);
      case Place::header:
        break;
    }
    fail(kPart, "{}: tensor '{:.200}': expected an object, got {}", path_, entry_.name, got);
  }

  const std::string& path_;
  Place place_ = Place::outside;
  SafetensorsEntry entry_;         // the tensor that is being read
  std::string field_;              // the key whose value comes next
  std::vector<std::string> seen_;  // the tensor's keys so far
  std::vector<int64_t> numbers_;   // of the array that is being read
  std::unordered_set<std::string> names_;
};

// The header without its length, padded so that the data is aligned to 8 bytes.
std::string make_header(const std::string& path, const std::vector<SafetensorsItem>& items,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::unordered_set<std::string_view> names{kMetadata};
  uint64_t offset = 0;
  for (const SafetensorsItem& item : items) {
    check(names.insert(item.name).second, kPart,
          "{}: tensor '{}': expected a name of its own, got one that is taken", path, item.name);
    const uint64_t end = offset + static_cast<uint64_t>(item.shape.numel()) * size_of(item.dtype);
    // Names are known to differ, and emplace_back does not look for them again.
    header.get_ref<Json::object_t&>().emplace_back(
        item.name, Json{{"dtype", kTypes.at(type_index(item.dtype)).name},
                        {"shape", item.shape.dims()},
                        {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    fail(kPart, "{}: expected names and metadata in UTF-8, got {}", path, error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(text.size() <= kMaxHeader, kPart, "{}: expected a header of at most {} bytes, got {}", path,
        kMaxHeader, text.size());
  return text;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(kPart, path) {
  read_header();
  check_data();
}

void SafetensorsFile::read_header() {
  uint64_t length = 0;
  check(file_.size() >= sizeof length, kPart,
        "{}: expected the length of the header (8 bytes), got a file of {} bytes", file_.path(),
        file_.size());
  file_.read(0, &length, sizeof length);
  check(length <= kMaxHeader, kPart,
        "{}: expected a header of at most {} bytes, got {}: is it a safetensors file?",
        file_.path(), kMaxHeader, length);
  check(length <= file_.size() - sizeof length, kPart,
        "{}: expected a header of {} bytes, got a file of {}: fetch it again", file_.path(), length,
        file_.size());
  data_ = sizeof length + length;
  std::string text(length, '\0');
  file_.read(sizeof length, text.data(), length);
  check(text.starts_with('{'), kPart, "{}: expected a header that begins with '{{', got {}",
        file_.path(),
        text.empty() ? "an empty one"
                     : fmt::format("a byte {:#04x}", static_cast<unsigned char>(text[0])));
  // The parser would take a zero byte for the end of the text.
  check(text.find('\0') == std::string::npos, kPart,
        "{}: expected a header in JSON, got a zero byte at its byte {}", file_.path(),
        text.find('\0'));
  HeaderHandler handler(file_.path());
  Json::sax_parse(text, &handler);
  entries_ = std::move(handler.entries);
  metadata_ = std::move(handler.metadata);
  std::sort(entries_.begin(), entries_.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
}

void SafetensorsFile::check_data() const {
  const uint64_t size = file_.size() - data_;
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : entries_) {
    check(entry.end >= entry.begin, kPart,
          "{}: tensor '{:.200}': expected data_offsets whose end is not before the begin, got "
          "[{}, {}]",
          file_.path(), entry.name, entry.begin, entry.end);
    uint64_t bytes = 0;
    const bool overflow = __builtin_mul_overflow(static_cast<uint64_t>(entry.shape.numel()),
                                                 uint64_t{entry.type.bytes}, &bytes);
    check(!overflow && bytes == entry.end - entry.begin, kPart,
          "{}: tensor '{:.200}': expected data_offsets that hold {} {}, got [{}, {}]", file_.path(),
          entry.name, entry.type.name, to_string(entry.shape), entry.begin, entry.end);
    check(entry.begin == position, kPart,
          "{}: tensor '{:.200}': expected its data at byte {}, with no hole and no overlap, got {}",
          file_.path(), entry.name, position, entry.begin);
    check(
        entry.end <= size, kPart,
        "{}: tensor '{:.200}': expected its data up to byte {}, got a file whose data ends at {}: "
        "fetch it again",
        file_.path(), entry.name, entry.end, size);
    position = entry.end;
  }
  check(position == size, kPart, "{}: expected {} bytes of data, as its header says, got {}",
        file_.path(), position, size);
}

Tensor SafetensorsFile::read(const SafetensorsEntry& entry) const {
  uint64_t offset = data_ + entry.begin;
  return read_elements(entry.type, entry.shape, [&](void* to, size_t bytes) {
    file_.read(offset, to, bytes);
    offset += bytes;
  });
}

void write_safetensors(const std::string& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata) {
  std::sort(items.begin(), items.end(), [](const SafetensorsItem& a, const SafetensorsItem& b) {
    return std::pair(type_index(a.dtype), std::string_view(a.name)) <
           std::pair(type_index(b.dtype), std::string_view(b.name));
  });
  const std::string header = make_header(path, items, metadata);
  SafeFile file(path);
  const uint64_t length = header.size();
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  for (const SafetensorsItem& item : items) {
    const Tensor value = to_device(item.value(), kCpu);
    check(value.dtype() == item.dtype && value.shape() == item.shape, kPart,
          "{}: tensor '{}': expected {}{}, got {}", path, item.name, engine::name(item.dtype),
          to_string(item.shape), describe(value));
    file.write({static_cast<const char*>(value.raw()), value.bytes()});
  }
  file.commit();
}

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsItem> items;
  for (const auto& [name, tensor] : tensors) {
    items.push_back({name, tensor.dtype(), tensor.shape(), [tensor = tensor] { return tensor; }});
  }
  write_safetensors(path, std::move(items), metadata);
}

}  // namespace engine
