# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism within a layer: modules computed in shares, and the collectives between them.

The order of sums is the group's own, the same in every step of a plan.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from swell.engine.families import Family

__all__ = ["Shards", "cross_entropy", "split", "split_embedding"]


class Shards:
    """The tensor parallel group of this worker.

    timed: what stands around each collective of so many bytes, for the profiler.
    """

    def __init__(self, group: dist.ProcessGroup | None, shard: int, count: int,
                 timed: Callable[[int], AbstractContextManager[Any]] = nullcontext) -> None:
        self.group, self.shard, self.count, self.timed = group, shard, count, timed
        self.passes = 0     # raised as a layer's forward pass begins, a recomputed one too
        self.copied: tuple[int, torch.Tensor, torch.Tensor] | None = None       # the last one: pass, tensor, its copy

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all shards, in place."""
        with self.timed(tensor.numel() * tensor.element_size()):
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def largest(self, tensor: torch.Tensor) -> torch.Tensor:
        """The largest of all shards' numbers, in place."""
        with self.timed(tensor.numel() * tensor.element_size()):
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """All shards' parts, one behind the other along the last dimension."""
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.count)]
        with self.timed(tensor.numel() * tensor.element_size() * self.count // 2):     # half of what a sum of as many takes
            dist.all_gather(parts, tensor, group=self.group)
        return torch.cat(parts, dim=-1)

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """This shard's part of the last dimension."""
        return tensor.chunk(self.count, dim=-1)[self.shard].contiguous()


class _Copy(torch.autograd.Function):
    """A tensor that all shards use alike: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, shards: Shards) -> torch.Tensor:
        ctx.shards = shards
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.shards.add(grads[0].clone(memory_format=torch.contiguous_format)), None


class _Reduce(torch.autograd.Function):
    """The sum of what the shards have computed."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, shards: Shards) -> torch.Tensor:
        return shards.add(tensor.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


class _Gather(torch.autograd.Function):
    """All of what each shard has computed a part of, and goes on with alike."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, shards: Shards) -> torch.Tensor:
        ctx.shards = shards
        return shards.gather(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.shards.own(grads[0]), None


class _Split(torch.autograd.Function):
    """This shard's part of what all have alike."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, shards: Shards) -> torch.Tensor:
        ctx.shards = shards
        return shards.own(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.shards.gather(grads[0]), None


def _apply(function: type[torch.autograd.Function], tensor: torch.Tensor, shards: Shards) -> torch.Tensor:
    result: torch.Tensor = function.apply(tensor, shards)      # type: ignore[no-untyped-call]
    return result


def _copied(tensor: torch.Tensor, shards: Shards) -> torch.Tensor:
    """One copy for all modules that read this tensor (Q, K and V): one sum of gradients, not three."""
    if not tensor.requires_grad:
        return tensor
    last = shards.copied
    if last is None or last[0] != shards.passes or last[1] is not tensor:
        # Not on the tensor itself: a copy is a view of it, and the circle would hold both until Python collects garbage.
        shards.copied = last = shards.passes, tensor, _apply(_Copy, tensor, shards)
    return last[2]


def is_conv1d(module: nn.Module) -> bool:
    """Whether it is GPT-2's linear layer, whose weight is the other way round."""
    return type(module).__name__ == "Conv1D"


def dims(module: nn.Module, style: str, leaf: str) -> int | None:
    """Along which dimension a style splits a module's parameter."""
    if style in ("colwise", "colwise_gather_output", "packed_colwise"):
        return 1 if is_conv1d(module) and leaf == "weight" else 0
    if style in ("rowwise", "rowwise_split_input") and leaf == "weight":
        return 0 if is_conv1d(module) else 1
    return None


def split(module: nn.Module, style: str, shards: Shards) -> None:
    """Makes a module compute this shard's part. Its parameters are, or will be, the part's."""
    if style == "moe_tp_experts":
        _split_experts(module, shards)
    elif style in ("colwise", "packed_colwise", "colwise_gather_output"):
        if is_conv1d(module):
            module.nf //= shards.count      # type: ignore[operator,assignment]
        elif isinstance(module, nn.Linear):
            module.out_features //= shards.count
        module.register_forward_pre_hook(lambda _, args: (_copied(args[0], shards), *args[1:]))
        if style == "colwise_gather_output":
            module.register_forward_hook(lambda _, __, out: _apply(_Gather, out, shards))
    elif style in ("rowwise", "rowwise_split_input"):
        if isinstance(module, nn.Linear):
            module.in_features //= shards.count
        if style == "rowwise_split_input":
            module.register_forward_pre_hook(lambda _, args: (_apply(_Split, args[0], shards), *args[1:]))
        module.forward = types.MethodType(_rowwise(shards), module)     # type: ignore[method-assign]


def _rowwise(shards: Shards) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    def forward(self: Any, value: torch.Tensor) -> torch.Tensor:
        if "multiply" in self.__dict__:     # swell.engine.put_off
            product = self.multiply(value, bias=False)
        else:
            product = nn.functional.linear(value, self.weight.t() if is_conv1d(self) else self.weight)
        total = _apply(_Reduce, product, shards)
        return total if self.bias is None else total + self.bias.to(total.dtype)    # once, not once a shard
    return forward


def split_embedding(module: nn.Embedding, shards: Shards) -> None:
    """Makes an embedding look up the tokens of this shard's rows; the sum over the shards has all."""
    module.num_embeddings //= shards.count
    first, count, look_up = shards.shard * module.num_embeddings, module.num_embeddings, module.forward
    if module.padding_idx is not None:      # its row gets no gradient
        module.padding_idx = module.padding_idx - first if first <= module.padding_idx < first + count else None

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        row = tokens - first
        elsewhere = (row < 0) | (row >= count)
        return _apply(_Reduce, look_up(row.masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(-1), 0.0), shards)
    module.__dict__["forward"] = forward


class _CrossEntropy(torch.autograd.Function):
    """The sum of losses of tokens of whose logits each shard has those of its part of the vocabulary. No shard holds the others' logits."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, ignored: int, shards: Shards) -> torch.Tensor:
        count = logits.shape[-1]
        shifted = logits - shards.largest(logits.max(-1).values).unsqueeze(-1)
        row, counts = targets - shards.shard * count, targets != ignored
        here = counts & (row >= 0) & (row < count)
        row = row.masked_fill(~here, 0).unsqueeze(-1)
        of_target = shifted.gather(-1, row).squeeze(-1) * here
        odds = shifted.exp_()
        total, of_target = shards.add(torch.stack([odds.sum(-1), of_target]))
        ctx.save_for_backward(odds.div_(total.unsqueeze(-1)), row, here, counts)
        losses: torch.Tensor = (total.log() - of_target) * counts
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        share, row, here, counts = ctx.saved_tensors
        gradient = share.scatter_add(-1, row, -here.to(share.dtype).unsqueeze(-1))
        return gradient.mul_((grads[0] * counts).unsqueeze(-1)), None, None, None


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, ignored: int, shards: Shards) -> torch.Tensor:
    """The sum of the losses of tokens. logits: (tokens, this shard's part of the vocabulary). targets: ignored where none is predicted."""
    result: torch.Tensor = _CrossEntropy.apply(logits, targets, ignored, shards)       # type: ignore[no-untyped-call]
    return result


def _split_experts(module: nn.Module, shards: Shards) -> None:
    """Each expert is split over the group like a dense block; which experts a token goes to is alike on all shards."""
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def copied(one: Any) -> Any:
            return _copied(one, shards) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        return tuple(copied(one) for one in args), {name: copied(one) for name, one in kwargs.items()}
    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(lambda _, __, out: _apply(_Reduce, out, shards))


class Lengths(TorchFunctionMode):
    """Raises ValueError where attention is over another number of tokens than there are: heads of a shard that are counted as those of all read two
    tokens as one, without an error."""

    def __init__(self, length: int) -> None:
        super().__init__()      # type: ignore[no-untyped-call]
        self._length = length

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.scaled_dot_product_attention:
            self._see(args[0].shape[-2], args[1].shape[-2])
        elif func in (nn.functional.softmax, torch.softmax, torch.Tensor.softmax) and args[0].dim() == 4:
            self._see(*args[0].shape[-2:])
        return func(*args, **kwargs)

    def _see(self, *lengths: int) -> None:
        for found in lengths:
            if found != self._length:
                raise ValueError(f"attention is over {found} tokens of {self._length}")


def check(family: Family, config: Any, tp: int) -> None:
    """Raises ValueError where a degree does not fit the model's heads."""
    if tp == 1:
        return
    if not family.tp:
        raise ValueError(f"{config.model_type} has no description of tensor parallelism; use plans of tensor parallel degree 1, or describe "
                         "\"tp\" by Engine(..., description=FILE)")
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if family.splits_heads() and heads and heads % tp:
            raise ValueError(f"{name}={heads} does not divide over a tensor parallel degree of {tp}; use a degree that divides it")
