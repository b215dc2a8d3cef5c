#!/usr/bin/env bash
# The command line of engine-train: every rule of every flag, what a bad input costs (one line and an
# exit code, never a file), and the files that a run writes. Needs no network and no data of others.
#
#   test_train_cli.sh <engine-train>
set -uo pipefail
export LC_ALL=C
export OMP_WAIT_POLICY=passive  # beside other tests, threads that wait must not take their CPUs
program=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
out=$work/.out err=$work/.err
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); echo "ok    $1"; }
fail() {
  failed=$((failed + 1))
  echo "FAIL  $1: $2"
  sed 's/^/      stdout: /' "$out" | head -5
  sed 's/^/      stderr: /' "$err" | head -5
}
skip() { skipped=$((skipped + 1)); echo "skip  $1: $2"; }
# expect <name> <command>: the command, given as words, must succeed.
expect() {
  local name=$1
  shift
  if "$@"; then pass "$name"; else fail "$name" "not so: $*"; fi
}
run() { "$program" "$@" >"$out" 2>"$err"; }

# The run fails with `code` and exactly one line on standard error, which holds `text`.
refuses() {
  local code=$1 text=$2 name got lines
  shift 2
  name="refuses $*"
  run "$@"
  got=$?
  lines=$(wc -l <"$err")
  if [[ $got != "$code" ]]; then fail "$name" "exit code $got, expected $code"
  elif [[ $lines != 1 || $(head -c 21 "$err") != "engine-train: error: " ]]; then
    fail "$name" "expected one line that begins with 'engine-train: error: '"
  elif ! grep -qF -- "$text" "$err"; then fail "$name" "the line does not hold '$text'"
  elif [[ -s $out ]]; then fail "$name" "expected nothing on standard output"
  else pass "$name"; fi
}
# The run succeeds and its standard output has a line that matches `pattern`.
accepts() {
  local pattern=$1 name got
  shift
  name="accepts $* -> $pattern"
  run "$@"
  got=$?
  if [[ $got != 0 ]]; then fail "$name" "exit code $got"
  elif ! grep -qE -- "$pattern" "$out"; then fail "$name" "no line matches"
  else pass "$name"; fi
}

lenet=(--model lenet --dataset synthetic)
short=("${lenet[@]}" --eval-interval 0 --batch-size 8 --log-interval 1)
dry=("${lenet[@]}" --dry-run)

# --- names of flags and arguments ---
refuses 2 '--model is required'
refuses 2 "unexpected argument 'lenet'" lenet
refuses 2 "unexpected argument '--'" -- --model lenet
refuses 2 "unexpected argument '-'" -
refuses 2 "unexpected argument ''" ''
refuses 2 "unknown flag '--epoch'; did you mean '--epochs'?" --epoch 3
refuses 2 "unknown flag '--bach-size'; did you mean '--batch-size'?" --bach_size=3
refuses 2 "unknown flag '--batch'; did you mean '--batch-size'?" --batch 3
refuses 2 "unknown flag '-x'" -x
refuses 2 '--quiet: expected no value' --quiet=1
accepts '^batch size +32$' "${dry[@]}" --batch_size 32
accepts '^batch size +32$' "${dry[@]}" --batch_size=32
accepts '^batch size +32$' "${dry[@]}" -b 32
accepts '^batch size +32$' "${dry[@]}" -b32
accepts '^batch size +32$' "${dry[@]}" --batch-size 16 --batch-size 32
accepts '^workers +0$' "${dry[@]}" -j 0
refuses 1 'my_data-dir' --model lenet --dataset mnist --data_dir my_data-dir
refuses 2 "got 'a_b.txt'" "${lenet[@]}" --log a_b.txt

# --- numbers: wrong sign, wrong kind, beyond the range, with a tail, missing ---
for flag in --epochs --max-steps --batch-size --accum-steps --log-interval --profile-steps --threads; do
  for value in 0 -1 1.5 10x x nan '' 99999999999999999999; do
    refuses 2 "$flag: expected a whole number from 1 to" "${lenet[@]}" "$flag" "$value"
  done
  refuses 2 "$flag: expected a whole number from 1 to" "${lenet[@]}" "$flag"
done
for flag in --workers --warmup-steps --eval-interval --profile-warmup --seed; do
  for value in -1 1.5 10x '' 99999999999999999999; do
    refuses 2 "$flag: expected a whole number from 0 to" "${lenet[@]}" "$flag" "$value"
  done
done
for flag in --lr --momentum --weight-decay --clip-grad-norm --label-smoothing; do
  for value in -0.1 nan inf -inf 1e999 0.1x '0.1 ' x ''; do
    refuses 2 "$flag: expected a number" "${lenet[@]}" "$flag" "$value"
  done
  refuses 2 "$flag: expected a number" "${lenet[@]}" "$flag="
  refuses 2 "$flag: expected a number" "${lenet[@]}" "$flag"
done
refuses 2 "--lr: expected a number above 0, got '0'" "${lenet[@]}" --lr 0
refuses 2 "--momentum: expected a number from 0 to below 1, got '1'" "${lenet[@]}" --momentum 1
refuses 2 '--label-smoothing: expected a number from 0 to 1' "${lenet[@]}" --label-smoothing 1.01
refuses 2 "-b: expected a whole number" "${lenet[@]}" -b
refuses 2 "--batch-size: expected a whole number" "${lenet[@]}" -b0
accepts '^seed +18446744073709551615$' "${dry[@]}" --seed 18446744073709551615
accepts '^label smoothing +1$' "${dry[@]}" --label-smoothing 1
accepts '^label smoothing +0.1$' "${dry[@]}" --label-smoothing 1e-1
accepts '^largest gradient norm +2.5$' "${dry[@]}" --clip-grad-norm 2.5
accepts '^steps +7$' "${dry[@]}" --max-steps 7
accepts '^learning-rate schedule +step, 5 warm-up steps$' "${dry[@]}" --lr-scheduler step \
  --warmup-steps 5

# --- choices ---
refuses 2 "--model: expected one of " --model lenett
refuses 2 "got 'lenett'; did you mean 'lenet'?" --model lenett
refuses 2 "did you mean 'fashion-mnist'?" --model lenet --dataset fashon-mnist
refuses 2 "expected one of sgd, adam, adamw, got 'adm'; did you mean 'adam'?" "${lenet[@]}" \
  --optimizer adm
refuses 2 "expected one of constant, step, cosine, linear, got 'cos'; did you mean 'cosine'?" \
  "${lenet[@]}" --lr-scheduler cos
refuses 2 "--device: expected one of cpu, cuda, meta, got 'tpu'; did you mean 'cpu'?" "${lenet[@]}" --device tpu
refuses 2 '--log: has no meaning with --device meta' "${lenet[@]}" --device meta --log x.csv
refuses 2 '--epochs: has no meaning with --device meta' "${lenet[@]}" --device meta --epochs 2
refuses 2 '--data-dir: expected a data set that is read from files, got synthetic' "${lenet[@]}" --data-dir x
refuses 2 '--precision: expected one of f32, tf32, bf16' "${lenet[@]}" --precision f64
refuses 2 '--fusion: ' "${lenet[@]}" --fusion relu,nonsense
refuses 2 '--fusion: ' "${lenet[@]}" --fusion ''
accepts '^fusion +off$' "${dry[@]}" --fusion off
accepts '^fusion +conv2d_relu,linear_relu$' "${dry[@]}" --fusion conv2d_relu,linear_relu
accepts '^deterministic +yes$' "${dry[@]}" --deterministic
accepts '^precision +f32$' "${dry[@]}" --precision f32

# --- the recipe, and flags above it ---
accepts '^optimizer +adam, lr 0.001, weight decay' "${dry[@]}" --optimizer adam
accepts '^optimizer +adamw, lr 0.5, weight decay 0.25$' "${dry[@]}" --optimizer adamw --lr 0.5 \
  --weight-decay 0.25
accepts '^optimizer +sgd, lr 0.5, momentum 0.125, weight decay 0$' "${dry[@]}" --optimizer sgd \
  --lr 0.5 --momentum 0.125 --weight-decay 0
refuses 2 '--momentum: expected --optimizer sgd with it' "${dry[@]}" --optimizer adam --momentum 0.9

# --- what is not built yet is refused, not ignored ---
refuses 2 '--checkpoint-every: expected --checkpoint-dir' "${lenet[@]}" --checkpoint-every 5
refuses 2 '--keep-checkpoints: expected a whole number from 1' "${lenet[@]}" --keep-checkpoints 0
refuses 2 '--weights: expected it without --resume' "${lenet[@]}" --resume x --weights x.safetensors
refuses 2 '--checkpoint-dir: expected a run that trains' "${lenet[@]}" --checkpoint-dir x --eval-only
refuses 2 '--precision tf32' "${lenet[@]}" --precision tf32
refuses 2 '--precision bf16' "${lenet[@]}" --precision bf16
if run "${lenet[@]}" --device cuda --max-steps 1; then
  skip '--device cuda is refused with a reason' 'a CUDA device is here'
else
  refuses 2 '--device cuda: ' "${lenet[@]}" --device cuda
fi

# --- files: names, folders, what is in the way ---
refuses 2 '--log: expected a file name that ends in .csv or .jsonl' "${lenet[@]}" --log run.json
refuses 2 '--log: expected a file name that ends in' "${lenet[@]}" --log .csv
refuses 2 '--profile: expected a file name that ends in .json' "${lenet[@]}" --profile run.txt
refuses 2 '--trace: expected a file name that ends in .json or .json.gz' "${lenet[@]}" --trace run.gz
refuses 2 '--profile-steps: expected --profile or --trace' "${lenet[@]}" --profile-steps 3
refuses 2 '--profile-warmup: expected --profile or --trace' "${lenet[@]}" --profile-warmup 3
refuses 2 'another file than --profile' "${lenet[@]}" --profile a.json --trace ./a.json
refuses 2 '--eval-only has none' "${lenet[@]}" --eval-only --profile a.json
mkdir folder.csv
echo good >file
ln -s /dev/full full.csv
refuses 1 "--log: cannot write 'folder.csv': Is a directory" "${lenet[@]}" --log folder.csv
refuses 1 "--log: cannot write 'full.csv': not a regular file" "${lenet[@]}" --log full.csv
refuses 1 "'file/run.csv': Not a directory" "${lenet[@]}" --log file/run.csv
refuses 1 "--profile: cannot make the folder" "${lenet[@]}" --profile file/run.json
refuses 1 "--trace: cannot make the folder" "${lenet[@]}" --trace /proc/none/run.json
if [[ $(id -u) == 0 ]]; then
  skip 'refuses a file that may not be written' 'root may write every file'
else
  echo good >protected.csv
  chmod a-w protected.csv
  refuses 1 "--log: cannot write 'protected.csv': Permission denied" "${lenet[@]}" --log protected.csv
fi
echo good >good.json
refuses 2 '--profile: expected a run of at least 12 steps' "${short[@]}" --max-steps 5 --profile good.json
expect 'a refused run leaves the old profile' [ "$(cat good.json)" = good ]
refuses 1 'train-images' --model lenet --dataset mnist --data-dir none --log early.csv
expect 'a run that never trained leaves no log' [ ! -e early.csv.partial ]
rm -rf folder.csv full.csv file good.json protected.csv

# --- information, and dry runs ---
accepts '^  -b,--batch-size N' --help
for group in Data Model Training Device Profiling Output; do accepts "^$group:" --help; done
accepts "come from the model's recipe" --help
accepts '^engine-train [0-9]+\.[0-9]+\.[0-9]+$' --version
accepts '^name +parameters +input +description +recipe$' --list-models
accepts '^lenet +61706 +\[28, 28, 1\]' --list-models
accepts '^resnet18 +11689512 +\[224, 224, 3\]' --list-models
accepts '^synthetic ' --list-datasets
accepts '^parameters +61706$' "${dry[@]}" --log a/b.csv --profile c/d.json --trace e.json.gz
expect 'a dry run writes nothing' [ -z "$(ls)" ]
accepts "^command line .*--log 'it'\\\\''s here.csv'" "${dry[@]}" --log "it's here.csv"
small=(--model resnet18 --dataset synthetic --stem cifar --dry-run)
accepts '^model +resnet18 with --stem cifar$' "${small[@]}"
accepts '^input +\[32, 32, 3\]$' "${small[@]}"
accepts '^input +\[48, 48, 3\]$' "${small[@]}" --image-size 48
accepts '^parameters +11173962$' "${small[@]}"
refuses 2 '--stem: expected one of imagenet, cifar' "${small[@]}" --stem mnist
refuses 2 '--stem: expected a model with a choice of stems, got lenet' "${dry[@]}" --stem cifar
refuses 2 '--image-size: expected a whole number from 1' "${small[@]}" --image-size 0
seq 1 2000 >numbers.txt
text=(--model gpt --dataset text --data-dir numbers.txt --dry-run)
accepts '^input +\[32\]$' "${text[@]}" --context 32 --layers 2 --width 64 --heads 4
refuses 2 '--dataset: expected text for gpt, got fashion-mnist' --model gpt --dataset fashion-mnist
refuses 2 '--dataset: expected images for lenet, got text' --model lenet --dataset text
refuses 2 '--blocks: expected a model with this size, got gpt' "${text[@]}" --blocks 3
refuses 2 '--context: expected a model of text, got lenet' --model lenet --context 8
refuses 2 '--image-size: expected a model of images, got gpt' "${text[@]}" --image-size 8
refuses 1 'a width that is a multiple of the heads' "${text[@]}" --width 65
refuses 1 'expected images of at least 63x63' --model alexnet --dataset synthetic --image-size 32
"$program" --list-models >/dev/full 2>"$err"
expect 'a standard output that is full ends with 1' [ $? = 1 ]
accepts '^threads +1$' "${dry[@]}" --threads 1
expect 'no warning within the CPUs' [ ! -s "$err" ]
accepts '^threads +1024$' "${dry[@]}" --threads 1024
expect 'a warning above the CPUs' grep -q '^engine-train: warning: --threads 1024 is more than' "$err"

# --- small IDX files ---
idx() { # idx <folder> <train|t10k> <images>
  mkdir -p "$1"
  { printf "\\0\\0\\10\\3\\0\\0\\0\\$(printf %o "$3")\\0\\0\\0\\34\\0\\0\\0\\34"
    head -c $((784 * $3)) /dev/zero | tr '\0' '\100'; } >"$1/$2-images-idx3-ubyte"
  { printf "\\0\\0\\10\\1\\0\\0\\0\\$(printf %o "$3")"
    for ((i = 0; i < $3; ++i)); do printf "\\$(printf %o $((i % 10)))"; done; } >"$1/$2-labels-idx1-ubyte"
}
idx data train 21
idx data t10k 5
tiny=(--model lenet --dataset mnist --data-dir data --batch-size 4)
accepts '^training samples +21$' "${tiny[@]}" --dry-run
accepts '^test samples +5$' "${tiny[@]}" --dry-run
accepts '^steps +12$' "${tiny[@]}" --epochs 2 --dry-run
accepts '^steps +6$' "${tiny[@]}" --epochs 2 --accum-steps 2 --dry-run
accepts '^done: 12 steps in [0-9.]+ s, test accuracy [0-9.]+ %, loss [0-9.]+$' "${tiny[@]}" --epochs 2
accepts '^done: 6 steps in ' "${tiny[@]}" --epochs 2 --accum-steps 2
accepts '^done: evaluation in [0-9.]+ s, test accuracy [0-9.]+ %, loss [0-9.]+$' "${tiny[@]}" --eval-only
cp -r data cut && head -c 5000 data/train-images-idx3-ubyte >cut/train-images-idx3-ubyte
refuses 1 'cut/train-images-idx3-ubyte' --model lenet --dataset mnist --data-dir cut

# --- data sets of other files ---
repeat() { head -c "$2" /dev/zero | tr '\0' "\\$(printf %o "$1")"; } # repeat <byte> <times>
cifar() { for label in "${@:2}"; do printf '%b' "\\x$(printf %x "$label")"; repeat $((label * 20)) 3072; done >"$1"; }
mkdir -p cifar
for i in 1 2 3 4 5; do cifar cifar/data_batch_$i.bin $i 9; done
cifar cifar/test_batch.bin 0 8
small=(--batch-size 4 --epochs 2 --workers 2)
coloured=(--model lenet --dataset cifar10 --data-dir cifar "${small[@]}")
accepts '^input +\[32, 32, 3\]$' "${coloured[@]}" --dry-run
accepts '^augmentation +none$' "${coloured[@]}" --dry-run
accepts '^augmentation +pad-crop,flip$' "${coloured[@]}" --dry-run --augment pad-crop,flip
accepts '^done: 6 steps in [0-9.]+ s, test accuracy ' "${coloured[@]}"
accepts '^input +\[224, 224, 3\]$' --model resnet18 --dataset cifar10 --data-dir cifar --dry-run
accepts '^input +\[32, 32, 3\]$' --model unet --dataset cifar10 --data-dir cifar --dry-run --width 4
cp -r cifar bad && cifar bad/data_batch_4.bin 10
refuses 1 'bad/data_batch_4.bin: expected labels in [0, 10), got 10 in record 0' --model lenet --dataset cifar10 --data-dir bad
refuses 1 'cifar100 expected its folder, got none: give it with --data-dir' --model lenet --dataset cifar100
refuses 1 'data/train.bin: expected a readable file' --model lenet --dataset cifar100 --data-dir data

red=iVBORw0KGgoAAAANSUhEUgAAACgAAAAkCAIAAAB0Xu9BAAAAMElEQVR42u3NMQEAMAgAIF0Gb/tHMdZieAgFyOmKDS+WiMVisVgsFovFYrFYLL4YfxNZAUICrPPHAAAAAElFTkSuQmCC
blue=iVBORw0KGgoAAAANSUhEUgAAACgAAAAkCAIAAAB0Xu9BAAAAMUlEQVR42u3NQQEAQAQAMC6DEPrnEeZieNgKLKsnNrxYIhaLxWKxWCwWi8Visfhi/AEQNwFgi/FS9gAAAABJRU5ErkJggg==
grey=/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6/+b9//j/wAALCAAkACgBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAAT/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEBAAA/AJwAAAAAAAH/2Q==
image() { mkdir -p "$(dirname "$1")" && base64 -d <<<"$2" >"$1"; }
for i in 1 2 3; do
  image folder/train/red/$i.png $red && image folder/train/blue/$i.png $blue
  image two/trainA/$i.png $red && image two/trainB/$i.png $blue
done
image folder/val/red/x.png $red && image folder/val/blue/x.png $blue && image folder/train/blue/g.jpeg $grey
image two/testA/x.png $red && image two/testB/x.png $blue
images=(--model lenet --dataset images --data-dir folder "${small[@]}")
accepts '^training samples +7$' "${images[@]}" --dry-run
accepts '^classes +2$' "${images[@]}" --dry-run
accepts '^input +\[28, 28, 3\]$' "${images[@]}" --dry-run
accepts '^done: 200 steps in .*, test accuracy 100.00 %' "${images[@]}" --epochs 100 --eval-interval 100
head -c 90 folder/train/red/1.png >folder/train/red/2.png
refuses 1 "folder/train/red/2.png: expected an intact PNG file, got 'the file ends too early'" "${images[@]}" --quiet
refuses 1 'data: expected a folder with folders train and test (or val)' --model lenet --dataset images --data-dir data
refuses 2 '--dataset: expected images for lenet, got unpaired' --model lenet --dataset unpaired --data-dir two

base64 -d >numbers.npz <<'END'
UEsDBC0AAAAIAAAAIQBAq17f//////////8FABQAeC5ucHkBABAAwD0AAAAAAACcAAAAAAAAAO3IoQrCUACF4VnNZrntTljQJRHzmrJi0CLDXTHIJncqglrMNsFsNpt9NrdyHsD8f3DC+R/T2SSdt4JjcLa5q1bejoy9HAY2MnZd+r3PimXpc9f0JNtWru7VJtu5+odxPzLxsFkvMlfzh3YAQNoApANAugAkBCAxABkDkASApABkAUByAFIAkBMAuQGQOwB5ApAXAHkDkA8A+QKQH1BLAwQtAAAACAAAACEANJrBr///////////BQAUAHkubnB5AQAQACABAAAAAAAAYwAAAAAAAACb7BfqGxDJyFDGUK2eklqcXKRupaBuk2mhrqOgnpZfVFKUmBefX5SSChJ3S8wpTgWKF2ckFqQC+RpGBjqaOgq1CuQDLgYoYITSTFCaGUqzQGlWKM0GpdmhNAeU5mRABdQyDwBQSwECLQMtAAAACAAAACEAQKte35wAAADAPQAABQAAAAAAAAAAAAAAgAEAAAAAeC5ucHlQSwECLQMtAAAACAAAACEANJrBr2MAAAAgAQAABQAAAAAAAAAAAAAAgAHTAAAAeS5ucHlQSwUGAAAAAAIAAgBmAAAAbQEAAAAA
END
archive=(--model mlp --dataset npz --data-dir numbers.npz "${small[@]}")
accepts '^(training samples +18|test samples +2)$' "${archive[@]}" --dry-run
accepts '^done: 10 steps' "${archive[@]}"
head -c 400 numbers.npz >cut.npz
refuses 1 'cut.npz: expected a zip archive' --model mlp --dataset npz --data-dir cut.npz

# --- augmentation ---
losses() { cut -d, -f2,4 "$1" | grep -v ,$; }
varied=("${tiny[@]}" --epochs 3 --log-interval 1 --augment pad-crop,flip --deterministic)
accepts '^done: 18 steps' "${varied[@]}" --workers 0 --log varied.csv
accepts '^done: 18 steps' "${varied[@]}" --workers 3 --log more-workers.csv
expect 'augmentation is the same for any number of workers' cmp -s <(losses varied.csv) <(losses more-workers.csv)
accepts '^done: 6 steps' "${varied[@]}" --max-steps 6 --lr-scheduler constant --checkpoint-dir out/varied --log first.csv
accepts '^done: 18 steps' "${varied[@]}" --lr-scheduler constant --resume out/varied --log rest.csv
accepts '^done: 18 steps' "${varied[@]}" --lr-scheduler constant --log whole.csv
expect 'augmentation is the same after a resume' cmp -s <(losses whole.csv | tail -14) <(losses rest.csv | tail -14)
accepts '^done: 18 steps' "${tiny[@]}" --epochs 3 --log-interval 1 --deterministic --log plain.csv
expect 'augmentation changes the losses' [ "$(losses plain.csv | tail -1)" != "$(losses varied.csv | tail -1)" ]
refuses 1 "run 'augmentation': expected none, got pad-crop,flip" "${tiny[@]}" --epochs 3 --resume out/varied
for value in crop pad_crop flip,flip pad-crop, ''; do
  refuses 2 '--augment: expected pad-crop, flip or pad-crop,flip' "${lenet[@]}" --augment "$value"
done
refuses 2 '--augment: expected a model of images, got gpt' --model gpt --augment flip
refuses 2 '--augment: expected a run that trains' "${lenet[@]}" --augment flip --eval-only
refuses 2 '--augment: has no meaning with --device meta' "${lenet[@]}" --augment flip --device meta

# --- pictures of samples ---
gan=(--model cyclegan --image-size 24 --width 2 --blocks 1 --dataset unpaired --data-dir two --epochs 2)
accepts '^done: 6 steps in [0-9.]+ s, test loss ' "${gan[@]}" --samples out/pictures --augment flip
expect 'pictures of each epoch' [ "$(ls out/pictures | tr '\n' ' ')" = 'epoch-0001.png epoch-0002.png ' ]
expect 'pictures are PNG' [ "$(head -c 4 out/pictures/epoch-0002.png | tail -c 3)" = PNG ]
refuses 2 '--samples: expected a model that makes images, got lenet' "${lenet[@]}" --samples x
refuses 2 '--samples: expected a run that trains' "${gan[@]}" --samples x --eval-only
refuses 2 "--samples: expected a folder, got ''" "${gan[@]}" --samples ''
refuses 1 '--samples: cannot make the folder' "${gan[@]}" --samples numbers.npz/x

# --- weights ---
accuracy() { grep -oE 'test accuracy [0-9.]+ %' "$out"; }
accepts '^done: 12 steps' "${tiny[@]}" --epochs 2 --save-weights out/trained.safetensors
trained=$(accuracy)
accepts '^done: evaluation' "${tiny[@]}" --eval-only --seed 7 --weights out/trained.safetensors
expect 'saved weights are as good as those trained' [ "$(accuracy)" = "$trained" ]
head -c 5000 out/trained.safetensors >half.safetensors
refuses 1 '--weights: ' "${tiny[@]}" --weights half.safetensors
refuses 1 'absent.safetensors' "${tiny[@]}" --weights absent.safetensors
refuses 2 '--weights: expected a file name that ends in .safetensors' "${lenet[@]}" --weights run.pt
refuses 2 '--save-weights: expected a run that trains' "${lenet[@]}" --eval-only --save-weights a.safetensors
refuses 2 'no meaning with --device meta' "${lenet[@]}" --device meta --save-weights a.safetensors

accepts '^done: 6 steps' "${tiny[@]}" --epochs 1 --checkpoint-dir out/run
expect 'a checkpoint of the end' [ -f out/run/checkpoint-0000000006.safetensors ]
expect 'the best checkpoint is marked' [ -f out/run/best.safetensors ]
refuses 2 '--resume out/run goes on from it' "${tiny[@]}" --checkpoint-dir out/run
accepts '^done: 12 steps' "${tiny[@]}" --epochs 2 --resume out/run --checkpoint-dir out/run
accepts '^done: 12 steps in [0-9.]+ s$' "${tiny[@]}" --epochs 2 --resume out/run
refuses 2 "another run, got 'out/run/checkpoint-0000000012" "${tiny[@]}" --epochs 3 \
  --checkpoint-dir out/run --resume out/run/checkpoint-0000000006.safetensors
refuses 1 'expected a checkpoint of at most step 6, got step 12' "${tiny[@]}" --epochs 1 --resume out/run
refuses 1 'not fit' "${tiny[@]}" --seed 5 --epochs 3 --resume out/run
expect 'and says what is another' grep -q "run 'seed': expected 5, got 0" "$err"
refuses 1 'expected a readable file' "${tiny[@]}" --resume absent.safetensors
accepts '^done: 6 steps' "${tiny[@]}" --epochs 1 --resume no-such-folder
expect 'a run that finds no checkpoint says so' grep -q "no checkpoint in 'no-such-folder'" "$err"
run --model mlp --dataset synthetic --weights out/trained.safetensors
expect 'weights of another network: exit code' [ $? = 1 ]
expect 'weights of another network: every mismatch' [ "$(grep -oE ': expected (f32|no such)' "$err" | wc -l)" = 16 ]

# --- what a run prints ---
accepts '^done: 3 steps in [0-9.]+ s, loss [0-9.]+$' "${short[@]}" --max-steps 3
expect 'a plain line for each report' [ "$(grep -cE '^epoch 1/[0-9]+  step [123]/3  loss [0-9.]+  lr [0-9.e-]+  [0-9]+ samples/s  [0-9.e+]+ ms/step$' "$err")" = 3 ]
accepts '^done: 3 steps in ' "${short[@]}" --max-steps 3 --quiet
expect '--quiet: nothing on standard error' [ ! -s "$err" ]
expect '--quiet: one line on standard output' [ "$(wc -l <"$out")" = 1 ]
if command -v script >/dev/null; then
  TERM=xterm script -qec "'$program' ${short[*]} --max-steps 20" /dev/null >"$out" 2>"$err" </dev/null
  expect 'a bar on a terminal' grep -qE $'\r''epoch 1/[0-9]+ (\[[#.]+\])? ?[0-9]+/20  loss ' "$out"
else
  skip 'a bar on a terminal' 'the program script is not installed'
fi

# --- logs ---
number='-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?'
accepts '^done: 12 steps' "${tiny[@]}" --epochs 2 --log-interval 1 --log new/folder/run.csv
log=new/folder/run.csv
expect 'CSV: the header' [ "$(head -1 $log)" = 'type,step,epoch,loss,lr,grad_norm,step_ms,samples_per_second,accuracy' ]
expect 'CSV: a row a step' [ "$(grep -cE "^train,[0-9]+,[12],$number,$number,,$number,$number,\$" $log)" = 12 ]
expect 'CSV: a row an evaluation' [ "$(grep -cE "^eval,(6|12),[12],$number,,,,,$number\$" $log)" = 2 ]
expect 'CSV: nothing else' [ "$(wc -l <$log)" = 15 ]
expect 'CSV: no partial file is left' [ "$(ls new/folder)" = run.csv ]
accepts '^done: 12 steps' "${tiny[@]}" --epochs 2 --log-interval 1 --clip-grad-norm 1 --log run.jsonl
expect 'JSON Lines: a row a step' [ "$(grep -cE "^\{\"type\":\"train\",\"step\":[0-9]+,\"epoch\":[12],\"loss\":$number,\"lr\":$number,\"grad_norm\":$number,\"step_ms\":$number,\"samples_per_second\":$number\}\$" run.jsonl)" = 12 ]
expect 'JSON Lines: a row an evaluation' [ "$(grep -cE "^\{\"type\":\"eval\",\"step\":[0-9]+,\"epoch\":[12],\"loss\":$number,\"accuracy\":$number\}\$" run.jsonl)" = 2 ]
expect 'JSON Lines: nothing else' [ "$(wc -l <run.jsonl)" = 14 ]

# A file-size limit is what a full disk looks like to a program; the limit counts blocks of 1 KiB.
limited() { (ulimit -f 1 && "$program" "$@" >"$out" 2>"$err"); }
echo good >kept.csv
limited "${short[@]}" --max-steps 200 --log kept.csv --quiet
expect 'a full disk ends the run with 1' [ $? = 1 ]
expect 'a full disk: one line names flag and file' \
  [ "$(grep -c "^engine-train: error: --log: .*'kept.csv': File too large$" "$err")/$(wc -l <"$err")" = 1/1 ]
expect 'a full disk leaves the old log' [ "$(cat kept.csv)" = good ]
expect 'a full disk leaves whole lines' \
  [ "$(grep -vcE '^(type,.*accuracy|train(,[^,]*){8})$' kept.csv.partial)/$(tail -c 1 kept.csv.partial | od -An -c | tr -d ' ')" = '0/\n' ]
accepts '^done' "${short[@]}" --max-steps 2 --log kept.csv
expect 'the next run replaces log and remains' [ "$(wc -l <kept.csv)/$(ls kept*)" = 3/kept.csv ]

# --- profile and trace ---
steps=(--max-steps 12 --profile-warmup 2 --profile-steps 3)
accepts '^done: 12 steps' "${short[@]}" "${steps[@]}" --profile p/q/run.json --trace p/run.json.gz
expect 'a table is printed' [ "$(wc -l <"$out")" -gt 5 ]
expect 'the profile is JSON of the run' grep -q '"command line"' p/q/run.json
expect 'the trace is gzip' [ "$(head -c 2 p/run.json.gz | od -An -tx1 | tr -d ' ')" = 1f8b ]
expect 'no temporary is left' [ "$(ls p p/q | tr '\n' ' ')" = 'p: q run.json.gz  p/q: run.json ' ]
accepts '^done: 12 steps' "${short[@]}" "${steps[@]}" --trace plain.json
expect 'the plain trace is text' [ "$(head -c 1 plain.json)" = '{' ]
echo good >kept.json
limited "${short[@]}" "${steps[@]}" --profile kept.json --quiet
expect 'a full disk at the profile ends with 1' [ $? = 1 ]
expect 'a full disk at the profile: one line' grep -q "^engine-train: error: --profile: .*'kept.json': File too large$" "$err"
expect 'a full disk leaves the old profile' [ "$(cat kept.json)/$(ls kept.json*)" = good/kept.json ]

expect 'a full disk at the profile: the result is printed' grep -q '^done: 12 steps' "$out"
ln -s behind.csv link.csv
accepts "^done: 12 steps" "${short[@]}" --max-steps 12 --log link.csv
expect 'a link to nothing yet: the file behind it is made' [ -L link.csv -a -s behind.csv ]

# --- signals ---
for signal in INT TERM; do
  echo good >signal.csv
  "$program" "${short[@]}" --epochs 1000000 --log signal.csv --quiet >"$out" 2>"$err" &
  pid=$!
  for ((i = 0; i < 300; ++i)); do
    [[ $(cat signal.csv.partial 2>/dev/null | wc -l) -ge 3 ]] && break
    sleep 0.1
  done
  kill -s $signal $pid
  wait $pid
  expect "SIG$signal: exit code 130" [ $? = 130 ]
  expect "SIG$signal: a line says so" grep -qE '^interrupted: [0-9]+ of [0-9]+ steps' "$out"
  expect "SIG$signal: the earlier log is as it was" [ "$(cat signal.csv)" = good ]
  expect "SIG$signal: the rows so far are beside it" [ "$(wc -l <signal.csv.partial)" -ge 3 ]
  rm signal.csv.partial
done
"$program" "${short[@]}" --epochs 1000000 --log shared.csv --quiet >"$out" 2>"$err" &
pid=$!
for ((i = 0; i < 300; ++i)); do
  [[ -s shared.csv.partial ]] && break
  sleep 0.1
done
refuses 1 "--log: [log] cannot write 'shared.csv': another run is writing it" "${short[@]}" --log shared.csv
kill $pid
wait $pid 2>/dev/null

echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
