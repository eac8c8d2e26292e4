# SPDX-License-Identifier: BSD-3-Clause
"""The checkpoints of an Engine's run, and leaving by one where swellrun asks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from swell import _native, _request
from swell._agreement import Agreement, cpu_group, leave_with_checkpoint
from swell._lock import FolderLock
from swell._plain import Unreadable
from swell.checkpoint import readable
from swell.engine.choosing import PlanChooser

__all__ = ["Leaving"]


class Leaving:
    """Tells swellrun with how many workers the run can go on from its checkpoints, and leaves with one once all workers agree.

    directory: of the checkpoints; None: there are none. chooser: has the numbers of workers. save: writes a checkpoint of the present step, on every worker;
    raises OSError or Unreadable, the same on all.
    """

    def __init__(self, directory: str | None, chooser: PlanChooser, save: Callable[[], None]) -> None:
        self._chooser, self._save = chooser, save
        self.lock = FolderLock(directory) if directory is not None else None
        self._agreement: Agreement | None = None
        self._fails = ""        # why the newest save failed
        self._bar = "Engine has no directory= for checkpoints, and swellrun no --elastic=mode=live" if directory is None else ""

    def listen(self) -> None:
        """Not live: from now on swellrun may ask for checkpoints, and knows how many workers they are for."""
        self.offer_sizes()
        if self.lock is not None:
            _request.listen(leaves_at_once=True)

    def hear(self, stateful: Mapping[str, Any], group: dist.ProcessGroup | None) -> None:
        """Leave by a checkpoint where swellrun asks, in live mode too: where the state of a new worker finds no room, the job is resized so.

        stateful: what a checkpoint says beside tensors. group: of all workers, on the host.
        """
        why = readable(stateful)
        if not _native.is_live():
            self._agreement = Agreement(cpu_group())
            if why:
                self._bar = why
                self.offer_sizes()
        elif not why:       # else it stays live, as it does without a directory
            self._agreement = Agreement(group)
            _request.listen()

    def regroup(self, group: dist.ProcessGroup | None) -> None:
        """The workers are others: those of this group agree from now on."""
        if self._agreement is not None:
            self._agreement = Agreement(group)

    def offer_sizes(self) -> None:
        """Tell swellrun the numbers of workers that there are plans for; none but the present one where something speaks against more."""
        if not _request.is_heard():
            return
        if not self._bar:
            _request.can_run_with(self._chooser.sizes)
            return
        print(f"swell: the job is lent nothing: {self._bar}", file=sys.stderr, flush=True)
        _request.can_run_with([_request.place().world], self._bar)

    def saved(self) -> None:
        """A checkpoint is written: it tells new workers an exact job's sums."""
        if self._chooser.sizes_once_saved is not None:
            self._chooser.sizes, self._chooser.sizes_once_saved = self._chooser.sizes_once_saved(), None
            self.offer_sizes()

    def try_to_save(self, says: bool = True) -> str:
        """Saves; returns why that failed, the same on all workers. says: the first worker prints it, once until a save succeeds."""
        try:
            self._save()
        except (OSError, Unreadable) as error:
            why = str(error)
            if says and not self._fails and _request.place().rank == 0:
                print(f"swell: {why}; training goes on", file=sys.stderr, flush=True)
            self._fails = why
            return why
        if self._fails:
            self._fails = ""
            self.offer_sizes()
        return ""

    def is_asked(self) -> bool:
        """Returns whether all workers are to leave now. Every worker calls it before each step."""
        return self._agreement is not None and self._agreement.poll()

    def leave(self, step: int, world: int) -> None:
        """Leaves with exit code 0 after a checkpoint of `step`, or trains on with so many workers where it cannot be saved. step 0: there is nothing to save."""
        if step and (why := self.try_to_save(says=False)):
            _request.decline(why, world)
            return
        leave_with_checkpoint(step, self.lock)

    def end(self) -> None:
        """Ends the communication under way between the workers of this generation."""
        if self._agreement is not None:
            self._agreement.end()

    def finish(self, step: int) -> None:
        """Training by batches() is over: whoever is asked to leave after it finds its end in a checkpoint."""
        if self._agreement is not None:
            self._agreement.end()
            if step:
                self.try_to_save()
