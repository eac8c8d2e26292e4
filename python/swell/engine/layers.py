# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers around each layer: recomputation of its activations, and dropout that no plan changes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from swell.engine.stage import StageModel
from swell.engine.tensor_parallel import Shards

__all__ = ["Dropout", "wrap"]


class Dropout(TorchFunctionMode):
    """Draws dropout's masks by logical coordinate: seed, step, sample in the global batch, layer, and the call's number in it.

    Masks of attention weights (batch, heads, query, key) are drawn for all heads, of which a shard takes its own; other masks are
    alike on all shards.
    """

    def __init__(self, seed: int, device: torch.device, shard: int, shards: int) -> None:
        super().__init__()      # type: ignore[no-untyped-call]
        self._seed, self._shard, self._shards = seed, shard, shards
        self._generator = torch.Generator(device)
        self._step, self._samples, self._layer, self._call = 0, range(0), -1, 0
        self.training = True

    def at(self, step: int, samples: range) -> Dropout:
        """Set the step and the samples of the pass to come; then to be entered."""
        self._step, self._samples, self._layer, self._call = step, samples, -1, 0
        return self

    def layer(self, number: int) -> None:
        """A layer's forward pass begins, a recomputed one too."""
        self._layer, self._call = number, 0

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is nn.functional.dropout:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            return self._drop(args[0], p) if training and p > 0 else args[0]
        if func is nn.functional.scaled_dot_product_attention:
            p = kwargs.pop("dropout_p", args[4] if len(args) > 4 else 0.0)
            if p > 0:
                return self._attend(p, *args[:4], **kwargs)
            kwargs["dropout_p"] = 0.0
            args = args[:4]
        return func(*args, **kwargs)

    def _drop(self, value: torch.Tensor, p: float) -> torch.Tensor:
        heads = value.dim() == 4
        shape = (value.shape[1] * self._shards, *value.shape[2:]) if heads else value.shape[1:]
        each, left = divmod(value.shape[0], max(len(self._samples), 1))     # rows of a sample: its heads, in some families
        if left or (each > 1 and self._shards > 1):
            raise ValueError(f"dropout of a tensor of {tuple(value.shape)} in a pass of {len(self._samples)} samples: which rows are of which sample is not "
                             "known; set the dropout in the model's config to 0")
        if each > 1:
            value, shape = value.reshape(-1, each, *value.shape[1:]), (each, *shape)
            return self._draw(value, shape, p, False).flatten(0, 1)
        return self._draw(value, shape, p, heads)

    def _draw(self, value: torch.Tensor, shape: Sequence[int], p: float, heads: bool) -> torch.Tensor:
        """Drops of a tensor that has a row for each sample. heads: shape is of those of all shards."""
        kept = torch.empty(value.shape, dtype=torch.bool, device=value.device)
        for row, sample in enumerate(self._samples):
            text = f"{self._seed} {self._step} {sample} {self._layer} {self._call}"
            self._generator.manual_seed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little"))
            drawn = torch.rand(shape, generator=self._generator, device=value.device) >= p
            kept[row] = drawn.chunk(self._shards)[self._shard] if heads else drawn
        self._call += 1
        return value * kept / (1.0 - p)

    def _attend(self, p: float, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
                is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> torch.Tensor:
        if enable_gqa:
            times = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        weights = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()
        if attn_mask is not None:
            weights = weights.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else weights + attn_mask
        return self._drop(weights.softmax(-1), p) @ value


def drops(model: nn.Module, config: Any) -> bool:
    """Whether the model has any dropout."""
    return any(isinstance(one, nn.Dropout) and one.p > 0 for one in model.modules()) or any(
        isinstance(value, float) and value > 0 for name, value in vars(config).items() if "drop" in name and "classifier" not in name)


def wrap(stage: StageModel, shards: Shards | None, dropout: Dropout | None, recompute: bool) -> None:
    """Puts what is asked for around the layers of a stage."""
    if shards is None and dropout is None and not recompute:
        return
    for number in stage.layers:
        layer = stage.layer(number)
        layer.forward = _around(layer.forward, number + stage.number, shards, dropout, recompute)      # type: ignore[method-assign]


def _around(forward: Any, number: int, shards: Shards | None, dropout: Dropout | None, recompute: bool) -> Any:
    def begun(*args: Any, **kwargs: Any) -> Any:
        if shards is not None:
            shards.passes += 1
        if dropout is None:
            return forward(*args, **kwargs)
        dropout.layer(number)
        # A recomputed pass of a GPU's runs in a thread of autograd's, which has not entered the mode.
        with dropout if recompute and dropout.training else nullcontext():
            return forward(*args, **kwargs)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if recompute and torch.is_grad_enabled():
            return checkpoint(begun, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
        return begun(*args, **kwargs)
    return wrapped

