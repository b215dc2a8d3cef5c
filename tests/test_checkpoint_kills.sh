#!/usr/bin/env bash
# A training run that saves a checkpoint after every step, killed at random moments and resumed each
# time: every checkpoint loads, and the weights at the end are those of an unbroken run, byte for byte.
#   test_checkpoint_kills.sh ENGINE_TRAIN [KILLS]
set -u
train=$(realpath "$1")
kills=${2:-25}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
RANDOM=1

run=("$train" --model mlp --hidden 256 --dataset synthetic --batch-size 8 --optimizer adam
     --eval-interval 0 --threads 1 --quiet)
"${run[@]}" --max-steps 40 --save-weights whole.safetensors > /dev/null || exit 1

# What a process takes to be there, on this machine and in this build: kills come after that.
begin=$(date +%s%N)
"${run[@]}" --max-steps 1 > /dev/null || exit 1
start=$((($(date +%s%N) - begin) / 1000000))

failed=0
fail() {
  echo "FAIL $*"
  failed=$((failed + 1))
}
# life FOLDER LEAST MOST FLAG...: a process that goes on from the folder, killed after LEAST to MOST
# milliseconds; true where it came to its end before.
life() {
  local folder=$1 least=$2 most=$3
  shift 3
  "${run[@]}" --checkpoint-dir "$folder" --checkpoint-every 1 --resume "$folder" "$@" \
    > out.txt 2> error.txt &
  local pid=$!
  local wait=$((least + RANDOM % (most - least)))
  sleep "$((wait / 1000)).$(printf '%03d' $((wait % 1000)))"
  kill -9 $pid 2> /dev/null
  wait $pid 2> /dev/null
}

for ((i = 0; i < kills; ++i)); do
  life long $((start / 2)) $((start + 250)) --max-steps 1000000 --epochs 1000000
  grep -q error: error.txt && fail "$(cat error.txt)"
done
last=$(ls long | grep -E '^checkpoint-[0-9]+\.safetensors$' | tail -1 | grep -oE '[0-9]{10}')
steps=$((10#$last))
[ "$steps" -ge "$kills" ] || fail "only $steps steps were saved in $kills lives: the kills met nothing"

# The same, with an end: short lives on the way to step 40, then one that may end.
lives=0
for ((i = 0; i < 10; ++i)); do
  life short $((start / 2)) $((start + 50)) --max-steps 40
  lives=$((lives + 1))
done
"${run[@]}" --max-steps 40 --checkpoint-dir short --checkpoint-every 1 --resume short \
  --save-weights parts.safetensors > out.txt 2> error.txt || fail "$(cat error.txt)"
cmp whole.safetensors parts.safetensors || fail "after $lives lives the weights are others"

echo "$kills kills at $steps saved steps, then $lives lives to step 40: $failed failures"
[ "$failed" -eq 0 ]
