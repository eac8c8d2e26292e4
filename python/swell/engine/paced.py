# SPDX-License-Identifier: BSD-3-Clause
"""Paced host devices: the true computation happens, and each part of a step takes as long as a stated accelerator would.

SWELL_PACED names the accelerators, so that two cores show how plans compare on many:

    SWELL_PACED=h100:0.02tflops,a100:0.008tflops:link=2MB/s:network=1MB/s@n2

An entry is TYPE:SPEED, then figures by name (memory, link to GPUs of the same node, network of a node), then @NODE. Figures that are
not stated stand to the speed as an H100's do. A worker is of the type that its plan names, else of the one of its node. Such
measurements are labelled "paced" wherever they are logged; a part whose true computation took longer than stated is counted there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from swell.engine.regions import Regions
from swell.engine.plan import Place, Plan

__all__ = ["Device", "Paced", "Work", "device_of", "parse"]

_H100_FLOPS, _H100 = 989e12, {"memory": 3.35e12, "link": 450e9, "network": 400e9}       # the network: eight cards of 400 Gbit/s
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "": 1.0}
_ENTRY = re.compile(r"^(?P<name>[\w.-]+):(?P<speed>[\d.eE+-]+)tflops(?P<figures>(?::\w+=[\d.eE+-]+[kMGT]?B/s)*)(?:@(?P<node>[\w.-]+))?$")
# Operations over those of a forward pass: gradients of inputs, and of weights.
_PASSES = {"forward": 1.0, "backward": 2.0, "inputs": 1.0, "weights": 1.0}
_HEADS = {"head": 1.0, "head backward": 2.0, "head inputs": 1.0}
_OPTIMIZER_TRAFFIC = 2.0        # state is read once and written once


@dataclass(frozen=True)
class Device:
    """An accelerator: operations a second; bytes a second of its memory, its link, and its node's network; where it is."""

    name: str
    flops: float
    memory: float
    link: float
    network: float
    node: str | None = None


def parse(text: str) -> tuple[Device, ...]:
    """Reads SWELL_PACED. Raises ValueError with the entry that is wrong."""
    found = []
    for entry in text.split(","):
        match = _ENTRY.match(entry.strip())
        speed = _positive(match["speed"]) if match else None
        if match is None or speed is None:
            raise ValueError(f"SWELL_PACED has {entry.strip()!r}; an entry is such as h100:0.02tflops or a100:0.01tflops:link=2MB/s@n2")
        flops = speed * 1e12
        rates = {name: rate * flops / _H100_FLOPS for name, rate in _H100.items()}
        for figure in match["figures"].split(":")[1:]:
            name, _, value = figure.partition("=")
            rate = _positive(value[:-3].rstrip("kMGT"))
            if name not in rates or rate is None:
                raise ValueError(f"SWELL_PACED states {figure!r} of {match['name']}; it can state memory, link and network, above 0")
            rates[name] = rate * _UNITS[value[:-3].lstrip("0123456789.eE+-")]
        found.append(Device(match["name"], flops, rates["memory"], rates["link"], rates["network"], match["node"]))
    return tuple(found)


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def device_of(devices: Sequence[Device], plan: Plan, place: Place, host: str | None = None) -> Device:
    """The accelerator that a place in a plan has. host: of this worker; None: as Slurm says."""
    group = plan.stages[place.stage].groups[place.group]
    node = host if host is not None else os.environ.get("SLURMD_NODENAME", group.node)
    by_type = [one for one in devices if one.name == group.gpu_type and one.node in (None, node)]
    by_node = [one for one in devices if one.node == node]
    anywhere = [one for one in devices if one.node is None]
    for one in [*by_type, *by_node, *anywhere]:
        return one
    raise ValueError(f"SWELL_PACED states no accelerator for node {node}, GPU type {group.gpu_type!r}; it states "
                     f"{', '.join(one.name + ('@' + one.node if one.node else '') for one in devices)}")


@dataclass(frozen=True)
class Work:
    """The work of a worker, from which the lengths of its parts follow. Operations are of one sample's forward pass: of the layers on all shards together, of the
    head on this one.

    layers, head: operations. state: bytes that the optimizer goes through. recompute: passes through the layers are made again.
    shares: of the layers, by chunk; head_chunk: the one with the head.
    """

    layers: float
    head: float
    state: float
    recompute: bool = False
    shares: tuple[float, ...] = (1.0,)
    head_chunk: int = 0


class Paced(Regions):
    """Makes regions take their stated time; within those of another, which sees what they take.

    work: asked once a step's shape is known.
    """

    def __init__(self, inner: Regions, device: Device, plan: Plan, place: Place, work: Callable[[], Work]) -> None:
        self._inner, self.device, self._plan, self._place, self._work = inner, device, plan, place, work
        self._known: Work | None = None
        self._samples = len(plan.stages[place.stage].samples(place.group))
        self._within = 0.0          # stated seconds of tensor parallel sums within the present pass
        self.late_s = 0.0           # by which the true computation of parts took longer than stated
        nodes = {group.node for group in plan.stages[place.stage].groups}
        self._several_nodes = len(nodes) > 1
        self.stamps = True
        self._summed = 0.0      # when the sums over replicas are whole that go on beside the passes

    def region(self, kind: str, micro_batch: int | None = None, size: int = 0, chunk: int = 0) -> AbstractContextManager[Any]:
        """See Regions."""
        return self._paced(kind, micro_batch, size, chunk)

    @contextmanager
    def _paced(self, kind: str, micro_batch: int | None, size: int, chunk: int) -> Iterator[None]:
        with self._inner.region(kind, micro_batch, size, chunk):
            if kind in _PASSES:
                self._within = 0.0
            began = time.monotonic()
            yield
            stated = self._stated(kind, size, chunk)
            if kind == "dp" and not size:       # the wait for sums beside the passes
                self.arrived(self._summed)
                return
            if stated is None:
                return
            if kind == "tp":
                self._within += stated
            elif kind in _PASSES:
                stated += self._within
            self._until(began + stated)

    def _stated(self, kind: str, size: int, chunk: int) -> float | None:
        work = self._known = self._known or self._work()
        stage, device = self._plan.stages[self._place.stage], self.device
        if kind in _PASSES:
            times, again = _PASSES[kind], work.recompute and kind in ("backward", "inputs")
            head = work.head * times if chunk == work.head_chunk else 0.0
            return self._samples * (work.layers * work.shares[chunk] * (times + again) / stage.tp + head) / device.flops
        if kind in _HEADS:
            return self._samples * work.head * _HEADS[kind] / device.flops
        if kind == "optimizer":
            return work.state * _OPTIMIZER_TRAFFIC / device.memory
        if kind == "tp":        # a ring: each part goes round twice, but for its own
            return size * 2 * (1 - 1 / stage.tp) / device.link
        if kind == "dp":
            rate = device.network / stage.tp if self._several_nodes else device.link
            return size * 2 * (1 - 1 / len(stage.groups)) / rate
        return None

    def _until(self, end: float) -> None:
        left = end - time.monotonic()
        if left < 0:
            self.late_s -= left
        while left > 0:
            time.sleep(left)
            left = end - time.monotonic()

    def meet(self, group: dist.ProcessGroup | None) -> None:
        """See Regions."""
        if group is not None:
            dist.all_reduce(torch.zeros(1), group=group)

    def beside(self, size: int) -> None:
        """See Regions. One sum follows the other."""
        self._summed = max(self._summed, time.monotonic()) + (self._stated("dp", size, 0) or 0.0)

    def arrival(self, rank: int, size: int) -> float:
        """When a message that is sent now is whole at another rank, by the clock of the machine that all workers share."""
        there = next(place for place in self._plan.places if place.rank == rank)
        other = self._plan.stages[there.stage].groups[there.group]
        own = self._plan.stages[self._place.stage].groups[self._place.group]
        return time.monotonic() + size / (self.device.link if own.node == other.node else self.device.network)

    def arrived(self, when: float) -> None:
        """See Regions."""
        left = when - time.monotonic()
        if left > 0:
            time.sleep(left)
