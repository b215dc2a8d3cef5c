// Arguments as they were typed: numbers in them, the known name that was meant, and how they are
// quoted to be typed again.
#pragma once

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace engine::tools {

/// "; did you mean 'x'?" for the known name that is nearest to `text`, or nothing where none is
/// near.
std::string suggestion(std::string_view text, const std::vector<std::string>& known);

/// The whole of `text` as a finite number of type T.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stopped != end) return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
  return true;
}

/// The argument as a shell takes it for one.
std::string quoted_for_shell(std::string_view argument);

}  // namespace engine::tools
