# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of the weights of linear layers, put off until the schedule makes them: bitwise those of a whole backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from swell.engine.beside import SumsBeside
from swell.engine.stage import StageModel
from swell.engine.tensor_parallel import is_conv1d

__all__ = ["PutOff"]

# A weight, what it was multiplied by, and the gradient of the product.
_Parts = tuple[nn.Parameter, torch.Tensor, torch.Tensor, bool]


class PutOff:
    """The linear layers of a chunk's models, whose backward passes leave the gradients of their weights to add().

    Others (norms, biases, embeddings, experts) have theirs from the backward pass. Until end(). recompute: activations are not kept.
    """

    def __init__(self, models: Iterable[StageModel], recompute: bool) -> None:
        self._recompute = recompute
        self._waiting: list[_Parts] = []        # of the backward pass under way
        self._by_number: dict[int, list[_Parts]] = {}
        self._modules = [module for model in models for module in model.modules()
                         if isinstance(getattr(module, "weight", None), nn.Parameter) and (type(module) is nn.Linear or is_conv1d(module))]
        for module in self._modules:
            module.__dict__["multiply"] = self._multiply(module)
            if "forward" not in module.__dict__:        # a row-wise layer multiplies by itself
                module.__dict__["forward"] = module.__dict__["multiply"]

    def end(self) -> None:
        """Let backward passes make all gradients again."""
        for module in self._modules:
            if module.__dict__["forward"] is module.__dict__.pop("multiply"):
                del module.__dict__["forward"]

    def made(self, micro_batch: int) -> None:
        """A backward pass of a micro-batch has ended."""
        self._by_number[micro_batch], self._waiting = self._waiting, []

    def add(self, micro_batch: int, sums: SumsBeside | None = None) -> None:
        """Adds the gradients of a micro-batch to the weights'. sums: told of each gradient that is whole by it."""
        parts = self._by_number.pop(micro_batch)
        left = Counter(id(weight) for weight, *_ in parts)
        if sums is not None:
            sums.made_all_but(left)
        largest: dict[torch.dtype, int] = {}
        for weight, _, gradient, _ in parts:
            largest[gradient.dtype] = max(largest.get(gradient.dtype, 0), weight.numel())
        room = {dtype: torch.empty(size, dtype=dtype, device=parts[0][1].device) for dtype, size in largest.items()}
        for weight, value, gradient, transposed in reversed(parts):     # the newest are in the cache
            # Under autocast the product was of values rounded to its dtype.
            value, gradient = value.reshape(-1, value.shape[-1]).to(gradient.dtype), gradient.reshape(-1, gradient.shape[-1])
            made = room[gradient.dtype][:weight.numel()].view(weight.shape)
            if transposed:
                torch.mm(value.t(), gradient, out=made)
            else:
                torch.mm(gradient.t(), value, out=made)
            assert weight.grad is not None
            weight.grad.add_(made if made.dtype == weight.dtype else made.to(weight.dtype))
            left[id(weight)] -= 1
            if sums is not None and not left[id(weight)]:
                sums.made(weight)

    def _multiply(self, module: nn.Module) -> Callable[..., torch.Tensor]:
        put, transposed = self._put, is_conv1d(module)

        def multiply(value: torch.Tensor, bias: bool = True) -> torch.Tensor:
            weight: nn.Parameter = module.weight      # type: ignore[assignment]
            added: torch.Tensor | None = module.bias if bias else None      # type: ignore[assignment]
            if torch.is_grad_enabled() and (self._recompute or not value.requires_grad):
                kept: torch.Tensor = _Product.apply(value, weight, added, transposed, put)      # type: ignore[no-untyped-call]
                return kept
            # Autograd finds no gradient to make for the weight; the product's own is taken where it is made.
            result: Any = _product(value, weight.detach(), added, transposed)
            if result.requires_grad:
                given = value.detach()
                result.register_hook(lambda gradient: put((weight, given, gradient, transposed)))
            return result       # type: ignore[no-any-return]
        return multiply

    def _put(self, parts: _Parts) -> None:
        self._waiting.append(parts)


def _product(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, transposed: bool) -> torch.Tensor:
    if not transposed:
        return nn.functional.linear(value, weight, bias)
    flat = value.view(-1, value.shape[-1])
    made = flat.mm(weight) if bias is None else torch.addmm(bias, flat, weight)
    return made.view(*value.shape[:-1], weight.shape[1])


class _Product(torch.autograd.Function):
    """A linear layer whose input is kept as autograd keeps it: made anew where a checkpoint's is. Its backward pass is autograd's, less the
    gradient of the weight."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, transposed: bool,
                put: Callable[[_Parts], None]) -> torch.Tensor:
        ctx.save_for_backward(value)
        ctx.weight, ctx.transposed, ctx.put, ctx.bias_dtype = weight, transposed, put, None if bias is None else bias.dtype
        return _product(value, weight, bias, transposed)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        value, = ctx.saved_tensors
        ctx.put((ctx.weight, value.detach(), grads[0], ctx.transposed))
        gradient, of_value = grads[0].reshape(-1, grads[0].shape[-1]), None
        if ctx.needs_input_grad[0]:
            weight = ctx.weight.to(gradient.dtype)
            of_value = gradient.mm(weight.t() if ctx.transposed else weight).view(value.shape).to(value.dtype)
        of_bias = gradient.sum(0).to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        return of_value, None, of_bias, None, None
