# SPDX-License-Identifier: BSD-3-Clause
"""The core's plan (src/core/plan/plan.h), and which rank has which place in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from swell._counted import counted
from swell.engine.contents import Contents

__all__ = ["Group", "Place", "Plan", "Stage"]

_MAX_GPUS = 1_000_000   # of a table
MAX_CHUNKS = 1024       # of a stage, as in src/core/schedule


@dataclass(frozen=True)
class Group:
    """A tensor parallel group: GPUs of one type on one node that hold one replica of a stage together.

    local_batch: samples of each micro-batch that it computes.
    """

    node: str
    gpu_type: str
    gpus: tuple[int, ...]
    local_batch: int


@dataclass(frozen=True)
class Stage:
    """A pipeline stage: data parallel groups of one tensor parallel degree.

    chunks: numbers of units, see Plan; none: one chunk of `layers`, with the embedding on the first stage and the head on the last one.
    """

    layers: int
    tp: int
    groups: tuple[Group, ...]
    chunks: tuple[int, ...] = ()

    def samples(self, group: int) -> range:
        """Samples of each micro-batch that a group computes."""
        begin = sum(one.local_batch for one in self.groups[:group])
        return range(begin, begin + self.groups[group].local_batch)


@dataclass(frozen=True)
class Place:
    """Where a rank stands in a plan: its stage, the group within it, the number within the group."""

    rank: int
    stage: int
    group: int
    shard: int


def _number(where: str, item: Mapping[str, Any], name: str, least: int) -> int:
    """Reads a whole number of an object. Raises ValueError with its place and value."""
    if name not in item:
        raise ValueError(f"{where} lacks \"{name}\"; give a whole number of at least {least}")
    value = item[name]
    if type(value) is not int or value < least:
        raise ValueError(f"{where} has \"{name}\": {_json(value)}; give a whole number of at least {least}")
    return value


def _list(where: str, item: Mapping[str, Any], name: str, of: str) -> Sequence[Any]:
    """Reads a list of an object. Raises ValueError with its place and value."""
    value = item.get(name)
    if not isinstance(value, (list, tuple)) or not value:
        has = f"has \"{name}\": {_json(value)}" if name in item else f"lacks \"{name}\""
        raise ValueError(f"{where} {has}; give a list of {of}")
    return value


def _text(where: str, item: Mapping[str, Any], name: str, of: str) -> str:
    """Reads a string of an object. Raises ValueError with its place and value."""
    value = item.get(name)
    if not isinstance(value, str):
        has = f"has \"{name}\": {_json(value)}" if name in item else f"lacks \"{name}\""
        raise ValueError(f"{where} {has}; give {of} in quotes")
    return value


def _json(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _column(where: str, item: Mapping[str, Any], name: str) -> list[int]:
    """Reads a column of a table: whole numbers, or pairs of one and how often it stands there."""
    values: list[int] = []
    for one in _list(where, item, name, "whole numbers"):
        value, times = one if isinstance(one, (list, tuple)) and len(one) == 2 else (one, 1)
        if type(value) is not int or type(times) is not int or value < 0 or not 0 < times <= _MAX_GPUS - len(values):
            raise ValueError(f"{where} has {_json(one)} in \"{name}\"; give whole numbers, or [NUMBER, TIMES], at most {_MAX_GPUS} in all")
        values += [value] * times
    return values


def _names(where: str, item: Mapping[str, Any], name: str) -> list[str]:
    """Reads the names of a table. [N, TEXT, M] has the first N and the last M characters of the one before it."""
    names: list[str] = []
    for one in _list(where, item, name, "names"):
        first, rest, last = one if isinstance(one, (list, tuple)) and len(one) == 3 else (0, one, 0)
        before = names[-1] if names else ""
        if type(first) is not int or type(last) is not int or not isinstance(rest, str) or first < 0 or last < 0 or first + last > len(before):
            raise ValueError(f"{where} has {_json(one)} in \"{name}\"; give names, or [FIRST CHARACTERS OF THE LAST NAME, TEXT, LAST CHARACTERS OF IT]")
        names.append(before[:first] + rest + before[len(before) - last:])
    return names


def _table(where: str, item: Mapping[str, Any], tp: int) -> Iterator[Group]:
    """Yields the groups of a table: each column has a number for each group, "gpus" `tp` of them."""
    names, types = _names(where, item, "names"), _names(where, item, "types")
    nodes, kinds, samples, gpus = (_column(where, item, name) for name in ("node", "gpu_type", "local_batch", "gpus"))
    if not len(nodes) == len(kinds) == len(samples) or len(gpus) != len(nodes) * tp or max(nodes) >= len(names) or max(kinds) >= len(types) \
            or min(samples) < 1:
        raise ValueError(f"{where} is a table of {counted(len(nodes), 'node')}, {len(kinds)} types, {len(samples)} batches and {len(gpus)} GPUs; "
                         f"give as many of each, batches of at least 1, tp={tp} times as many GPUs, and indexes of the {counted(len(names), 'name')} and {counted(len(types), 'type')}")
    for at, (node, kind, local_batch) in enumerate(zip(nodes, kinds, samples, strict=True)):
        yield Group(names[node], types[kind], tuple(gpus[at * tp:(at + 1) * tp]), local_batch)


def _groups(stage: int, number: int, item: Any, tp: int) -> Iterator[Group]:
    """Yields what an item of "groups" stands for: one group, or, with "nodes", equal groups in their order: on each node one for each `tp`
    of its GPUs, or, with "names", a table of groups. Raises ValueError where tp does not divide these."""
    where = f"stage {stage}, group {number}"
    if not isinstance(item, Mapping):
        raise ValueError(f'{where} is {_json(item)}; give {{"node": NAME, "gpu_type": TYPE, "gpus": [INDEX, ...], "local_batch": SAMPLES}}')
    if "names" in item:
        yield from _table(where, item, tp)
        return
    gpus = tuple(_list(where, item, "gpus", "indexes of GPUs, such as [0, 1]"))
    if not all(type(gpu) is int and gpu >= 0 for gpu in gpus):
        raise ValueError(f"{where} has \"gpus\": {_json(gpus)}; give a list of indexes of GPUs, such as [0, 1]")
    kind, local_batch = _text(where, item, "gpu_type", "the GPUs' type"), _number(where, item, "local_batch", 1)
    if "nodes" not in item:
        yield Group(_text(where, item, "node", "the node's name"), kind, gpus, local_batch)
        return
    if len(gpus) % tp:
        raise ValueError(f"{where} has {counted(len(gpus), 'GPU')} of each node in \"gpus\"; a multiple of tp={tp} is needed")
    for node in _list(where, item, "nodes", "names of nodes"):
        for first in range(0, len(gpus), tp):
            yield Group(str(node), kind, gpus[first:first + tp], local_batch)


def _stage(number: int, stage: Any) -> Stage:
    if not isinstance(stage, Mapping):
        raise ValueError(f'stage {number} is {_json(stage)}; give {{"layers": N, "tp": N, "groups": [...]}}')
    where = f"stage {number}"
    tp, chunks = _number(where, stage, "tp", 1), _chunks(number, stage)
    layers = _number(where, stage, "layers", 0)
    return Stage(layers, tp, tuple(group for at, item in enumerate(_list(where, stage, "groups", "TP groups")) for group in _groups(number, at, item, tp)), chunks)


def _chunks(number: int, stage: Mapping[str, Any]) -> tuple[int, ...]:
    """Reads "chunks" of a stage."""
    given = stage.get("chunks", ())
    if not isinstance(given, (list, tuple)) or not all(type(one) is int and one >= 0 for one in given) or ("chunks" in stage and not given):
        raise ValueError(f"stage {number} has \"chunks\": {json.dumps(given)}; give a list of numbers of units, 0 for a chunk that has none")
    return tuple(given)


@dataclass(frozen=True)
class Plan:
    """A PP-DP-TP plan, possibly asymmetric: Suika, appendix A.1.

    Ranks go over it in its order: stage by stage, group by group, GPU by GPU.
    micro_batches: of one optimizer step.

    Units of the model are the embedding, each layer, norm with head and loss, and for each MTP head its module and its head. Chunk c of stage s stands before chunk c of stage s + 1;
    chunk c + 1 of stage 0 stands behind chunk c of the last stage. Chunks that sum to the layers are read as layers alone: the first of
    them that is not empty has the embedding too, the last one the head.
    """

    micro_batches: int
    stages: tuple[Stage, ...]
    schedule: str = ""      # a name or a text (docs/schedules.md); none: the program's own

    def __post_init__(self) -> None:
        flat = [(chunk, stage) for chunk in range(self.chunks) for stage, one in enumerate(self.stages) if chunk < len(one.chunks)]
        if not flat or sum(sum(one.chunks) for one in self.stages) != sum(one.layers for one in self.stages):
            return
        units = [list(one.chunks) for one in self.stages]
        filled = [(chunk, stage) for chunk, stage in flat if units[stage][chunk]]
        for chunk, stage in (filled[:1] + filled[-1:]):
            units[stage][chunk] += 1
        object.__setattr__(self, "stages", tuple(replace(one, chunks=tuple(its)) for one, its in zip(self.stages, units, strict=True)))

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Plan:
        """Reads what the core writes. Raises ValueError with the stage, the group and the value that are wrong."""
        if not isinstance(value, Mapping):
            raise ValueError(f'the plan is {_json(value)}; give {{"micro_batches": N, "stages": [...]}}, see swell(1), replan')
        micro_batches = _number("the plan", value, "micro_batches", 1)
        for name, kind in (("cp", "context"), ("ep", "expert")):
            if name in value and _number("the plan", value, name, 1) > 1:
                raise ValueError(f'the plan has "{name}": {value[name]}, and the engine has no {kind} parallelism; give a plan without it')
        return Plan(micro_batches, tuple(_stage(number, stage) for number, stage in enumerate(_list("the plan", value, "stages", "stages"))),
                    _text("the plan", value, "schedule", "a schedule's name or text") if "schedule" in value else "")

    @staticmethod
    def parse(text: str) -> Plan:
        """Reads a line of JSON."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the plan is not JSON: {error}") from error
        return Plan.from_json(value)

    @staticmethod
    def symmetric(layers: int, global_batch: int, micro_batch: int, *, pp: int = 1, dp: int = 1, tp: int = 1) -> Plan:
        """Equal degrees on all stages; layers as even as they go, the first stages with one more.

        micro_batch: samples of one pass of one group.
        """
        if global_batch % (micro_batch * dp):
            raise ValueError(f"global_batch={global_batch} is not a multiple of micro_batch={micro_batch} times {dp} replicas; give another "
                             "micro_batch or number of workers")
        stages = tuple(Stage(layers // pp + (stage < layers % pp), tp, tuple(
            Group("localhost", "any", tuple(range(((stage * dp) + group) * tp, ((stage * dp) + group + 1) * tp)), micro_batch)
            for group in range(dp))) for stage in range(pp))
        return Plan(global_batch // (micro_batch * dp), stages)

    def to_json(self) -> dict[str, Any]:
        """As the core reads it."""
        return {"micro_batches": self.micro_batches, "stages": [
            {"layers": stage.layers, "tp": stage.tp, **({"chunks": list(stage.chunks)} if stage.chunks else {}), "groups": [
                {"node": group.node, "gpu_type": group.gpu_type, "gpus": list(group.gpus), "local_batch": group.local_batch}
                for group in stage.groups]} for stage in self.stages], **({"schedule": self.schedule} if self.schedule else {})}

    def summary(self) -> str:
        """For logs: "2L dp2 tp1 | 2L dp1 tp2"; with chunks "2L in 2+1 dp1 tp1", by units."""
        return " | ".join(f"{stage.layers}L{' in ' + '+'.join(map(str, stage.chunks)) if stage.chunks else ''} dp{len(stage.groups)} tp{stage.tp}"
                          for stage in self.stages)

    @property
    def pp(self) -> int:
        """Stages."""
        return len(self.stages)

    @property
    def chunks(self) -> int:
        """Chunks of each stage."""
        return max((len(stage.chunks) for stage in self.stages), default=0) or 1

    @cached_property
    def contents(self) -> Contents:
        """The contents of each stage's chunks. REQUIRES: check()."""
        counts = [list(stage.chunks) or [stage.layers + (number == 0) + (number == self.pp - 1)] for number, stage in enumerate(self.stages)]
        return Contents.of_chunks(counts, sum(stage.layers for stage in self.stages))

    def with_mtp(self, heads: int) -> Plan:
        """The plan with all MTP heads behind the model's own, unless its chunks have them. REQUIRES: check()."""
        layers, units = sum(stage.layers for stage in self.stages), sum(sum(stage.chunks) for stage in self.stages)
        if not heads or units == layers + 2 + 2 * heads:
            return self
        counts = [[part.units + (2 * heads if part.head else 0) for part in parts] for parts in self.contents.parts]
        return replace(self, stages=tuple(replace(stage, chunks=tuple(its)) for stage, its in zip(self.stages, counts, strict=True)))

    @property
    def world(self) -> int:
        """Ranks."""
        return sum(stage.tp * len(stage.groups) for stage in self.stages)

    @property
    def micro_batch_samples(self) -> int:
        """Samples of one micro-batch, over all groups of a stage."""
        return sum(group.local_batch for group in self.stages[0].groups)

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step."""
        return self.micro_batches * self.micro_batch_samples

    def check(self, layers: int, global_batch: int, world: int, mtp_heads: int = 0) -> None:
        """Raises ValueError where the plan does not fit this model, batch or number of workers."""
        if self.world != world:
            raise ValueError(f"the plan ({self.summary()}) is for {counted(self.world, 'worker')}, there are {world}")
        if sum(stage.layers for stage in self.stages) != layers:
            raise ValueError(f"the plan ({self.summary()}) has {counted(sum(stage.layers for stage in self.stages), 'layer')}, the model {layers}")
        if self.global_batch != global_batch:
            raise ValueError(f"the plan has {counted(self.micro_batches, 'micro-batch')} of {counted(self.micro_batch_samples, 'sample')}, the global batch is "
                             f"{global_batch}")
        self._check_chunks(layers, mtp_heads)
        for number, stage in enumerate(self.stages):
            if sum(group.local_batch for group in stage.groups) != self.micro_batch_samples:
                raise ValueError(f"stage {number} computes {counted(sum(group.local_batch for group in stage.groups), 'sample')} of a micro-batch, "
                                 f"the first stage {self.micro_batch_samples}")
            for at, group in enumerate(stage.groups):
                if len(group.gpus) != stage.tp or group.local_batch < 1:
                    raise ValueError(f"stage {number}, group {at} has {counted(len(group.gpus), 'GPU')} and {counted(group.local_batch, 'sample')}; it needs "
                                     f"{stage.tp} and at least 1")

    def _check_chunks(self, layers: int, mtp_heads: int) -> None:
        most = layers + 2 + 2 * mtp_heads
        count, units = self.chunks, sum(sum(stage.chunks) for stage in self.stages)
        for number, stage in enumerate(self.stages):
            if stage.layers < (not stage.chunks):
                raise ValueError(f"stage {number} has {counted(stage.layers, 'layer')}; every stage needs at least 1")
            if not any(one.chunks for one in self.stages):
                continue
            if len(stage.chunks) != count:
                raise ValueError(f"stage {number} has {counted(len(stage.chunks), 'chunk')}, another one {count}; give every stage as many, with 0 for one that has "
                                 "no unit")
            if min(stage.chunks) < 0:
                raise ValueError(f"stage {number} has a chunk of {counted(min(stage.chunks), 'unit')}; give 0 or more")
            if not any(stage.chunks):
                raise ValueError(f"stage {number} has no unit in any of its chunks; every stage needs at least 1")
            if count > min(most, MAX_CHUNKS):
                raise ValueError(f"each stage has {counted(count, 'chunk')}, more than the {counted(most, 'unit')} of the model; give fewer")
        if not units:
            return
        if units > layers + 2 and units != most and (units - layers) % 2 == 0:
            raise ValueError(f"the chunks have {counted(units, 'unit')}, {(units - layers) // 2 - 1} MTP heads with their losses among them, and the engine trains {mtp_heads}; "
                             f"give Engine(mtp_heads={(units - layers) // 2 - 1}), or a plan of {counted(most, 'unit')}")
        if units not in (layers + 2, most):
            raise ValueError(f"the chunks have {counted(units, 'unit')}; embedding, {counted(layers, 'layer')} and head are {layers + 2}, so give that many, or {layers} for the "
                             f"layers alone{f'; {most} with MTP heads' if mtp_heads else ''}")
        for number, (stage, parts) in enumerate(zip(self.stages, self.contents.parts, strict=True)):
            held = sum(len(part.layers) for part in parts)
            if held != stage.layers:
                raise ValueError(f"stage {number} has {counted(stage.layers, 'layer')}, its chunks hold {held}; let \"layers\" count those of the chunks")

    def rank(self, stage: int, group: int, shard: int) -> int:
        """The rank at a place."""
        before = sum(one.tp * len(one.groups) for one in self.stages[:stage])
        return before + group * self.stages[stage].tp + shard

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """All places, in the order of their ranks."""
        every = ((stage, group, shard) for stage, one in enumerate(self.stages) for group in range(len(one.groups)) for shard in range(one.tp))
        return tuple(Place(rank, *at) for rank, at in enumerate(every))
