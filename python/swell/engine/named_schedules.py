# SPDX-License-Identifier: BSD-3-Clause
"""The schedules by name, pass by pass those of src/core/schedule/named.cc (docs/schedules.md)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from swell.engine.schedule import Pass, check_shape

__all__ = ["NAMES", "named"]

Orders = list[list[Pass]]


def gpipe(stages: int, chunks: int, micro_batches: int) -> Orders:
    """All forward passes, then all backward passes."""
    order = [Pass(False, number, chunk) for chunk in range(chunks) for number in range(micro_batches)]
    order += [Pass(True, number, chunk) for chunk in reversed(range(chunks)) for number in range(micro_batches)]
    return [order] * stages


def one_forward_one_backward(stages: int, chunks: int, micro_batches: int) -> Orders:
    """1F1B: a stage has at most as many micro-batches under way as there are stages from it on. REQUIRES: one chunk."""
    schedule = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        passes = [Pass(False, number) for number in range(ahead)]
        for number in range(ahead, micro_batches):
            passes += [Pass(False, number), Pass(True, number - ahead)]
        passes += [Pass(True, number) for number in range(micro_batches - ahead, micro_batches)]
        schedule.append(passes)
    return schedule


def interleaved(stages: int, chunks: int, micro_batches: int) -> Orders:
    """1F1B over chunks. Micro-batches go through in equal groups, none smaller than the pipeline is deep where there are that many."""
    if chunks == 1:
        return one_forward_one_backward(stages, chunks, micro_batches)
    count = max(1, micro_batches // stages)
    sizes = [micro_batches // count + (group < micro_batches % count) for group in range(count)]
    forward, backward, first = [], [], 0
    for size in sizes:
        numbers = range(first, first + size)
        forward += [Pass(False, number, chunk) for chunk in range(chunks) for number in numbers]
        backward += [Pass(True, number, chunk) for chunk in reversed(range(chunks)) for number in numbers]
        first += size
    least = (chunks - 1) * sizes[0]
    schedule = []
    for stage in range(stages):
        ahead = min(max(2 * (stages - 1) + least - 2 * stage, least), len(forward))
        order, later = forward[:ahead], iter(forward[ahead:])
        for one in backward:
            order += [one] if (following := next(later, None)) is None else [following, one]
        schedule.append(order)
    return schedule


def zero_bubble(stages: int, chunks: int, micro_batches: int) -> Orders:
    """The order of interleaved(), with passes of weight gradients where a stage would wait, each pass taking a unit of time. No stage keeps
    more than the first one of interleaved()."""
    base = interleaved(stages, chunks, micro_batches)
    kept = most = 0
    for one in base[0]:
        kept += -1 if one.backward else 1
        most = max(most, kept)
    return _Player(base, chunks, most).play()


def memory_minimised(stages: int, chunks: int, micro_batches: int) -> Orders:
    """One micro-batch at a time: no stage ever keeps activations of two."""
    order = []
    for number in range(micro_batches):
        order += [Pass(False, number, chunk) for chunk in range(chunks)]
        order += [Pass(True, number, chunk) for chunk in reversed(range(chunks))]
    return [order] * stages


class _Player:
    """Plays one iteration, as list_schedule() of the core does with equal costs: a stage makes its next pass once the input has come, and
    a weight gradient where it would wait. most: activations that a stage may keep."""

    def __init__(self, base: Orders, chunks: int, most: int) -> None:
        self._base, self._chunks, self._most, stages = base, chunks, most, len(base)
        self._come: dict[tuple[int, Pass], int] = {}
        for one in base[0]:
            if not one.backward and one.chunk == 0:
                self._come[0, one] = 0
        for one in base[-1]:
            if one.backward and one.chunk == chunks - 1:
                self._come[stages - 1, one] = 0
        self._at, self._held, self._free = [0] * stages, [0] * stages, [0] * stages
        self._weights: list[deque[Pass]] = [deque() for _ in base]
        self._made: Orders = [[] for _ in base]
        self._events: list[tuple[int, int, int]] = []       # time, order of creation, stage
        self._count = 0

    def play(self) -> Orders:
        """Returns the order in which the stages came to run their passes."""
        for stage in range(len(self._base)):
            self._wake(stage, 0)
        while self._events:
            now, _, stage = heapq.heappop(self._events)
            self._act(stage, now)
        return self._made

    def _wake(self, stage: int, when: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, stage))

    def _act(self, stage: int, now: int) -> None:
        if self._free[stage] > now:
            return
        order, at = self._base[stage], self._at[stage]
        one = order[at] if at < len(order) else None
        if one is not None and self._come.get((stage, one), now + 1) <= now and (one.backward or self._held[stage] < self._most):
            self._at[stage] += 1
            self._run(stage, one, now)
        elif self._weights[stage]:
            self._run(stage, self._weights[stage].popleft(), now)

    def _run(self, stage: int, one: Pass, now: int) -> None:
        self._made[stage].append(one)
        self._held[stage] += -1 if one.weights else 0 if one.backward else 1
        end = self._free[stage] = now + 1
        self._wake(stage, end)
        if one.weights:
            return
        if one.backward:
            self._weights[stage].append(Pass(True, one.micro_batch, one.chunk, True))
        step = -1 if one.backward else 1
        there, chunk = stage + step, one.chunk
        if not 0 <= there < len(self._base):
            there, chunk = there % len(self._base), chunk + step
            if not 0 <= chunk < self._chunks:
                return
        self._come[there, Pass(one.backward, one.micro_batch, chunk)] = end
        if there != stage:
            self._wake(there, end)


_NAMED: dict[str, Callable[[int, int, int], Orders]] = {
    "gpipe": gpipe, "1f1b": one_forward_one_backward, "interleaved": interleaved, "zero-bubble": zero_bubble, "memory-minimised": memory_minimised}
NAMES = tuple(_NAMED)


def named(name: str, stages: int, micro_batches: int, chunks: int = 1) -> Orders:
    """The schedule of this name. Raises ValueError where there is none, or none of that shape."""
    check_shape(stages, chunks, micro_batches)
    if name not in _NAMED:
        raise ValueError(f"no schedule is called \"{name}\"; use {', '.join(NAMES)}")
    if name == "1f1b" and chunks != 1:
        raise ValueError(f"1f1b runs one chunk on each stage, the plan has {chunks}; use interleaved")
    return _NAMED[name](stages, chunks, micro_batches)
