# SPDX-License-Identifier: BSD-3-Clause
"""The look at the first steps after a start of Lightning: losses that depend on how a global batch is made of passes, and rates that workers scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from swell import _request
from swell._apart import Outputs
from swell._divided import Divided
from swell._rates import say_scaled_rates
from swell._rounded import say_what_is_rounded
from swell._share import why_no_mean

__all__ = ["FirstLosses"]


class FirstLosses:
    """Looks at losses until one of them is found not to be a mean over the samples of its pass.

    samples: returns the samples of a pass; 0: they are not known yet. hold: called with the sentence that says why the job can be lent nothing.
    came_from: workers and rates with which the run came here, until the first step; None: it begins here.
    """

    def __init__(self, samples: Callable[[], int], hold: Callable[[str], None]) -> None:
        self._samples, self._hold = samples, hold
        self._outputs: Outputs | None = None        # until the first batch is over
        self._divided, self._losses = Divided(), 0      # _losses: of the present batch
        self._looks = self._is_first = False        # _is_first: within the first batch
        self.came_from: tuple[int, list[float]] | None = None

    def watch(self, trainer: Any, pl_module: Any) -> None:
        """Has the losses of training_step() be looked at, on the first worker of a job of swellrun."""
        if not (_request.under_swellrun() and _request.place().rank == 0):
            return
        is_compiled = getattr(pl_module, "_compiler_ctx", None) is not None
        self._looks = self._is_first = True
        step = trainer.strategy.training_step
        if hasattr(trainer.strategy, "swell_looks"):        # a second training of the same objects
            return

        def looked_at(*arguments: Any, **options: Any) -> Any:
            if self._is_first and self._outputs is None and not is_compiled:
                self._outputs = Outputs(pl_module, is_called=False)     # by now a strategy has divided the model
            made = step(*arguments, **options)
            if trainer.lightning_module.automatic_optimization:
                self.look(made.get("loss") if isinstance(made, Mapping) else made)
            return made
        trainer.strategy.training_step, trainer.strategy.swell_looks = looked_at, True

    def look(self, loss: Any) -> None:
        """A pass has made this loss."""
        samples = self._samples() if self._looks else 0
        if not samples or not isinstance(loss, torch.Tensor):
            return
        why, self._losses = self._divided.why(loss, samples, self._losses), self._losses + 1
        if self._is_first:
            say_what_is_rounded(loss)
            if self._outputs is not None:
                self._outputs.say_what_meets(samples)
            why = why_no_mean(loss, samples) or (self._outputs.why_not_apart(loss, samples) if self._outputs is not None else "") or why
        if why:
            self._hold(why)
            self._looks = False

    def look_at_rates(self, trainer: Any) -> None:
        """A step begins: says, before a start's first one, which rates the number of workers has scaled."""
        came_from, self.came_from = self.came_from, None
        if came_from is not None:
            say_scaled_rates(came_from[1], came_from[0], [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups], trainer.world_size)

    def end_batch(self) -> None:
        """The first batch, or a later one, is over."""
        self._is_first, self._losses = False, 0
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None
