# SPDX-License-Identifier: BSD-3-Clause
"""Runs a part of a model on one device as the worker of a plan would, without the other workers: what swell.profile measures."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from swell.engine import optimizer as optimizers
from swell.engine.arena import Ordinary
from swell.engine.executor import summed_loss
from swell.engine.layout import Parameter
from swell.engine.memory import DevicePeak, Peak
from swell.engine.plan import Group, Plan, Stage
from swell.engine.put_off import PutOff
from swell.engine.skeleton import Skeleton
from swell.engine.standing import Standing
from swell.engine.state import State, wanted
from swell.engine.tensor_parallel import Shards

__all__ = ["LoneShards", "Measured", "NoRoomHere", "Options", "measure", "plan_of"]

_WARM_UP, _FEWEST, _MOST, _LONGEST_S = 2, 5, 50, 20.0       # repetitions of a unit, and seconds for all of them
_STABLE = 0.01      # the median's standard error, as a share of it
_SPARE = 0.9        # share of a host's free memory that a unit may take


class NoRoomHere(Exception):
    """A unit does not fit the device; says how much it needs."""


class LoneShards(Shards):
    """A tensor parallel group of which this shard runs alone: a sum is its own part, and what is gathered is its own part several times."""

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """See Shards."""
        return tensor

    def largest(self, tensor: torch.Tensor) -> torch.Tensor:
        """See Shards."""
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """See Shards."""
        return torch.cat([tensor.contiguous()] * self.count, dim=-1)


@dataclass(frozen=True)
class Options:
    """How a run computes. split: also the backward pass in two, gradients of inputs and of weights."""

    sequence: int
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    recompute: bool = False
    compile: bool = False
    split: bool = False
    optimizer: optimizers.Factory = torch.optim.AdamW


@dataclass(frozen=True)
class Measured:
    """Medians of one micro-batch and of one optimizer step, and bytes.

    inputs_s, weights_s: of a backward pass in two; 0 where that was not asked for. kept: from the forward pass for the backward one.
    peak: of one micro-batch, beside the state. state: parameters, gradients and moments.
    """

    forward_s: float
    backward_s: float
    inputs_s: float
    weights_s: float
    optimizer_s: float
    kept_bytes: float
    peak_bytes: float
    state_bytes: float
    gradient_bytes: float


class _Noise:
    """First weights that only have to be ordinary: where they come from takes no time."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def fill(self, target: torch.Tensor, parameter: Parameter, skeleton: Skeleton, shard: int, shards: int, seed: int) -> None:
        with torch.no_grad():
            if target.dim() > 1:
                target.normal_(0.0, 0.02)
            else:
                target.fill_(1.0 if parameter.name.endswith("weight") else 0.0)


def plan_of(skeleton: Skeleton, begin: int, end: int, samples: int, tp: int) -> tuple[Plan, int]:
    """A plan in which one stage has the units from `begin` to `end` of the model and no others, and that stage."""
    layers, units = skeleton.layers, skeleton.layers + 2 + 2 * skeleton.mtp_heads
    cuts = sorted({0, begin, end, units})
    stages = []
    for first, last in zip(cuts, cuts[1:]):
        held = max(0, min(last - 1, layers) - max(first - 1, 0))
        stages.append(Stage(held, tp, (Group("localhost", "any", tuple(range(tp)), samples),), (last - first,)))
    return Plan(1, tuple(stages)), cuts.index(begin)


class _Worker:
    """One worker of such a plan."""

    def __init__(self, skeleton: Skeleton, plan: Plan, stage: int, options: Options, device: torch.device) -> None:
        self.options, self.device = options, device
        samples = plan.stages[stage].groups[0].local_batch
        standing = Standing(skeleton, plan, plan.rank(stage, 0, 0), seed=0, device=device, recompute=options.recompute,
                            timed=lambda _: ExitStack(), shards=LoneShards)
        self.share, self._dropout = standing.share, standing.dropout
        self._samples = range(samples)
        self._check_room(standing)
        self.state = State(self.share, plan, standing.place, _Noise(skeleton.config), options.optimizer, 0, arena=Ordinary(), checkpoints=None, device=device)
        chunk = self.share.chunks[0]
        assert chunk is not None
        self.models = chunk.models
        if options.compile:
            for model in self.models:
                for number in model.layers:
                    layer = model.layer(number)
                    layer.forward = torch.compile(layer.forward)       # type: ignore[method-assign]
        shape, vocabulary = (samples, options.sequence), int(skeleton.config.vocab_size)
        self._ids = torch.randint(vocabulary, shape, device=device)
        self._takes = not self.share.first
        self._hidden = torch.randn(*shape, int(skeleton.config.hidden_size), dtype=options.dtype, device=device)
        self._received: torch.Tensor | None = None

    def _check_room(self, standing: Standing) -> None:
        """A host that has no room ends processes, this one among them; a GPU says so."""
        if self.device.type != "cpu":
            return
        needed = sum(torch.Size(one.local).numel() * one.dtype.itemsize for one in wanted(self.share, standing.place, self.options.optimizer))
        needed += sum(torch.Size(one.local_shape(self.share.tp)).numel() * one.dtype.itemsize for one in self.share.own.values())
        if self.share.predicts:
            needed += 12 * len(self._samples) * self.options.sequence * int(self.share.skeleton.config.vocab_size)
        free = _SPARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > free:
            raise NoRoomHere(f"it needs {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free")

    @contextmanager
    def _around(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self.options.autocast is not None:
                stack.enter_context(torch.autocast(self.device.type, self.options.autocast))
            if self._dropout is not None:
                stack.enter_context(self._dropout.at(0, self._samples))
            yield

    def forward(self) -> torch.Tensor:
        """Returns what the backward pass begins from."""
        hidden = self._received = self._hidden.detach().requires_grad_() if self._takes else None
        losses: list[torch.Tensor] = []
        with self._around():
            for model in self.models:
                hidden, logits = model.run({"input_ids": self._ids}, hidden)
                if logits is not None:
                    losses.append(summed_loss(logits, self._ids, 1 + model.number, model.vocabulary) / self._ids.numel())
        made = losses[0] if losses else hidden
        assert made is not None
        return made

    def backward(self, made: torch.Tensor) -> None:
        with self._around():
            torch.autograd.backward([made], [None if made.dim() == 0 else self._hidden.to(made.dtype)])

    def optimize(self) -> None:
        self.state.optimizer.step()
        torch._foreach_zero_(self.state.gradients)


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def is_stable(values: Sequence[float]) -> bool:
    """Whether the median of so many values is known to within _STABLE, by their absolute deviations from it."""
    if len(values) < _FEWEST:
        return False
    median = _median(values)
    return 1.86 * _median([abs(one - median) for one in values]) <= _STABLE * median * math.sqrt(len(values))


def _timed(parts: Sequence[Callable[[], None]], device: torch.device, until: float) -> list[float]:
    """Medians of parts that run one after another, again and again until they are stable, or it is `until` on time.monotonic()."""
    for _ in range(_WARM_UP):
        for part in parts:
            part()
    end = min(until, time.monotonic() + _LONGEST_S)
    taken: list[list[float]] = [[] for _ in parts]
    while len(taken[0]) < _MOST:
        at = _clock(device)
        for part, its in zip(parts, taken, strict=True):
            part()
            now = _clock(device)
            its.append(now - at)
            at = now
        if time.monotonic() >= end or all(map(is_stable, taken)):
            break
    return [_median(its) for its in taken]


def measure(skeleton: Skeleton, begin: int, end: int, samples: int, tp: int, options: Options, device: torch.device, until: float) -> Measured:
    """Measures the units from `begin` to `end` on a device for `samples` of a micro-batch, as one of `tp` shards.

    until: on time.monotonic(), by when it ends with fewer repetitions. Raises NoRoomHere where they do not fit the device.
    """
    try:
        return _measure(skeleton.again(), *plan_of(skeleton, begin, end, samples, tp), options, device, until)
    except torch.OutOfMemoryError as error:
        raise NoRoomHere(str(error).splitlines()[0]) from error
    except RuntimeError as error:
        if "alloc" not in str(error):
            raise
        raise NoRoomHere(str(error).splitlines()[0]) from error
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _measure(skeleton: Skeleton, plan: Plan, stage: int, options: Options, device: torch.device, until: float) -> Measured:
    worker = _Worker(skeleton, plan, stage, options, device)
    kept, peak = _memory(worker)
    made: list[torch.Tensor] = []

    def forward() -> None:
        made.append(worker.forward())

    def backward() -> None:
        worker.backward(made.pop())
    forward_s, backward_s, optimizer_s = _timed([forward, backward, worker.optimize], device, until)
    inputs_s = weights_s = 0.0
    if options.split:
        put_off = PutOff(worker.models, options.recompute)

        def inputs() -> None:
            backward()
            put_off.made(0)
        _, inputs_s, weights_s = _timed([forward, inputs, lambda: put_off.add(0)], device, until)
        put_off.end()
    gradients = sum(one.numel() * one.element_size() for one in worker.state.gradients)
    return Measured(forward_s, backward_s, inputs_s, weights_s, optimizer_s, kept, peak, worker.state.bytes, gradients)


def _memory(worker: _Worker) -> tuple[int, int]:
    """Bytes that a forward pass keeps, and the most that a micro-batch has, beside the state."""
    if worker.device.type == "cpu":
        with Peak([*worker.state.all(), worker._hidden, worker._ids]) as peak:
            made = worker.forward()
            kept = peak.now
            worker.backward(made)
        return kept, peak.most
    worker.backward(worker.forward())       # libraries take their own memory in the first pass
    worker.optimize()
    before = torch.cuda.memory_allocated(worker.device)
    with DevicePeak(worker.device) as most:
        made = worker.forward()
        kept = torch.cuda.memory_allocated(worker.device) - before
        worker.backward(made)
        del made
    return kept, most.most - before
