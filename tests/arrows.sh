#!/usr/bin/env bash
# Holds the arrows between the folders: a folder may include, and its CMake target may link, only
# what may_use lists. Fails with the file and line of every arrow that points the wrong way.
#
#   arrows.sh <root> <links>   check the tree at <root>; each line of <links> is a target, its
#                              folder and a folder that it links, as tests/CMakeLists.txt writes it
#   arrows.sh --self-test      show that the check passes what is allowed and fails what is not
set -euo pipefail

check() {
  local root=$1 links=$2 folder folders=()
  for folder in profiler core backends layers models tools tests; do
    if [[ -d $root/$folder ]]; then folders+=("$folder"); fi
  done
  {
    (cd "$root" && grep -rnIE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "${folders[@]}") ||
      true
    sed 's/^/link /' "$links"
  } | awk '
    function folder_of(path,    part) {
      split(path, part, "/")
      return part[1] == "backends" ? part[1] "/" part[2] : part[1]
    }
    function may_use(from, to) {
      if (from == to || from == "tests") return 1
      if (from == "tools") return to != "tests"
      if (from == "models") return to ~ /^(layers|core|profiler)$/
      if (from == "layers") return to == "core"
      if (from ~ /^backends\//) return to ~ /^(core|profiler)$/
      if (from == "core") return to == "profiler"
      return 0
    }
    $1 == "link" {
      ++seen
      if (!may_use($3, $4)) {
        print $3 "/CMakeLists.txt: target " $2 " of " $3 " must not link " $4
        bad = 1
      }
      next
    }
    {
      ++seen
      match($0, /:[0-9]+:/)
      where = substr($0, 1, RSTART + RLENGTH - 2)
      from = folder_of($0)
      rest = substr($0, RSTART + RLENGTH)
      match(rest, /["<][^">]*/)
      quoted = substr(rest, RSTART, 1) == "\""
      path = substr(rest, RSTART + 1, RLENGTH - 1)
      to = folder_of(path)
      ours = path ~ /\// && to ~ /^(profiler|core|backends\/.*|layers|models|tools|tests)$/
      if (quoted && !ours) {
        print where ": \"" path "\" is not written from the root of the tree"
        bad = 1
      } else if (ours && !may_use(from, to)) {
        print where ": " from " must not include " to " (" path ")"
        bad = 1
      }
    }
    END {
      if (!seen) {
        print "nothing to check: no includes and no links found"
        bad = 1
      }
      exit bad
    }'
}

# expect <pass|fail> <words of the message> <file> <line of code> [<line of the links file>]
expect() {
  local want=$1 words=$2 file=$3 code=$4 link=${5:-} got=pass output
  rm -rf "$scratch/tree"
  mkdir -p "$scratch/tree/$(dirname "$file")"
  printf '// first line\n%s\n' "$code" > "$scratch/tree/$file"
  printf '%s' "${link:+$link$'\n'}" > "$scratch/links"
  output=$(check "$scratch/tree" "$scratch/links") || got=fail
  if [[ $got != "$want" || $output != *"$words"* ]]; then
    echo "arrows --self-test: [$file] [$code] [$link]: wanted $want with \"$words\"," \
      "got $got with \"$output\"" >&2
    exit 1
  fi
}

self_test() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  expect pass "" core/a.cpp '#include "profiler/span.h"'
  expect pass "" core/a.cpp '#include <vector>'
  expect pass "" core/ops/a.cpp '#include "core/op.h"'
  expect pass "" backends/cpu/a.cpp '#include "backends/cpu/b.h"'
  expect pass "" models/data/a.cpp '#include "layers/linear.h"'
  expect pass "" tools/a.cpp '#include "backends/meta/b.h"'
  expect pass "" tests/ops/a.cpp '#include "tests/catch.h"'
  expect pass "" layers/a.cpp '#include <core/op.h>' 'engine_layers layers core'
  expect fail "profiler/a.h:2:" profiler/a.h '#include "core/tensor.h"'
  expect fail "core/ops/a.cpp:2:" core/ops/a.cpp '#include "layers/linear.h"'
  expect fail "core/a.cpp:2:" core/a.cpp '  #  include <backends/cpu/b.h>'
  expect fail "backends/cpu/a.cpp:2:" backends/cpu/a.cpp '#include "backends/meta/b.h"'
  expect fail "backends/cpu/a.cpp:2:" backends/cpu/a.cpp '#include"layers/b.h"'
  expect fail "layers/a.h:2:" layers/a.h '#include "profiler/span.h"'
  expect fail "models/a.cpp:2:" models/a.cpp '#include "backends/cpu/b.h"'
  expect fail "tools/a.cpp:2:" tools/a.cpp '#include "tests/catch.h"'
  expect fail "core/a.cpp:2:" core/a.cpp '#include "tensor.h"'
  expect fail "target engine_core" core/a.cpp '#include <vector>' 'engine_core core layers'
  expect fail "target engine_layers" layers/a.cpp '#include <vector>' 'engine_layers layers .'
  expect fail "nothing to check" core/a.cpp 'int x;'
}

case ${1:-} in
  --self-test) self_test ;;
  *) check "$1" "$2" ;;
esac
