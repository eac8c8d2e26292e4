# SPDX-License-Identifier: BSD-3-Clause
"""Runs a schedule on one stage: passes, and what is sent and received between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from swell.engine.comm import Links, Piece, sources, targets
from swell.engine.plan import Place, Plan
from swell.engine.schedule import Pass, Schedule
from swell.engine.stage import StageModel

__all__ = ["Executor", "MicroBatch", "Regions"]


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

    def region(self, kind: str, micro_batch: int | None = None, size: int = 0) -> AbstractContextManager[Any]:
        """What stands around a part. kind: "forward", "backward", "head" and "head backward" within them, "optimizer", "tp", "dp",
        "send", "receive"; size: in bytes."""
        return nullcontext()

    def meet(self, group: dist.ProcessGroup | None) -> None:
        """Workers are about to begin a part together."""

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


class Executor:
    """Makes one stage's passes of a step.

    width: of the hidden states; wire: their dtype between stages. around: stands around each pass (autocast, dropout's numbers).
    """

    def __init__(self, stage: StageModel, plan: Plan, place: Place, links: Links, schedule: Schedule, *, width: int, wire: torch.dtype,
                 device: torch.device, regions: Regions, around: Callable[[int], AbstractContextManager[Any]]) -> None:
        self._stage, self._links, self._passes = stage, links, list(schedule[place.stage])
        self._width, self._wire, self._device, self._regions, self._around = width, wire, device, regions, around
        before, behind = place.stage - 1, place.stage + 1
        self._from_before: list[Piece] = sources(plan, place, before) if not stage.first else []
        self._to_behind: list[Piece] = targets(plan, place, behind) if not stage.last else []
        self._from_behind: list[Piece] = sources(plan, place, behind) if not stage.last else []
        self._to_before: list[Piece] = targets(plan, place, before) if not stage.first else []
        # What stage `before` sends of a micro-batch says which gradients it has taken by then.
        self._taken: dict[int, set[int]] = {}
        taken: set[int] = set()
        for one in schedule[before] if not stage.first else ():
            if one.backward:
                taken.add(one.micro_batch)
            else:
                self._taken[one.micro_batch], taken = taken, set()
        self._head: AbstractContextManager[Any] | None = None       # the region that is open
        self._number = 0        # of the micro-batch under way
        if stage.last:
            stage.head().register_forward_pre_hook(self._before_head)

    def train(self, batches: Sequence[MicroBatch], tokens: int | torch.Tensor, last_backward: Callable[[], None] = lambda: None
              ) -> list[torch.Tensor]:
        """Forward and backward of all micro-batches. Gradients are added to the parameters'.

        tokens: that the whole global batch predicts; the sum of all losses is over them. last_backward: called before the last one.
        Returns the loss of each micro-batch's samples here, on the last stage.
        """
        losses: dict[int, torch.Tensor] = {}
        kept: dict[int, tuple[torch.Tensor | None, torch.Tensor]] = {}
        coming: dict[Pass, _Flight] = {}
        going: dict[Pass, _Flight] = {}
        for at, one in enumerate(self._passes):
            self._expect(one, batches, coming)
            following = next((later for later in self._passes[at + 1:] if self._receives(later)), None)
            if following is not None:
                self._expect(following, batches, coming)
            number = one.micro_batch
            if not one.backward:
                kept[number] = self._forward(number, batches[number], tokens, coming, going, losses)
            else:
                if at == len(self._passes) - 1:
                    last_backward()
                self._backward(number, *kept.pop(number), coming, going)
        for flight in going.values():
            flight.wait()
        return [losses[number] for number in sorted(losses)]

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[torch.Tensor]:
        """Forward passes alone, in order. Returns sums of losses, on the last stage."""
        losses: dict[int, torch.Tensor] = {}
        going: dict[Pass, _Flight] = {}
        with torch.no_grad():
            for number, batch in enumerate(batches):
                coming: dict[Pass, _Flight] = {}
                self._expect(Pass(False, number), batches, coming)
                self._forward(number, batch, 1, coming, going, losses)
        for flight in going.values():
            flight.wait()
        return [losses[number] for number in sorted(losses)]

    # ---- passes

    def _forward(self, number: int, batch: MicroBatch, tokens: int | torch.Tensor, coming: dict[Pass, _Flight], going: dict[Pass, _Flight],
                 losses: dict[int, torch.Tensor]) -> tuple[torch.Tensor | None, torch.Tensor]:
        received = None
        if not self._stage.first:
            received = self._arrived(Pass(False, number), coming)
            for taken in self._taken[number]:
                if Pass(True, taken) in going:
                    going.pop(Pass(True, taken)).wait()
            if torch.is_grad_enabled():
                received.requires_grad_()
        self._number = number
        with self._regions.region("forward", number), self._around(number):
            made = self._stage.forward(batch.inputs, received)
            if self._stage.last:
                assert batch.labels is not None
                made = _loss(made, batch.labels) / tokens
                losses[number] = made.detach()
                self._close_head()
        if not self._stage.last:
            self._send(made.detach(), self._to_behind, self._links.ahead, number, going)
        return received, made

    def _backward(self, number: int, received: torch.Tensor | None, made: torch.Tensor, coming: dict[Pass, _Flight],
                  going: dict[Pass, _Flight]) -> None:
        gradient = None
        if not self._stage.last:
            gradient = self._arrived(Pass(True, number), coming).to(made.dtype)
            going.pop(Pass(False, number)).wait()       # long there: its memory is given back
        with self._regions.region("backward", number), self._around(number):
            if self._stage.last:
                self._open_head("head backward", number)
            torch.autograd.backward(made, gradient)
            self._close_head()
        if received is not None:
            assert received.grad is not None
            self._send(received.grad, self._to_before, self._links.back, number, going)

    # ---- output projection and loss: a part of a pass

    def _before_head(self, _: torch.nn.Module, args: tuple[Any, ...]) -> None:
        self._open_head("head", self._number)
        if args[0].requires_grad:
            args[0].register_hook(lambda _: self._close_head())

    def _open_head(self, kind: str, number: int) -> None:
        self._head = self._regions.region(kind, number)
        self._head.__enter__()

    def _close_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            head.__exit__(None, None, None)

    # ---- messages

    def _receives(self, one: Pass) -> bool:
        return bool(self._from_behind if one.backward else self._from_before)

    def _expect(self, one: Pass, batches: Sequence[MicroBatch], coming: dict[Pass, _Flight]) -> None:
        """Say early that a message will be taken, so that it comes while something else is computed."""
        if one in coming or not self._receives(one):
            return
        samples, length = batches[one.micro_batch].shape
        flight = _Flight(torch.empty(samples, length, self._width, dtype=self._wire, device=self._device))
        for piece in self._from_behind if one.backward else self._from_before:
            work = dist.irecv(flight.buffer[piece.begin:piece.end], piece.rank, group=self._links.back if one.backward else self._links.ahead,
                              tag=one.micro_batch)
            assert work is not None
            flight.works.append(work)
            if self._regions.stamps:
                flight.stamps.append(torch.empty(1, dtype=torch.float64))
                work = dist.irecv(flight.stamps[-1], piece.rank, group=self._links.host, tag=self._stamp(one.backward, one.micro_batch))
                assert work is not None
                flight.works.append(work)
        coming[one] = flight

    def _arrived(self, one: Pass, coming: dict[Pass, _Flight]) -> torch.Tensor:
        flight = coming.pop(one)
        with self._regions.region("receive", one.micro_batch):
            flight.wait()
            for stamp in flight.stamps:
                self._regions.arrived(float(stamp))
        return flight.buffer

    def _send(self, tensor: torch.Tensor, pieces: Sequence[Piece], group: dist.ProcessGroup | None, number: int, going: dict[Pass, _Flight]) -> None:
        tensor = tensor.to(self._wire).contiguous()
        flight = _Flight(tensor)
        with self._regions.region("send", number, tensor.numel() * tensor.element_size()):
            for piece in pieces:
                part = tensor[piece.begin:piece.end]
                work = dist.isend(part, piece.rank, group=group, tag=number)
                assert work is not None
                flight.works.append(work)
                if self._regions.stamps:
                    flight.stamps.append(torch.tensor([self._regions.arrival(piece.rank, part.numel() * part.element_size())], dtype=torch.float64))
                    work = dist.isend(flight.stamps[-1], piece.rank, group=self._links.host, tag=self._stamp(group is self._links.back, number))
                    assert work is not None
                    flight.works.append(work)
        going[Pass(group is self._links.back, number)] = flight

    @staticmethod
    def _stamp(backward: bool, number: int) -> int:
        return 2 * number + backward


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum over the tokens that are predicted: each from those before it."""
    vocabulary = logits.shape[-1]
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
    return torch.nn.functional.cross_entropy(logits.float().view(-1, vocabulary), shifted.reshape(-1), ignore_index=-100, reduction="sum")
