# SPDX-License-Identifier: BSD-3-Clause
"""Finds state of a script that changes in training and that no checkpoint holds: other optimizers, schedules, averages of weights."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel

__all__ = ["Beside"]

_MOST = 200_000     # objects that are followed
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)


def _held_by(things: Iterable[Any]) -> set[int]:
    """Returns the ids of what things hold, themselves and through others, as far as Python's collector follows them."""
    found, open_ = set[int](), list(things)
    while open_ and len(found) < _MOST:
        thing = open_.pop()
        if id(thing) in found or isinstance(thing, _CODE):
            continue
        found.add(id(thing))
        if isinstance(thing, torch.Tensor):
            continue        # not what computed it
        open_ += gc.get_referents(thing)
    return found


class _Seen:
    """One thing that no checkpoint holds, and how far it had come."""

    def __init__(self, thing: Any, held: set[int]) -> None:
        self._thing, self._changes = weakref.ref(thing), 0
        self._trains = [parameter for group in thing.param_groups for parameter in group["params"] if id(parameter) not in held] if isinstance(thing, torch.optim.Optimizer) else []
        self._was = self._now(thing)

    def _now(self, thing: Any) -> float:
        """Returns a number that rises with each change; reads nothing of a GPU."""
        if isinstance(thing, AveragedModel):
            return thing.n_averaged._version
        if isinstance(thing, LRScheduler):
            return thing.last_epoch
        values = [value for state in thing.state.values() for value in state.values()]
        return sum(value._version for value in (*values, *self._trains) if isinstance(value, torch.Tensor)) + sum(value for value in values if isinstance(value, (int, float)))

    def why(self) -> str:
        """Returns what has changed, as a sentence; empty: nothing has, or it was an optimizer's only step."""
        thing = self._thing()
        if thing is None or (now := self._now(thing)) == self._was:
            return ""
        self._was, self._changes = now, self._changes + 1
        kind, name = type(thing).__name__, "average" if isinstance(thing, AveragedModel) else "schedule" if isinstance(thing, LRScheduler) else "other"
        if name == "other":
            if self._changes < 2:
                return ""
            does = f"another optimizer of the script's, {kind}, steps in this loop"
            remedy = "give Elastic state={\"other\": optimizer}" + (" and its module" if self._trains else "")
        elif name == "average":
            does, remedy = f"the script updates an average of weights, {kind}, as it trains", "give Elastic state={\"average\": average}"
        else:
            does, remedy = f"the script steps a schedule of its own, {kind}, as it trains", "give Elastic scheduler=schedule, or state={\"schedule\": schedule} where the script steps it"
        return f"{does}, which no checkpoint holds, and each start would make anew: {remedy}"


class Beside:
    """Finds what the script changes beside what is kept.

    kept: the model, its optimizer, and all else that checkpoints hold. A schedule that is made later than this may begin where the training goes on, and is left
    alone.
    """

    def __init__(self, kept: Iterable[Any], optimizer: Any) -> None:
        self._kept, self._seen, self._has_looked = list(kept), list[_Seen](), False
        self._has_schedule = hasattr(optimizer.step, "_wrapped_by_lr_sched")

    def why(self) -> str:
        """Returns what changes and no checkpoint holds, as a sentence; empty: nothing that is known. Call it after each step."""
        if self._has_looked:
            return next(filter(None, (each.why() for each in self._seen)), "")
        self._has_looked = True
        found = _there(torch.optim.Optimizer, LRScheduler, AveragedModel)
        held = _held_by(self._kept)
        if not self._has_schedule or any(isinstance(each, LRScheduler) and id(each) in held for each in found):
            found = [each for each in found if not isinstance(each, LRScheduler) or isinstance(each, ReduceLROnPlateau)]
        lost = (each for each in found if id(each) not in held)
        self._seen = [_Seen(each, held) for each in lost if not isinstance(each, LRScheduler) or id(each.optimizer) in held]
        return ""


def _there(*kinds: type) -> list[Any]:
    """Returns all objects of these kinds; takes a tenth of a second among half a million others."""
    wanted, open_ = set[Any](), list[Any](kinds)
    while open_:
        kind = open_.pop()
        wanted.add(kind)
        open_ += type.__subclasses__(kind)
    return [thing for thing in gc.get_objects() if type(thing) in wanted]
