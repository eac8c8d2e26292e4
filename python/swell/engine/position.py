# SPDX-License-Identifier: BSD-3-Clause
"""Where an Engine's training stands in its data: the loop over engine.batches(), and what a start needs to go on behind the last step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swell._counted import counted
from swell._generators import generators, restore_generators
from swell._stream import Stream, is_stream
from swell.data import ElasticSampler, has_length
from swell.engine import batches
from swell.engine.generation import Generation, GlobalBatch
from swell.engine.settings import Settings

__all__ = ["Position"]


class Position:
    """Gives out global batches, each for one step, and follows how far training has come in them.

    steps: done so far. total: at the training's end, where batches() knows it. data: what the order of the batches depends on, as checkpoints have it.
    drawn: the random numbers' state before the batch that awaits its step. goes_on_from: the same of a training that goes on, until its first batch is read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.steps = 0
        self.total: int | None = None
        self.data: dict[str, Any] | None = None
        self.drawn: dict[str, Any] | None = None
        self.goes_on_from: dict[str, Any] | None = None
        self._generation: Generation | None = None
        self._number = 0        # of generations so far in this process
        self._stream: Stream | None = None      # that is read
        self._loop: object | None = None        # that is under way
        self._awaited: batches.Batch | None = None      # that was given last, and that awaits its step

    def begin(self, generation: Generation) -> None:
        """A generation begins, whose workers have other samples. Where its state is not new, the position is what it says."""
        self._generation, self._number = generation, self._number + 1
        before = generation.state.before
        if before is not None:
            self.steps, self.data = int(before["steps"]), before.get("data")

    def over(self, dataset: Any, epochs: int | None, shuffle: bool) -> Iterator[batches.Batch]:
        """See Engine.batches()."""
        if is_stream(dataset):
            yield from self._streamed(dataset, epochs)
            return
        size = self._settings.global_batch
        if has_length(dataset) and len(dataset) < size:
            raise ValueError(f"the dataset has {counted(len(dataset), 'sample')}, a step takes global_batch={size} of them; give more samples, or a smaller "
                             "global_batch")
        for now in self._generations():     # in another plan this worker has other samples
            sampler = ElasticSampler(dataset, size, shuffle=shuffle, seed=self._settings.seed, drop_last=True, rank=0, world=1)
            if self.steps:      # checkpoints that name no order are of the first one
                sampler.load_state_dict({**(self.data or {"order": 1}), "samples": self.steps * size})
            self.data = {name: value for name, value in sampler.state_dict().items() if name != "samples"}
            self.total = None if epochs is None else epochs * sampler.steps_per_epoch
            made = batches.batches(dataset, now.plan, now.place, now.device, sampler=sampler, epochs=epochs)
            del now     # its state's memory is given back when the next one has taken it over
            yield from self._given_out(made)

    def _streamed(self, dataset: Any, epochs: int | None) -> Iterator[batches.Batch]:
        assert self._generation is not None
        size = self._settings.global_batch
        stream = Stream(dataset, size, micro_batch=size, rank=self._generation.place.rank, world=1)
        if self.steps and self.data is None:
            raise ValueError(f"the {counted(self.steps, 'step')} so far were not over a stream: where {type(dataset).__name__} goes on is not known; give the dataset that "
                             "they were over, or another directory")
        if self.data is not None:
            stream.load_state_dict(self.data)
        else:
            stream.check()
        self._stream, self.data = stream, stream.state_dict()
        for now in self._generations():     # in another plan this worker has other samples
            made = batches.streamed(stream, now.plan, now.place, now.device, group=now.links.host, epochs=epochs)
            del now     # its state's memory is given back when the next one has taken it over
            yield from self._given_out(made)
        self._stream = None

    def _generations(self) -> Iterator[Generation]:
        """Yields the present generation, and each later one, as long as another one has begun meanwhile."""
        number = 0
        while number != self._number:
            number = self._number
            assert self._generation is not None
            yield self._generation

    def _given_out(self, made: Iterator[Any]) -> Iterator[Any]:
        """These batches, as long as their generation lasts; a checkpoint that comes before the step of one has the random numbers from before it was read, since the next start
        gives it again."""
        if self.goes_on_from is not None:
            restore_generators(self.goes_on_from)
            self.goes_on_from = None
        self._loop = loop = object()
        self._awaited, number = None, self._number
        try:
            while number == self._number:
                self.drawn = generators() if self._settings.directory is not None else None
                if (batch := next(made, None)) is None:
                    return
                self._awaited = batch
                yield batch
                if self._loop is not loop:
                    raise RuntimeError("another loop over engine.batches() has begun within this one, and a start could go on in one alone: give one dataset that has both, "
                                       "and evaluate() batches of the script's own")
                if self._awaited is not None:
                    self._awaited = None
                    raise RuntimeError("engine.step(batch) was not called for the last batch; call it once for each batch, before the next one is taken, or "
                                       "`if engine.skip(...): continue` on every worker, which leaves a batch out; evaluate() takes batches of the script's own")
        finally:
            if self._loop is loop:
                self._loop = None

    def check(self, batch: GlobalBatch) -> None:
        """Raises RuntimeError where a step over this batch would move the position to another place than a start would find."""
        if batch is self._awaited:
            return
        if not isinstance(batch, batches.Batch):
            if self._loop is None:
                return
            raise RuntimeError("engine.step() was given a batch of the script's own within a loop over engine.batches(), whose position it would move: give it the loop's batches "
                               "alone, or train on the others before or after the loop")
        raise RuntimeError("engine.step() was called for a batch that has had its step, was left out by engine.skip(), or is of another loop over engine.batches(): call it once, "
                           "for the last batch that the loop gave")

    def awaited(self) -> batches.Batch:
        """Returns the batch that awaits its step. Raises RuntimeError where there is none."""
        if self._awaited is None:
            raise RuntimeError("engine.skip() belongs into `for batch in engine.batches(dataset, ...)`, before engine.step(batch)")
        return self._awaited

    def take(self) -> None:
        """The batch that awaits its step gets it, or is left out: random numbers are drawn on from here."""
        self.drawn = self.goes_on_from = self._awaited = None

    def advance(self, batch: GlobalBatch) -> None:
        """One more step is done, over this batch."""
        self.steps += 1
        if self._stream is not None and isinstance(batch, batches.Batch):
            self._stream.advance()
            self.data = self._stream.state_dict()
