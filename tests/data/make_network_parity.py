#!/usr/bin/env python3
"""Writes network_parity.json: what PyTorch gives for whole networks in training.

    tests/data/make_network_parity.py > tests/data/network_parity.json

Each network is built here from its definition, with parameters, inputs and targets that both sides
make by a formula (see `uniform`). A record has some of the first outputs, the norm of every gradient
of the first step, and the losses of ten steps of SGD. PyTorch computes in float64. The test
tests/test_network_parity.cpp reads the file; it needs no PyTorch.
"""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 10


def bits(name, count):
    """32 pseudo-random bits an element: FNV-1a of the name, then a mixing of it and the index."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    x = (np.uint64(seed) + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B9)) % np.uint64(2**32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x ^= x >> np.uint64(shift)
        x = x * np.uint64(factor) % np.uint64(2**32)
    return x


def uniform(name, shape):
    """Numbers in [-1, 1), multiples of 2^-23, in PyTorch's order of elements."""
    count = int(np.prod(shape, dtype=np.int64))
    x = (bits(name, count) >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1
    return torch.from_numpy(x).reshape(shape)


def integers(name, shape, below):
    count = int(np.prod(shape, dtype=np.int64))
    return torch.from_numpy((bits(name, count) % np.uint64(below)).astype(np.int64)).reshape(shape)


def fill(module):
    """Weights about as He et al. scale them, by a power of two; scales of norms near 1; small biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            value = uniform(name, parameter.shape)
            if parameter.dim() > 1:
                fan_in = parameter.numel() // parameter.shape[0]
                value *= 2.0 ** (1 - fan_in.bit_length() // 2)
            elif name.endswith("weight"):
                value = 1 + value / 4
            else:
                value /= 8
            parameter.copy_(value.to(torch.float32))


class Conv1D(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.bias = nn.Parameter(torch.empty(fan_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (part.reshape(n, t, self.heads, -1).transpose(1, 2)
                   for part in self.attn["c_attn"](self.ln_1(x)).split(width, dim=2))
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, layers, width, heads):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


class Lstm(nn.Module):
    def __init__(self, vocabulary, embedding, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.linear = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.linear(self.lstm(self.embedding(ids))[0])


class DoubleConv(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        layers = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(before, after))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.up = nn.ConvTranspose2d(before, after, 2, 2)
        self.conv = DoubleConv(before, after)

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], 1))


class UNet(nn.Module):
    def __init__(self, channels, classes, width):
        super().__init__()
        self.inc = DoubleConv(channels, width)
        for i in range(4):
            setattr(self, f"down{i + 1}", Down(width << i, width << i + 1))
        for i in range(4):
            setattr(self, f"up{i + 1}", Up(width << 4 - i, width << 3 - i))
        self.outc = nn.ModuleDict({"conv": nn.Conv2d(width, classes, 1)})

    def forward(self, x):
        levels = [self.inc(x)]
        for i in range(4):
            levels.append(getattr(self, f"down{i + 1}")(levels[-1]))
        y = levels.pop()
        for i in range(4):
            y = getattr(self, f"up{i + 1}")(y, levels.pop())
        return self.outc["conv"](y)


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = lambda: [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels)]
        self.conv_block = nn.Sequential(*half(), nn.ReLU(), *half())

    def forward(self, x):
        return x + self.conv_block(x)


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        return self.model(x)


def generator(channels, width, blocks):
    layers = [nn.ReflectionPad2d(3), nn.Conv2d(channels, width, 7), nn.InstanceNorm2d(width), nn.ReLU()]
    for w in (width, 2 * width):
        layers += [nn.Conv2d(w, 2 * w, 3, 2, 1), nn.InstanceNorm2d(2 * w), nn.ReLU()]
    layers += [ResidualBlock(4 * width) for _ in range(blocks)]
    for w in (2 * width, width):
        layers += [nn.ConvTranspose2d(2 * w, w, 3, 2, 1, 1), nn.InstanceNorm2d(w), nn.ReLU()]
    return Model(layers + [nn.ReflectionPad2d(3), nn.Conv2d(width, channels, 7), nn.Tanh()])


def discriminator(channels, width):
    layers = [nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for w, stride in ((width, 2), (2 * width, 2), (4 * width, 1)):
        layers += [nn.Conv2d(w, 2 * w, 4, stride, 1), nn.InstanceNorm2d(2 * w), nn.LeakyReLU(0.2)]
    return Model(layers + [nn.Conv2d(8 * width, 1, 4, 1, 1)])


def record(name, module, x, lr, classes=0):
    """Cross-entropy against formula-made labels where there are classes, else the squared distance
    from formula-made numbers."""
    fill(module)
    module.double().train()
    optimizer = torch.optim.SGD(module.parameters(), lr)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        y = module(x)
        if classes:
            rows = (y.permute(0, 2, 3, 1) if y.dim() == 4 else y).reshape(-1, classes)
            loss = F.cross_entropy(rows, integers("target", rows.shape[:1], classes))
        else:
            loss = F.mse_loss(y, uniform("target", y.shape))
        loss.backward()
        if step == 0:
            flat = y.detach().reshape(-1)
            outputs = flat[::max(1, flat.numel() // 20)].tolist()
            gradients = {key: p.grad.norm().item() for key, p in module.named_parameters()}
        losses.append(loss.item())
        optimizer.step()
    short = lambda v: float(f"{v:.8g}")
    return {"name": name, "input": list(x.shape), "lr": lr, "losses": [short(v) for v in losses],
            "outputs": [short(v) for v in outputs], "gradients": {k: short(v) for k, v in gradients.items()}}


image = lambda size, n=2: uniform("input", (n, 3, size, size))
records = [
    record("gpt", Gpt(11, 16, 2, 24, 3), integers("input", (2, 12), 11), 0.02, 11),
    record("lstm", Lstm(11, 6, 20, 2), integers("input", (3, 12), 11), 0.1, 11),
    record("unet", UNet(3, 4, 8), image(32), 0.01, 4),
    record("cyclegan generator", generator(3, 8, 2), image(32), 0.01),
    record("cyclegan discriminator", discriminator(3, 8), image(32), 0.001),
]
print("[\n" + ",\n".join(json.dumps(r) for r in records) + "\n]")
