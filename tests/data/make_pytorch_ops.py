#!/usr/bin/env python3
"""Writes pytorch_ops.json: what PyTorch gives for the ops where semantics could differ.

    tests/data/make_pytorch_ops.py > tests/data/pytorch_ops.json

Each record has the inputs, an upstream gradient, the output and the gradient of every floating input,
all in the engine's layouts (images NHWC, convolution weights OHWI). PyTorch computes in float64, on
values that f32 holds exactly, so the numbers are the mathematical ones. The test
tests/test_pytorch_ops.cpp reads the file; it needs no PyTorch.
"""
import json
import math

import torch
import torch.nn.functional as F

records = []


def numbers(*shape, scale=1.0, seed=[0]):
    """Pseudo-random values in (-scale, scale) that f32 holds exactly."""
    seed[0] += 1
    count = math.prod(shape)
    x = torch.tensor([math.sin(12.9898 * (i + 1) + 78.233 * seed[0]) * 43758.5453 for i in range(count)],
                     dtype=torch.float64)
    x = (x - x.floor()) * 2 - 1
    return (x * scale).to(torch.float32).to(torch.float64).reshape(shape)


def labels(*values):
    return torch.tensor(values, dtype=torch.int64)


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def listed(x):
    values = x.detach().contiguous().reshape(-1).tolist()
    if x.dtype == torch.float64:  # nine digits tell f32 values apart; JSON has no infinities
        values = [float(f"{v:.9g}") if math.isfinite(v) else str(v) for v in values]
    return {"shape": list(x.shape), "values": values}


def record(name, f, *inputs):
    leaves = [x.clone().requires_grad_(x.dtype == torch.float64) for x in inputs]
    y = f(*leaves)
    upstream = numbers(*y.shape)
    y.backward(upstream)
    records.append({
        "name": name,
        "inputs": [dict(listed(x), dtype="f32" if x.dtype == torch.float64 else "i64") for x in leaves],
        "upstream": listed(upstream),
        "output": listed(y),
        "gradients": [None if x.grad is None else listed(x.grad) for x in leaves],
    })


# Convolution: H and W apart in everything, groups, uneven padding.
record("conv2d: stride, padding, dilation, groups",
       lambda x, w, b: nhwc(F.conv2d(nchw(x), nchw(w), b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)),
       numbers(2, 6, 7, 4), numbers(6, 3, 2, 2), numbers(6))
record("conv2d: uneven padding",
       lambda x, w: nhwc(F.conv2d(F.pad(nchw(x), (0, 0, 1, 1)), nchw(w), stride=2)),
       numbers(1, 7, 5, 1), numbers(1, 3, 3, 1))

# Pooling: ceil_mode drops windows that begin in the padding; what the average divides by.
record("max_pool2d: ceil_mode, padding",
       lambda x: nhwc(F.max_pool2d(nchw(x), (3, 2), (2, 2), (1, 0), ceil_mode=True)), numbers(2, 6, 7, 3))
for include in (True, False):
    record(f"avg_pool2d: ceil_mode, count_include_pad {str(include).lower()}",
           lambda x: nhwc(F.avg_pool2d(nchw(x), (3, 2), (2, 3), (1, 1), ceil_mode=True, count_include_pad=include)),
           numbers(2, 6, 7, 3))

# Losses: what is ignored, smoothed and divided by.
record("cross_entropy: smoothing, ignore_index",
       lambda x, t: F.cross_entropy(x, t, ignore_index=2, label_smoothing=0.1), numbers(5, 4, scale=4),
       labels(0, 2, 3, 1, 2))
record("nll_loss: ignore_index, none",
       lambda x, t: F.nll_loss(x, t, ignore_index=-100, reduction="none"), numbers(4, 3), labels(0, -100, 2, 1))

# Extrema: a tie divides its gradient.
record("max: ties over two axes", lambda x: x.amax((0, 2)),
       torch.tensor([[[1, 3, 3], [2, 2, 2]], [[3, 0, 1], [2, 1, 0]]], dtype=torch.float64))
record("relu: zero", lambda x: F.relu(x), torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64))
record("abs: zero", lambda x: x.abs(), torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64))
record("log_softmax: far apart", lambda x: F.log_softmax(x, 1),
       torch.tensor([[-431.0, 279, 427], [1, 2, 3]], dtype=torch.float64))

print(json.dumps({"pytorch": torch.__version__.split("+")[0], "records": records}, indent=None,
                 separators=(",", ":")).replace('{"name"', '\n{"name"'))
