# SPDX-License-Identifier: BSD-3-Clause
"""Sums over workers at the end of a step: gradients, the tied matrix, the norm, the loss.

Gradients are sums over micro-batches in their order, then over the groups of a stage in their order; nothing depends on
which layers share a stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from swell.engine.comm import Links, add_in_order, tied_peers
from swell.engine.plan import Place, Plan
from swell.engine.stage import Share

__all__ = ["Totals", "add_gradients", "add_shared", "add_tied"]

_BUCKET_BYTES = 32 << 20


def add_gradients(gradients: Sequence[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Sum gradients over a group, in place: small ones together."""
    waiting: list[torch.Tensor] = []
    size = 0
    for gradient in [*gradients, None]:
        if waiting and (gradient is None or size + gradient.numel() * gradient.element_size() > _BUCKET_BYTES or gradient.dtype != waiting[0].dtype):
            _add_together(waiting, group)
            waiting, size = [], 0
        if gradient is not None:
            waiting.append(gradient)
            size += gradient.numel() * gradient.element_size()


def _add_together(tensors: Sequence[torch.Tensor], group: dist.ProcessGroup) -> None:
    joined = _one_piece(tensors)
    if joined is not None:
        add_in_order(joined, group)
        return
    flat = torch.cat([one.reshape(-1) for one in tensors])
    add_in_order(flat, group)
    at = 0
    for one in tensors:
        one.copy_(flat[at:at + one.numel()].view(one.shape))
        at += one.numel()


def _one_piece(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Tensors that stand one behind the other in one storage, as one."""
    first, end = tensors[0], tensors[0].storage_offset()
    for one in tensors:
        if one.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() or one.storage_offset() != end or not one.is_contiguous():
            return None
        end += one.numel()
    return first.as_strided((end - first.storage_offset(),), (1,), first.storage_offset())


def add_tied(share: Share, plan: Plan, place: Place, links: Links) -> None:
    """Give each end of a tied matrix, without MTP heads, the sum of both ends' gradients: the embedding's plus the head's, everywhere."""
    if not share.skeleton.tied or not (share.first or share.last):
        return
    parameters = share.parameters
    for head, embedding in share.skeleton.tied.items():
        if share.first and share.last:
            gradient, other_end = parameters[embedding].grad, parameters[head].grad
            assert gradient is not None and other_end is not None
            gradient += other_end
            continue
        own = parameters[head if share.last else embedding].grad
        assert own is not None
        theirs = torch.empty_like(own)
        works = []
        receivers, sender = tied_peers(plan, place)
        send, receive = (links.ahead, links.back) if share.first else (links.back, links.ahead)
        sent = own.clone()
        # One end sends first, the other one receives first: launches may wait for their end.
        if not share.first:
            works.append(dist.irecv(theirs, sender, group=receive))
        for rank in receivers:
            works.append(dist.isend(sent, rank, group=send))
        if share.first:
            works.append(dist.irecv(theirs, sender, group=receive))
        for work in works:
            assert work is not None
            work.wait()
        if share.first:
            own += theirs
        else:
            torch.add(theirs, own, out=own)


def add_shared(share: Share, plan: Plan, place: Place, links: Links) -> None:
    """Give each stage that uses a shared matrix the sum of all uses' gradients, in the model's order, wherever its units stand."""
    parameters = share.parameters
    for owner, stages in share.skeleton.stages_of_shared(plan).items():
        if place.stage not in stages:
            continue
        trained = parameters[share.trained_as(owner)].grad
        assert trained is not None
        total: torch.Tensor | None = None
        for use, unit in share.skeleton.shared[owner]:
            stage = plan.contents.stage_of(*unit)
            its = parameters[use].grad if stage == place.stage else None
            part = its.clone() if its is not None else torch.empty_like(trained)
            if len(stages) > 1:
                dist.broadcast(part, plan.rank(stage, 0, 0), group=links.shared[stages])
            total = part if total is None else total.add_(part)
        assert total is not None
        trained.copy_(total)


class Totals:
    """One small sum over all workers, to which each contributes what it alone has; then summed in an order that no plan changes."""

    def __init__(self, share: Share, plan: Plan, place: Place, device: torch.device) -> None:
        self._own, self._plan, self._place, self._device = share.own, plan, place, device
        self._skeleton = skeleton = share.skeleton
        self._index = {name: number for number, name in enumerate(skeleton.parameters)}

    def over(self, losses: Sequence[torch.Tensor], gradients: Mapping[str, torch.Tensor] | None, mtp: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Loss of the whole batch, by head, micro-batch and group, and the norm of all gradients, by parameter.

        losses: of this worker's samples, for each of its heads one a micro-batch. gradients: of what it holds; None: no norm. mtp: losses of MTP heads
        are among them.
        """
        plan, place = self._plan, self._place
        heads = range(1 + (self._skeleton.mtp_heads if mtp else 0))
        groups = [len(plan.stages[plan.contents.stage_of("head", head)].groups) for head in heads]
        count = len(self._index) if gradients is not None else 0
        numbers = torch.zeros(count + plan.micro_batches * sum(groups), dtype=torch.float64, device=self._device)
        if gradients is not None and place.group == 0:
            self._norms(numbers, gradients)
        if losses and place.shard == 0:
            mine = iter(torch.stack(list(losses)).double().view(-1, plan.micro_batches))
            for head, part in zip(heads, torch.split(numbers[count:], [plan.micro_batches * one for one in groups]), strict=True):
                if head in plan.contents.heads_of(place.stage):
                    part.view(plan.micro_batches, groups[head])[:, place.group] = next(mine)
        if plan.world > 1:
            dist.all_reduce(numbers)
        return numbers[count:].sum(), numbers[:count].sum().sqrt() if gradients is not None else None

    def _norms(self, numbers: torch.Tensor, gradients: Mapping[str, torch.Tensor]) -> None:
        place, of_others = self._place, self._skeleton.of_others(self._plan, self._place.stage)
        names = [name for name in gradients
                 if (place.shard == 0 or self._own[name].dim is not None) and name not in of_others]
        if names:
            norms = torch.stack(torch._foreach_norm([gradients[name] for name in names])).double().square()
            numbers[torch.tensor([self._index[name] for name in names], device=self._device)] = norms
