# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline schedules as data: for each stage the order of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Pass", "Schedule", "check", "one_forward_one_backward"]


@dataclass(frozen=True)
class Pass:
    """One pass of a micro-batch through a stage. What it sends and receives follows from the plan."""

    backward: bool
    micro_batch: int


Schedule = Sequence[Sequence[Pass]]


def one_forward_one_backward(stages: int, micro_batches: int) -> list[list[Pass]]:
    """1F1B: a stage has at most as many micro-batches under way as there are stages from it on."""
    schedule = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        passes = [Pass(False, number) for number in range(ahead)]
        for number in range(ahead, micro_batches):
            passes += [Pass(False, number), Pass(True, number - ahead)]
        passes += [Pass(True, number) for number in range(micro_batches - ahead, micro_batches)]
        schedule.append(passes)
    return schedule


def check(schedule: Schedule, stages: int, micro_batches: int) -> None:
    """Raises ValueError unless each stage makes each pass once, and none of them waits for ever.

    Backward passes must be in the order of the micro-batches on every stage: gradients are summed so. Forward passes must be in one order
    on all stages: NCCL ignores tags, and gives a receiver the messages in the order in which they were sent.
    """
    if len(schedule) != stages:
        raise ValueError(f"the schedule is for {len(schedule)} stages, the plan has {stages}")
    for stage, passes in enumerate(schedule):
        for backward in (False, True):
            found = [one.micro_batch for one in passes if one.backward == backward]
            if (found if backward else sorted(found)) != list(range(micro_batches)):
                raise ValueError(f"stage {stage} makes {'backward' if backward else 'forward'} passes {found}; each of {micro_batches} "
                                 "micro-batches needs one, backward ones in their order")
    orders = [[one.micro_batch for one in passes if not one.backward] for passes in schedule]
    for stage in range(1, stages):
        if orders[stage] != orders[stage - 1]:
            raise ValueError(f"stage {stage - 1} sends micro-batches in the order {orders[stage - 1]}, stage {stage} receives them in the order "
                             f"{orders[stage]}; give both the same order of forward passes")
    done: set[tuple[int, Pass]] = set()
    at = [0] * stages
    while True:
        moved = False
        for stage, passes in enumerate(schedule):
            while at[stage] < len(passes):
                one = passes[at[stage]]
                needs = [(stage, Pass(False, one.micro_batch))] if one.backward else []
                if one.backward and stage + 1 < stages:
                    needs.append((stage + 1, one))
                if not one.backward and stage:
                    needs.append((stage - 1, one))
                if not all(need in done for need in needs):
                    break
                done.add((stage, one))
                at[stage] += 1
                moved = True
        if all(at[stage] == len(passes) for stage, passes in enumerate(schedule)):
            return
        if not moved:
            stuck = next(stage for stage, passes in enumerate(schedule) if at[stage] < len(passes))
            raise ValueError(f"the schedule never ends: stage {stuck} waits for {schedule[stuck][at[stuck]]}")
