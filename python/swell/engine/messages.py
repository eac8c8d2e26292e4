# SPDX-License-Identifier: BSD-3-Clause
"""Hidden states and their gradients on their way between the chunks of a plan: which pass takes what another made, and the messages that carry it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from swell.engine.comm import Links, Piece, sources, targets
from swell.engine.plan import Place, Plan
from swell.engine.regions import Regions
from swell.engine.schedule import Pass, Schedule

__all__ = ["Messages"]

_LENGTHS = 8        # of samples, for whose first step messages go through the host at most


@dataclass
class _Flight:
    """A message that is under way."""

    buffer: torch.Tensor
    works: list[dist.Work] = field(default_factory=list)
    stamps: list[torch.Tensor] = field(default_factory=list)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@dataclass(frozen=True)
class _Route:
    """Messages of one direction between this stage and another one. back: gradients."""

    stage: int
    pieces: list[Piece]
    group: dist.ProcessGroup | None
    back: bool


class _Chain:
    """The chunks of a plan that have units, in the order in which hidden states pass through them."""

    def __init__(self, plan: Plan) -> None:
        self._pp = plan.pp
        filled = [chunk * plan.pp + stage for stage, parts in enumerate(plan.contents.parts) for chunk, part in enumerate(parts) if not part.is_empty]
        self._begin, self._end = min(filled), max(filled)

    def giver(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        """Returns the stage and the pass that make what a pass of a stage takes; None: it takes nothing of another chunk."""
        return self._neighbour(stage, one, 1 if one.backward else -1)

    def taker(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        """Returns the stage and the pass that take what a pass of a stage makes; None: no pass does."""
        return self._neighbour(stage, one, -1 if one.backward else 1)

    def _neighbour(self, stage: int, one: Pass, step: int) -> tuple[int, Pass] | None:
        at = one.chunk * self._pp + stage
        if one.weights or not self._begin <= min(at, at + step) < self._end:
            return None
        chunk, there = divmod(at + step, self._pp)
        return there, Pass(one.backward, one.micro_batch, chunk)


class Messages:
    """Carries what the passes of one stage take of other chunks and give to them, in the order of a schedule.

    width: of the hidden states; wire: their dtype between chunks.
    """

    def __init__(self, plan: Plan, place: Place, links: Links, schedule: Schedule, *, width: int, wire: torch.dtype, device: torch.device,
                 regions: Regions) -> None:
        self._plan, self._links, self._width, self._wire, self._device, self._regions = plan, links, width, wire, device, regions
        self._at, self._chain = place.stage, _Chain(plan)
        last, several = plan.pp - 1, plan.pp > 1
        before, behind = (self._at or plan.pp) - 1, 0 if self._at == last else self._at + 1
        ahead, back = (links.around, links.around_back) if self._at == 0 else (links.ahead, links.back)
        onward, returning = (links.around, links.around_back) if self._at == last else (links.ahead, links.back)
        self._in = {back_: _Route(stage, sources(plan, place, stage), group, back_)
                    for back_, stage, group in ((False, before, ahead), (True, behind, returning))} if several else {}
        self._out = {back_: _Route(stage, targets(plan, place, stage), group, back_)
                     for back_, stage, group in ((False, behind, onward), (True, before, back))} if several else {}
        # Messages of one direction are received in the order in which they are sent: NCCL knows no tags.
        self._sent: dict[bool, list[Pass]] = {False: [], True: []}
        # A message of another stage shows which messages it has taken by then.
        self._taken: dict[Pass, list[Pass]] = {}
        for stage in sorted({before, behind}) if several else ():
            self._read_order(stage, schedule[stage])
        receiving: Pass | None = None
        self._following: dict[Pass, Pass | None] = {}       # of a pass: the next one that needs a message
        for one in reversed(schedule[self._at]):
            self._following[one] = receiving
            receiving = one if several and self.takes(one) else receiving
        self._shapes: list[tuple[int, int]] = []        # samples and tokens of each, by micro-batch
        self._trains = False
        self._unposted: dict[bool, deque[Pass]] = {}
        self._coming: dict[Pass, _Flight] = {}
        self._going: dict[Pass, _Flight] = {}
        self._loads_on_use, self._lengths, self._by_host = _loads_on_use(device), set[tuple[bool, int]](), False
        self._here: dict[Pass, torch.Tensor] = {}       # of one chunk for another of the same stage, by the pass that takes it

    def _read_order(self, stage: int, passes: Sequence[Pass]) -> None:
        """Notes what a neighbouring stage sends to this one, and what it has taken of this one before each message."""
        taken: list[Pass] = []
        for one in passes:
            its = self._chain.giver(stage, one)
            if its is not None and its[0] == self._at:
                taken.append(its[1])
            its = self._chain.taker(stage, one)
            if its is not None and its[0] == self._at:
                self._sent[one.backward].append(its[1])
                self._taken[its[1]], taken = taken, []

    def takes(self, one: Pass) -> bool:
        """Returns whether a pass of this stage needs what another chunk's made."""
        return self._chain.giver(self._at, one) is not None

    def gives(self, one: Pass) -> bool:
        """Returns whether another chunk's pass needs what a pass of this stage makes."""
        return self._chain.taker(self._at, one) is not None

    def begin(self, shapes: list[tuple[int, int]], *, trains: bool) -> None:
        """Begins a step over micro-batches of these shapes (samples, tokens of each). trains: with backward passes.

        Messages of this step go through the host where samples have a new length, so that kernels may have to be loaded. CUDA loads a kernel in its first
        launch, which waits for all that runs on the GPU; so may a call that takes memory. A message of NCCL's that is posted there runs until its other end
        has come, which may itself wait for a message of this worker's: both would wait for ever. Workers that exchange messages see the same lengths, and
        so choose alike. With CUDA_LAUNCH_BLOCKING=1 a message posted early stops its worker: all go through the host.
        """
        self._shapes, self._trains = shapes, trains
        self._unposted = {back: deque(sent) for back, sent in self._sent.items()}
        new = {(trains, length) for _, length in shapes} - self._lengths
        self._by_host = self._loads_on_use and bool(self._in) and (self._links.blocks or bool(new) and len(self._lengths) < _LENGTHS)
        self._lengths |= new

    def expect(self, one: Pass) -> None:
        """Posts the receipt of what a pass takes and, in training, of the next message behind it, so that they come while something else is computed."""
        if not self._in:
            return
        self._post(one)
        following = self._following[one]
        if following is not None and self._trains:
            self._post(following)

    def _post(self, one: Pass) -> None:
        """Posts the receipt of a message, and of all that are sent before it."""
        if one in self._coming or not self.takes(one):
            return
        route, unposted = self._in[one.backward], self._unposted[one.backward]
        while one not in self._coming:
            its = unposted.popleft()
            samples, length = self._shapes[its.micro_batch]
            flight = _Flight(torch.empty(samples, length, self._width, dtype=self._wire, device="cpu" if self._by_host else self._device))
            group, tag = self._way(route, its)
            for piece in route.pieces:
                work = dist.irecv(flight.buffer[piece.begin:piece.end], piece.rank, group=group, tag=tag)
                assert work is not None
                flight.works.append(work)
                if self._regions.stamps:
                    flight.stamps.append(torch.empty(1, dtype=torch.float64))
                    work = dist.irecv(flight.stamps[-1], piece.rank, group=self._links.host, tag=self._stamp(its))
                    assert work is not None
                    flight.works.append(work)
            self._coming[its] = flight

    def take(self, one: Pass) -> torch.Tensor | None:
        """Returns what another chunk's pass made for this one, of the wire's dtype on this worker's device; waits for it. None: this pass takes nothing."""
        if not self.takes(one):
            return None
        if not self._in:
            return self._here.pop(one)
        flight = self._coming.pop(one)
        with self._regions.region("receive", one.micro_batch):
            flight.wait()
            for stamp in flight.stamps:
                self._regions.arrived(float(stamp))
        for taken in self._taken[one]:      # long there: its memory is given back
            going = self._going.pop(taken, None)
            if going is not None:
                going.wait()
        return flight.buffer.to(self._device)

    def give(self, tensor: torch.Tensor, one: Pass) -> None:
        """Sends what a pass has made to the one that takes it; nothing where no pass does."""
        taker = self._chain.taker(self._at, one)
        if taker is None:
            return
        tensor = tensor.to(self._wire).contiguous()
        if not self._out:
            self._here[taker[1]] = tensor
            return
        if self._by_host:
            tensor = tensor.cpu()
        flight, route = _Flight(tensor), self._out[one.backward]
        group, tag = self._way(route, taker[1])
        with self._regions.region("send", one.micro_batch, tensor.numel() * tensor.element_size()):
            for piece in route.pieces:
                part = tensor[piece.begin:piece.end]
                work = dist.isend(part, piece.rank, group=group, tag=tag)
                assert work is not None
                flight.works.append(work)
                if self._regions.stamps:
                    flight.stamps.append(torch.tensor([self._regions.arrival(piece.rank, part.numel() * part.element_size())], dtype=torch.float64))
                    work = dist.isend(flight.stamps[-1], piece.rank, group=self._links.host, tag=self._stamp(taker[1]))
                    assert work is not None
                    flight.works.append(work)
        self._going[one] = flight

    def end(self) -> None:
        """Waits for all messages that are under way, at the end of a step."""
        for flight in self._going.values():
            flight.wait()
        self._going.clear()

    def _way(self, route: _Route, taker: Pass) -> tuple[dist.ProcessGroup | None, int]:
        """Returns the group and the tag of a message."""
        if self._by_host:       # tags of both directions, and of stamps, are in one group
            return self._links.host, 2 * self._plan.chunks * self._plan.micro_batches + self._stamp(taker)
        return route.group, self._tag(taker)

    def _tag(self, taker: Pass) -> int:
        return taker.chunk * self._plan.micro_batches + taker.micro_batch

    def _stamp(self, taker: Pass) -> int:
        return 2 * self._tag(taker) + taker.backward


def _loads_on_use(device: torch.device) -> bool:
    """Returns whether kernels are loaded, and memory is taken, when they are first needed."""
    return device.type == "cuda"
