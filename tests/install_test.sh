#!/usr/bin/env bash
# Installs a finished build into an empty prefix, builds tests/install_consumer against it with
# find_package(engine), runs it, and starts each installed program.
#
#   install_test.sh <cmake> <build folder> <generator> <C++ compiler> <C++ flags>
set -euo pipefail
cmake=$1 build=$2 generator=$3 compiler=$4 flags=$5
consumer=$(dirname "$(readlink -f "$0")")/install_consumer
scratch=$build/install_test
prefix=$scratch/prefix

rm -rf "$scratch"
"$cmake" --install "$build" --prefix "$prefix" > /dev/null
"$cmake" -S "$consumer" -B "$scratch/build" -G "$generator" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags"
"$cmake" --build "$scratch/build"

output=$("$scratch/build/consumer")
if [[ $output != 18 ]]; then
  echo "install_test: the consumer should print 18, and printed: $output" >&2
  exit 1
fi

for program in "$prefix"/bin/*; do
  "$program" --help > /dev/null
done
