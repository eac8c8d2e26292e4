# SPDX-License-Identifier: BSD-3-Clause
"""ZeRO-1: the replicas of a stage divide what the optimizer keeps of each parameter, and each steps its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import nn

from swell.engine.comm import all_gather_single
from swell.engine.plan import Place, Plan

__all__ = ["Parts", "part", "replicas"]

_LEAST = 64     # elements that a replica has at least; of smaller parameters (norms) each keeps all
_BUCKET_BYTES = 25 << 20


def replicas(plan: Plan, place: Place, divides: bool) -> int:
    """The number of workers that divide the state of this one's parameters."""
    return len(plan.stages[place.stage].groups) if divides else 1


def part(elements: int, replica: int, count: int) -> tuple[int, int] | None:
    """The range of a parameter's elements that a replica steps; None: all. It depends on nothing but these numbers, so that a change of stages alone keeps it."""
    if count == 1 or elements < _LEAST * count:
        return None
    return elements * replica // count, elements * (replica + 1) // count


class Parts:
    """The parts of parameters that one replica's optimizer steps.

    stepped: they, over the memory of parameters and gradients, by the parameter's name. They have as many dimensions as it, since programs group by that.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter], replica: int, count: int) -> None:
        self._count = count
        self._divided = {name: one for name, one in trained.items() if part(one.numel(), replica, count) is not None}
        self.stepped = {name: self._part(one, part(one.numel(), replica, count)) for name, one in trained.items()}

    @staticmethod
    def _part(whole: nn.Parameter, at: tuple[int, int] | None) -> nn.Parameter:
        if at is None:
            return whole
        assert whole.grad is not None
        shape = (*(1,) * (whole.dim() - 1), at[1] - at[0])
        found = nn.Parameter(whole.detach().view(-1)[at[0]:at[1]].view(shape))
        found.grad = whole.grad.view(-1)[at[0]:at[1]].view(shape)
        return found

    @property
    def bytes(self) -> int:
        """The bytes of the parameters that several replicas step."""
        return sum(one.numel() * one.element_size() for one in self._divided.values())

    @torch.no_grad()
    def gather(self, group: dist.ProcessGroup) -> None:
        """Give every replica what the others have stepped. All of them call it after each optimizer step."""
        for names in self._buckets():
            wholes = [self._divided[name].detach().view(-1) for name in names]
            sizes = [-(-one.numel() // self._count) for one in wholes]      # of the largest part
            sent = torch.cat([torch.nn.functional.pad(self.stepped[name].detach().view(-1), (0, size - self.stepped[name].numel()))
                              for name, size in zip(names, sizes, strict=True)])
            received = sent.new_empty(self._count, sent.numel())
            all_gather_single(received.view(-1), sent, group=group)
            for whole, parts in zip(wholes, torch.split(received, sizes, 1), strict=True):
                for replica in range(self._count):
                    at = part(whole.numel(), replica, self._count)
                    assert at is not None
                    whole[at[0]:at[1]].copy_(parts[replica, :at[1] - at[0]])

    def _buckets(self) -> Iterator[list[str]]:
        names: list[str] = []
        size = 0
        for name, one in self._divided.items():
            if names and (size > _BUCKET_BYTES or one.dtype != self._divided[names[0]].dtype):
                yield names
                names, size = [], 0
            names.append(name)
            size += one.numel() * one.element_size()
        if names:
            yield names
