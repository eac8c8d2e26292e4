# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the integrations: the agreement among a framework's workers, and leaving together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from swell import _identity, _native, _request, data
from swell._agreement import Agreement, cpu_group, gather, leave, leave_with_checkpoint
from swell._averaged import Averaged
from swell._lock import FolderLock
from swell._profile import Profile
from swell.checkpoint import lock_together
from swell.live import LiveState, join

__all__ = ["Departure"]


class Departure:
    """One agreement, made when it is first needed: the framework makes the process group."""

    def __init__(self) -> None:
        self._agreement: Agreement | None = None
        self._group: dist.ProcessGroup | None = None
        self._bar = ""      # why no start could go on from a checkpoint
        self._held = ""     # why no other workers could train what is trained by now
        self._lost = ""     # why other workers would train another model, as the first worker sees it
        self._sizes: list[int] = []
        self._has_declined = False
        self._lock: FolderLock | None = None
        self._live: LiveState | None = None
        self.has_parts: Callable[[], bool] = lambda: False      # whether parts() are of more than one worker
        self.before_leaving: Callable[[], Any] = lambda: None
        self.trained: _identity.Trained | None = None       # as a start would have it
        self.averaged: Averaged | None = None       # of DistributedDataParallel
        self.profile: Profile | None = None     # where the state is handed over live

    def listen(self, global_batch: int, accepts: Callable[[int], bool] = lambda workers: True) -> None:
        """From now on workers may be asked to leave, for a number over which the global batch divides, and which is accepted."""
        self._sizes, self._held = list(filter(accepts, data.sizes(global_batch))), ""
        _request.can_run_with([_request.place().world] if self._lost else self._sizes, self._lost)
        _request.listen(leaves_at_once=True)

    def narrow(self, accepts: Callable[[int], bool]) -> None:
        """Some of the numbers of workers are not for the model, which is known by now."""
        self._sizes = list(filter(accepts, self._sizes))
        if not self._bar and not self._held and not self._lost:
            _request.can_run_with(self._sizes)

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

    def bar(self, why: str) -> None:
        """No start could go on from a checkpoint of this program: train on whatever is asked, and be lent nothing."""
        if self._bar:
            _request.can_run_with([_request.place().world], why)
        else:
            self._lend_nothing(why)
        self._bar = why

    def hold(self, why: str) -> None:
        """Be lent nothing from now on: other workers would train another model. The first worker's word; this one may still leave with a checkpoint."""
        if not self._bar and not self._held and not self._lost:
            self._lost = why
            self._lend_nothing(why)

    def _lend_nothing(self, why: str) -> None:
        if _request.place().rank == 0 and _request.under_swellrun():
            print(f"swell: the job is lent nothing: {why}", file=sys.stderr, flush=True)
        _request.can_run_with([_request.place().world], why)

    def why_not(self) -> str:
        """Returns why no start could train what is trained by now; empty: it could."""
        return self.trained.why_not() if self.trained is not None else ""

    def _look_at_trained(self) -> None:
        """Be lent nothing from when no start could train what the script does, or, in live mode, the next workers would not."""
        if self._bar or self.trained is None:
            return
        if why := self.trained.why_not():
            self.bar(why)
            self._live = self.profile = None
        elif not self._held:
            self._held = self.trained.why_not_live() if self._live is not None else ""
            self._held = self._held or (self.averaged.why_not() if self.averaged is not None else "")
            if self._held:
                self._live = self.profile = None
                self._lend_nothing(self._held)

    def decline(self, why: str) -> None:
        """Train on although workers were asked to leave, and be lent nothing until saved(). Every worker calls it."""
        self._has_declined = True
        _request.decline(why, _request.place().world)

    def saved(self) -> None:
        """A whole checkpoint has been written: what declined one is over."""
        if self._has_declined and not self._bar:
            self._has_declined = False
            why = self._held or self._lost
            _request.can_run_with([_request.place().world] if why else self._sizes, why)

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
        if asked and self._bar:
            self.decline(self._bar)
        return asked and not self._bar

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
