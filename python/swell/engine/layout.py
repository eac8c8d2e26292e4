# SPDX-License-Identifier: BSD-3-Clause
"""The model's parameters, independent of any plan, and the part of each that a shard holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Parameter"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of the whole model.

    layer: by its number in the model; None for embeddings, norm and head.
    dim: along which tensor parallelism splits it; None: each shard holds all of it.
    packs: equal parts of that dimension that are split each (Q, K and V in one matrix).
    """

    name: str
    layer: int | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    dim: int | None = None
    packs: int = 1

    def local_shape(self, shards: int) -> tuple[int, ...]:
        """Shape of one shard's part."""
        if self.dim is None:
            return self.shape
        return (*self.shape[:self.dim], self.shape[self.dim] // shards, *self.shape[self.dim + 1:])

    @property
    def global_shape(self) -> tuple[int, ...]:
        """The whole, with a dimension of its own for the packs, so that each part is one block of it."""
        if self.dim is None or self.packs == 1:
            return self.shape
        return (*self.shape[:self.dim], self.packs, self.shape[self.dim] // self.packs, *self.shape[self.dim + 1:])

    def block(self, shard: int, shards: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Begin and end of a shard's part in global_shape."""
        whole = self.global_shape
        if self.dim is None:
            return (0,) * len(whole), whole
        at = self.dim + (self.packs > 1)
        share = whole[at] // shards
        begin = tuple(shard * share if dim == at else 0 for dim in range(len(whole)))
        return begin, tuple((shard + 1) * share if dim == at else size for dim, size in enumerate(whole))

    def part(self, whole: torch.Tensor, shard: int, shards: int) -> torch.Tensor:
        """A shard's part of the whole tensor."""
        begin, end = self.block(shard, shards)
        index = tuple(slice(a, b) for a, b in zip(begin, end, strict=True))
        return whole.reshape(self.global_shape)[index].reshape(self.local_shape(shards))

    def put(self, whole: torch.Tensor, part: torch.Tensor, shard: int, shards: int) -> None:
        """Writes a shard's part into the whole tensor, which is contiguous."""
        begin, end = self.block(shard, shards)
        index = tuple(slice(a, b) for a, b in zip(begin, end, strict=True))
        target = whole.view(self.global_shape)[index]
        target.copy_(part.reshape(target.shape))

    def check(self, shards: int) -> None:
        """Raises ValueError where it does not divide over so many shards."""
        if self.dim is not None and self.shape[self.dim] // self.packs % shards:
            raise ValueError(f"{self.name} has {self.shape[self.dim] // self.packs} rows or columns to split, which {shards} do not divide")
