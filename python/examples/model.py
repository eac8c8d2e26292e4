# SPDX-License-Identifier: GPL-2.0-or-later
"""A decoder-only transformer over bytes, and the optimizer that trains it."""

import torch
from torch import nn
from torch.nn import functional as F

BYTES = 256


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm_mlp = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, seq, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)        # each [batch, heads, seq, hidden / heads]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class GPT(nn.Module):
    def __init__(self, seq, layers, hidden, heads):
        super().__init__()
        self.token = nn.Embedding(BYTES, hidden)
        self.position = nn.Parameter(torch.zeros(seq, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Smaller where a layer adds to the residual stream, as in GPT-2.
                scale = (2 * layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, tokens):
        """Sum over the samples of each one's mean loss. tokens: [samples, seq + 1] of byte values."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(inputs) + self.position
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)      # the head is tied to the embedding
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / targets.shape[1]


class AdamW:
    """AdamW with warm-up and clipping. By hand because torch.optim loads the compiler when it is
    first used, which doubles the time a worker takes to start."""

    BETAS, EPS, DECAY, CLIP, WARMUP = (0.9, 0.95), 1e-8, 0.1, 1.0, 20

    def __init__(self, named_parameters, lr):
        self.lr = lr
        self.parameters = dict(named_parameters)
        self.mean = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.square = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    def lr_at(self, step):
        return self.lr * min(1.0, step / self.WARMUP)

    def zero_grad(self):
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def update(self, step):
        """Apply the gradients as step number `step`, counted from 1."""
        gradients = [p.grad for p in self.parameters.values()]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (self.CLIP / (norm + 1e-6)).clamp(max=1.0))
        lr, (b1, b2) = self.lr_at(step), self.BETAS
        mean, square = list(self.mean.values()), list(self.square.values())
        torch._foreach_lerp_(mean, gradients, 1 - b1)
        torch._foreach_mul_(square, b2)
        torch._foreach_addcmul_(square, gradients, gradients, 1 - b2)
        scale = torch._foreach_sqrt(square)
        torch._foreach_div_(scale, (1 - b2 ** step) ** 0.5)
        torch._foreach_add_(scale, self.EPS)
        matrices = [p for p in self.parameters.values() if p.dim() >= 2]
        torch._foreach_mul_(matrices, 1 - lr * self.DECAY)
        torch._foreach_addcdiv_(list(self.parameters.values()), mean, scale, -lr / (1 - b1 ** step))

    def state(self):
        return {"mean": self.mean, "square": self.square}

    def load(self, state):
        for mine, saved in ((self.mean, state["mean"]), (self.square, state["square"])):
            for name, tensor in mine.items():
                tensor.copy_(saved[name])

    def tensors(self):
        return [*self.mean.values(), *self.square.values()]
