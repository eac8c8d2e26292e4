# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the integrations: the agreement among a framework's workers, and leaving together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from swell import _identity, _native, _request
from swell._agreement import Agreement, cpu_group, gather, leave, leave_with_checkpoint
from swell._averaged import Averaged
from swell._lock import FolderLock
from swell._profile import Profile
from swell.checkpoint import lock_together
from swell.integrations._lending import Lending
from swell.live import LiveState, join

__all__ = ["Departure"]


class Departure:
    """One agreement, made when it is first needed: the framework makes the process group."""

    def __init__(self) -> None:
        self._agreement: Agreement | None = None
        self._group: dist.ProcessGroup | None = None
        self.lending = Lending()
        self._lock: FolderLock | None = None
        self._live: LiveState | None = None
        self.has_parts: Callable[[], bool] = lambda: False      # whether parts() are of more than one worker
        self.before_leaving: Callable[[], Any] = lambda: None
        self.trained: _identity.Trained | None = None       # as a start would have it
        self.averaged: Averaged | None = None       # of DistributedDataParallel
        self.profile: Profile | None = None     # where the state is handed over live

    @property
    def is_live(self) -> bool:
        """Whether the next workers take the state over without a checkpoint."""
        return self._live is not None

    def go_live(self, model: torch.nn.Module, optimizers: list[Any], things: Mapping[str, Any], *, sees_forward: bool = True) -> Any:
        """Take the state over from the workers before, in live mode: what they gave to pass_boundary(); None where there is none.

        Blocks until they have handed it over. model, optimizers: as they are trained; all of it is on its device.
        sees_forward: the model is called for each forward pass, which the profile sees then.
        """
        if not _native.is_live():
            return None
        if len(optimizers) != 1:
            if _request.place().rank == 0:
                print(f"swell: {len(optimizers)} optimizers; live mode hands over what one keeps: this job is resized by restarts",
                      file=sys.stderr, flush=True)
            return None
        self._live = join(model, optimizers[0], things, rank=_request.place().rank, group=cpu_group())
        if self._live is not None:
            _request.begun()        # what is taken over stands in no checkpoint
            self.profile = Profile(self._live.session, model, rank=_request.place().rank, sees_forward=sees_forward)
        taken = self._live.take_over() if self._live is not None else None
        return taken[0] if taken is not None else None

    def time_calls(self, owner: Any, name: str, part: str) -> None:
        """Calls of a framework's method are a part of a step to the profiler, "forward" or "backward", from now on."""
        method = getattr(owner, name)
        if hasattr(method, "swell_times"):      # a second training of the same objects
            return

        def call(*arguments: Any, **options: Any) -> Any:
            profile = self.profile
            if profile is not None:
                getattr(profile, f"begin_{part}")()
            try:
                return method(*arguments, **options)
            finally:
                if profile is not None:
                    getattr(profile, f"end_{part}")()
        setattr(call, "swell_times", part)
        setattr(owner, name, call)

    def loaded(self) -> None:
        """A checkpoint has been loaded into what was registered."""
        self._look_at_trained()
        if self._live is not None:
            self._live.follow()

    def begin(self) -> None:
        """Training begins, on all workers: from now on they leave together."""
        if self._agreement is None:
            self._agreement = Agreement(self.group, lambda: self.has_parts())      # all of them meet here
        _request.begun()

    @property
    def group(self) -> dist.ProcessGroup | None:
        """A group of all workers, on the CPU; None for one without a process group."""
        if self._group is None:
            self._group = cpu_group()
        return self._group

    def lock(self, folder: str) -> None:
        """The folder is this run's until training is over. Raises InUse on all workers where another run writes to it."""
        self._lock = self._lock or FolderLock(folder)
        lock_together(self._lock, self.group)

    def why_not(self) -> str:
        """Returns why no start could train what is trained by now; empty: it could."""
        return self.trained.why_not() if self.trained is not None else ""

    def _look_at_trained(self) -> None:
        """Be lent nothing from when no start could train what the script does, or, in live mode, the next workers would not."""
        if self.lending.why_barred or self.trained is None:
            return
        if why := self.trained.why_not():
            self.lending.bar(why)
            self._live = self.profile = None
        elif not self.lending.is_held:
            why = self.trained.why_not_live() if self._live is not None else ""
            why = why or (self.averaged.why_not() if self.averaged is not None else "")
            if why:
                self._live = self.profile = None
                self.lending.hold(why)

    def parts(self, mine: Any) -> list[Any]:
        """Returns each worker's value, by rank, as long as some has_parts(); else this worker's alone. Every worker calls it."""
        return gather(mine, self.group) if self._agreement is None or self._agreement.exchanges else [mine]

    def pass_boundary(self, rest: Any, samples: float) -> None:
        """A step is done: in live mode the next workers may take the state over here. Every worker calls it equally often.

        rest: what go_live() gives to them. samples: of one pass of this worker's.
        """
        self._look_at_trained()
        if self._live is None:
            return
        try:
            if self.profile is not None:
                self.profile.boundary(samples)
            action = self._live.boundary(rest)
        except _native.NativeError as error:
            _request.not_live(error)
            self._live = self.profile = None
            return
        if action is _native.Action.SWITCH:
            self.end()
            self.before_leaving()
            leave()
        if action is _native.Action.STOP:
            _request.ask()

    def agreed(self) -> bool:
        """Whether all workers are to leave now. Every worker asks equally often."""
        self.begin()
        assert self._agreement is not None
        asked = self._agreement.poll()
        self._look_at_trained()
        if asked and self.lending.why_barred:
            self.lending.decline(self.lending.why_barred)
        return asked and not self.lending.why_barred

    def end(self) -> None:
        """Training is over: whatever was asked comes too late."""
        if self._lock is not None:
            self._lock.release()
        if self._agreement is not None:
            self._agreement.end()
            self._agreement = None

    def leave(self, step: int) -> None:
        """Leave with exit code 0, once all workers have come here. The checkpoint is written."""
        self.before_leaving()
        leave_with_checkpoint(step, self._lock)
