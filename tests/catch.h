// The one place that includes Catch2, because version 2 (Debian 12) and version 3 (Debian 13)
// differ in their header and in where some names are. Tests write TEST_CASE, CHECK, REQUIRE,
// SECTION as ever, and Approx and ContainsSubstring without a namespace, for both versions.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
#include <string>

inline auto ContainsSubstring(const std::string& part) { return Catch::Matchers::Contains(part); }
#endif
