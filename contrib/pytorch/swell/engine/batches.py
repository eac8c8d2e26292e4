# SPDX-License-Identifier: BSD-3-Clause
"""A worker's samples of each global batch, in an order that no plan changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from swell.data import ElasticSampler
from swell.engine.executor import MicroBatch
from swell.engine.plan import Place, Plan

__all__ = ["Batch", "batches"]


@dataclass(frozen=True)
class Batch:
    """This worker's part of one global batch, for Engine.step() alone."""

    micro_batches: list[MicroBatch]


def batches(dataset: Any, plan: Plan, place: Place, device: torch.device, *, sampler: ElasticSampler, epochs: int | None) -> Iterator[Batch]:
    """Global batches from the sampler's position on; it is at the next one whenever this is asked for more."""
    mine, size, last = plan.samples(place.stage, place.group), plan.micro_batch_samples, place.stage == plan.pp - 1
    while epochs is None or sampler.epoch < epochs:
        at, order = sampler.samples % sampler.epoch_samples, sampler.order(sampler.epoch)
        found = []
        for number in range(plan.micro_batches):
            begin = at + number * size
            found.append(_collated([dataset[index] for index in order[begin + mine.start:begin + mine.stop]], device, last))
        yield Batch(found)
        sampler.advance()


def _collated(samples: Sequence[Mapping[str, Any]], device: torch.device, last: bool) -> MicroBatch:
    lengths = {len(sample["input_ids"]) for sample in samples}
    if len(lengths) > 1:
        raise ValueError(f"samples of {sorted(lengths)} tokens stand in one micro-batch; pack or pad them to one length")
    columns = {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]).to(device)
               for name in samples[0] if name in ("input_ids", "labels", "attention_mask", "position_ids")}
    labels = columns.pop("labels", columns["input_ids"])
    return MicroBatch(columns, labels if last else None)
