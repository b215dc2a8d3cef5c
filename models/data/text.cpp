#include "models/data/text.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "models/files/input_file.h"

namespace engine {

namespace {

constexpr int64_t kGpt2Vocabulary = 50257;

using Tokens = std::vector<uint16_t>;

class TokenDataset : public Dataset {
 public:
  TokenDataset(Tokens tokens, int64_t classes, int64_t length, bool anywhere)
      : tokens_(std::move(tokens)), classes_(classes), length_(length), anywhere_(anywhere) {}

  // A stretch needs one token more, the last one's answer.
  int64_t size() const override { return (count() - 1) / length_; }
  SampleTensor input() const override { return {Shape{length_}, DType::i64}; }
  SampleTensor target() const override { return input(); }
  int64_t classes() const override { return classes_; }

  void read(int64_t index, const RandomStream& random, void* input, void* target) const override {
    int64_t begin = index * length_;
    if (anywhere_) {
      const auto bits = philox(random.seed, random.offset);
      const uint64_t number = uint64_t{bits[0]} << 32 | bits[1];
      begin = static_cast<int64_t>(number % static_cast<uint64_t>(count() - length_));
    }
    const uint16_t* from = tokens_.data() + begin;
    std::copy_n(from, length_, static_cast<int64_t*>(input));
    std::copy_n(from + 1, length_, static_cast<int64_t*>(target));
  }

 private:
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }

  Tokens tokens_;
  int64_t classes_, length_;
  bool anywhere_;
};

std::unique_ptr<Dataset> make(const std::string& path, const char* split, Tokens tokens,
                              int64_t classes, int64_t length, bool anywhere) {
  check(length >= 1, "text", "expected stretches of at least 1 token, got {}", length);
  check(static_cast<int64_t>(tokens.size()) > length, "text",
        "{}: expected more than {} tokens to {} with, got {}: a longer text or shorter stretches "
        "fit",
        path, length, split, tokens.size());
  return std::make_unique<TokenDataset>(std::move(tokens), classes, length, anywhere);
}

std::vector<uint8_t> read_all(const std::string& path) {
  const InputFile file("text", path);
  std::vector<uint8_t> bytes(file.size());
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    // A link would bring its file in twice.
    if (at->is_regular_file() && !at->is_symlink()) files.push_back(at->path().string());
  }
  check(!error, "text", "cannot read the folder '{}': {}", path, error.message());
  check(!files.empty(), "text", "{}: expected a folder with files, got an empty one", path);
  std::sort(files.begin(), files.end());
  return files;
}

Tokens read_tokens(const std::string& path) {
  const std::vector<uint8_t> bytes = read_all(path);
  check(bytes.size() % 2 == 0, "text", "{}: expected tokens of 2 bytes each, got {} bytes", path,
        bytes.size());
  Tokens tokens(bytes.size() / 2);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8);
  return tokens;
}

// The last tenth is for the test.
DatasetSplits split(const std::string& path, const Tokens& tokens, int64_t classes,
                    int64_t length) {
  const auto test = tokens.end() - static_cast<std::ptrdiff_t>(tokens.size() / 10);
  return {make(path, "train", Tokens(tokens.begin(), test), classes, length, true),
          make(path, "test", Tokens(test, tokens.end()), classes, length, false)};
}

}  // namespace

DatasetSplits load_text(const std::string& path, int64_t length) {
  std::vector<uint8_t> bytes;
  for (const std::string& file : files_of(path)) {
    const std::vector<uint8_t> one = read_all(file);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  std::array<bool, 256> occurs{};
  for (const uint8_t byte : bytes) occurs[byte] = true;
  std::array<uint16_t, 256> number{};
  uint16_t classes = 0;
  for (size_t byte = 0; byte < occurs.size(); ++byte) {
    if (occurs[byte]) number[byte] = classes++;
  }
  Tokens tokens(bytes.size());
  std::transform(bytes.begin(), bytes.end(), tokens.begin(),
                 [&](uint8_t byte) { return number[byte]; });
  return split(path, tokens, classes, length);
}

DatasetSplits make_tokens(int64_t length, uint64_t seed) {
  constexpr size_t kTokens = 300000;
  constexpr uint16_t kClasses = 64;
  Tokens tokens(kTokens);
  for (size_t i = 1; i < kTokens; ++i) {
    const auto bits = philox(seed, i);
    const bool any = bits[0] % 10 == 0;
    tokens[i] = static_cast<uint16_t>((any ? bits[1] : tokens[i - 1] * 5u + 1u) % kClasses);
  }
  return split("synthetic", tokens, kClasses, length);
}

DatasetSplits load_tokens(const std::string& folder, int64_t length) {
  Tokens train = read_tokens(folder + "/train.bin"), test = read_tokens(folder + "/val.bin");
  int64_t classes = kGpt2Vocabulary;
  for (const Tokens* tokens : {&train, &test}) {
    for (const uint16_t token : *tokens) classes = std::max<int64_t>(classes, token + 1);
  }
  return {make(folder + "/train.bin", "train", std::move(train), classes, length, true),
          make(folder + "/val.bin", "test", std::move(test), classes, length, false)};
}

}  // namespace engine
