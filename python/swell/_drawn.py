# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers that a dataset of map style draws as a sample is read: by seed and sample, which no number of workers or readers changes."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import Subset

from swell._content import is_stored
from swell._generators import seeded_numpy
from swell._noise import watched
from swell._own import begin_by, own_generators, stand_at, standing

__all__ = ["DrawnLoader", "DrawnSamples", "Numbered"]


_WORD = (1 << 64) - 1


class Numbered(int):
    """An index into a dataset, with the number of the sample in the training."""

    number: int

    @classmethod
    def all_of(cls, indices: Iterable[int], first: int) -> list[Numbered]:
        found: list[Numbered] = []
        for number, index in enumerate(indices, first):
            found.append(made := cls(index))
            made.number = number
        return found


class _Drawn:
    """A DataLoader's fetcher reads this in place of a dataset: by Numbered indices, for each of which torch's, Python's and numpy's generators begin anew, and
    the dataset's own.

    No sample is read twice, but the first one where reading it makes a generator, and of a table of Hugging Face's, which is read a batch at a time until its transform draws. Where the script's
    own __getitems__ makes a batch, the generators begin once for that.
    """

    def __init__(self, dataset: Any, seed: int, *, in_reader: bool) -> None:
        self.dataset, self._seed, self._in_reader = dataset, seed, in_reader
        self._is_table = _is_table(dataset)
        self._is_stored = is_stored(dataset)    # so that in a reader collate_fn alone draws
        self._own = _Own()
        self._held: list[Any] | None = None     # the dataset's own generators; None: not looked for yet
        self._has_read = False      # a sample
        self._is_each = not self._is_table and _is_each(dataset)    # one by one

    def __getitems__(self, indices: list[Numbered]) -> Any:
        if self._held is None:
            self._held = [] if self._is_stored else own_generators([self.dataset])
        generators = _Generators(self._seed, self._held)
        places = [] if self._in_reader else [(each, standing(each)) for each in self._held]
        if not self._in_reader:
            self._own.note(generators)
        try:
            return self._read(indices, generators)
        finally:
            if self._in_reader:
                generators.begin(indices[0].number, batch=True)     # what collate_fn draws
            else:
                self._own.restore(generators)
                for each, place in places:
                    stand_at(each, place)

    def _read(self, indices: list[Numbered], generators: _Generators) -> Any:
        at_once = getattr(self.dataset, "__getitems__", None)
        if self._is_stored:
            return at_once([int(each) for each in indices]) if at_once else [self.dataset[int(each)] for each in indices]
        if not self._is_each:
            generators.begin(indices[0].number)
            began = generators.state() if self._is_table else None
            found = at_once([int(each) for each in indices])    # type: ignore[misc]
            if began is None or not self._held and _is_same(began, generators.state()):
                return found
            self._is_each = True
        found = []
        for each in indices:
            generators.begin(each.number)
            found.append(self._fetch(each, at_once))
            if not self._has_read:
                self._has_read = True
                if not self._held and (held := own_generators([self.dataset])):     # made with the first sample
                    self._held, generators = held, _Generators(self._seed, held)
                    generators.begin(each.number)
                    found[-1] = self._fetch(each, at_once)
        return found

    def _fetch(self, index: Numbered, at_once: Any) -> Any:
        return at_once([int(index)])[0] if at_once else self.dataset[int(index)]


def _is_table(dataset: Any) -> bool:
    """Whether it is one of Hugging Face's, whose __getitems__ gives a list with a sample for each index, as often as it is asked."""
    if isinstance(dataset, Subset) and type(dataset).__getitems__ is Subset.__getitems__:
        return _is_table(dataset.dataset)
    return type(dataset).__module__ == "datasets.arrow_dataset"


def _is_each(dataset: Any) -> bool:
    """Whether samples can be read one by one: there is no __getitems__ of the script's, whose result may be any."""
    if isinstance(dataset, Subset) and type(dataset).__getitems__ is Subset.__getitems__:
        return _is_each(dataset.dataset)
    return not getattr(dataset, "__getitems__", None)


class _Generators:
    """Torch's, Python's and numpy's generators of this process; not numpy's where the script has given it another bit generator."""

    def __init__(self, seed: int, held: Iterable[Any] = ()) -> None:
        """held: a dataset's own, which begin anew, too."""
        self._seed = seed
        self.numpy = seeded_numpy()
        self._held = [begin_by(each) for each in held]
        self._begins = torch.default_generator.manual_seed, random.seed, *((self.numpy.seed,) if self.numpy is not None else ())     # a reader may not touch a GPU's

    def begin(self, number: int, *, batch: bool = False) -> None:
        """Begin them by the seed and a sample's number, or that of a batch's first sample."""
        mixed = (((self._seed << 1 | batch) * 0xD1B54A32D192ED03) ^ (number + 1) * 0x9E3779B97F4A7C15) & _WORD     # as SplitMix64 does, which costs less than a digest
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WORD
        begin = mixed >> 32
        for seed in self._begins:
            seed(begin)
        for at, begin_held in enumerate(self._held, 1):
            begin_held((begin + at * 0x9E3779B9) & 0xFFFFFFFF)      # each otherwise

    def state(self) -> tuple[Any, Any, Any]:
        return torch.get_rng_state(), random.getstate(), self.numpy.get_state() if self.numpy is not None else None

    def restore(self, state: tuple[Any, Any, Any]) -> None:
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        if self.numpy is not None:
            self.numpy.set_state(state[2])


class _Own:
    """Where the training's own generators stand while samples are read.

    Numpy's copies its words one by one, which takes longer than to read eight samples. So they are copied as bytes, at the address that numpy gives, where they
    are those of the batch before: the training has not drawn then.
    """

    def __init__(self) -> None:
        self._torch: Any = None
        self._python: Any = None
        self._numpy: Any = None
        self._words = b""       # numpy's, where they are copied as bytes
        self._at = 0

    def note(self, generators: _Generators) -> None:
        self._torch, self._python, numpy = torch.get_rng_state(), random.getstate(), generators.numpy
        if numpy is None:
            self._numpy = None
            return
        made = getattr(numpy, "get_bit_generator", None)        # from numpy 1.24 on
        at = int(made().ctypes.state_address) if made is not None else 0
        if self._numpy is not None and self._words and at == self._at and ctypes.string_at(at, len(self._words)) == self._words:
            return
        self._numpy = numpy.get_state()
        words = self._numpy[1].tobytes() + self._numpy[2].to_bytes(4, sys.byteorder)
        # Half of a pair of normal numbers is kept elsewhere.
        self._at, self._words = at, words if at and not self._numpy[3] and ctypes.string_at(at, len(words)) == words else b""

    def restore(self, generators: _Generators) -> None:
        torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is None or generators.numpy is None:
            return
        if self._words:
            generators.numpy.seed(0)        # forgets the other half of a pair that a sample has drawn
            ctypes.memmove(self._at, self._words, len(self._words))
        else:
            generators.numpy.set_state(self._numpy)


class DrawnSamples:
    """Reads samples of a dataset of map style one by one, each once, as a DrawnLoader does; the training's own random numbers stay as they are.

    draws: whether a sample has drawn so far. One thread at a time reads, and while samples draw no other one may.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed
        self._held = [] if is_stored(dataset) else own_generators([dataset])
        self.draws = bool(self._held)

    def read(self, indices: Sequence[Numbered]) -> list[Any]:
        generators, found = _Generators(self._seed, self._held), list[Any]()
        own = generators.state()
        try:
            for each in indices:
                generators.begin(each.number)
                began = None if self.draws else generators.state()
                found.append(self._dataset[int(each)])
                self.draws = began is None or not _is_same(began, generators.state())
        finally:
            generators.restore(own)
        return found


def _is_same(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> bool:
    if not torch.equal(one[0], other[0]) or one[1] != other[1]:
        return False
    return one[2] is None or (bool((one[2][1] == other[2][1]).all()) and one[2][2:] == other[2][2:])


class _Begins:
    """A reader's worker_init_fn: the script finds its own dataset in get_worker_info()."""

    def __init__(self, drawn: _Drawn, script: Callable[[int], Any] | None) -> None:
        self._drawn, self._script = drawn, script

    def __call__(self, number: int) -> None:
        object.__setattr__(torch.utils.data.get_worker_info(), "dataset", self._drawn.dataset)
        if self._script is not None:
            self._script(number)


class DrawnLoader(torch.utils.data.DataLoader[Any]):
    """A DataLoader by an ElasticSampler, given as batch_sampler, whose samples draw by seed and sample. Its dataset stays the script's own."""

    def _get_iterator(self) -> Any:
        sampler: Any = getattr(self.batch_sampler, "batch_sampler", self.batch_sampler)     # within Accelerate's SkipBatchSampler
        in_reader = self.num_workers > 0
        before = {name: self.__dict__[name] for name in ("dataset", "worker_init_fn", "collate_fn")}
        self.__dict__.update(collate_fn=watched(self.collate_fn))       # past a DataLoader's __setattr__, which refuses it
        if hasattr(sampler, "is_numbered") and (in_reader or not is_stored(self.dataset)):
            sampler.is_numbered = True
            drawn = _Drawn(self.dataset, sampler.seed, in_reader=in_reader)
            self.__dict__.update(dataset=drawn, worker_init_fn=_Begins(drawn, self.worker_init_fn))
        try:
            return super()._get_iterator()
        finally:
            self.__dict__.update(before)
