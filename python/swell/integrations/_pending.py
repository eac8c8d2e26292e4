# SPDX-License-Identifier: BSD-3-Clause
"""Gradients that wait for a step of a module that optimizes by hand: no checkpoint has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["Pending"]

_MOST = 64      # batches that one step of the script's may be over


class Pending:
    """Looks, after each batch, whether an optimizer's gradients are others than it has stepped with last.

    If the gradients of an optimizer are new after every batch, the script clears them before it uses them, and nothing waits for their step. An example is
    a discriminator, which gets gradients from the loss of the generator.
    """

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self._optimizers = list(optimizers)
        self._stepped: dict[int, tuple[torch.Tensor, int]] = {}     # a gradient of each optimizer's as it was in its last step
        self._left: dict[int, torch.Tensor] = {}        # the same as a batch left it
        self._are_dropped = set[int]()      # of optimizers that drop what a batch has left
        self._batches = self._clean = 0     # so far, and at the last one after which none waited
        for each in self._optimizers:
            each.register_step_pre_hook(self._steps)
            each.register_step_post_hook(self._has_stepped)

    def _steps(self, optimizer: Any, *_: Any) -> None:
        left, now = self._left.pop(id(optimizer), None), _smallest(optimizer)
        if left is not None and left is not now:
            self._are_dropped.add(id(optimizer))

    def _has_stepped(self, optimizer: Any, *_: Any) -> None:
        now = _smallest(optimizer)
        if now is not None:
            self._stepped[id(optimizer)] = now, now._version

    def after_batch(self) -> bool:
        """Returns whether gradients wait for a step."""
        self._batches += 1
        waiting = [each for each in self._optimizers if id(each) not in self._are_dropped and self._waits(each)]
        self._left = {id(each): now for each in waiting if (now := _smallest(each)) is not None}
        if not waiting:
            self._clean = self._batches
        return bool(waiting) and self._batches - self._clean < _MOST

    def _waits(self, optimizer: Any) -> bool:
        now, (stepped, version) = _smallest(optimizer), self._stepped.get(id(optimizer), (None, 0))
        return now is not None and (now is not stepped or now._version != version) and bool(now.any())


def _smallest(optimizer: Any) -> torch.Tensor | None:
    """Returns the gradient of the smallest parameter that has one."""
    found = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    gradient: torch.Tensor | None = min(found, key=torch.Tensor.numel).grad if found else None
    return gradient
