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

# Class weights: what a mean divides by, and what smoothing gives the other classes.
record("cross_entropy: class weights, smoothing, ignore_index",
       lambda x, t, w: F.cross_entropy(x, t, w.detach(), ignore_index=2, label_smoothing=0.2),
       numbers(5, 4, scale=4), labels(0, 2, 3, 1, 2), numbers(4).abs() + 0.25)
record("smooth_l1_loss: beta", lambda x, t: F.smooth_l1_loss(x, t, beta=0.3), numbers(4, 5), numbers(4, 5))
record("l1_loss: sum", lambda x, t: F.l1_loss(x, t, reduction="sum"), numbers(4, 5), numbers(4, 5))
record("mse_loss", F.mse_loss, numbers(4, 5), numbers(4, 5))
record("binary_cross_entropy_with_logits", lambda x, t: F.binary_cross_entropy_with_logits(x, t),
       numbers(4, 5, scale=30), numbers(4, 5).abs())

# Activations: named variants, and where they bend.
for name, f in {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
                "elu: alpha": lambda x: F.elu(x, 0.7), "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
                "softplus: beta, threshold": lambda x: F.softplus(x, 2.0, 3.0)}.items():
    record(name, f, numbers(3, 7, scale=4))
record("clamp: at its edges", lambda x: x.clamp(-1, 2),
       torch.tensor([-2.0, -1, 0, 2, 3], dtype=torch.float64))
record("pow: zero to a power", lambda a, b: a ** b,
       torch.tensor([0.0, 0, 2, 2], dtype=torch.float64), torch.tensor([0.0, 2, 0, 3], dtype=torch.float64))
record("maximum: ties", torch.maximum, torch.tensor([1.0, 2, 3], dtype=torch.float64),
       torch.tensor([1.0, 3, 2], dtype=torch.float64))

# Normalisations: biased and unbiased variances, and where eps stands.
record("batch_norm: training", lambda x, w, b: nhwc(F.batch_norm(nchw(x), None, None, w, b, True, eps=1e-3)),
       numbers(3, 2, 4, 5), numbers(5), numbers(5))


def running(x, mean, var):
    m, v = mean.detach().clone(), var.detach().clone()
    F.batch_norm(nchw(x.detach()), m, v, training=True, momentum=0.3)
    return torch.stack((m, v)) + 0 * x.sum()


record("batch_norm: running statistics", running, numbers(3, 2, 4, 5), numbers(5), numbers(5).abs())
record("group_norm", lambda x, w, b: nhwc(F.group_norm(nchw(x), 3, w, b)), numbers(2, 3, 4, 6), numbers(6),
       numbers(6))
record("instance_norm", lambda x, w, b: nhwc(F.instance_norm(nchw(x), None, None, w, b)), numbers(2, 3, 4, 5),
       numbers(5), numbers(5))
record("layer_norm: two axes", lambda x, w, b: F.layer_norm(x, (3, 4), w, b), numbers(5, 3, 4), numbers(3, 4),
       numbers(3, 4))
record("rms_norm", lambda x, w: F.rms_norm(x, (6,), w, 1e-3), numbers(4, 6), numbers(6))
record("var: correction 2", lambda x: x.var((0, 2), correction=2), numbers(3, 4, 5))
record("logsumexp", lambda x: x.logsumexp((0, 2)), numbers(3, 4, 5, scale=30))

# Where pixels lie when images change their size, and what an output padding adds.
record("conv_transpose2d: stride, padding, output_padding, dilation, groups",
       lambda x, w, b: nhwc(F.conv_transpose2d(nchw(x), nchw(w), b, stride=(3, 2), padding=(1, 2),
                                               output_padding=(2, 1), dilation=(1, 2), groups=2)),
       numbers(2, 4, 5, 4), numbers(4, 3, 2, 3), numbers(6))
record("adaptive_avg_pool2d", lambda x: nhwc(F.adaptive_avg_pool2d(nchw(x), (3, 4))), numbers(2, 5, 7, 3))
for size in ((7, 3), (2, 9)):
    text = f"{size[0]}x{size[1]}"
    record(f"interpolate: nearest to {text}", lambda x: nhwc(F.interpolate(nchw(x), size)), numbers(2, 4, 5, 2))
    for corners in (False, True):
        record(f"interpolate: bilinear to {text}, align_corners {str(corners).lower()}",
               lambda x: nhwc(F.interpolate(nchw(x), size, mode="bilinear", align_corners=corners)),
               numbers(2, 4, 5, 2))
for mode in ("reflect", "replicate"):
    record(f"pad: {mode}", lambda x: nhwc(F.pad(nchw(x), (2, 1, 1, 3), mode=mode)), numbers(2, 4, 5, 2))
record("pad: constant", lambda x: F.pad(x, (2, 1, 0, 3), value=0.5), numbers(3, 4))

# Attention: which side of the diagonal causal means, with more queries than keys and with fewer.
for queries, keys in ((5, 3), (3, 5)):
    record(f"attention: causal, {queries} queries, {keys} keys",
           lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
           numbers(2, queries, 4, scale=3), numbers(2, keys, 4, scale=3), numbers(2, keys, 6))


def recurrent(kind):
    """The order of the gates, and which bias stands inside the reset gate."""
    def run(x, w_ih, w_hh, b_ih, b_hh, h0, *c0):
        module = kind(x.shape[2], h0.shape[1], dtype=torch.float64)
        state = (h0[None], c0[0][None]) if c0 else h0[None]
        weights = dict(weight_ih_l0=w_ih, weight_hh_l0=w_hh, bias_ih_l0=b_ih, bias_hh_l0=b_hh)
        y, last = torch.func.functional_call(module, weights, (x, state))
        return torch.cat((y, last[1]), 0) if c0 else y  # after the states, LSTM's last cell
    return run


record("lstm", recurrent(torch.nn.LSTM), numbers(4, 2, 3), numbers(20, 3), numbers(20, 5), numbers(20), numbers(20),
       numbers(2, 5), numbers(2, 5))
record("gru", recurrent(torch.nn.GRU), numbers(4, 2, 3), numbers(15, 3), numbers(15, 5), numbers(15), numbers(15),
       numbers(2, 5))

# Indexing: what meets in one place adds up.
record("embedding: repeated ids", lambda w, i: F.embedding(i, w), numbers(4, 3), labels(1, 1, 0, 1))
record("gather", lambda x, i: x.gather(1, i.reshape(2, 3)), numbers(2, 4), labels(0, 0, 3, 1, 2, 1))
record("scatter_add", lambda x, i, s: x.scatter_add(1, i.reshape(2, 3), s), numbers(2, 4), labels(0, 0, 3, 1, 2, 1),
       numbers(2, 3))
record("repeat", lambda x: x.repeat(2, 1, 3), numbers(2, 2))

print(json.dumps({"pytorch": torch.__version__.split("+")[0], "records": records}, indent=None,
                 separators=(",", ":")).replace('{"name"', '\n{"name"'))
