#!/usr/bin/env bash
# From a fresh clone to a trained and profiled network: sets up, builds, trains LeNet on
# Fashion-MNIST for the five epochs of its recipe and prints where the time went. Arguments go to
# engine-train, after and so above the ones below: tools/quickstart.sh --epochs 3
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "$0")")")

"$root/tools/setup.sh"
(
  cd "$root"
  cmake --preset release
  cmake --build --preset release -j "$(nproc)"
) || {
  echo "quickstart: the build failed; the reason is above" >&2
  exit 1
}

mkdir -p "$root/runs/quickstart"
exec "$root/build/release/tools/engine-train" --model lenet --dataset fashion-mnist \
  --profile "$root/runs/quickstart/lenet.json" "$@"
