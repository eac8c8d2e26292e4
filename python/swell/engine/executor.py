# SPDX-License-Identifier: BSD-3-Clause
"""Runs a schedule on one stage: passes over its chunks, between which messages go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from swell.engine.beside import SumsBeside
from swell.engine.comm import Links
from swell.engine.messages import Messages
from swell.engine.plan import Place, Plan
from swell.engine.put_off import PutOff
from swell.engine.regions import Regions
from swell.engine.schedule import Pass, Schedule
from swell.engine.stage import Share
from swell.engine.tensor_parallel import Shards, cross_entropy

__all__ = ["Executor", "MicroBatch", "summed_loss"]

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


@dataclass(frozen=True)
class _Kept:
    """The tensors that a forward pass keeps for its backward pass. made: hidden states that another chunk takes."""

    received: torch.Tensor | None
    losses: list[torch.Tensor]
    made: torch.Tensor | None


class Executor:
    """Makes one stage's passes of a step.

    width: of the hidden states; wire: their dtype between chunks. around: stands around each pass (autocast, dropout's numbers), told the
    micro-batch and the chunk. recompute: layers compute their activations again in the backward pass. mtp_weight: of the loss of each MTP head.
    """

    def __init__(self, share: Share, plan: Plan, place: Place, links: Links, schedule: Schedule, *, width: int, wire: torch.dtype,
                 device: torch.device, regions: Regions, around: Callable[[int, int], AbstractContextManager[Any]], recompute: bool = False,
                 mtp_weight: float = 0.0) -> None:
        self._share, self._passes, self._regions, self._around, self._mtp_weight = share, list(schedule[place.stage]), regions, around, mtp_weight
        self._messages = Messages(plan, place, links, schedule, width=width, wire=wire, device=device, regions=regions)
        self._splits = any(one.weights for one in self._passes)
        self._put_off = {chunk: PutOff(its.models, recompute) for chunk, its in enumerate(share.chunks) if its is not None} if self._splits else {}
        self._head: AbstractContextManager[Any] | None = None       # the region that is open
        self._number = 0        # of the micro-batch under way
        self._hooks = [model.head().register_forward_pre_hook(self._before_head) for model in share.models() if model.last]

    def end(self) -> None:
        """Leaves the modules to another executor."""
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
        self._messages.begin([batch.shape for batch in batches], trains=True)
        for one in self._passes:
            if one.weights:
                with sums.around(one) if sums is not None else nullcontext():
                    self._weights(one, sums)
                continue
            self._messages.expect(one)
            if not one.backward:
                kept_now = self._forward(one, batches[one.micro_batch], tokens, losses)
                if kept_now is not None:
                    kept[one.chunk, one.micro_batch] = kept_now
            else:
                self._backward(one, kept.pop((one.chunk, one.micro_batch), None), sums)
        self._messages.end()
        return [losses[number] for number in sorted(losses)]

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[torch.Tensor]:
        """The forward passes alone, in the schedule's order, without MTP heads. Returns sums of losses, where the model's own head is."""
        losses: dict[tuple[int, int], torch.Tensor] = {}
        self._messages.begin([batch.shape for batch in batches], trains=False)
        with torch.no_grad():
            for one in self._passes:
                if not one.backward:
                    self._messages.expect(one)
                    self._forward(one, batches[one.micro_batch], 1, losses)
        self._messages.end()
        return [losses[number] for number in sorted(losses)]

    # ---- passes

    def _forward(self, one: Pass, batch: MicroBatch, tokens: int | torch.Tensor, losses: dict[tuple[int, int], torch.Tensor]) -> _Kept | None:
        received = self._messages.take(one)
        chunk, number = self._share.chunks[one.chunk], one.micro_batch
        if chunk is None:
            if received is not None:
                self._messages.give(received, one)
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
        taken = hidden if self._messages.gives(one) else None
        if taken is not None:
            self._messages.give(taken.detach(), one)
        return _Kept(received, roots, taken)

    def _backward(self, one: Pass, kept: _Kept | None, sums: SumsBeside | None) -> None:
        gradient = self._messages.take(one)
        chunk, number = self._share.chunks[one.chunk], one.micro_batch
        if chunk is None:
            if gradient is not None:
                self._messages.give(gradient, one)
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
            self._messages.give(kept.received.grad, one)

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


def summed_loss(logits: torch.Tensor, labels: torch.Tensor, ahead: int, shards: Shards | None = None) -> torch.Tensor:
    """The sum over the tokens that are predicted: each from those that stand so many places before it. shards: that divide the vocabulary."""
    vocabulary = logits.shape[-1]
    shifted = torch.nn.functional.pad(labels, (0, ahead), value=-100)[..., ahead:]
    if shards is not None:
        return cross_entropy(logits.float().view(-1, vocabulary), shifted.reshape(-1), -100, shards)
    return torch.nn.functional.cross_entropy(logits.float().view(-1, vocabulary), shifted.reshape(-1), ignore_index=-100, reduction="sum")
