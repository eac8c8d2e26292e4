# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of the weights of linear layers, put off until the schedule makes them: bitwise those of a whole backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from swell.engine.stage import StageModel
from swell.engine.tensor_parallel import is_conv1d

__all__ = ["PutOff"]

# A weight, what it was multiplied by, and the gradient of the product.
_Parts = tuple[nn.Parameter, torch.Tensor, torch.Tensor, bool]


class PutOff:
    """The linear layers of a chunk, whose backward passes leave the gradients of their weights to add().

    Others (norms, biases, embeddings, experts) have theirs from the backward pass. Until end().
    """

    def __init__(self, chunk: StageModel) -> None:
        self._waiting: list[_Parts] = []        # of the backward pass under way
        self._by_number: dict[int, list[_Parts]] = defaultdict(list)
        self._modules = [module for module in chunk.model.modules()
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

    def add(self, micro_batch: int) -> None:
        """Adds the gradients of a micro-batch to the weights'."""
        for weight, value, gradient, transposed in self._by_number.pop(micro_batch):
            made = value.t().mm(gradient) if transposed else gradient.t().mm(value)
            assert weight.grad is not None
            weight.grad.add_(made.to(weight.dtype))

    def _multiply(self, module: nn.Module) -> Callable[..., torch.Tensor]:
        waiting = self._put

        def multiply(value: torch.Tensor, bias: bool = True) -> torch.Tensor:
            weight, added = module.weight, module.bias if bias else None
            result: torch.Tensor = _Product.apply(value, weight, added, is_conv1d(module), waiting)     # type: ignore[no-untyped-call]
            return result
        return multiply

    def _put(self, parts: _Parts) -> None:
        self._waiting.append(parts)


class _Product(torch.autograd.Function):
    """A linear layer. Its backward pass is what autograd makes of it, less the gradient of the weight."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, transposed: bool,
                put: Callable[[_Parts], None]) -> torch.Tensor:
        ctx.save_for_backward(value)
        ctx.weight, ctx.transposed, ctx.put, ctx.bias_dtype = weight, transposed, put, None if bias is None else bias.dtype
        if not transposed:
            return nn.functional.linear(value, weight, bias)
        flat = value.view(-1, value.shape[-1])
        made = flat.mm(weight) if bias is None else torch.addmm(bias, flat, weight)
        return made.view(*value.shape[:-1], weight.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        value, = ctx.saved_tensors
        weight = ctx.weight
        gradient = grads[0].reshape(-1, grads[0].shape[-1])
        # Under autocast the product was of weights and values rounded to its dtype.
        flat = value.detach().reshape(-1, value.shape[-1]).to(gradient.dtype)
        ctx.put((weight, flat, gradient, ctx.transposed))
        rounded = weight.to(gradient.dtype)
        of_value = None
        if ctx.needs_input_grad[0]:
            of_value = gradient.mm(rounded.t() if ctx.transposed else rounded).view(value.shape).to(value.dtype)
        of_bias = gradient.sum(0).to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        return of_value, None, of_bias, None, None
