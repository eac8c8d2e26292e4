# SPDX-License-Identifier: BSD-3-Clause
"""Passes in half precision: the rounding errors of their gradients depend on which samples are in a pass."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from swell._share import says_what_depends

__all__ = ["multiply_gradients", "powers_of_two", "say_half", "say_what_is_rounded"]

_HALVES = (torch.bfloat16, torch.float16)
_MOST = 20_000      # functions of a graph that are searched
_said: list[bool] = []      # not empty: this process has printed the line


def powers_of_two(count: int) -> tuple[int, float]:
    """Returns the largest power of two up to a count, and the count divided by it. A product with a power of two is exact in any precision."""
    scale = 1 << (count.bit_length() - 1)
    return scale, count / scale


def multiply_gradients(parameters: Iterable[torch.nn.Parameter], factor: float) -> None:
    """Multiplies complete gradients by a factor, in their own precision."""
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
    """Prints once in a job, after the first loss of its first start, that passes compute in half precision, if they do. remedy: how passes can be kept equal."""
    if not _said and says_what_depends():
        _said.append(True)
        if found := _half_within(loss):
            _say(found, remedy)


def say_half(of: torch.dtype) -> None:
    """Prints the line of say_what_is_rounded() if the type `of`, in which passes compute, is a half precision."""
    if not _said and of in _HALVES and says_what_depends():
        _said.append(True)
        _say(of, "")


def _say(of: torch.dtype, remedy: str) -> None:
    skips = ", and a scaler may skip other steps" if of is torch.float16 and not remedy else ""
    print(f"swell: passes compute in {str(of).removeprefix('torch.')}, and round the gradients of a pass to it as a whole: passes of other sizes, as another number of workers makes them, "
          f"change losses within that rounding, as in any data-parallel training{skips}{remedy}", file=sys.stderr, flush=True)


def _half_within(loss: torch.Tensor) -> torch.dtype | None:
    """Returns the half precision of a function in the graph of a loss; None if all functions compute in other types."""
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
