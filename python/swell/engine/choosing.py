# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a generation: given by the program, decided by Swell, or kept for the sums of an exact job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from swell import _native, _request
from swell.engine import given, sums
from swell.engine.given_schedule import GivenSchedule
from swell.engine.own_plans import given_plan
from swell.engine.plan import Plan
from swell.engine.settings import Settings
from swell.engine.skeleton import Skeleton
from swell.engine.standing import Standing

__all__ = ["PlanChooser"]

_MAX_SIZES = 4096       # that swellrun reads


class PlanChooser:
    """Finds the plan of each generation, and the numbers of workers that there are plans for.

    schedule: may be replaced by another one. sizes: those numbers, as the last stand() found them. sizes_once_saved: of an exact job whose sums new workers
    learn from a checkpoint alone, what finds the numbers once there is one. timed: as Standing takes it.
    """

    def __init__(self, settings: Settings, schedule: GivenSchedule, device: torch.device, timed: Callable[[int], AbstractContextManager[Any]]) -> None:
        self._settings, self.schedule, self._device, self._timed = settings, schedule, device, timed
        self.sizes: list[int] = []
        self.sizes_once_saved: Callable[[], list[int]] | None = None

    def stand(self, rank: int, world: int, decided: str | None = None, before: dict[str, Any] | None = None) -> Standing:
        """Finds the standing of a worker under the plan of a generation; swellrun is told for which numbers of workers there is one.

        decided: that plan, where swellrun has one. before: what an exact job's sums are in this process. Raises ValueError where there is no plan.
        """
        settings = self._settings
        skeleton = Skeleton(settings.config, settings.description, settings.dtype, settings.mtp_heads)
        shape = skeleton.layers, settings.global_batch, settings.micro_batch, world
        plan, why = None, ""
        if sums.is_exact():
            plan, before, why = self._kept(shape, decided, before)
        if _request.is_heard():
            possible = partial(self._possible, skeleton.layers, plan, before)
            self.sizes = [world] if why else possible()
            self.sizes_once_saved = possible if why else None
            if _native.is_live():
                _request.can_run_with(self.sizes, why)
        if plan is None:
            plan = self._planned(shape, decided, None)
        else:
            sums.check(plan, before)
        skeleton.check(plan)
        plan.check(skeleton.layers, settings.global_batch, world, settings.mtp_heads)
        plan = plan.with_mtp(settings.mtp_heads)
        self.schedule.passes(plan)      # before anything is given up for this plan
        return Standing(skeleton, plan, rank, seed=settings.seed, device=self._device, recompute=settings.recompute, timed=self._timed)

    def _possible(self, layers: int, plan: Plan | None, before: dict[str, Any] | None) -> list[int]:
        """The numbers of workers that there are plans for. plan: of an exact job, with its sums, or those before."""
        settings = self._settings
        if plan is None or settings.plan is not None:
            kept = before if before is not None or plan is None else sums.of(plan)
            return given.sizes(settings.plan, layers, settings.global_batch, settings.micro_batch, _MAX_SIZES, self.schedule.fits, mtp_heads=settings.mtp_heads,
                               keeps=lambda one: kept is None or sums.of(one) == kept)
        return sums.sizes(plan, layers, _MAX_SIZES, self.schedule.fits)

    def _kept(self, shape: tuple[int, int, int, int], decided: str | None, before: dict[str, Any] | None) -> tuple[Plan, dict[str, Any] | None, str]:
        """An exact job's plan, the sums that it has to have, and why the job is lent nothing: empty where it is."""
        settings, here = self._settings, _request.place()
        saved = sums.saved(settings.directory)
        is_untold = saved is None and _native.is_live()     # to new workers, before they see the state
        begun = sums.begun(settings.plan, settings.initial_plan, *shape[:3], here.basic_workers) if is_untold else None
        if before is None:
            has_any = here.generation == 0 and settings.plan is None and bool(os.environ.get("SWELL_PLAN"))      # a plan decided for the first start
            before = saved or (None if has_any else begun)
        plan = self._planned(shape, decided, before)
        return plan, before, sums.why_alone(plan, begun, settings.directory) if is_untold else ""

    def _planned(self, shape: tuple[int, int, int, int], decided: str | None, before: dict[str, Any] | None) -> Plan:
        """The plan of the whole run, or that was decided; else the initial one, or one of the program's own, or where these have other sums than before, one that has them."""
        settings = self._settings
        if settings.plan is not None:
            return given.plan_for(settings.plan, *shape)
        text = os.environ.get("SWELL_PLAN") if decided is None else decided
        try:
            plan = given_plan(*shape, text, None if settings.initial_plan is None else given.initial_for(
                settings.initial_plan, *shape, first=decided is None and _request.place().generation == 0))
        except ValueError:
            if text or before is None:
                raise
            return sums.plan_for(before, shape[0], shape[3])
        return plan if text or before is None or sums.of(plan) == before else sums.plan_for(before, shape[0], shape[3])
