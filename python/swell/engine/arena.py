# SPDX-License-Identifier: BSD-3-Clause
"""Where the training state's memory comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch

__all__ = ["Arena", "Ordinary", "Request"]


@dataclass(frozen=True)
class Request:
    """A tensor that a worker holds a part of.

    name: of the whole tensor, the same in every plan. kind: "parameter", "gradient", "moment", "step", "scheduler", "position".
    shape: of the whole. begin, end: this worker's block. layer: by its number in the model. on_host: it stands in the host's memory
    where the others are on a GPU. flat: this worker holds such a range of the block's elements alone, in row-major order (ZeRO); None: the block.
    """

    name: str
    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    layer: int | None = None
    on_host: bool = False
    flat: tuple[int, int] | None = None

    @property
    def block(self) -> tuple[int, ...]:
        """Shape of the block."""
        return tuple(b - a for a, b in zip(self.begin, self.end, strict=True))

    @property
    def local(self) -> tuple[int, ...]:
        """Shape of what is held: the block's, or of its range one dimension."""
        return self.block if self.flat is None else (self.flat[1] - self.flat[0],)

    def blocks(self, held: torch.Tensor) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], torch.Tensor]]:
        """Yields begin and end, in the whole tensor, of the blocks that make up what is held, each with its part of it."""
        if self.flat is None:
            yield self.begin, self.end, held
            return
        at = 0
        for begin, end in _blocks(self.block, *self.flat):
            shape = tuple(b - a for a, b in zip(begin, end, strict=True))
            yield (tuple(a + b for a, b in zip(self.begin, begin, strict=True)), tuple(a + b for a, b in zip(self.begin, end, strict=True)),
                   held[at:at + prod(shape)].view(shape))
            at += prod(shape)


def _blocks(shape: tuple[int, ...], first: int, last: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yields blocks that are the elements [first, last) of a tensor in row-major order, in that order."""
    if first == last:
        return
    if len(shape) == 1:
        yield (first,), (last,)
        return
    size = prod(shape[1:])
    row, within = divmod(first, size)
    if within or last < (row + 1) * size:       # a part of this row, or the first one's end
        for begin, end in _blocks(shape[1:], within, min(size, last - row * size)):
            yield (row, *begin), (row + 1, *end)
        yield from _blocks(shape, min(last, (row + 1) * size), last)
        return
    rows = last // size
    yield (row, *(0,) * (len(shape) - 1)), (rows, *shape[1:])
    yield from _blocks(shape, rows * size, last)


class Arena(Protocol):
    """Gives memory for all of a worker's state at once."""

    def take(self, requests: Sequence[Request], device: torch.device) -> tuple[dict[str, torch.Tensor], bool]:
        """Tensors by name, of their blocks' shapes; and whether they are fresh: zeros that the caller fills."""
        ...


class Ordinary:
    """Memory of this process: one piece for each place, kind and dtype."""

    def take(self, requests: Sequence[Request], device: torch.device) -> tuple[dict[str, torch.Tensor], bool]:
        """See Arena."""
        def piece_of(one: Request) -> tuple[bool, str, torch.dtype]:
            return one.on_host, one.kind, one.dtype
        sizes: dict[tuple[bool, str, torch.dtype], int] = {}
        for one in requests:
            sizes[piece_of(one)] = sizes.get(piece_of(one), 0) + torch.Size(one.local).numel()
        pieces = {key: torch.zeros(size, dtype=key[2], device="cpu" if key[0] else device) for key, size in sizes.items()}
        at = dict.fromkeys(pieces, 0)
        found = {}
        for one in requests:
            key, count = piece_of(one), torch.Size(one.local).numel()
            found[one.name] = pieces[key][at[key]:at[key] + count].view(one.local)
            at[key] += count
        return found, True
