#!/usr/bin/env bash
# The whole check: sets up, then builds and tests under the sanitizers (address and undefined
# behaviour for all, threads for the loaders and the profiler), then the release build with
# warnings as errors and all its tests, a short training run among them. The last line is the
# release tests' own summary; the exit status is 0 only when everything passed.
set -euo pipefail
cd "$(dirname "$(dirname "$(readlink -f "$0")")")"

fail() {
  echo "test: $1; the reason is above" >&2
  exit 1
}

tools/setup.sh

cmake --preset asan || fail "the sanitizer build could not be configured"
cmake --build --preset asan -j "$(nproc)" || fail "the sanitizer build failed"
# The preset leaves out the search for uses after return: GCC 14 gives the frames that it keeps for it
# too little alignment for AVX-512, and correct code crashes.
ctest --preset asan -j "$(nproc)" || fail "a test failed under the sanitizers"

cmake --preset tsan || fail "the thread sanitizer build could not be configured"
cmake --build --preset tsan -j "$(nproc)" --target engine-tests ||
  fail "the thread sanitizer build failed"
build/tsan/tests/engine-tests '[data],[profiler]' ||
  fail "a test of the loaders or the profiler failed under the thread sanitizer"

# CUDA code for one architecture and what newer ones translate: the check is that it builds, with no
# register spilled; it runs on the software device, and on a GPU where there is one.
cmake --preset release -DENGINE_WERROR=ON -DENGINE_CUDA_ARCHITECTURES=80 || fail "the release build could not be configured"
cmake --build --preset release -j "$(nproc)" || fail "the release build failed"
log=build/release/ctest.log
ctest --preset release -j "$(nproc)" | tee "$log" || fail "a test of the release build failed"

grep 'tests passed' "$log"
