# SPDX-License-Identifier: BSD-3-Clause
"""A worker's share of samples that come in an order of their own and cannot be asked for by index."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

from swell._identity import check_same
from swell.data import ElasticIterable, Piece, pieces

__all__ = ["Stream", "is_stream"]


def is_stream(dataset: Any) -> bool:
    """Whether samples come from iterating alone: an iterable dataset, or a loader."""
    kinds = (torch.utils.data.IterableDataset, torch.utils.data.DataLoader)
    return isinstance(dataset, kinds) or not hasattr(dataset, "__getitem__")


def _has_state(source: Any) -> bool:
    return callable(getattr(source, "state_dict", None)) and callable(getattr(source, "load_state_dict", None))


def _batch_of(source: Any) -> int:
    """Samples in each item of a loader; 0: its items are samples."""
    if not (hasattr(source, "dataset") and hasattr(source, "batch_size")) or isinstance(source, ElasticIterable):
        return 0
    sampler = getattr(source, "batch_sampler", None)
    if source.batch_size is None and sampler is not None:
        size = getattr(sampler, "batch_size", None)
        if not isinstance(size, int):
            raise ValueError(f"{type(source).__name__} does not say how many samples its batches have; give it batch_size=")
        return size
    return int(source.batch_size or 0)


def _size(item: Any) -> int | None:
    """Samples in a batch; None: cannot be told."""
    if isinstance(item, torch.Tensor):
        return item.shape[0] if item.ndim else None
    parts: Any = item.values() if isinstance(item, Mapping) else item if isinstance(item, (list, tuple)) else ()
    return next((size for size in map(_size, parts) if size is not None), None)


def _digest(value: Any, into: Any) -> None:
    if isinstance(value, torch.Tensor):
        into.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    elif isinstance(value, Mapping):
        for key in value:
            into.update(repr(key).encode())
            _digest(value[key], into)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _digest(each, into)
    elif isinstance(value, (int, float, str, bytes)):
        into.update(repr(value).encode())


class Stream:
    """The samples of a source, shared out: every worker reads all of them, and keeps its part of each global batch.

    source: an iterable of samples or a loader of batches, in the same order on every worker and in every run. It goes on from its own
        state_dict(); an ElasticIterable is read up to the position again.
    micro_batch: samples of one pass at most; of a loader each batch is a pass.
    collate: makes a batch of samples; not for a loader.

    What is left of an epoch after its last whole global batch is left out.
    """

    def __init__(self, source: Any, global_batch: int, *, micro_batch: int, rank: int, world: int,
                 collate: Callable[[list[Any]], Any] | None = None) -> None:
        batch = _batch_of(source)
        if not isinstance(source, ElasticIterable) and not _has_state(source):
            name = type(source).__name__
            raise TypeError(f"{name} has no length and no state_dict(): a start could not go on where the one before left. " + (
                "Give batches() its dataset, and its options such as num_workers beside it, or torchdata's StatefulDataLoader" if batch else
                f"Give batches() swell.data.ElasticIterable({name}(...), global_batch={global_batch}), which reads up to the position again, or a "
                "dataset or loader with state_dict() and load_state_dict(), such as a streamed dataset of Hugging Face's datasets"))
        if batch and collate is not None:
            raise ValueError(f"collate_fn: {type(source).__name__} makes batches itself; give it to that")
        if batch and global_batch % batch:
            raise ValueError(f"{type(source).__name__} gives batches of {batch}, which do not divide global_batch={global_batch}: choose another "
                             "batch_size")
        self.source: Any = source.dataset if isinstance(source, ElasticIterable) else source
        self.is_of_batches, self.unit, self.units = bool(batch), batch or 1, global_batch // (batch or 1)
        self.global_batch, self.micro_batch, self.rank, self.world = global_batch, 1 if batch else micro_batch, rank, world
        self.epoch = 0
        self.samples = source.samples if isinstance(source, ElasticIterable) else 0     # trained on since training began
        self._of_epoch = self.samples       # of those, how many are of this epoch
        self._collate = collate or torch.utils.data.default_collate
        self._state: Any = None             # of the source, to go on from
        self._iterator: Iterator[Any] | None = None
        self._items: list[Any] | None = None        # of the next global batch, where it has been read

    def batch_at(self, samples: int) -> int:
        """Units in a global batch, as pieces_at() counts them."""
        return self.units

    def pieces_at(self, samples: int) -> list[Piece]:
        """This worker's passes over a global batch."""
        return pieces(self.units, self.world, self.rank, self.micro_batch)

    def pull(self) -> bool:
        """Read the next global batch. False: this epoch had no whole one any more, and the next epoch begins."""
        if self._items is not None:     # read before, and not trained on
            return True
        if self._iterator is None:
            self._iterator = self._begun()
        items = list(itertools.islice(self._iterator, self.units))
        if len(items) == self.units and not (self.is_of_batches and any(_size(item) not in (None, self.unit) for item in items)):
            self._items = items
            return True
        if not self._of_epoch:
            raise ValueError(f"{type(self.source).__name__} gave {len(items) * self.unit} samples in an epoch; global_batch={self.global_batch} needs as "
                             "many: give a smaller one, or a longer stream")
        self.epoch, self._of_epoch, self._iterator, self._state = self.epoch + 1, 0, None, None
        return False

    def _begun(self) -> Iterator[Any]:
        if callable(getattr(self.source, "set_epoch", None)):
            self.source.set_epoch(self.epoch)
        if self._state is not None:
            self.source.load_state_dict(copy.deepcopy(self._state))
            return iter(self.source)
        return itertools.islice(iter(self.source), self._of_epoch // self.unit, None)

    def share(self) -> list[Any]:
        """This worker's batches of the global batch that was read, one for each of its passes."""
        items = self._items or []
        passes = self.pieces_at(self.samples)
        return [items[piece.begin] if self.is_of_batches else self._collate(items[piece.begin:piece.end]) for piece in passes]

    def digest(self) -> str:
        """Of the global batch that was read; the same on every worker where they read the same."""
        into = hashlib.blake2b(digest_size=8)
        _digest(self._items, into)
        return into.hexdigest()

    def advance(self) -> None:
        """Say that an optimizer step is done."""
        self.samples += self.global_batch
        self._of_epoch += self.global_batch
        self._items = None

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last step. Call it before the next global batch is read."""
        state = self._state
        if self._iterator is not None:
            state = copy.deepcopy(self.source.state_dict()) if _has_state(self.source) else None
        return {"stream": True, "samples": self.samples, "epoch": self.epoch, "of_epoch": self._of_epoch, "global_batch": self.global_batch,
                "source": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position that any number of workers has reached."""
        check_same({"data": {"stream": False, "global_batch": self.global_batch, **state, "source": None}},
                   data={"stream": True, "global_batch": self.global_batch})
        self.samples, self.epoch, self._of_epoch, self._state = state["samples"], state["epoch"], state["of_epoch"], state["source"]
        self._iterator = self._items = None
