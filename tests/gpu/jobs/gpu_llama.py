# SPDX-License-Identifier: GPL-2.0-or-later
"""A LLaMA of torch alone for the engine: transformers is not on a machine that has a driver and PyTorch only."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from swell.engine.skeleton import Skeleton

DESCRIPTION = {"inputs": ["embed_tokens"], "layers": "layers", "outputs": ["norm"]}


def config(*, hidden, layers, length, vocabulary):
    """Holds the fields that the engine and the model read, under the names of transformers."""
    return SimpleNamespace(model_type="gpu_llama", hidden_size=hidden, num_hidden_layers=layers, vocab_size=vocabulary, max_position_embeddings=length,
                           intermediate_size=hidden * 11 // 4, num_attention_heads=max(1, hidden // 64))


def parameters(*, hidden, layers, vocabulary, **_):
    """How many a model has."""
    return layers * (4 * hidden**2 + 3 * hidden * (hidden * 11 // 4) + 2 * hidden) + hidden * (2 * vocabulary + 1)


def serve():
    """From now on the engine builds this model, not transformers'."""
    def modules(skeleton):
        with torch.device("meta"):
            return CausalLM(skeleton.config).to(skeleton._dtype)
    Skeleton._modules = modules


class Layer(nn.Module):
    def __init__(self, of):
        super().__init__()
        width, inner, self.heads = of.hidden_size, of.intermediate_size, of.num_attention_heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x, rotation):
        normed = self.before_attention(x)
        q, k, v = (each(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(_rotated(q, rotation), _rotated(k, rotation), v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        normed = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def _rotated(x, rotation):
    cosine, sine = (each.to(x.dtype) for each in rotation)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


class Model(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.embed_tokens = nn.Embedding(of.vocab_size, of.hidden_size)
        self.layers = nn.ModuleList(Layer(of) for _ in range(of.num_hidden_layers))
        self.norm = nn.RMSNorm(of.hidden_size)
        self.half = of.hidden_size // of.num_attention_heads // 2

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        frequency = 10000.0 ** (-torch.arange(self.half, device=x.device) / self.half)
        angle = torch.outer(torch.arange(x.shape[1], device=x.device), frequency)
        for layer in self.layers:
            x = layer(x, (angle.cos(), angle.sin()))
        return self.norm(x)


class CausalLM(nn.Module):
    base_model_prefix = "model"

    def __init__(self, of):
        super().__init__()
        self.config, self.model = of, Model(of)
        self.lm_head = nn.Linear(of.hidden_size, of.vocab_size, bias=False)

    def get_output_embeddings(self):
        return self.lm_head

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.normal_(0.0, 0.02)
        elif isinstance(module, nn.RMSNorm):
            module.weight.fill_(1.0)

    def forward(self, input_ids, use_cache=False, **_):
        return SimpleNamespace(logits=self.lm_head(self.model(input_ids)))
