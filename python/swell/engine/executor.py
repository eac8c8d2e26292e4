# SPDX-License-Identifier: BSD-3-Clause
"""Runs a schedule on one stage: passes over its chunks, and what is sent and received between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from swell.engine.beside import SumsBeside
from swell.engine.comm import Links, Piece, sources, targets
from swell.engine.plan import Place, Plan
from swell.engine.put_off import PutOff
from swell.engine.schedule import Pass, Schedule
from swell.engine.stage import Share
from swell.engine.tensor_parallel import Shards, cross_entropy

__all__ = ["Executor", "MicroBatch", "Regions", "summed_loss"]

_LENGTHS = 8        # of samples, for whose first step messages go through the host at most


@dataclass(frozen=True)
class MicroBatch:
    """This worker's samples of one micro-batch.

    inputs: what the model takes. labels: tokens to be predicted, -100 for none, not yet shifted; on the last stage.
    """

    inputs: Mapping[str, torch.Tensor]
    labels: torch.Tensor | None

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and tokens of each."""
        ids = self.inputs["input_ids"]
        return ids.shape[0], ids.shape[1]


class Regions:
    """Told what part of a step begins; the profiler and paced devices are such. This one does nothing."""

    stamps = False      # whether messages say when they have arrived

    def region(self, kind: str, micro_batch: int | None = None, size: int = 0, chunk: int = 0) -> AbstractContextManager[Any]:
        """Enters a region around each timed part. kind: "forward", "backward" (or "inputs" and "weights": gradients of these alone), "head" and, within
        a backward pass, "head backward" or "head inputs", "optimizer", "tp", "dp", "send", "receive"; size: in bytes."""
        return nullcontext()

    def meet(self, group: dist.ProcessGroup | None) -> None:
        """Workers are about to begin a part together."""

    def beside(self, size: int) -> None:
        """A sum of so many bytes over replicas begins beside the computation. Any thread."""

    def arrival(self, rank: int, size: int) -> float:
        """When a message to a rank is there that is sent now. Asked where messages have stamps."""
        return 0.0

    def arrived(self, when: float) -> None:
        """A message is read that says so."""


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
class _Kept:
    """The tensors that a forward pass keeps for its backward pass. made: hidden states that another chunk takes."""

    received: torch.Tensor | None
    losses: list[torch.Tensor]
    made: torch.Tensor | None


@dataclass(frozen=True)
class _Route:
    """Messages of one direction between this stage and another one. back: gradients."""

    stage: int
    pieces: list[Piece]
    group: dist.ProcessGroup | None
    back: bool


class Executor:
    """Makes one stage's passes of a step.

    width: of the hidden states; wire: their dtype between chunks. around: stands around each pass (autocast, dropout's numbers), told the
    micro-batch and the chunk. recompute: layers compute their activations again in the backward pass. mtp_weight: of the loss of each MTP head.
    """

    def __init__(self, share: Share, plan: Plan, place: Place, links: Links, schedule: Schedule, *, width: int, wire: torch.dtype,
                 device: torch.device, regions: Regions, around: Callable[[int, int], AbstractContextManager[Any]], recompute: bool = False,
                 mtp_weight: float = 0.0) -> None:
        self._share, self._plan, self._links, self._passes = share, plan, links, list(schedule[place.stage])
        self._width, self._wire, self._device, self._regions, self._around = width, wire, device, regions, around
        self._at, self._mtp_weight = place.stage, mtp_weight
        filled = [chunk * plan.pp + stage for stage, parts in enumerate(plan.contents.parts) for chunk, part in enumerate(parts) if not part.is_empty]
        self._begin, self._end = min(filled), max(filled)
        self._splits = any(one.weights for one in self._passes)
        self._put_off = {chunk: PutOff(its.models, recompute) for chunk, its in enumerate(share.chunks) if its is not None} if self._splits else {}
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
            taken: list[Pass] = []
            for one in schedule[stage]:
                its = self._giver(stage, one)
                if its is not None and its[0] == self._at:
                    taken.append(its[1])
                its = self._taker(stage, one)
                if its is not None and its[0] == self._at:
                    self._sent[one.backward].append(its[1])
                    self._taken[its[1]], taken = taken, []
        receiving: Pass | None = None
        self._following: list[Pass | None] = []     # by pass: the next one that needs a message
        for one in reversed(self._passes):
            self._following.append(receiving)
            receiving = one if several and self._giver(self._at, one) is not None else receiving
        self._following.reverse()
        self._head: AbstractContextManager[Any] | None = None       # the region that is open
        self._number = 0        # of the micro-batch under way
        self._unposted: dict[bool, deque[Pass]] = {}
        self._coming: dict[Pass, _Flight] = {}
        self._going: dict[Pass, _Flight] = {}
        self._loads_on_use, self._lengths, self._by_host = _loads_on_use(device), set[tuple[bool, int]](), False
        self._here: dict[Pass, torch.Tensor] = {}       # of one chunk for another of the same stage, by the pass that takes it
        self._hooks = [model.head().register_forward_pre_hook(self._before_head) for model in share.models() if model.last]

    def end(self) -> None:
        """Leave the modules to another executor."""
        for hook in self._hooks:
            hook.remove()
        for one in self._put_off.values():
            one.end()

    def train(self, batches: Sequence[MicroBatch], tokens: int | torch.Tensor, sums: SumsBeside | None = None) -> list[torch.Tensor]:
        """Forward and backward of all micro-batches. Gradients are added to the parameters'.

        tokens: number of tokens that the whole global batch predicts; the sum of all losses is divided by it. sums: sums of gradients over
        workers that begin while passes still run. Returns, on a stage with a head, the loss of each micro-batch's samples on this worker; with several
        heads those of the first head come first.
        """
        losses: dict[tuple[int, int], torch.Tensor] = {}
        kept: dict[tuple[int, int], _Kept] = {}
        self._unposted = {back: deque(sent) for back, sent in self._sent.items()}
        self._choose_way(batches, trains=True)
        for one, following in zip(self._passes, self._following, strict=True):
            if one.weights:
                with sums.around(one) if sums is not None else nullcontext():
                    self._weights(one, sums)
                continue
            if self._in:
                self._expect(one, batches)
                if following is not None:
                    self._expect(following, batches)
            if not one.backward:
                kept_now = self._forward(one, batches[one.micro_batch], tokens, losses)
                if kept_now is not None:
                    kept[one.chunk, one.micro_batch] = kept_now
            else:
                self._backward(one, kept.pop((one.chunk, one.micro_batch), None), sums)
        self._land()
        return [losses[number] for number in sorted(losses)]

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[torch.Tensor]:
        """The forward passes alone, in the schedule's order, without MTP heads. Returns sums of losses, where the model's own head is."""
        losses: dict[tuple[int, int], torch.Tensor] = {}
        self._unposted = {False: deque(self._sent[False])}
        self._choose_way(batches, trains=False)
        with torch.no_grad():
            for one in self._passes:
                if not one.backward:
                    if self._in:
                        self._expect(one, batches)
                    self._forward(one, batches[one.micro_batch], 1, losses)
        self._land()
        return [losses[number] for number in sorted(losses)]

    # ---- what a pass takes, and who takes what it makes

    def _giver(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        """The stage and the pass that make what a pass of a stage takes; None: it takes nothing of another chunk."""
        return self._neighbour(stage, one, 1 if one.backward else -1)

    def _taker(self, stage: int, one: Pass) -> tuple[int, Pass] | None:
        """The stage and the pass that take what a pass of a stage makes; None: nobody does."""
        return self._neighbour(stage, one, -1 if one.backward else 1)

    def _neighbour(self, stage: int, one: Pass, step: int) -> tuple[int, Pass] | None:
        at = one.chunk * self._plan.pp + stage
        if one.weights or not self._begin <= min(at, at + step) < self._end:
            return None
        chunk, there = divmod(at + step, self._plan.pp)
        return there, Pass(one.backward, one.micro_batch, chunk)

    # ---- passes

    def _forward(self, one: Pass, batch: MicroBatch, tokens: int | torch.Tensor, losses: dict[tuple[int, int], torch.Tensor]) -> _Kept | None:
        received = self._arrived(one) if self._giver(self._at, one) is not None else None
        chunk, number = self._share.chunks[one.chunk], one.micro_batch
        if chunk is None:
            if received is not None:
                self._send(received, one)
            return None
        trains = torch.is_grad_enabled()
        if received is not None and trains:
            received.requires_grad_()
        self._number = number
        roots: list[torch.Tensor] = []
        hidden = received
        with self._regions.region("forward", number, 0, one.chunk), self._around(number, one.chunk):
            for model in chunk.models:
                if model.number and not trains:
                    break
                hidden, logits = model.run(batch.inputs, hidden)
                if logits is None:
                    continue
                assert batch.labels is not None
                loss = summed_loss(logits, batch.labels, 1 + model.number, model.vocabulary)
                loss = (loss * self._mtp_weight if model.number else loss) / tokens
                losses[model.number, number] = loss.detach()
                roots.append(loss)
                self._close_head()
                if loss.requires_grad:
                    loss.register_hook(lambda _: self._open_head("head inputs" if self._splits else "head backward", number))      # type: ignore[no-untyped-call]
        taken = hidden if self._taker(self._at, one) is not None else None
        if taken is not None:
            self._send(taken.detach(), one)
        return _Kept(received, roots, taken)

    def _backward(self, one: Pass, kept: _Kept | None, sums: SumsBeside | None) -> None:
        gradient = self._arrived(one) if self._giver(self._at, one) is not None else None
        chunk, number = self._share.chunks[one.chunk], one.micro_batch
        if chunk is None:
            if gradient is not None:
                self._send(gradient, one)
            return
        assert kept is not None
        roots: list[torch.Tensor] = list(kept.losses)
        gradients: list[torch.Tensor | None] = [None] * len(roots)
        if gradient is not None:
            assert kept.made is not None
            roots.append(kept.made)
            gradients.append(gradient.to(kept.made.dtype))
        with self._regions.region("inputs" if self._splits else "backward", number, 0, one.chunk), self._around(number, one.chunk):
            with sums.around(one) if sums is not None else nullcontext():
                torch.autograd.backward(roots, gradients)
            self._close_head()
        if self._splits:
            self._put_off[one.chunk].made(number)
        if kept.received is not None:
            assert kept.received.grad is not None
            self._send(kept.received.grad, one)

    def _weights(self, one: Pass, sums: SumsBeside | None) -> None:
        if one.chunk in self._put_off:
            with self._regions.region("weights", one.micro_batch, 0, one.chunk):
                self._put_off[one.chunk].add(one.micro_batch, sums if sums is not None and sums.is_last(one) else None)

    # ---- output projection and loss: a part of a pass

    def _before_head(self, _: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self._open_head("head", self._number)
        if not args[0].requires_grad:
            return args
        own = args[0].view_as(args[0])      # an MTP module reads the same tensor: its gradient comes after that module's
        own.register_hook(lambda _: self._close_head())
        return (own, *args[1:])

    def _open_head(self, kind: str, number: int) -> None:
        """A head begins; its backward pass does with its loss's gradient, as a chunk may have several."""
        self._head = self._regions.region(kind, number)
        self._head.__enter__()

    def _close_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            head.__exit__(None, None, None)

    # ---- messages

    def _choose_way(self, batches: Sequence[MicroBatch], trains: bool) -> None:
        """Have this step's messages go through the host where samples have a new length, so that kernels may have to be loaded.

        CUDA loads a kernel in its first launch, which waits for all that runs on the GPU; so may a call that takes memory. A message of NCCL's that is
        posted there runs until its other end has come, which may itself wait for a message of this worker's: both would wait for ever. Workers
        that exchange messages see the same lengths, and so choose alike. With CUDA_LAUNCH_BLOCKING=1 a message posted early stops its worker: all go through the host.
        """
        new = {(trains, batch.shape[1]) for batch in batches} - self._lengths
        self._by_host = self._loads_on_use and bool(self._in) and (self._links.blocks or bool(new) and len(self._lengths) < _LENGTHS)
        self._lengths |= new

    def _expect(self, one: Pass, batches: Sequence[MicroBatch]) -> None:
        """Say early that a message will be taken, so that it comes while something else is computed; and all that are sent before it."""
        if one in self._coming or self._giver(self._at, one) is None:
            return
        route, unposted = self._in[one.backward], self._unposted[one.backward]
        while one not in self._coming:
            its = unposted.popleft()
            samples, length = batches[its.micro_batch].shape
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

    def _arrived(self, one: Pass) -> torch.Tensor:
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

    def _send(self, tensor: torch.Tensor, one: Pass) -> None:
        """Give what a pass has made to the one that takes it."""
        taker = self._taker(self._at, one)
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

    def _land(self) -> None:
        """Wait for what is under way, at the end of a step."""
        for flight in self._going.values():
            flight.wait()
        self._going.clear()

    def _way(self, route: _Route, taker: Pass) -> tuple[dist.ProcessGroup | None, int]:
        """The group and the tag of a message."""
        if self._by_host:       # tags of both directions, and of stamps, are in one group
            return self._links.host, 2 * self._plan.chunks * self._plan.micro_batches + self._stamp(taker)
        return route.group, self._tag(taker)

    def _tag(self, taker: Pass) -> int:
        return taker.chunk * self._plan.micro_batches + taker.micro_batch

    def _stamp(self, taker: Pass) -> int:
        return 2 * self._tag(taker) + taker.backward


def _loads_on_use(device: torch.device) -> bool:
    """Whether kernels are loaded, and memory is taken, when they are first needed."""
    return device.type == "cuda"


def summed_loss(logits: torch.Tensor, labels: torch.Tensor, ahead: int, shards: Shards | None = None) -> torch.Tensor:
    """The sum over the tokens that are predicted: each from those that stand so many places before it. shards: that divide the vocabulary."""
    vocabulary = logits.shape[-1]
    shifted = torch.nn.functional.pad(labels, (0, ahead), value=-100)[..., ahead:]
    if shards is not None:
        return cross_entropy(logits.float().view(-1, vocabulary), shifted.reshape(-1), -100, shards)
    return torch.nn.functional.cross_entropy(logits.float().view(-1, vocabulary), shifted.reshape(-1), ignore_index=-100, reduction="sum")
