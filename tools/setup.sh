#!/usr/bin/env bash
# Installs what the build needs, with apt, where something is missing; does nothing otherwise.
# Without apt it names the libraries, and leaves it to CMake to say whether they are there.
set -euo pipefail

packages=(cmake ninja-build g++ libdnnl-dev libeigen3-dev nlohmann-json3-dev libfmt-dev
          libcli11-dev zlib1g-dev libpng-dev libjpeg-dev catch2 dataset-fashion-mnist)

if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
  cat >&2 <<'END'
setup: no apt here. The build needs, installed by hand: CMake 3.25, Ninja, GCC 12 (with OpenMP),
setup: oneDNN 2.6, Eigen 3.4, nlohmann-json 3.11, fmt 9, CLI11 2.1, zlib, libpng 1.6, libjpeg-turbo,
setup: Catch2 2.13, each this version or newer, and the Fashion-MNIST files in
setup: /usr/share/datasets/fashion-mnist.
setup: going on; CMake stops with the name of the first library that it cannot find.
END
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) || true
  if [[ $status != installed ]]; then missing+=("$package"); fi
done
if [[ ${#missing[@]} == 0 ]]; then exit 0; fi

as_root=(env DEBIAN_FRONTEND=noninteractive)
if [[ $(id -u) != 0 ]]; then
  if ! command -v sudo > /dev/null; then
    echo "setup: missing ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo "${as_root[@]}")
fi

echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update ||
  echo "setup: apt-get update had errors; trying with the package lists that are there" >&2
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get could not install ${missing[*]}; its own words are above" >&2
  exit 1
fi
