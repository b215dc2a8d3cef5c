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

WARMUP = 30  # steps of each run that are not counted


def torch_networks():
    from torch import nn
    return {
        "lenet": lambda: nn.Sequential(
            nn.Conv2d(1, 6, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        "mlp": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)),
    }


def torch_steps(model, layout, options):
    """Runs in the child process: prints each step's milliseconds as one JSON list."""
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    network = torch_networks()[model]()
    x = torch.randn(options.batch_size, 1, 28, 28)
    t = torch.randint(0, 10, (options.batch_size,))
    if layout == "channels_last":
        network = network.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    times = []
    for _ in range(options.steps + WARMUP):
        begin = time.perf_counter()
        loss = F.cross_entropy(network(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps(times[WARMUP:]))


def run_torch(model, layout, options):
    command = [sys.executable, os.path.abspath(__file__), "--child", f"{model}:{layout}", "--threads", str(options.threads),
               "--batch-size", str(options.batch_size), "--steps", str(options.steps)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"compare-pytorch: PyTorch failed on {model}: {result.stderr.strip().splitlines()[-1:]}")
    return json.loads(result.stdout)


def run_engine(model, options):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        command = [options.engine_train, "--model", model, "--dataset", "synthetic", "--batch-size", str(options.batch_size),
                   "--threads", str(options.threads), "--epochs", "1000000", "--max-steps", str(options.steps + WARMUP),
                   "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9", "--weight-decay", "0", "--lr-scheduler", "constant",
                   "--eval-interval", "0", "--log-interval", "1", "--log", log, "--quiet"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"compare-pytorch: engine-train failed on {model}: {result.stderr.strip()}")
        with open(log) as lines:
            rows = [json.loads(line) for line in lines]
        return [row["step_ms"] for row in rows if row["type"] == "train"][WARMUP:]


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="lenet,mlp", help="comma-separated; default: %(default)s")
    parser.add_argument("--engine-train", default=os.path.join(here, "..", "build", "release", "tools", "engine-train"))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="counted steps of each run; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each; default: %(default)s")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        torch_steps(*options.child.split(":"), options)
        return
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
