// The one exception that the engine throws, and the short forms for throwing it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace engine {

class Shape;
struct Device;
struct Description;

/// For what check() takes as it is and makes a text of, by to_string, only on failure: made at each
/// call, the texts would take longer than the call of a small op.
struct TextFormatter : fmt::formatter<std::string> {
  template <class T, class FormatContext>
  auto format(const T& value, FormatContext& context) const {
    return fmt::formatter<std::string>::format(to_string(value), context);
  }
};

}  // namespace engine

template <>
struct fmt::formatter<engine::Shape> : engine::TextFormatter {};
template <>
struct fmt::formatter<engine::Device> : engine::TextFormatter {};
template <>
struct fmt::formatter<engine::Description> : engine::TextFormatter {};

namespace engine {

/// Every error of the engine. The text names the op or the part in brackets, then what was
/// expected, what came, and what to do where that is known: "[matmul] expected ..., got ...".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device's memory is exhausted even after the cache was given back.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// An op made, or met, NaN or infinity where these were looked for (Context::find_non_finite).
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

/// Throws Error("[where] formatted text").
template <class... Args>
[[noreturn]] void fail(const char* where, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format("[{}] {}", where, fmt::format(format, std::forward<Args>(args)...)));
}

/// fail() unless `condition` holds. The text is only built on failure: pass a shape, a device or
/// describe(tensor) itself, not its to_string().
template <class... Args>
void check(bool condition, const char* where, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(where, format, std::forward<Args>(args)...);
}

}  // namespace engine
