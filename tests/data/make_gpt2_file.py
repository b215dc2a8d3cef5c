#!/usr/bin/env python3
"""Writes a small GPT-2 as Hugging Face's transformers library saves one, and what it computes.

    tests/data/make_gpt2_file.py tests/data

gpt2.safetensors is the whole state dict of a GPT2LMHeadModel, with the tied lm_head.weight and the
masks that older versions of the library kept among the weights; gpt2_run.safetensors has token ids and
the logits for them. The test tests/test_gpt2_file.cpp reads both.
"""
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_positions=3, n_embd=4, n_layer=2, n_head=2, bos_token_id=0,
                                   eos_token_id=0)).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.normal_(0, 0.5)
state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
for layer in range(2):
    state[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    state[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
save_file(state, sys.argv[1] + "/gpt2.safetensors", metadata={"format": "pt"})
ids = torch.tensor([[4, 0, 2], [1, 3, 3]])
save_file({"ids": ids, "logits": model(ids).logits.detach()}, sys.argv[1] + "/gpt2_run.safetensors")
