# SPDX-License-Identifier: BSD-3-Clause
"""Which units of the model a plan's stages and chunks hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Contents", "Part"]


@dataclass(frozen=True)
class Part:
    """The units of the model in a chunk. layers: by their number in the model. modules, heads: of MTP heads, by their number; each has a module, and a head
    with its loss behind it. A chunk without any unit passes on what it gets (a No-Op)."""

    embedding: bool
    layers: range
    head: bool
    modules: range = range(0)
    heads: range = range(0)

    @property
    def units(self) -> int:
        """How many units it has."""
        return self.embedding + len(self.layers) + self.head + len(self.modules) + len(self.heads)

    @property
    def is_empty(self) -> bool:
        """Whether it has no unit."""
        return not self.units


@dataclass(frozen=True)
class Contents:
    """The units of a plan. parts: the chunks of each stage, [stage][chunk]."""

    parts: tuple[tuple[Part, ...], ...]

    @staticmethod
    def of_chunks(counts: Sequence[Sequence[int]], layers: int) -> Contents:
        """Divides a model of `layers` layers. counts: units of each chunk, [stage][chunk]; Plan says in which order chunks stand."""
        found: list[list[Part]] = [[] for _ in counts]
        at = 0
        for chunk in range(len(counts[0])):
            for its, parts in zip(counts, found, strict=True):
                end = at + its[chunk]
                begin_layer, end_layer = (min(max(unit - 1, 0), layers) for unit in (at, end))
                modules, heads = (range(max(0, at - first + 1) // 2, max(0, end - first + 1) // 2) for first in (layers + 2, layers + 3))
                parts.append(Part(at == 0 < end, range(begin_layer, end_layer), at <= layers + 1 < end, modules, heads))
                at = end
        return Contents(tuple(map(tuple, found)))

    @cached_property
    def embedding_stage(self) -> int:
        """The stage that has the embedding."""
        return next(stage for stage, parts in enumerate(self.parts) if any(one.embedding for one in parts))

    @cached_property
    def head_stage(self) -> int:
        """The stage that has the head and the loss."""
        return next(stage for stage, parts in enumerate(self.parts) if any(one.head for one in parts))

    def heads_of(self, stage: int) -> list[int]:
        """The losses of a stage: 0 is the model's own, 1 that of the first MTP head."""
        return [0] * any(part.head for part in self.parts[stage]) + [1 + number for part in self.parts[stage] for number in part.heads]

    def stage_of(self, kind: str, number: int) -> int:
        """The stage of a unit: "embedding", "head" (0: the model's own) or "module"."""
        if kind == "embedding":
            return self.embedding_stage
        return next(stage for stage in range(len(self.parts)) if (
            number in self.heads_of(stage) if kind == "head" else any(number in part.modules for part in self.parts[stage])))

    def layers(self, stage: int) -> list[int]:
        """Layers of a stage, by their number in the model."""
        return [number for part in self.parts[stage] for number in part.layers]
