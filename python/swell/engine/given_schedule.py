# SPDX-License-Identifier: BSD-3-Clause
"""The schedule that a program gives to the Engine, and the passes that it means under a plan."""

from __future__ import annotations

from swell import _native
from swell.engine import named_schedules, schedule, sums
from swell.engine.plan import Plan
from swell.engine.schedule import Schedule

__all__ = ["GivenSchedule", "read_schedule"]


class GivenSchedule:
    """A name, which each plan makes anew, or passes by stage, which fit plans of one shape. given: as Engine takes it; raises ValueError where it cannot be read."""

    def __init__(self, given: Schedule | str | None) -> None:
        self.read = read_schedule(given)
        self._shape = None if isinstance(self.read, str) else schedule.shape_of(self.read)

    def fits(self, *shape: int) -> bool:
        """Returns whether the schedule is for so many stages, chunks and micro-batches."""
        return (self.read != "1f1b" or shape[1] == 1) if isinstance(self.read, str) else self._shape == shape

    def passes(self, plan: Plan) -> Schedule:
        """Returns the schedule that a plan says, else this one. Raises ValueError where that is of another plan."""
        if plan.schedule and plan.schedule not in named_schedules.NAMES:
            orders = schedule.parse(plan.schedule)
            schedule.check(orders, plan.pp, plan.micro_batches, plan.chunks)
            return orders
        if plan.schedule:
            return named_schedules.named(plan.schedule, plan.pp, plan.micro_batches, plan.chunks)
        if isinstance(self.read, str):
            return named_schedules.named(self.read, plan.pp, plan.micro_batches, plan.chunks)
        schedule.check(self.read, plan.pp, plan.micro_batches, plan.chunks)
        return self.read


def read_schedule(given: Schedule | str | None) -> Schedule | str:
    """A name stays what it is, since it fits every plan. "search": interleaved until a plan says the schedule that the planner found."""
    if given is None:
        return "interleaved"
    if given == "search":
        if not (sums.is_exact() and _native.is_live()):
            raise ValueError("schedule=\"search\" needs Swell's planner, which searches for jobs of swellrun with --elastic=mode=live,consistency=exact: submit so, or give "
                             "the text that swell plan --schedule search --json prints")
        return "interleaved"
    if not isinstance(given, str):
        return given
    if given in named_schedules.NAMES:
        return given
    return schedule.read(given)
