# SPDX-License-Identifier: BSD-3-Clause
"""Sums of gradients over the replicas of a stage, beside its last backward passes."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from swell.engine.reduce import add_gradients
from swell.engine.schedule import Pass
from swell.engine.stage import Share

__all__ = ["SumsBeside"]

_BUCKETS, _LEAST_BYTES, _MOST_BYTES = 4, 1 << 20, 25 << 20     # that are aimed at; of one


class SumsBeside:
    """Sums each bucket of gradients as soon as the last pass of its chunk has made all of them, while that pass goes on.

    The order of buckets follows from plan and schedule alone, and buckets begin in that order on every replica, also where one makes its gradients in
    another order or makes no gradient of some (experts without tokens). The sum of an element does not depend on its bucket. On a GPU the sums are on
    a stream of their own; on a host a thread makes them.

    passes: of this stage. group: its replicas. late: uses of parameters whose gradients are not whole after the passes, and that others sum. meet: called
    before each bucket, with its bytes, where it is summed.
    """

    def __init__(self, share: Share, passes: Sequence[Pass], group: dist.ProcessGroup, device: torch.device, late: Collection[str],
                 meet: Callable[[int], None] = lambda _: None) -> None:
        self._group, self._device, self._meet = group, device, meet
        self._last = {one.chunk: one for one in passes if one.backward or one.weights}      # the last one of each chunk
        self._parameters: dict[int, list[nn.Parameter]] = {}
        self._buckets: list[list[torch.Tensor]] = []
        self._bucket_of: dict[int, int] = {}        # by the parameter's id
        for chunk in sorted(self._last, key=lambda chunk: passes.index(self._last[chunk])):
            its = share.chunks[chunk]
            of_chunk = [parameter for model in its.models for use, parameter in model.parameters.items() if use not in late] if its is not None else []
            self._parameters[chunk] = of_chunk if self._last[chunk].weights else of_chunk[::-1]      # those of weights begin with the first layers
        every = [parameter for its in self._parameters.values() for parameter in its]
        size = sum(_bytes(one) for one in every)
        self._cut(every, min(max(size // _BUCKETS, _LEAST_BYTES), _MOST_BYTES))
        self._missing = [0] * len(self._buckets)
        self._ready: set[int] = set()
        self._next = 0      # bucket to begin
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None    # type: ignore[no-untyped-call]
        self._thread: _Thread | None = None

    def _cut(self, parameters: Sequence[nn.Parameter], size: int) -> None:
        """Makes buckets of so many bytes. Gradients that stand side by side are summed where they are, so that a bucket ends where the next one does not."""
        held, before = 0, None
        for parameter in parameters:
            gradient = _gradient(parameter)
            if before is None or held + _bytes(parameter) > size or not _are_neighbours(before, gradient):
                self._buckets.append([])
                held = 0
            self._buckets[-1].append(gradient)
            self._bucket_of[id(parameter)] = len(self._buckets) - 1
            held, before = held + _bytes(parameter), gradient
        for bucket in self._buckets:
            bucket.sort(key=lambda one: one.storage_offset())

    def begin(self) -> None:
        """A step's passes begin."""
        self._missing = [len(bucket) for bucket in self._buckets]
        self._ready.clear()
        self._next = 0

    def around(self, one: Pass) -> AbstractContextManager[Any]:
        """Stands around a pass."""
        return self._watching(one) if self.is_last(one) else nullcontext()

    def is_last(self, one: Pass) -> bool:
        """Whether it is the last pass of its chunk that makes gradients."""
        return self._last.get(one.chunk) == one

    @contextmanager
    def _watching(self, one: Pass) -> Iterator[None]:
        its = self._parameters[one.chunk]
        hooks: list[Any] = [] if one.weights else [parameter.register_post_accumulate_grad_hook(self.made) for parameter in its]     # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for parameter in its:       # the pass made no gradient of those that are left
            self.made(parameter)

    def made(self, parameter: torch.Tensor) -> None:
        """The gradient of a parameter is whole."""
        if id(parameter) in self._ready or id(parameter) not in self._bucket_of:
            return
        self._ready.add(id(parameter))
        self._missing[self._bucket_of[id(parameter)]] -= 1
        while self._next < len(self._buckets) and not self._missing[self._next]:
            self._sum(self._buckets[self._next])
            self._next += 1

    def made_all_but(self, waiting: Collection[int]) -> None:
        """A pass of weights makes the gradients of these alone, by the parameters' ids: the others of its chunk are whole."""
        for chunk, its in self._parameters.items():
            if any(id(parameter) in waiting for parameter in its):
                for parameter in its:
                    if id(parameter) not in waiting:
                        self.made(parameter)

    def wait(self) -> None:
        """Wait for the sums of this step; a GPU's computations do. Raises what went wrong in one."""
        assert self._next == len(self._buckets)
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        elif self._thread is not None:
            self._thread.wait()

    def _sum(self, bucket: list[torch.Tensor]) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                add_gradients(bucket, self._group)
            return
        if self._thread is None:
            self._thread = _Thread()
        group, meet, size = self._group, self._meet, sum(one.numel() * one.element_size() for one in bucket)

        def add() -> None:
            meet(size)
            add_gradients(bucket, group)
        self._thread.do(add)


class _Thread:
    """Does things one after the other. It never holds a process that ends: another worker may not come to a sum that it waits in."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed: list[BaseException] = []
        self._count, self._done = 0, threading.Semaphore(0)
        threading.Thread(target=_run, args=(self._given, self._failed, self._done), name="swell sums", daemon=True).start()
        weakref.finalize(self, self._given.put, None)

    def do(self, what: Callable[[], None]) -> None:
        self._count += 1
        self._given.put(what)

    def wait(self) -> None:
        while self._count:
            self._done.acquire()
            self._count -= 1
        if self._failed:
            raise self._failed[0]


def _run(given: queue.SimpleQueue[Callable[[], None] | None], failed: list[BaseException], done: threading.Semaphore) -> None:
    while (what := given.get()) is not None:
        try:
            if not failed:
                what()
        except BaseException as error:      # raised where it is waited for
            failed.append(error)
        what = None
        done.release()


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _bytes(parameter: nn.Parameter) -> int:
    return parameter.numel() * parameter.element_size()


def _are_neighbours(one: torch.Tensor, other: torch.Tensor) -> bool:
    first, second = sorted((one, other), key=lambda each: each.storage_offset())
    return one.dtype == other.dtype and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() \
        and first.storage_offset() + first.numel() == second.storage_offset()
