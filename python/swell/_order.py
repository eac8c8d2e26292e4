# SPDX-License-Identifier: BSD-3-Clause
"""The order of an epoch's samples, computed for the places that are asked for: no list of all of them is made."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from typing import overload

import torch

__all__ = ["NEWEST_ORDER", "Order", "order_of_epoch"]

NEWEST_ORDER = 2        # 1: a list that random.shuffle() has shuffled, of checkpoints that name no order
_ROUNDS = 8
_BLOCK = 1024       # places that are computed at once: they cost no more than one
_MASK = 0xFFFFFFFF


def _mixed(value: torch.Tensor, key: int) -> torch.Tensor:
    """A hash of 32 bits; every product stays below 2**63."""
    value = (value ^ key) & _MASK
    value = ((value >> 16 ^ value) * 0x45D9F3B) & _MASK
    value = ((value >> 16 ^ value) * 0x45D9F3B) & _MASK
    return value >> 16 ^ value


class Order(Sequence[int]):
    """A permutation of range(length) that seed and epoch alone decide, the same for ever, in constant memory.

    A Feistel network over pairs (row, column): each round adds a hash of the one to the other. A result past the end goes
    through it again, until it is one of the length.
    """

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        if length > 1 << 62:
            raise ValueError(f"{length} samples: more than 2**62 have no order")
        self._length = length
        self._columns = max(1, math.isqrt(max(0, length - 1)) + 1)
        self._rows = max(1, -(-length // self._columns))
        self._keys = [int.from_bytes(hashlib.blake2b(f"{seed} {epoch} {number}".encode(), digest_size=4).digest(), "little")
                      for number in range(_ROUNDS)]
        self._computed: tuple[int, list[int]] | None = None

    def __len__(self) -> int:
        return self._length

    def _once(self, places: torch.Tensor) -> torch.Tensor:
        row, column = places // self._columns, places % self._columns
        for at, key in enumerate(self._keys):
            if at % 2:
                column = (column + _mixed(row, key)) % self._columns
            else:
                row = (row + _mixed(column, key)) % self._rows
        return row * self._columns + column

    def _at(self, places: torch.Tensor) -> list[int]:
        found = self._once(places)
        while True:
            past = (found >= self._length).nonzero().flatten()
            if not len(past):
                return found.tolist()       # type: ignore[no-any-return]
            found[past] = self._once(found[past])

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> list[int]: ...

    def __getitem__(self, at: int | slice) -> int | list[int]:
        if not isinstance(at, slice):
            place = range(self._length)[at]
            return self._block(place // _BLOCK)[place % _BLOCK]
        places = range(self._length)[at]
        if not places:
            return []
        first, last = places[0], places[-1]
        if places.step != 1 or last - first >= _BLOCK:
            return self._at(torch.arange(places.start, places.stop, places.step, device="cpu"))
        found: list[int] = []
        for block in range(first // _BLOCK, last // _BLOCK + 1):
            begin = block * _BLOCK
            found += self._block(block)[max(0, first - begin):last + 1 - begin]
        return found

    def _block(self, number: int) -> list[int]:
        if self._computed is None or self._computed[0] != number:
            begin = number * _BLOCK
            self._computed = number, self._at(torch.arange(begin, min(self._length, begin + _BLOCK), device="cpu"))
        return self._computed[1]

    def __iter__(self) -> Iterator[int]:
        for number in range(-(-self._length // _BLOCK)):
            yield from self._block(number)


def order_of_epoch(length: int, seed: int, epoch: int, version: int) -> Sequence[int]:
    """Returns the indices of an epoch, in the order of a version that a checkpoint names."""
    if version == 1:
        indices = list(range(length))
        random.Random(f"{seed} {epoch}").shuffle(indices)
        return indices
    if version == NEWEST_ORDER:
        return Order(length, seed, epoch)
    raise ValueError(f"the checkpoint's samples are in order {version}, this Swell knows 1 to {NEWEST_ORDER}: use the one that wrote it, or newer")
