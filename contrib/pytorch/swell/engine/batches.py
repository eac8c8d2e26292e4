# SPDX-License-Identifier: BSD-3-Clause
"""A worker's samples of each global batch, in an order that no plan changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from swell._stream import Stream, compare
from swell.data import ElasticSampler
from swell.engine.executor import MicroBatch
from swell.engine.plan import Place, Plan

__all__ = ["Batch", "batches", "streamed"]


@dataclass(frozen=True)
class Batch:
    """This worker's part of one global batch, for Engine.step() alone."""

    micro_batches: list[MicroBatch]


def batches(dataset: Any, plan: Plan, place: Place, device: torch.device, *, sampler: ElasticSampler, epochs: int | None) -> Iterator[Batch]:
    """Global batches from the sampler's position on; it is at the next one whenever this is asked for more. A thread reads the next one meanwhile."""
    mine, size, last = plan.samples(place.stage, place.group), plan.micro_batch_samples, bool(plan.heads_of(place.stage))

    def read(samples: int) -> Batch | None:
        epoch, at = divmod(samples, sampler.epoch_samples)
        if epochs is not None and epoch >= epochs:
            return None
        order = sampler.order(epoch)
        begins = [at + number * size for number in range(plan.micro_batches)]
        return Batch([_collated([dataset[index] for index in order[begin + mine.start:begin + mine.stop]], device, last) for begin in begins])
    reader = ThreadPoolExecutor(1, "swell batches")
    try:
        coming = reader.submit(read, sampler.samples)
        while (batch := coming.result()) is not None:
            coming = reader.submit(read, sampler.samples + sampler.batch_at(sampler.samples))
            yield batch
            sampler.advance()
    finally:
        reader.shutdown(cancel_futures=True)    # waits for a read under way: one thread at a time reads the dataset


def streamed(stream: Stream, plan: Plan, place: Place, device: torch.device, *, group: dist.ProcessGroup | None, epochs: int | None) -> Iterator[Batch]:
    """Global batches of a stream from its position on; whoever trains on one says so to the stream. group: all workers, on the CPU."""
    mine, size, last, is_compared = plan.samples(place.stage, place.group), plan.micro_batch_samples, bool(plan.heads_of(place.stage)), False
    while epochs is None or stream.epoch < epochs:
        if not stream.pull():
            continue
        if not is_compared:
            is_compared = True
            compare(stream, group)
        samples = stream.whole()
        yield Batch([_collated(samples[number * size + mine.start:number * size + mine.stop], device, last) for number in range(plan.micro_batches)])


def _collated(samples: Sequence[Mapping[str, Any]], device: torch.device, last: bool) -> MicroBatch:
    lengths = {len(sample["input_ids"]) for sample in samples}
    if len(lengths) > 1:
        raise ValueError(f"samples of {sorted(lengths)} tokens stand in one micro-batch; pack or pad them to one length")
    columns = {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]).to(device)
               for name in samples[0] if name in ("input_ids", "labels", "attention_mask", "position_ids")}
    labels = columns.pop("labels", columns["input_ids"])
    return MicroBatch(columns, labels if last else None)
