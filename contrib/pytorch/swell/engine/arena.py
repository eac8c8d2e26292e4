# SPDX-License-Identifier: BSD-3-Clause
"""Where the training state's memory comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["Arena", "Ordinary", "Request"]


@dataclass(frozen=True)
class Request:
    """A tensor that a worker holds a part of.

    name: of the whole tensor, the same in every plan. kind: "parameter", "gradient", "moment", "step", "scheduler", "position".
    shape: of the whole. begin, end: this worker's block. layer: by its number in the model. on_host: it stands in the host's memory
    where the others are on a GPU.
    """

    name: str
    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    layer: int | None = None
    on_host: bool = False

    @property
    def local(self) -> tuple[int, ...]:
        """Shape of the block."""
        return tuple(b - a for a, b in zip(self.begin, self.end, strict=True))


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
