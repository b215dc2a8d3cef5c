#include "tools/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace engine::tools {

namespace {

/// Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view text, const std::vector<std::string>& known) {
  size_t least = std::max<size_t>(2, text.size() / 3) + 1;
  const std::string* nearest = nullptr;
  for (const std::string& name : known) {
    // An abbreviation is near whatever it leaves out.
    const bool abbreviated = text.size() > 2 && name.starts_with(text);
    const size_t distance = abbreviated ? 1 : edit_distance(text, name);
    if (distance < least) {
      least = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? "" : fmt::format("; did you mean '{}'?", *nearest);
}

std::string quoted_for_shell(std::string_view argument) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_=+.,/:@%").find(c) != std::string_view::npos;
  };
  if (!argument.empty() && std::all_of(argument.begin(), argument.end(), plain)) {
    return std::string(argument);
  }
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace engine::tools
