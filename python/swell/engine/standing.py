# SPDX-License-Identifier: BSD-3-Clause
"""A worker's role under a plan, as far as that needs no other worker: in live mode it is made while the training goes on under another one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from swell.engine import layers
from swell.engine.plan import Plan
from swell.engine.skeleton import Skeleton
from swell.engine.stage import Share
from swell.engine.tensor_parallel import Shards

__all__ = ["Standing"]


class Standing:
    """A worker's place in a plan, and its share of the model, without memory yet.

    timed: what stands around each collective of so many bytes among its shards, whose group is that of Links. shards: makes them.
    """

    def __init__(self, skeleton: Skeleton, plan: Plan, rank: int, *, seed: int, device: torch.device, recompute: bool,
                 timed: Callable[[int], AbstractContextManager[Any]], shards: type[Shards] = Shards) -> None:
        self.skeleton, self.plan, self.place = skeleton, plan, plan.places[rank]
        tp = plan.stages[self.place.stage].tp
        self.shards = shards(None, self.place.shard, tp, timed) if tp > 1 else None
        drops = layers.drops(skeleton.model, skeleton.config)
        self.share = Share(skeleton, plan, self.place, self.shards)
        whole_heads = skeleton.family.splits_heads()
        self.dropout = layers.Dropout(seed, device, self.place.shard if whole_heads else 0, tp if whole_heads else 1) \
            if drops else None
        for chunk in self.share.models():
            layers.wrap(chunk, self.shards, self.dropout, recompute)
