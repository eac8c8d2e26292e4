# SPDX-License-Identifier: BSD-3-Clause
"""Tells swellrun with how many workers the training of an integration can go on, and why with no others."""

from __future__ import annotations

import sys
from collections.abc import Callable

from swell import _request, data

__all__ = ["Lending"]


class Lending:
    """The numbers of workers, and up to three reasons against all but the present one."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._bar = ""      # why no start could go on from a checkpoint
        self._held = ""     # why no other workers could train what is trained by now
        self._lost = ""     # why other workers would train another model, as the first worker sees it
        self._has_declined = False

    @property
    def why_barred(self) -> str:
        """Why no start could go on from a checkpoint of this program; empty: one could."""
        return self._bar

    @property
    def is_held(self) -> bool:
        """Whether no other workers could train what is trained by now."""
        return bool(self._held)

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

    def bar(self, why: str) -> None:
        """No start could go on from a checkpoint of this program: train on whatever is asked, and be lent nothing."""
        if self._bar:
            _request.can_run_with([_request.place().world], why)
        else:
            self._lend_nothing(why)
        self._bar = why

    def hold(self, why: str) -> None:
        """No other workers could train what is trained by now, until the next listen()."""
        self._held = why
        self._lend_nothing(why)

    def stop(self, why: str) -> None:
        """Be lent nothing from now on: other workers would train another model. The first worker's word; this one may still leave with a checkpoint."""
        if not self._bar and not self._held and not self._lost:
            self._lost = why
            self._lend_nothing(why)

    def _lend_nothing(self, why: str) -> None:
        if _request.place().rank == 0 and _request.under_swellrun():
            print(f"swell: the job is lent nothing: {why}", file=sys.stderr, flush=True)
        _request.can_run_with([_request.place().world], why)

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
