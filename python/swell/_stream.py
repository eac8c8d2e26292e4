# SPDX-License-Identifier: BSD-3-Clause
"""A worker's share of samples that come in an order of their own and cannot be asked for by index."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import io
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data

from swell._generators import generators, restore_generators
from swell._identity import check_same
from swell._noise import watched
from swell._plain import Unreadable, check_readable, decoded, encoded
from swell.data import ElasticIterable, Piece, pieces

__all__ = ["Stream", "compare", "is_stream", "packed", "unpacked"]

_LOOKS = 8      # items that are read to see whether a source comes back to a position


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
    elif isinstance(value, (bool, int, float, str, bytes)):
        into.update(repr(value).encode())
    elif callable(getattr(value, "tobytes", None)):     # numpy's arrays, pictures
        into.update(value.tobytes())


def _digest_of(*items: Any) -> str:
    into = hashlib.blake2b(digest_size=8)
    _digest(items, into)
    return into.hexdigest()


def _joined(batches: list[Any]) -> Any:
    """Batches of one form as one."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(batches)
    if isinstance(first, Mapping):
        return {name: _joined([batch[name] for batch in batches]) for name in first}
    if isinstance(first, (list, tuple)) and any(isinstance(each, (torch.Tensor, Mapping, list, tuple)) for each in first):
        return type(first)(_joined(list(parts)) for parts in zip(*batches, strict=True))
    if isinstance(first, list):
        return [each for batch in batches for each in batch]
    raise TypeError(f"batches of {type(first).__name__} cannot be joined; give the loader's dataset, or batches of tensors")


def _split(batch: Any, size: int) -> list[Any]:
    """A batch of columns as its samples."""
    if not isinstance(batch, Mapping):
        raise TypeError(f"a loader's batches of {type(batch).__name__} cannot be taken apart; give the loader's dataset, or batches that are dicts of columns")
    return [{name: column[at] for name, column in batch.items()} for at in range(size)]


def packed(state: Mapping[str, Any]) -> str:
    """Returns a state_dict() as text, for files of JSON."""
    file = io.BytesIO()
    torch.save(encoded(dict(state)), file)
    return base64.b85encode(file.getvalue()).decode()


def unpacked(text: str) -> dict[str, Any]:
    """Returns the state that packed() was given."""
    state: dict[str, Any] = decoded(torch.load(io.BytesIO(base64.b85decode(text)), map_location="cpu", weights_only=True))
    return state


def _within(source: Any, depth: int = 16) -> Iterator[Any]:
    """A source, and what it reads from, as Hugging Face's datasets and loaders keep it."""
    yield source
    inner = [getattr(source, name, None) for name in ("dataset", "_ex_iterable", "ex_iterable")]
    for each in (*inner, *(getattr(source, "ex_iterables", None) or ())):
        if each is not None and depth:
            yield from _within(each, depth - 1)


def _generators_of(source: Any) -> list[torch.Generator]:
    """Returns the generators by which a loader shuffles."""
    found = [getattr(each, "generator", None) for each in (source, getattr(source, "sampler", None))]
    return [each for at, each in enumerate(found) if isinstance(each, torch.Generator) and each not in found[:at]]


def _why_not(source: Any) -> str:
    """Why another process would see other samples; empty: nothing is known to speak against it."""
    name = type(source).__name__
    for each in _within(source):
        bits = getattr(getattr(each, "generator", None), "bit_generator", None)     # of numpy
        if bits is not None and not isinstance(entropy := getattr(bits.seed_seq, "entropy", 0), Sequence) and (entropy or 0) >= 1 << 64:
            return f"{name} is shuffled by shuffle() without seed=: each worker and each start would have an order of its own; give a seed"
    drawn = [each for each in _generators_of(source) if each.initial_seed() >= 1 << 32 and each.initial_seed() != torch.Generator().initial_seed()]
    sampler = getattr(source, "sampler", None)
    if drawn or (isinstance(sampler, torch.utils.data.RandomSampler) and sampler.generator is None and getattr(source, "generator", None) is None):
        return (f"{name} is shuffled without generator=: each worker and each start would have an order of its own; give "
                "generator=torch.Generator().manual_seed(0), or another seed below 2**32")
    return ""


def _has_buffer(source: Any) -> bool:
    """Whether samples wait in a buffer that no state_dict() holds."""
    return any(type(each).__name__ == "BufferShuffledExamplesIterable" for each in _within(source))


def compare(stream: Stream, group: dist.ProcessGroup | None) -> None:
    """Raises on all workers where they have not read the same samples: a start over others would lose and repeat some."""
    if group is None:
        return
    digests = [""] * dist.get_world_size(group)
    dist.all_gather_object(digests, stream.digest(), group=group)
    if len(set(digests)) > 1:
        raise ValueError(f"{type(stream.source).__name__} gives other samples on rank {next(at for at, each in enumerate(digests) if each != digests[0])} "
                         "than on rank 0; give every worker the whole stream in the same order: Swell shares it out")


@dataclass
class _Position:
    """A place between two global batches of a stream."""

    epoch: int = 0
    of_epoch: int = 0       # samples of the epoch before it
    source: Any = None      # a state of the source; None: none is known
    behind: int = 0         # items from that state to this place
    digest: str = ""        # of the global batch before it; empty: not known


class Stream:
    """The samples of a source, shared out: every worker reads all of them, and keeps its part of each global batch.

    source: an iterable of samples or a loader of batches, in the same order on every worker and in every run. It goes on from its own
        state_dict() where check() finds that this is exact; else, and as an ElasticIterable, it is read up to the position again.
    micro_batch: samples of one pass at most; of a loader each batch is a pass.
    collate: makes a batch of samples; not for a loader.

    The remainder of an epoch after its last whole global batch is dropped. A loader shuffles each epoch by its generator's seed and the epoch. Each start compares the last global batch before its position with what
    was trained on there.
    """

    def __init__(self, source: Any, global_batch: int, *, micro_batch: int, rank: int, world: int,
                 collate: Callable[[list[Any]], Any] | None = None) -> None:
        batch, name = _batch_of(source), type(source).__name__
        if not isinstance(source, ElasticIterable) and not _has_state(source):
            raise TypeError(f"{name} has no length and no state_dict(): a start could not go on where the one before left. " + (
                "Give batches() its dataset, and its options such as num_workers beside it, or torchdata's StatefulDataLoader" if batch else
                f"Give swell.data.ElasticIterable({name}(...), global_batch={global_batch}), which reads up to the position again, or a "
                "dataset or loader with state_dict() and load_state_dict(), such as a streamed dataset of Hugging Face's datasets"))
        if batch and collate is not None:
            raise ValueError(f"collate_fn: {name} makes batches itself; give it to that")
        if batch and global_batch % batch:
            raise ValueError(f"{name} gives batches of {batch}, which do not divide global_batch={global_batch}: choose another batch_size")
        if why_not := _why_not(source):
            raise ValueError(why_not)
        self.source: Any = source.dataset if isinstance(source, ElasticIterable) else source
        self.is_of_batches, self.unit, self.units = bool(batch), batch or 1, global_batch // (batch or 1)
        self.global_batch, self.micro_batch, self.rank, self.world = global_batch, 1 if batch else micro_batch, rank, world
        self.samples = source.samples if isinstance(source, ElasticIterable) else 0     # trained on since training began
        self._collate = watched(collate or torch.utils.data.default_collate)
        self._goes_on = not isinstance(source, ElasticIterable) and not _has_buffer(source)     # from its own state
        self._at = _Position(of_epoch=self.samples, behind=self.samples // self.unit)   # behind the last step
        self._reads = self._at      # behind the last global batch that was read
        self._ahead: deque[_Position] = deque()     # behind each of those that were read, and not trained on
        self._items: list[Any] = []     # of the last of these
        self._iterator: Iterator[Any] | None = None
        self._has_ended = False     # the epoch, as is_at_end() has found
        self._fresh: Any = None     # the source's state before it was read in this process
        self._is_fresh = True
        self._seeds = [(each, each.initial_seed()) for each in _generators_of(self.source)]

    @property
    def epoch(self) -> int:
        """The epoch of the next step, from 0."""
        return self._at.epoch

    @property
    def steps_of_epoch(self) -> int:
        """Optimizer steps of the present epoch that are done."""
        return self._at.of_epoch // self.global_batch

    def batch_at(self, samples: int) -> int:
        """Units in a global batch, as pieces_at() counts them."""
        return self.units

    def pieces_at(self, samples: int) -> list[Piece]:
        """This worker's passes over a global batch."""
        return pieces(self.units, self.world, self.rank, self.micro_batch)

    # ---- whether a start could go on

    def check(self) -> None:
        """Read the source's first items, read them again, and read from its state within them, if training has not begun.

        Raises ValueError where a start could not go on from a position in it. Random generators stay as they are.
        """
        if self.samples or self._at.epoch or self._iterator is not None:
            return
        kept, name = generators(), type(self.source).__name__
        try:
            first, _ = self._look()
            again, state = self._look(len(first) // 2)
            if again != first:
                raise ValueError(f"{name} " + (
                    "can be read once alone: give what begins anew whenever it is iterated, such as a dataset" if isinstance(self.source, Iterator) or not again else
                    "gives other samples when it is read again, so that no start could go on where the one before left: give its shuffling a seed, and "
                    "make random changes of samples in collate_fn"))
            if state is not None:
                check_readable({f"the position of {name}": state})
                self._goes_on = self._look(state=state)[0][:_LOOKS - len(first) // 2] == first[len(first) // 2:]
                if not self._comes_back_to(first):
                    raise ValueError(f"{name} does not begin anew with the state that it had before it was read: give one that was not read before")
            if not self._goes_on and _has_state(self.source) and self.rank == 0:
                print(f"swell: the state_dict() of {name} does not restore its position exactly, as where a buffer shuffles: each start reads up to the "
                      "position again", file=sys.stderr, flush=True)
        finally:
            restore_generators(kept)

    def _look(self, at: int = 0, state: Any = None) -> tuple[list[str], Any]:
        """Returns digests of the first items, or of those from a state on, and the source's state behind so many of them."""
        found, then = [], None
        self._set_epoch()
        if state is not None or not self._is_fresh:
            self.source.load_state_dict(copy.deepcopy(state if state is not None else self._fresh))
        elif self._goes_on and self._fresh is None:
            self._fresh = self._state_now()
        for item in itertools.islice(iter(self.source), _LOOKS):
            found.append(_digest_of(item))
            if len(found) == at and self._goes_on:
                then = self._state_now()
        return found, then

    def _comes_back_to(self, first: list[str]) -> bool:
        """Whether the source begins anew after a state was loaded into it; the state for that is known then."""
        self._is_fresh = False
        for self._fresh in (self._fresh, None):     # a script that has read from it before has moved its state
            with contextlib.suppress(Exception):    # not every source takes None
                if self._look()[0] == first:
                    return True
        return False

    # ---- reading

    def pull(self) -> bool:
        """Read the next global batch, unless one was read and not trained on. False: this epoch has no whole one any more, and the next epoch begins."""
        if self._has_ended:
            self._has_ended = False
            return False
        return bool(self._ahead) or self._read()

    def is_at_end(self) -> bool:
        """Whether the epoch has no whole global batch any more; the position is at the next epoch then, and pull() says so once."""
        self._has_ended = self._has_ended or not self.pull()
        return self._has_ended

    def joined_shares(self) -> Iterator[Any]:
        """This worker's share of each global batch from the position to the end of its epoch, as one batch, for loaders that read ahead of the steps."""
        if self._ahead:     # what a loader has read before it was begun anew
            self._reads, self._iterator = self._at, None
            self._ahead.clear()
        while self._read():
            yield _joined(self.share())

    def _read(self) -> bool:
        at = self._reads
        if self._iterator is None:
            self._iterator = self._begun()
        before = self._state_now() if self._goes_on and at.of_epoch else None
        items = list(itertools.islice(self._iterator, self.units))
        if len(items) == self.units and not (self.is_of_batches and any(_size(item) not in (None, self.unit) for item in items)):
            self._items, behind = items, self.units
            if self._goes_on and before is None:    # a state before an epoch's first batch may be of the epoch before
                before, behind = self._state_now(), 0
            self._reads = _Position(at.epoch, at.of_epoch + self.global_batch, before, behind, _digest_of(items[0], items[-1]))
            self._ahead.append(self._reads)
            return True
        if not at.of_epoch:
            raise ValueError(f"{type(self.source).__name__} gave {len(items) * self.unit} samples in an epoch; global_batch={self.global_batch} needs as "
                             "many: give a smaller one, or a longer stream")
        self._reads, self._iterator = _Position(at.epoch + 1), None
        if not self._ahead:
            self._at = self._reads
        return False

    def _begun(self) -> Iterator[Any]:
        """The source's iterator at the place up to which was read: from its state, or from the beginning of the epoch.

        One that needs no reading on the way comes second: it is not compared with what was trained on.
        """
        at = self._reads
        ways = [self._from_the_beginning_on] if at.source is None else [self._from_the_state, self._from_the_beginning_on]
        if not at.behind and at.of_epoch == self.global_batch:
            ways.reverse()
        for way in ways:
            iterator = way()
            if iterator is not None:
                if way == self._from_the_beginning_on and at.behind and at.source is not None and self.rank == 0:
                    print(f"swell: the state_dict() of {type(self.source).__name__} has not restored its position: it was read up to it again",
                          file=sys.stderr, flush=True)
                return iterator
        raise ValueError(f"{type(self.source).__name__} gives other samples up to step {self.samples // self.global_batch} than the run so far has trained "
                         "on: give the same stream in the same order, or another directory")

    def _from_the_state(self) -> Iterator[Any] | None:
        at = self._reads
        self._set_epoch()
        if self._is_fresh:
            self._is_fresh, self._fresh = False, self._state_now()
        self.source.load_state_dict(copy.deepcopy(at.source))
        iterator: Iterator[Any] = iter(self.source)
        return iterator if not at.behind or self._skips(iterator, at.behind) else None

    def _from_the_beginning_on(self) -> Iterator[Any] | None:
        at = self._reads
        self._set_epoch()
        if not self._is_fresh and (at.of_epoch or not at.epoch):      # else it begins an epoch by itself
            self.source.load_state_dict(copy.deepcopy(self._fresh))
        iterator: Iterator[Any] = iter(self.source)
        return iterator if self._skips(iterator, at.of_epoch // self.unit) else None

    def _skips(self, iterator: Iterator[Any], count: int) -> bool:
        """Whether the items that are read on the way are those before the position, as far as is known."""
        last: deque[Any] = deque(itertools.islice(iterator, count), maxlen=self.units)
        return not self._reads.digest or (bool(last) and _digest_of(last[0], last[-1]) == self._reads.digest)

    def _state_now(self) -> Any:
        return copy.deepcopy(self.source.state_dict())

    def _set_epoch(self) -> None:
        for each in (self.source, getattr(self.source, "dataset", None)):
            set_epoch = getattr(each, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(self._reads.epoch)
        for generator, seed in self._seeds:     # not where the epochs before have left it: a start has not read these
            generator.manual_seed(seed + self._reads.epoch)

    def share(self) -> list[Any]:
        """This worker's batches of the global batch that was read, one for each of its passes."""
        passes = self.pieces_at(self.samples)
        return [self._items[piece.begin] if self.is_of_batches else self._collate(self._items[piece.begin:piece.end]) for piece in passes]

    def whole(self) -> list[Any]:
        """The samples of the global batch that was read, one by one."""
        return [sample for item in self._items for sample in _split(item, self.unit)] if self.is_of_batches else self._items

    def digest(self) -> str:
        """Returns a digest of the global batch that was read; the same on every worker where they read the same."""
        return _digest_of(self._items)

    # ---- the position

    def advance(self) -> None:
        """Say that an optimizer step is done, over the first global batch that was read and not trained on."""
        self.samples += self.global_batch
        self._at = self._ahead.popleft()
        if not self._ahead and self._reads.epoch > self._at.epoch:
            self._at = self._reads

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last step."""
        at = self._at
        return {**self.numbers(), "epoch": at.epoch, "of_epoch": at.of_epoch, "source": at.source, "behind": at.behind, "digest": at.digest,
                "goes_on": self._goes_on}

    def numbers(self) -> dict[str, Any]:
        """Returns the values that every start must share, and the samples so far, for the identity record."""
        return {"stream": True, "samples": self.samples, "global_batch": self.global_batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position that any number of workers has reached."""
        check_same({"data": {"stream": False, "global_batch": self.global_batch, **state, "source": None}},
                   data={"stream": True, "global_batch": self.global_batch})
        self.samples, self._goes_on = state["samples"], bool(state.get("goes_on", self._goes_on)) and _has_state(self.source)
        self._at = self._reads = _Position(*(state.get(name, default) for name, default in (
            ("epoch", 0), ("of_epoch", 0), ("source", None), ("behind", 0), ("digest", ""))))
        self._iterator, self._items, self._has_ended = None, [], False
        self._ahead.clear()
