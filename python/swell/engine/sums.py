# SPDX-License-Identifier: BSD-3-Clause
"""The degrees of an exact job, on which the order of its sums depends: a start without a plan makes one that keeps them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from swell._counted import counted
from swell._plain import decoded
from swell.checkpoint import complete_steps
from swell.engine import given as plans
from swell.engine.checkpoint import REST
from swell.engine.own_plans import given_plan
from swell.engine.plan import Group, Plan, Stage

__all__ = ["begun", "check", "is_exact", "of", "plan_for", "saved", "sizes", "why_alone"]


def is_exact() -> bool:
    """Whether the job was submitted with consistency=exact."""
    return os.environ.get("SWELL_CONSISTENCY") == "exact"


def of(plan: Plan) -> dict[str, Any]:
    """Returns what the order of sums depends on: micro-batches, and the shards and local batches that stages have."""
    return {"micro_batches": plan.micro_batches, "stages": [list(one) for one in sorted({(stage.tp, *(group.local_batch for group in stage.groups)) for stage in plan.stages})]}


def saved(folder: str | None) -> dict[str, Any] | None:
    """Returns of() of the plan that wrote the newest complete checkpoint; None where there is none that says it."""
    for step in complete_steps(folder) if folder is not None else ():
        name = os.path.join(folder or "", f"step-{step:09d}", REST)
        try:
            found: dict[str, Any] | None = decoded(torch.load(name, map_location="cpu", weights_only=True)).get("sums")
        except FileNotFoundError:       # of a checkpoint of an older version
            return None
        except Exception:       # a damaged one: the load says it, and takes the one before
            continue
        return found
    return None


def begun(given: plans.GivenPlan, initial: plans.GivenPlan, layers: int, global_batch: int, micro_batch: int, basic: int) -> dict[str, Any] | None:
    """Returns of() of the plan that the program makes at the job's first start on the GPUs that it asked for; None where it makes none.

    Each process of a job finds the same, so that a new one of a live job, which sees the state only after it has made its plan, keeps the sums of those before.
    """
    shape = layers, global_batch, micro_batch, basic
    try:
        if given is not None:
            return of(plans.plan_for(given, *shape))
        return of(given_plan(*shape, "", None if initial is None else plans.initial_for(initial, *shape, first=True)))
    except (ValueError, LookupError):
        return None


def why_alone(plan: Plan, begun: Mapping[str, Any] | None, folder: str | None) -> str:
    """Returns why a live job without a checkpoint has to keep its workers: new ones would have other sums. Empty: they would not. folder: where one would be."""
    if of(plan) == begun:
        return ""
    return (f"the job is exact, trains with {_said(of(plan))} and has no checkpoint that says so, and new workers would begin "
            f"{'with ' + _said(begun) if begun is not None else 'with a plan of their own'}; {'save one' if folder is not None else 'give directory= and go on from a checkpoint'}, or give initial_plan= with these degrees")


def _said(sums: Mapping[str, Any]) -> str:
    degrees = " and ".join(f"dp{len(batches)} tp{tp} with {'+'.join(map(str, batches))} samples" for tp, *batches in sums["stages"])
    return f"{degrees} in {counted(sums['micro_batches'], 'micro-batch')}"


def plan_for(sums: Mapping[str, Any], layers: int, world: int) -> Plan:
    """Returns a plan for so many workers that keeps the sums, with as many stages as that takes. Raises ValueError where there is none."""
    (tp, *batches), *others = sums["stages"]
    each = tp * len(batches)
    if others or world % each or world // each > layers:
        raise ValueError(f"the job is exact and was trained with {_said(sums)}, which {counted(world, 'worker')} cannot keep with {counted(layers, 'layer')}; "
                         + (f"start a multiple of {each}, up to {each * layers}" if not others else "give the plan that it had"))
    pp, gpus = world // each, iter(range(world))
    return Plan(sums["micro_batches"], tuple(
        Stage(layers // pp + (stage < layers % pp), tp, tuple(Group("localhost", "any", tuple(next(gpus) for _ in range(tp)), batch) for batch in batches))
        for stage in range(pp)))


def sizes(plan: Plan, layers: int, most: int, fits: Callable[[int, int, int], bool]) -> list[int]:
    """Returns the numbers of workers, up to `most`, for which there is a plan that keeps the sums of this one. fits: as given.sizes() takes it."""
    (tp, *batches), *others = of(plan)["stages"]
    each = tp * len(batches)
    return [plan.world] if others else [pp * each for pp in range(1, min(layers, most // each) + 1) if fits(pp, 1, plan.micro_batches)]


def check(plan: Plan, sums: Mapping[str, Any] | None) -> None:
    """Raises ValueError where a plan of an exact job has other sums than before."""
    if sums is not None and of(plan) != sums:
        raise ValueError(f"the job is exact and was trained with {_said(sums)}, the plan ({plan.summary()}) has {_said(of(plan))}; give a plan that keeps DP and TP, "
                         "or submit with consistency=relaxed and another directory")
