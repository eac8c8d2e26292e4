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

    def region(self, kind: str, micro_batch: int | None = None, size: int = 0) -> AbstractContextManager[Any]:
        """What stands around a part. kind: "forward", "backward", "head", "optimizer", "tp", "dp", "send", "receive"; size: in bytes."""
        return nullcontext()


@dataclass
class _Flight:
    """A message that is under way."""

    buffer: torch.Tensor
    works: list[dist.Work] = field(default_factory=list)


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

    def train(self, batches: Sequence[MicroBatch], tokens: int | torch.Tensor, last_backward: Callable[[], None] = lambda: None
              ) -> list[torch.Tensor]:
        """Forward and backward of all micro-batches. Gradients are added to the parameters'.

        tokens: that the whole global batch predicts; the sum of all losses is over them. last_backward: called before the last one.
        Returns the loss of each micro-batch's samples here, on the last stage.
        """
        losses: dict[int, torch.Tensor] = {}
        kept: dict[int, tuple[torch.Tensor | None, torch.Tensor]] = {}
        coming: dict[Pass, _Flight] = {}
        going: list[_Flight] = []
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
        for flight in going:
            for work in flight.works:
                work.wait()
        return [losses[number] for number in sorted(losses)]

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[torch.Tensor]:
        """Forward passes alone, in order. Returns sums of losses, on the last stage."""
        losses: dict[int, torch.Tensor] = {}
        going: list[_Flight] = []
        with torch.no_grad():
            for number, batch in enumerate(batches):
                coming: dict[Pass, _Flight] = {}
                self._expect(Pass(False, number), batches, coming)
                self._forward(number, batch, 1, coming, going, losses)
        for flight in going:
            for work in flight.works:
                work.wait()
        return [losses[number] for number in sorted(losses)]

    # ---- passes

    def _forward(self, number: int, batch: MicroBatch, tokens: int | torch.Tensor, coming: dict[Pass, _Flight], going: list[_Flight],
                 losses: dict[int, torch.Tensor]) -> tuple[torch.Tensor | None, torch.Tensor]:
        received = None
        if not self._stage.first:
            received = self._arrived(Pass(False, number), coming)
            if torch.is_grad_enabled():
                received.requires_grad_()
        with self._regions.region("forward", number), self._around(number):
            made = self._stage.forward(batch.inputs, received)
            if self._stage.last:
                assert batch.labels is not None
                with self._regions.region("head", number):
                    made = _loss(made, batch.labels) / tokens
                losses[number] = made.detach()
        if not self._stage.last:
            self._send(made.detach(), self._to_behind, self._links.ahead, number, going)
        return received, made

    def _backward(self, number: int, received: torch.Tensor | None, made: torch.Tensor, coming: dict[Pass, _Flight],
                  going: list[_Flight]) -> None:
        gradient = None
        if not self._stage.last:
            gradient = self._arrived(Pass(True, number), coming).to(made.dtype)
        with self._regions.region("backward", number), self._around(number):
            torch.autograd.backward(made, gradient)
        if received is not None:
            assert received.grad is not None
            self._send(received.grad, self._to_before, self._links.back, number, going)

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
        coming[one] = flight

    def _arrived(self, one: Pass, coming: dict[Pass, _Flight]) -> torch.Tensor:
        flight = coming.pop(one)
        with self._regions.region("receive", one.micro_batch):
            for work in flight.works:
                work.wait()
        return flight.buffer

    def _send(self, tensor: torch.Tensor, pieces: Sequence[Piece], group: dist.ProcessGroup | None, number: int, going: list[_Flight]) -> None:
        tensor = tensor.to(self._wire).contiguous()
        flight = _Flight(tensor)
        with self._regions.region("send", number, tensor.numel() * tensor.element_size()):
            for piece in pieces:
                work = dist.isend(tensor[piece.begin:piece.end], piece.rank, group=group, tag=number)
                assert work is not None
                flight.works.append(work)
        going.append(flight)


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum over the tokens that are predicted: each from those before it."""
    vocabulary = logits.shape[-1]
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
    return torch.nn.functional.cross_entropy(logits.float().view(-1, vocabulary), shifted.reshape(-1), ignore_index=-100, reduction="sum")
