# SPDX-License-Identifier: BSD-3-Clause
"""A worker's samples of each global batch, in an order that no plan changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from swell._content import is_stored
from swell._drawn import DrawnSamples, Numbered
from swell._stream import Stream, compare
from swell.data import ElasticSampler
from swell.engine.executor import MicroBatch
from swell.engine.plan import Place, Plan

__all__ = ["Batch", "Copies", "batches", "check", "streamed"]

_READ = ("input_ids", "labels", "attention_mask", "position_ids")       # of a sample; other names are left


@dataclass(frozen=True)
class Batch:
    """This worker's part of one global batch, for Engine.step() alone."""

    micro_batches: list[MicroBatch]
    copied: Any = None      # the event after which a GPU has them; None: they are there


class Copies:
    """Copies batches to a device beside its computations: to a GPU from pinned memory, on a stream of their own, so that neither waits for the other.

    One thread at a time copies.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None    # type: ignore[no-untyped-call]

    def beside(self) -> AbstractContextManager[Any]:
        """Within it copies are made."""
        return torch.cuda.stream(self._stream) if self._stream is not None else nullcontext()

    def copy(self, host: torch.Tensor) -> torch.Tensor:
        """REQUIRES: beside(), and the tensor is on the CPU. arrived() comes before the result is used."""
        if self._stream is None:
            return host.to(self._device)
        return host.pin_memory().to(self._device, non_blocking=True)    # torch keeps the pinned memory until the stream has read it

    def brought(self, tensor: torch.Tensor) -> torch.Tensor:
        """As copy(), of what a dataset gives on a GPU, without beside(): in the order of the stream on which it is made."""
        there = tensor.to(self._device)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))       # event() comes after it
        return there

    def event(self) -> Any:
        """Returns what arrived() waits for, after the copies so far; None where these are done."""
        return self._stream.record_event() if self._stream is not None else None

    def arrived(self, batch: Batch) -> Batch:
        """Has this thread's computations wait for a batch; the host does not wait."""
        if batch.copied is not None:
            now = torch.cuda.current_stream(self._device)
            now.wait_event(batch.copied)    # of this batch: the next one's copies may be under way
            for one in batch.micro_batches:
                for tensor in (*one.inputs.values(), *(() if one.labels is None else (one.labels,))):
                    tensor.record_stream(now)       # its memory is the other stream's
        return batch


def batches(dataset: Any, plan: Plan, place: Place, device: torch.device, *, sampler: ElasticSampler, epochs: int | None) -> Iterator[Batch]:
    """Global batches from the sampler's position on; it is at the next one whenever this is asked for more.

    Random draws of samples depend on seed and sample alone, alike on all stages that read it. A thread reads the next batch meanwhile, unless samples
    draw: then no other thread may.
    """
    mine, size, last, copies = plan.stages[place.stage].samples(place.group), plan.micro_batch_samples, bool(plan.contents.heads_of(place.stage)), Copies(device)
    drawn = None if is_stored(dataset) else DrawnSamples(dataset, sampler.seed)
    look: Callable[[Sequence[Numbered]], list[Any]] | None = None if drawn is None else drawn.read

    def read(samples: int) -> Batch | None:
        epoch, at = divmod(samples, sampler.epoch_samples)
        if epochs is not None and epoch >= epochs:
            return None
        order = sampler.order(epoch)
        begins = [at + number * size for number in range(plan.micro_batches)]
        parts = [Numbered.all_of(order[begin + mine.start:begin + mine.stop], samples - at + begin + mine.start) for begin in begins]
        return _batch([look(part) if look is not None else [dataset[int(index)] for index in part] for part in parts], copies, last)
    reader, coming = ThreadPoolExecutor(1, "swell batches"), None
    try:
        while (batch := coming.result() if coming is not None else read(sampler.samples)) is not None:
            if drawn is None or not drawn.draws:
                look = None
                coming = reader.submit(read, sampler.samples + sampler.batch_at(sampler.samples))
            yield copies.arrived(batch)
            sampler.advance()
    finally:
        reader.shutdown(cancel_futures=True)    # waits for a read under way: one thread at a time reads the dataset


def streamed(stream: Stream, plan: Plan, place: Place, device: torch.device, *, group: dist.ProcessGroup | None, epochs: int | None) -> Iterator[Batch]:
    """Global batches of a stream from its position on; whoever trains on one says so to the stream. group: all workers, on the CPU."""
    mine, size, last, is_compared = plan.stages[place.stage].samples(place.group), plan.micro_batch_samples, bool(plan.contents.heads_of(place.stage)), False
    copies = Copies(device)
    while epochs is None or stream.epoch < epochs:
        if not stream.pull():
            continue
        if not is_compared:
            is_compared = True
            compare(stream, group)
        samples = stream.whole()
        parts = [samples[number * size + mine.start:number * size + mine.stop] for number in range(plan.micro_batches)]
        yield copies.arrived(_batch(parts, copies, last))


def _batch(parts: Sequence[Sequence[Mapping[str, Any]]], copies: Copies, last: bool) -> Batch:
    columns = [_collated(samples) for samples in parts]
    here = [{name: copies.brought(tensor) for name, tensor in each.items() if tensor.device.type != "cpu"} for each in columns]
    with copies.beside():
        for each, there in zip(columns, here, strict=True):
            there.update({name: copies.copy(tensor) for name, tensor in each.items() if tensor.device.type == "cpu"})
        return Batch([_micro_batch(there, last) for there in here], copies.event())


def _collated(samples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    for sample in samples:
        check(sample, "a sample of the dataset", ("input_ids",))
    names = [name for name in samples[0] if name in _READ]
    for sample in samples:
        if set(names) != (here := {name for name in sample if name in _READ}):
            raise ValueError(f"one sample of a micro-batch has {_listed(sorted(names))}, another one {_listed(sorted(here))}: give all samples the same of {_listed(_READ)}")
    lengths = {len(sample["input_ids"]) for sample in samples}
    if len(lengths) > 1:
        raise ValueError(f"samples of {sorted(lengths)} tokens stand in one micro-batch; pack or pad them to one length")
    return {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in names}


def check(given: Any, what: str, wanted: Sequence[str]) -> None:
    """Raises an error of one sentence if a sample or a batch is not a mapping or lacks a wanted name. what: the name of the thing in that sentence."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is of type {type(given).__name__}; give a mapping with {_listed(wanted)}, as a tokenizer returns it")
    if missing := [name for name in wanted if name not in given]:
        has = _listed(list(map(str, given))) if given else "nothing"
        raise ValueError(f"{what} has {has}, but not {_listed(missing)}; give a mapping with {_listed(wanted)}, as a tokenizer returns it")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _micro_batch(columns: dict[str, torch.Tensor], last: bool) -> MicroBatch:
    labels = columns.pop("labels", columns["input_ids"])
    return MicroBatch(columns, labels if last else None)
