# SPDX-License-Identifier: BSD-3-Clause
"""Names what a Lightning module logs in its first batch and another number of workers would change."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from swell._share import function_of, says_what_depends

__all__ = ["Logged"]

_NAMED = 3
_OF_GRADIENTS = ("on_after_backward", "on_before_zero_grad", "on_before_optimizer_step", "configure_gradient_clipping", "optimizer_step")      # which are those of all workers there
_OF_SAMPLES = {"max": ("Max", "Amax"), "min": ("Min", "Amin"), "sum": ("Sum",)}     # how a value is made that is the same reduction of a share


class Logged:
    """Looks at the calls of a module's log() until it is closed."""

    def __init__(self, module: Any, rates: Iterable[Any]) -> None:
        self._module, self._rates = module, [float(each) for each in rates]
        self._alone, self._reduced = dict[str, None](), dict[str, None]()
        if says_what_depends():
            log = module.log

            def noted(name: str, value: Any, *arguments: Any, **options: Any) -> Any:
                if not arguments:       # Lightning's own take names alone
                    self._note(name, value, **options)
                return log(name, value, *arguments, **options)
            object.__setattr__(module, "log", noted)

    def _note(self, name: str, value: Any, reduce_fx: Any = "mean", sync_dist: bool = False, rank_zero_only: bool = False, **_: Any) -> None:
        if rank_zero_only or not isinstance(value, (float, torch.Tensor)) or float(value) in self._rates or self._module._current_fx_name in _OF_GRADIENTS:
            return      # a metric knows its workers; a number of Python's that is whole counts something else than samples
        if isinstance(value, float) and not any(getattr(each, "monitor", None) in (name, f"{name}_step", f"{name}_epoch") for each in self._module.trainer.callbacks):
            return      # perhaps a time, or a weight that a schedule has; by one that is monitored the training may end, or a model be the best
        if not sync_dist:
            self._alone[name] = None
            return
        by = getattr(reduce_fx, "__name__", str(reduce_fx)).lower()
        if by not in _OF_SAMPLES or by == "sum" and isinstance(value, torch.Tensor) and not value.is_floating_point():
            return
        made = function_of(value) if isinstance(value, torch.Tensor) else None
        if made is None or not made.name().startswith(_OF_SAMPLES[by]) and getattr(made, "_saved_reduction", None) != 2:      # a sum, of torch's reductions
            self._reduced[f"{name} (reduce_fx={by})"] = None

    def close(self) -> None:
        """Says once what was found."""
        self._module.__dict__.pop("log", None)
        for found, why in ((self._alone, "logged without sync_dist=True, and so from the first worker's samples alone: give sync_dist=True to what is computed from samples"),
                           (self._reduced, "reduced over the values of workers, which is right if each is the same of its samples; a mean of a worker's samples depends on the number of workers: log it with "
                            "reduce_fx=\"mean\"")):
            if found:
                some = ", ".join(list(found)[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
                print(f"swell: {some}: {why}", file=sys.stderr, flush=True)
