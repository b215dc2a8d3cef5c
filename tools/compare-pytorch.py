#!/usr/bin/env python3
"""Times training steps of the engine and of PyTorch side by side on this machine.

Both run the same network, batch size, optimizer (SGD, momentum 0.9, learning rate 0.01) and number of
threads. Runs alternate, engine and PyTorch in turn, each in a process of its own; PyTorch is timed in
its default layout and in channels_last, and the better median counts. The engine's steps include
waiting for a batch from its loader; PyTorch's use one batch that is in memory already.

Needs PyTorch (pip install torch, or Debian's python3-torch) and a built engine-train.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SMALL, IMAGE = (1, 28, 28), (3, 32, 32)
# For each network its input, and the flags besides --model that make the engine build the same one.
NETWORKS = {"lenet": (SMALL, []), "mlp": (SMALL, []), "conv6": (IMAGE, []),
            "vgg16": (IMAGE, ["--stem", "cifar"]), "resnet18": (IMAGE, ["--stem", "cifar"])}


def torch_network(name):
    from torch import nn

    def convolutions(widths, channels):
        for width in widths:
            if width == "pool":
                yield nn.MaxPool2d(2)
            else:
                yield from (nn.Conv2d(channels, width, 3, 1, 1), nn.ReLU(True))
                channels = width

    def residual(channels, width, stride):
        def normed(*args):
            return nn.Sequential(nn.Conv2d(*args, bias=False), nn.BatchNorm2d(width))

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(normed(channels, width, 3, stride, 1), nn.ReLU(True), normed(width, width, 3, 1, 1))
                self.shortcut = normed(channels, width, 1, stride) if stride > 1 or channels != width else nn.Identity()
                self.relu = nn.ReLU(True)

            def forward(self, x):
                return self.relu(self.body(x) + self.shortcut(x))
        return Block()

    if name == "lenet":
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    if name == "conv6":
        return nn.Sequential(
            *convolutions([64, 64, "pool", 128, 128, "pool", 256, 256, "pool"], 3), nn.Flatten(),
            nn.Linear(4096, 256), nn.ReLU(True), nn.Linear(256, 256), nn.ReLU(True), nn.Linear(256, 10))
    if name == "vgg16":
        widths = [64] * 2 + ["pool"] + [128] * 2 + ["pool"] + [256] * 3 + ["pool"] + ([512] * 3 + ["pool"]) * 2
        return nn.Sequential(
            *convolutions(widths, 3), nn.Flatten(), nn.Linear(512, 4096), nn.ReLU(True), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 10))
    blocks, channels = [], 64
    for width in (64, 128, 256, 512):
        blocks += [residual(channels, width, 1 if width == 64 else 2), residual(width, width, 1)]
        channels = width
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def torch_steps(model, layout, options):
    """Runs in the child process: prints each step's milliseconds as one JSON list."""
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    network = torch_network(model)
    x = torch.randn(options.batch_size, *NETWORKS[model][0])
    t = torch.randint(0, 10, (options.batch_size,))
    if layout == "channels_last":
        network = network.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    times = []
    for _ in range(options.steps + options.warmup):
        begin = time.perf_counter()
        loss = F.cross_entropy(network(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps(times[options.warmup:]))


def run_torch(model, layout, options):
    command = [sys.executable, os.path.abspath(__file__), "--child", f"{model}:{layout}", "--threads", str(options.threads),
               "--batch-size", str(options.batch_size), "--steps", str(options.steps),
               "--warmup", str(options.warmup)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"compare-pytorch: PyTorch failed on {model}: {result.stderr.strip().splitlines()[-1:]}")
    return json.loads(result.stdout)


def run_engine(model, options):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        command = [options.engine_train, "--model", model, "--dataset", "synthetic", "--batch-size", str(options.batch_size),
                   "--threads", str(options.threads), "--epochs", "1000000", "--max-steps", str(options.steps + options.warmup),
                   "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9", "--weight-decay", "0", "--lr-scheduler", "constant",
                   "--eval-interval", "0", "--log-interval", "1", "--log", log, "--quiet"] + NETWORKS[model][1]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"compare-pytorch: engine-train failed on {model}: {result.stderr.strip()}")
        with open(log) as lines:
            rows = [json.loads(line) for line in lines]
        return [row["step_ms"] for row in rows if row["type"] == "train"][options.warmup:]


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="lenet,mlp", help=f"comma-separated, of {', '.join(NETWORKS)}; default: %(default)s")
    parser.add_argument("--engine-train", default=os.path.join(here, "..", "build", "release", "tools", "engine-train"))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="counted steps of each run; default: %(default)s")
    parser.add_argument("--warmup", type=int, default=30, help="steps of each run that are not counted; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each; default: %(default)s")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        torch_steps(*options.child.split(":"), options)
        return
    unknown = [name for name in options.models.split(",") if name not in NETWORKS]
    if unknown:
        sys.exit(f"compare-pytorch: --models: expected of {', '.join(NETWORKS)}, got {', '.join(unknown)}")
    if not os.access(options.engine_train, os.X_OK):
        sys.exit(f"compare-pytorch: no engine-train at {options.engine_train}: build it, or name it with --engine-train")
    import torch
    print(f"Training step, batch {options.batch_size}, {options.threads} threads, PyTorch {torch.__version__}; "
          f"median [quartiles] ms of {options.rounds} x {options.steps} steps, and the spread of the runs' medians")
    for model in options.models.split(","):
        contenders = {"engine": lambda: run_engine(model, options),
                      "pytorch default": lambda: run_torch(model, "default", options),
                      "pytorch channels_last": lambda: run_torch(model, "channels_last", options)}
        steps = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, run in contenders.items():
                steps[name].append(run())
        medians = {}
        for name, runs in steps.items():
            low, middle, high = quartiles([ms for run in runs for ms in run])
            own = [statistics.median(run) for run in runs]
            medians[name] = middle
            print(f"{model:8} {name:22} {middle:8.3f} [{low:.3f}, {high:.3f}]   runs {min(own):.3f} to {max(own):.3f}")
        best = min(ms for name, ms in medians.items() if name != "engine")
        print(f"{model:8} engine / best of PyTorch: {medians['engine'] / best:.3f}")


if __name__ == "__main__":
    main()
