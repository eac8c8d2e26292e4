# SPDX-License-Identifier: BSD-3-Clause
"""Plans that a program makes for itself where the controller decided none."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from swell._counted import counted
from swell.engine.plan import Group, Plan, Stage

__all__ = ["given_plan", "own_plan", "own_sizes"]


def _spread(whole: int, parts: int) -> list[int]:
    """Divides `whole` into `parts` numbers that differ by at most 1, the larger ones first."""
    return [whole // parts + (part < whole % parts) for part in range(parts)]


@cache
def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _cut(layers: int, global_batch: int, micro_batch: int, world: int) -> tuple[list[int], int] | None:
    """Data parallel degrees by stage and samples of a micro-batch, see own_plan(); None where there are none."""
    for pp in range(1, min(layers, world) + 1):
        degrees = _spread(world, pp)
        busiest = {samples: global_batch // samples * -(-samples // degrees[-1]) for samples in _divisors(global_batch)
                   if degrees[0] <= samples <= degrees[-1] * micro_batch}
        if busiest:
            return degrees, min(busiest, key=lambda one: (busiest[one], -one))
    return None


def own_plan(layers: int, global_batch: int, micro_batch: int, world: int) -> Plan:
    """Makes the plan of a program where none was decided: as few stages as the number of workers allows, with the least to compute for the
    busiest worker. Where the workers do not divide the samples, groups have local batches, and stages degrees, that differ by one.

    micro_batch: the largest local batch. Raises ValueError where no such plan is there.
    """
    cut = _cut(layers, global_batch, micro_batch, world)
    if cut is None:
        raise ValueError(f"global_batch={global_batch} in passes of at most micro_batch={counted(micro_batch, 'sample')} cannot be divided over "
                         f"{counted(world, 'worker')} with {counted(layers, 'layer')}; give another micro_batch or number of workers")
    degrees, samples = cut
    gpus = iter(range(world))
    return Plan(global_batch // samples, tuple(
        Stage(depth, 1, tuple(Group("localhost", "any", (next(gpus),), local) for local in _spread(samples, degree)))
        for depth, degree in zip(_spread(layers, len(degrees)), degrees, strict=True)))


def given_plan(layers: int, global_batch: int, micro_batch: int, world: int, decided: str | None = None, initial: Plan | None = None) -> Plan:
    """Returns the plan decided for this job, or SWELL_PLAN; without either, the initial plan, else own_plan()."""
    text = os.environ.get("SWELL_PLAN") if decided is None else decided
    if text:
        return Plan.parse(text)
    return initial if initial is not None else own_plan(layers, global_batch, micro_batch, world)


def own_sizes(layers: int, global_batch: int, micro_batch: int, most: int, fits: Callable[[int, int, int], bool]) -> list[int]:
    """Numbers of workers, up to `most`, for which there is an own_plan(). fits: whether a schedule is for its stages, chunks and micro-batches."""
    found = []
    for world in range(1, min(most, layers * global_batch) + 1):
        cut = _cut(layers, global_batch, micro_batch, world)
        if cut is not None and fits(len(cut[0]), 1, global_batch // cut[1]):
            found.append(world)
    return found
