# SPDX-License-Identifier: BSD-3-Clause
"""Random weights that depend on the seed, the parameter's name and the element's index alone.

Whatever part of a tensor a worker holds, it makes exactly the elements that the whole tensor has there.
How each parameter begins (normal, uniform, a constant) is seen from transformers' own initialization,
which runs on meta tensors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Beginning", "Recorder", "fill"]

_CHUNK = 1 << 20


@dataclass
class Beginning:
    """How a parameter begins: a distribution, then constants in parts of it (a padding row).

    law: "normal" (mean, standard deviation), "uniform" (from, to), "constant" (value), or the name of an
    operation that cannot be repeated by index.
    """

    law: str
    values: tuple[float, ...]
    parts: list[tuple[int, tuple[int, ...], tuple[int, ...], float]] = field(default_factory=list)


class Recorder(TorchDispatchMode):    # type: ignore[no-untyped-call]
    """Notes what initialization does to each meta tensor while a model is built."""

    def __init__(self) -> None:
        super().__init__()      # type: ignore[no-untyped-call]
        self._found: dict[int, tuple[torch.Tensor, Beginning]] = {}

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if name.endswith("_") and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            self._note(name, args[0], args[1:], kwargs)
        return result

    def _note(self, name: str, tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        numbers = [float(one) for one in (*args, *kwargs.values()) if isinstance(one, (int, float)) and not isinstance(one, bool)]
        law, values = name.removesuffix("_"), tuple(numbers)
        if name == "normal_":
            values = (numbers + [0.0, 1.0][len(numbers):])[0], (numbers + [0.0, 1.0][len(numbers):])[1]
        elif name == "uniform_":
            values = (numbers + [0.0, 1.0][len(numbers):])[0], (numbers + [0.0, 1.0][len(numbers):])[1]
        elif name in ("zero_", "fill_"):
            law, values = "constant", (numbers[0] if name == "fill_" and numbers else 0.0,)
        elif name in ("requires_grad_", "set_", "detach_", "resize_"):
            return
        whole = tensor._base if tensor._base is not None else tensor
        if tensor.numel() == whole.numel():
            self._found[id(whole)] = whole, Beginning(law, values)
        elif id(whole) in self._found and law == "constant":
            self._found[id(whole)][1].parts.append((int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride()), values[0]))
        else:
            self._found[id(whole)] = whole, Beginning(name, values)

    def of(self, name: str, tensor: torch.Tensor) -> Beginning:
        """How this parameter begins; raises ValueError where that is not known."""
        found = self._found.get(id(tensor))
        if found is None or found[1].law not in ("normal", "uniform", "constant"):
            what = f"by {found[1].law}" if found else "in an unknown way"
            raise ValueError(f"{name} is initialized {what}, which cannot be done part by part; give a folder with weights instead of a "
                             "config")
        return found[1]


def _key(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix(value: torch.Tensor) -> torch.Tensor:
    """A bijection of 64-bit integers under which neighbours become unrelated (splitmix64's finalizer)."""
    value = (value ^ ((value >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ ((value >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return value ^ ((value >> 31) & ((1 << 33) - 1))


def uniform(index: torch.Tensor, key: int) -> torch.Tensor:
    """A number in (0, 1) for each index, in float64."""
    bits = _mix(index * _signed(0x9E3779B97F4A7C15) + key)
    return (((bits >> 12) & ((1 << 52) - 1)).double() + 0.5) * 2.0 ** -52


def _draw(law: Beginning, index: torch.Tensor, key: int) -> torch.Tensor:
    if law.law == "uniform":
        low, high = law.values
        return low + (high - low) * uniform(index, key)
    mean, deviation = law.values
    radius = torch.sqrt(-2.0 * torch.log(uniform(index * 2, key)))
    return mean + deviation * radius * torch.cos(2.0 * math.pi * uniform(index * 2 + 1, key))


@torch.no_grad()
def fill(target: torch.Tensor, law: Beginning, name: str, seed: int, shape: Sequence[int], begin: Sequence[int]) -> None:
    """Fills the block of a tensor that begins at `begin` and has as many elements as target.

    shape: of the whole tensor. target: contiguous, of the block's shape.
    """
    if law.law == "constant":
        target.fill_(law.values[0])
    else:
        key, flat = _key(seed, name), target.view(-1)
        for first in range(0, flat.numel(), _CHUNK):
            last = min(first + _CHUNK, flat.numel())
            flat[first:last] = _draw(law, _positions(first, last, target.shape, shape, begin, target.device), key).to(target.dtype)
    for offset, sizes, strides, value in law.parts:
        chosen = torch.zeros(1, dtype=torch.int64, device=target.device) + offset
        for size, stride in zip(sizes, strides, strict=True):
            chosen = (chosen[:, None] + torch.arange(size, device=target.device) * stride).reshape(-1)
        for first in range(0, target.numel(), _CHUNK):
            last = min(first + _CHUNK, target.numel())
            here = _positions(first, last, target.shape, shape, begin, target.device)
            target.view(-1)[first:last].masked_fill_(torch.isin(here, chosen), value)


def _positions(first: int, last: int, local: Sequence[int], shape: Sequence[int], begin: Sequence[int], device: torch.device) -> torch.Tensor:
    """Index in the whole tensor of the block's elements [first, last)."""
    rest = torch.arange(first, last, device=device)
    position = torch.zeros_like(rest)
    stride = 1
    for size, whole, offset in zip(reversed(local), reversed(shape), reversed(begin), strict=True):
        position += (rest % size + offset) * stride
        rest = rest // size
        stride *= whole
    return position
