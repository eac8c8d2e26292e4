# SPDX-License-Identifier: BSD-3-Clause
"""The communication of ranks under a plan: process groups, and which part of a micro-batch goes between which ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from swell.engine.plan import Place, Plan

__all__ = ["Links", "Piece", "all_gather_single", "sources", "targets", "tied_peers"]


@dataclass(frozen=True)
class Piece:
    """Samples [begin, end) of what this worker computes of a micro-batch, and the rank that has or needs them."""

    rank: int
    begin: int
    end: int


def _overlaps(plan: Plan, place: Place, stage: int) -> list[tuple[int, int, int]]:
    """Groups of another stage that compute some of this worker's samples: group, begin, end in its own."""
    mine, found = plan.stages[place.stage].samples(place.group), []
    for group in range(len(plan.stages[stage].groups)):
        theirs = plan.stages[stage].samples(group)
        begin, end = max(mine.start, theirs.start), min(mine.stop, theirs.stop)
        if begin < end:
            found.append((group, begin - mine.start, end - mine.start))
    return found


def sources(plan: Plan, place: Place, stage: int) -> list[Piece]:
    """Whom this worker gets its samples from: all shards of a stage have the same, each serves some of the others'."""
    return [Piece(plan.rank(stage, group, place.shard % plan.stages[stage].tp), begin, end)
            for group, begin, end in _overlaps(plan, place, stage)]


def targets(plan: Plan, place: Place, stage: int) -> list[Piece]:
    """To whom this worker sends: the other side of sources()."""
    tp, own = plan.stages[stage].tp, plan.stages[place.stage].tp
    return [Piece(plan.rank(stage, group, shard), begin, end)
            for group, begin, end in _overlaps(plan, place, stage)
            for shard in range(tp) if shard % own == place.shard]


def tied_peers(plan: Plan, place: Place) -> tuple[list[int], int]:
    """Returns the ranks that a worker at one end of the model sends its gradient of a tied matrix to, and the one it receives from."""
    other_end = plan.contents.head_stage if place.stage == plan.contents.embedding_stage else plan.contents.embedding_stage
    other = [one.rank for one in plan.places if one.stage == other_end]
    mine = [one.rank for one in plan.places if one.stage == place.stage]
    at = mine.index(place.rank)
    return other[at::len(mine)], other[at % len(other)]


def _messages(plan: Plan, place: Place, tied: bool) -> list[tuple[int, int, int]]:
    """Returns every kind of message of a worker as (group, sender, receiver), each once, in an order that is the same on all workers. group: as
    in Links.groups()."""
    rank, last = place.rank, plan.pp - 1
    found: set[tuple[int, int, int]] = set()
    for stage, other, around in [(place.stage, place.stage + 1, 0), *([(last, 0, 2)] if place.stage == last and plan.chunks > 1 else [])]:
        if 0 <= other <= last and stage != other:
            found |= {(around + 1, piece.rank, rank) for piece in sources(plan, place, other)}
            found |= {(around, rank, piece.rank) for piece in targets(plan, place, other)}
    for stage, other, around in [(place.stage, place.stage - 1, 0), *([(0, last, 2)] if place.stage == 0 and plan.chunks > 1 else [])]:
        if 0 <= other <= last and stage != other:
            found |= {(around, piece.rank, rank) for piece in sources(plan, place, other)}
            found |= {(around + 1, rank, piece.rank) for piece in targets(plan, place, other)}
    begins, ends = place.stage == plan.contents.embedding_stage, place.stage == plan.contents.head_stage
    if tied and begins != ends:
        receivers, sender = tied_peers(plan, place)
        found |= {(int(ends), rank, receiver) for receiver in receivers} | {(int(begins), sender, rank)}
    return sorted(found, key=lambda one: (one[0], min(one[1:]), max(one[1:]), one[1]))


class Links:
    """The process groups of a worker. Made by all workers at the same time.

    tp: its tensor parallel group. dp: the same shard of all groups of its stage. ahead, back: activations and their
    gradients between neighbouring stages; around, around_back: between the last stage and the first one, where there are several chunks. Each
    direction has a group of its own, so that no direction waits for another; with two stages, too. host: all workers, on the CPU.
    A group is None if it would have one worker only. shared: the workers of all stages that use a shared matrix, by these stages.
    """

    def __init__(self, plan: Plan, place: Place, shared: Iterable[tuple[int, ...]] = ()) -> None:
        self.tp: dist.ProcessGroup | None = None
        self.dp: dist.ProcessGroup | None = None
        self.ahead: dist.ProcessGroup | None = None
        self.back: dist.ProcessGroup | None = None
        self.around: dist.ProcessGroup | None = None
        self.around_back: dist.ProcessGroup | None = None
        for stage, one in enumerate(plan.stages):
            if one.tp > 1:
                for group in range(len(one.groups)):
                    ranks = [plan.rank(stage, group, shard) for shard in range(one.tp)]
                    made = dist.new_group(ranks)
                    if place.rank in ranks:
                        self.tp = made
            if len(one.groups) > 1:
                for shard in range(one.tp):
                    ranks = [plan.rank(stage, group, shard) for group in range(len(one.groups))]
                    made = dist.new_group(ranks)
                    if place.rank in ranks:
                        self.dp = made
        if plan.pp > 1:
            self.ahead, self.back = dist.new_group(), dist.new_group()
            if plan.chunks > 1:
                self.around, self.around_back = dist.new_group(), dist.new_group()
        self.shared: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for stages in sorted(set(shared)):
            if len(stages) > 1:
                made = dist.new_group([one.rank for one in plan.places if one.stage in stages])
                if place.stage in stages:
                    self.shared[stages] = made
        self.host = dist.new_group(backend="gloo") if plan.world > 1 else None
        self.blocks = False     # whether a launch on some worker's GPU waits for its end

    def groups(self) -> tuple[dist.ProcessGroup | None, ...]:
        """Those of messages between stages: ahead, back, around, around_back."""
        return self.ahead, self.back, self.around, self.around_back

    def connect(self, plan: Plan, place: Place, tied: bool, device: torch.device) -> None:
        """Make the connection of each message's sender and receiver. All workers call it before their first message.

        NCCL connects two workers in their first operation, and blocks each of them until the other comes to it. Passes meet others in an
        order of their own, so that each would wait for another; here all go through the pairs in one order. tied: the ends of the model
        exchange gradients.
        """
        token = torch.zeros(1, device=device)
        for number, sender, receiver in _messages(plan, place, tied):
            group = self.groups()[number]
            work = dist.isend(token, receiver, group=group) if sender == place.rank else dist.irecv(token, sender, group=group)
            assert work is not None
            work.wait()
        if plan.pp > 1:
            said = torch.tensor(int(os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"), dtype=torch.int32)
            dist.all_reduce(said, op=dist.ReduceOp.MAX, group=self.host)
            self.blocks = bool(said)

    def count(self) -> int:
        """Process groups of this worker, the default one with them."""
        return sum(one is not None for one in (dist.group.WORLD, self.tp, self.dp, *self.groups(), *self.shared.values(), self.host))


# Its name from PyTorch 2.13 on, which warns of the other one.
all_gather_single: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_PARTS, _MIN_PART = 8, 1 << 20        # one after the other, as a part is there a second time while it is summed; elements


def add_in_order(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """The sum over a group in the order of its ranks, in place, wherever in a buffer an element stands.

    A ring's order depends on the position, and so on which layers share a buffer. tensor: one-dimensional, contiguous.
    """
    count = dist.get_world_size(group)
    if count == 2:      # the same in either order
        dist.all_reduce(tensor, group=group)
        return
    add = _add_by_messages if tensor.device.type == "cpu" else _add_by_collectives
    for part in torch.split(tensor, max(_MIN_PART, -(-tensor.numel() // _PARTS))):
        add(part, group, count)


def _add_by_messages(tensor: torch.Tensor, group: dist.ProcessGroup, count: int) -> None:
    """Each worker sums a share of the elements. On a host, whose collectives copy more and change threads."""
    ranks, own = dist.get_process_group_ranks(group), dist.get_rank(group)
    shares = [tensor[at * tensor.numel() // count:(at + 1) * tensor.numel() // count] for at in range(count)]
    others = [(own + step) % count for step in range(1, count)]
    mine = shares[own]
    rows = [mine if at == own else torch.empty_like(mine) for at in range(count)]
    _exchange([(rows[at], ranks[at]) for at in others], [(shares[at], ranks[at]) for at in others], group)
    total = rows[0]
    for row in rows[1:]:
        total.add_(row)
    if own:
        mine.copy_(total)
    _exchange([(shares[at], ranks[at]) for at in others], [(mine, ranks[at]) for at in others], group)


def _exchange(received: Sequence[tuple[torch.Tensor, int]], sent: Sequence[tuple[torch.Tensor, int]], group: dist.ProcessGroup) -> None:
    works = [dist.irecv(tensor, rank, group=group) for tensor, rank in received if tensor.numel()]
    works += [dist.isend(tensor, rank, group=group) for tensor, rank in sent if tensor.numel()]
    for work in works:
        assert work is not None
        work.wait()


def _add_by_collectives(tensor: torch.Tensor, group: dist.ProcessGroup, count: int) -> None:
    share = -(-tensor.numel() // count)
    padded = tensor if share * count == tensor.numel() else torch.nn.functional.pad(tensor, (0, share * count - tensor.numel()))
    theirs = torch.empty_like(padded)
    dist.all_to_all_single(theirs, padded, group=group)
    rows = theirs.view(count, share)
    total = rows[0]
    for row in rows[1:]:
        total = total.add_(row)
    if padded is tensor:
        all_gather_single(tensor, total, group=group)
        return
    all_gather_single(padded, total, group=group)
    tensor.copy_(padded[:tensor.numel()])
