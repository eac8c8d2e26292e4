# SPDX-License-Identifier: BSD-3-Clause
"""Which worker trains on which samples, in an order that no resize changes.

Samples are counted from 0 over the whole training: sample number n is the (n mod epoch length)-th of
epoch n div epoch length. A step takes the next `global_batch` numbers, however many workers there
are; so a run that is resized sees each sample of an epoch exactly once, in the order of the run that
is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.utils.data

from swell._content import fingerprint
from swell._counted import counted
from swell._drawn import Numbered
from swell._identity import check_same
from swell._order import NEWEST_ORDER, order_of_epoch
from swell._request import place

__all__ = ["ElasticIterable", "ElasticSampler", "Piece", "has_length", "pieces", "sizes", "smallest_pass"]

T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """One forward pass of one worker: samples [begin, end) of a global batch.

    Where a worker has fewer passes than the others it repeats a sample that counts for nothing:
    counted is then 0, else end - begin.
    """

    begin: int
    end: int
    counted: int


def pieces(batch: int, world: int, rank: int, micro_batch: int) -> list[Piece]:
    """Returns the passes of one worker over a global batch; every worker has equally many.

    batch: samples of all workers. micro_batch: maximum samples of one pass. The counted samples of all
    workers together are the batch, each once.
    """
    if batch < 1 or micro_batch < 1:
        raise ValueError(f"a batch of {counted(batch, 'sample')} in passes of {micro_batch}: both must be 1 or more")
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {counted(world, 'worker')}: it must be from 0 to {world - 1}")
    passes = -(-(-(-batch // world)) // micro_batch)
    first, last = rank * batch // world, (rank + 1) * batch // world
    mine = last - first
    found = []
    for number in range(passes):
        begin, end = first + number * mine // passes, first + (number + 1) * mine // passes
        if begin < end:
            found.append(Piece(begin, end, end - begin))
        else:
            spare = min(begin, batch - 1)
            found.append(Piece(spare, spare + 1, 0))
    return found


def smallest_pass(batch: int, world: int, micro_batch: int) -> int:
    """Returns the samples of the smallest of all workers' passes over a global batch, as pieces() makes them."""
    passes = -(-(-(-batch // world)) // micro_batch)
    return max(1, batch // world // passes)


def sizes(global_batch: int, basic_workers: int = 1, max_workers: int | None = None) -> list[int]:
    """Numbers of workers over which a global batch divides evenly, from basic_workers on."""
    return [world for world in range(basic_workers, (max_workers or global_batch) + 1) if global_batch % world == 0]


def has_length(dataset: Any) -> bool:
    """Whether a dataset says how many samples it has; some have the method and no answer."""
    try:
        return len(dataset) >= 0
    except (TypeError, NotImplementedError):
        return False


class ElasticSampler(torch.utils.data.Sampler[list[int]]):
    """A batch sampler for map-style datasets that resizes do not disturb.

    ::

        sampler = ElasticSampler(dataset, global_batch=64)
        loader = DataLoader(dataset, batch_sampler=sampler)
        for epoch in range(epochs):
            for batch in loader:        # this worker's share of the global batch
                ...
                sampler.advance()       # after each optimizer step, on every worker
        sampler.state_dict()            # to be part of the checkpoint, and loaded from it

    Iterating gives the index lists of this worker's passes from the present position to the end of
    the present epoch. It does not move the position: loaders read ahead.

    dataset: or its length, in samples.
    global_batch: samples of one optimizer step, over all workers.
    micro_batch: samples of one pass at most; all of a worker's share at once where not given.
    drop_last: leave out what is left of an epoch after its last whole global batch; otherwise that
        makes a last, smaller one.
    rank, world: as torchrun's environment says where not given.
    """

    def __init__(self, dataset: Sized | int, global_batch: int, *, micro_batch: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False, rank: int | None = None, world: int | None = None) -> None:
        if not isinstance(dataset, int) and not has_length(dataset):
            raise TypeError(f"{type(dataset).__name__} has no length, and the position of a sample in it is not known: load it into memory or onto a "
                            "disk, or train with swell.torch.Elastic, whose batches() takes streams")
        self.length = dataset if isinstance(dataset, int) else len(dataset)
        self.content = fingerprint(dataset, self.length) if not isinstance(dataset, int) and self.length else ""    # empty: not known
        if global_batch < 1:
            raise ValueError(f"global_batch={global_batch}: it must be 1 or more")
        self.epoch_samples = self.length - self.length % global_batch if drop_last else self.length
        if self.epoch_samples < 1:
            raise ValueError(f"the dataset has {counted(self.length, 'sample')}, global_batch={global_batch} needs as many; give a "
                             "smaller global_batch, or drop_last=False")
        here = place()
        self.global_batch = global_batch
        self.world = here.world if world is None else world
        self.rank = here.rank if rank is None else rank
        self.micro_batch = micro_batch or global_batch
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.samples = 0
        self.is_numbered = False        # for a DrawnLoader
        self.order_version = NEWEST_ORDER       # a checkpoint's, once one is loaded
        pieces(global_batch, self.world, self.rank, self.micro_batch)       # whether these go together
        self._order: tuple[int, Sequence[int]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self.samples // self.epoch_samples

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of one epoch, the same at any number of workers."""
        return -(-self.epoch_samples // self.global_batch)

    def batch_at(self, samples: int) -> int:
        """Samples in the global batch that begins with this sample number."""
        return min(self.global_batch, self.epoch_samples - samples % self.epoch_samples)

    def order(self, epoch: int) -> Sequence[int]:
        """The dataset's indices in the order of an epoch: of seed and epoch alone. They are computed when they are asked for."""
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, order_of_epoch(self.length, self.seed, epoch, self.order_version) if self.shuffle else range(self.length)
        return self._order[1]

    def pieces_at(self, samples: int) -> list[Piece]:
        """This worker's passes over the global batch that begins with a sample number."""
        return pieces(self.batch_at(samples), self.world, self.rank, self.micro_batch)

    def passes(self, samples: int) -> list[tuple[Piece, list[int]]]:
        """The same with their indices in the dataset."""
        at, order, mine = samples % self.epoch_samples, self.order(samples // self.epoch_samples), self.pieces_at(samples)
        first = min(piece.begin for piece in mine)
        share = list(order[at + first:at + max(piece.end for piece in mine)])       # computed at once
        return [(piece, share[piece.begin - first:piece.end - first]) for piece in mine]

    def __iter__(self) -> Iterator[list[int]]:
        samples, epoch = self.samples, self.epoch
        while samples // self.epoch_samples == epoch:
            for piece, indices in self.passes(samples):
                yield [*Numbered.all_of(indices, samples + piece.begin)] if self.is_numbered else indices
            samples += self.batch_at(samples)

    def __len__(self) -> int:
        """Passes to the end of the present epoch."""
        whole, rest = divmod(self.epoch_samples - self.samples % self.epoch_samples, self.global_batch)
        return sum(count * len(pieces(batch, self.world, self.rank, self.micro_batch))
                   for batch, count in ((self.global_batch, whole), (rest, 1)) if batch and count)

    def advance(self) -> None:
        """Say that an optimizer step is done: its global batch is behind us."""
        self.samples += self.batch_at(self.samples)

    def state_dict(self) -> dict[str, Any]:
        """The position, and what makes the order."""
        return {"samples": self.samples, "seed": self.seed, "length": self.length, "shuffle": self.shuffle, "drop_last": self.drop_last,
                "global_batch": self.global_batch, "order": self.order_version, **({"content": self.content} if self.content else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position that any number of workers has reached. Raises ValueError where the data or its order is another."""
        version = int(state.get("order", 1))
        check_same({"data": state}, data={**self.state_dict(), "order": version, "stream": False})
        self.samples, self.order_version, self._order = int(state["samples"]), version, None
        self.order(self.epoch)


class ElasticIterable(torch.utils.data.IterableDataset[T]):
    """This worker's samples of an iterable dataset, from a global sample number on.

    The dataset must give the same samples in the same order on every worker and in every run. Each
    worker reads all of them and keeps its share, so reading must be cheap beside training. elastic.batches()
    takes it as it is, and any number of workers; in a DataLoader it takes num_workers=0 or 1.

    global_batch, rank, world: as in ElasticSampler. samples: the number to begin with. The rest
    after the last whole global batch is dropped.
    """

    def __init__(self, dataset: Iterable[T], global_batch: int, *, rank: int | None = None, world: int | None = None,
                 samples: int = 0) -> None:
        here = place()
        self.dataset, self.global_batch, self.samples = dataset, global_batch, samples
        self.rank = here.rank if rank is None else rank
        self.world = here.world if world is None else world

    def __iter__(self) -> Iterator[T]:
        if self.global_batch % self.world:
            raise ValueError(f"global_batch={self.global_batch} does not divide over {counted(self.world, 'worker')}; submit with "
                             f"--elastic=sizes={'/'.join(map(str, sizes(self.global_batch)))}")
        reader = torch.utils.data.get_worker_info()
        if reader is not None and reader.num_workers > 1:
            raise ValueError(f"num_workers={reader.num_workers}: each reader of an ElasticIterable would give all samples; give 0 or 1")
        share = self.global_batch // self.world
        waiting: list[T] = []
        for number, sample in enumerate(self.dataset):
            if number < self.samples:
                continue
            at = (number - self.samples) % self.global_batch
            if at // share == self.rank:
                waiting.append(sample)
            if at == self.global_batch - 1:
                yield from waiting
                waiting = []

    def advance(self) -> None:
        """Say that an optimizer step is done."""
        self.samples += self.global_batch

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the training: the number of samples that all steps so far have used."""
        return {"samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position that any number of workers has reached."""
        self.samples = int(state["samples"])
