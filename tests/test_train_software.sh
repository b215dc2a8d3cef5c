#!/usr/bin/env bash
# engine-train on the software CUDA device, whole: its losses are the CPU's, the device is named, and
# nothing that is measured there is given out as a time.
#
#   test_train_software.sh <engine-train-software>
set -euo pipefail
export LC_ALL=C
program=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAIL: $1" >&2
  for file in out err; do [[ ! -e $file ]] || sed "s/^/  $file: /" "$file" >&2; done
  exit 1
}
# train <name> <flags>: writes <name>.csv, <name>.jsonl and the two streams.
run=(--model lenet --dataset synthetic --batch-size 8 --max-steps 4 --log-interval 1)
train() {
  local name=$1
  shift
  "$program" "${run[@]}" "$@" --log "$name" >out 2>err || fail "$* ended with $?"
}

"$program" "${run[@]}" --device cuda --dry-run >out
grep -qE '^device description +software device, CUDA [0-9]' out || fail "the device is not named"

train cpu.csv --device cpu --eval-interval 0
grep -qE '^done: 4 steps in [0-9.]+ s, loss' out || fail "the CPU's run has no time"
train cuda.csv --device cuda --eval-interval 0
grep -qE '^done: 4 steps, loss [0-9.]+$' out || fail "the end of the run is not told, or has a time"
grep -qE '^epoch 1/[0-9]+  step 4/4  loss [0-9.]+  lr [0-9.]+  - samples/s  - ms/step$' err ||
  fail "progress has times, or no steps"

# f32 adds in another order on each device: 1e-5 of a loss near 2.3, and what steps make of it.
awk -F, '
  NR == FNR { if ($1 == "train") cpu[$2] = $5 == "" || $4 == "" ? "none" : $4; next }
  $1 == "train" {
    ++rows
    if ($7 != "" || $8 != "") { print "step " $2 " has a time"; exit 1 }
    difference = $4 - cpu[$2]
    if (cpu[$2] == "none" || $4 == "" || difference * difference > (1e-4 * $4) ^ 2) {
      print "step " $2 ": " $4 " on the device, " cpu[$2] " on the CPU"; exit 1
    }
  }
  END { if (rows != 4) exit 1 }' cpu.csv cuda.csv || fail "the logs differ by more than rounding"

train cuda.jsonl --device cuda --eval-interval 1 --max-steps 1 --model mlp --batch-size 64
grep -qE '"step":1,.*"step_ms":null,"samples_per_second":null' cuda.jsonl || fail "times in JSON"
grep -qE 'test accuracy [0-9.]+ %  - s$' err || fail "the evaluation has a time"

for flag in --profile --trace; do
  code=0
  "$program" "${run[@]}" --device cuda $flag p.json >out 2>err || code=$?
  [[ $code == 2 ]] && grep -q "^engine-train: error: $flag: .*software device" err ||
    fail "$flag was not refused"
  [[ ! -e p.json ]] || fail "$flag left a file"
done
echo "passed"
