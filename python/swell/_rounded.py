# SPDX-License-Identifier: BSD-3-Clause
"""Passes that compute in half precision: what rounding makes of their gradients depends on which samples are in a pass."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from swell._share import says_what_depends

__all__ = ["multiply_gradients", "powers_of_two", "say_half", "say_what_is_rounded"]

_HALVES = (torch.bfloat16, torch.float16)
_MOST = 20_000      # functions that are looked at
_said: list[bool] = []      # of this process


def powers_of_two(count: int) -> tuple[int, float]:
    """Returns the largest power of two up to a count, and what that lacks as a factor. A product with the first rounds nothing in any precision."""
    scale = 1 << (count.bit_length() - 1)
    return scale, count / scale


def multiply_gradients(parameters: Iterable[torch.nn.Parameter], factor: float) -> None:
    """Multiply gradients that are whole already, in their own precision."""
    if factor == 1:
        return
    groups = dict[Any, list[torch.Tensor]]()
    for each in parameters:
        if each.grad is not None:
            groups.setdefault((type(each.grad), each.grad.dtype, each.grad.device, each.grad.layout), []).append(each.grad)
    for (_, _, _, layout), gradients in groups.items():
        if layout is torch.strided:
            torch._foreach_mul_(gradients, factor)
        else:
            for gradient in gradients:
                gradient.mul_(factor)


def say_what_is_rounded(loss: torch.Tensor, remedy: str = "") -> None:
    """Say once in a job, of the first loss of its first start, that the pass has computed in half precision. remedy: how passes are kept alike."""
    if not _said and says_what_depends():
        _said.append(True)
        if found := _half_within(loss):
            _say(found, remedy)


def say_half(of: torch.dtype) -> None:
    """Say the same where it is known without a loss. of: the type that passes compute in."""
    if not _said and of in _HALVES and says_what_depends():
        _said.append(True)
        _say(of, "")


def _say(of: torch.dtype, remedy: str) -> None:
    skips = ", and a scaler may skip other steps" if of is torch.float16 and not remedy else ""
    print(f"swell: passes compute in {str(of).removeprefix('torch.')}, and round the gradients of a pass to it as a whole: passes of other sizes, as another number of workers makes them, "
          f"change losses within that rounding, as in any data-parallel training{skips}{remedy}", file=sys.stderr, flush=True)


def _half_within(loss: torch.Tensor) -> torch.dtype | None:
    """Returns the half precision that a function behind a loss computes in; None: none does."""
    open_: list[Any] = [loss.grad_fn]
    seen = set(open_)
    while open_ and len(seen) < _MOST:
        made = open_.pop()
        if made is None:
            continue
        for each in getattr(made, "_input_metadata", ()):
            if each is not None and each.dtype in _HALVES:
                return each.dtype       # type: ignore[no-any-return]
        for before, _ in made.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                open_.append(before)
    return None
