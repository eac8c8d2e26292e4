# SPDX-License-Identifier: BSD-3-Clause
"""What makes a checkpoint one of a certain run: written beside its state, and compared before it is gone on with."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from swell._lock import run_name

__all__ = ["Trained", "check_same", "continues", "kinds", "record", "trained"]

_VERSION = 1
_NAMED = 3      # names of parameters in a message


def trained(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    """Returns the names of what is trained, by the optimizer's groups; the same however the model is wrapped."""
    names = {id(parameter): _bare(name) for name, parameter in model.named_parameters()}
    return [[names.get(id(parameter), "") for parameter in group["params"] if parameter.requires_grad] for group in optimizer.param_groups]


class Trained:
    """What a program trains as it begins, which is what a start of it would train."""

    def __init__(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._model, self._optimizers = model, list(optimizers)
        self._flags, self._groups = self._seen(), self.groups()

    def groups(self) -> list[list[str]]:
        """Returns trained() of all optimizers, as it is now."""
        return [group for optimizer in self._optimizers for group in trained(self._model, optimizer)]

    def _seen(self) -> list[list[bool]]:
        return [[parameter.requires_grad for parameter in group["params"]] for optimizer in self._optimizers for group in optimizer.param_groups]

    def changed(self) -> str:
        """Returns why a start would not train what is trained by now; empty: it would. Costs little where nothing has changed."""
        if self._seen() == self._flags:
            return ""
        was, now = ([sorted(group) for group in groups] for groups in (self._groups, self.groups()))
        if was == now:
            return ""
        names, before = ({name for group in groups for name in group} for groups in (now, was))
        other = _some(sorted(names ^ before)) or f"{len(now)} groups of parameters in place of {len(was)}"
        return f"the script has changed what is trained since training began ({other}), and a start would not"


def kinds(things: Mapping[str, Any]) -> dict[str, str]:
    """Returns the kind of each thing that has a state beside the model, by its name; None is not one."""
    return {name: type(thing).__name__ for name, thing in things.items() if thing is not None}


def _bare(name: str) -> str:
    name = name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "").replace("_fsdp_wrapped_module.", "")
    return name.removeprefix("module.")


def record(step: int, *, data: Mapping[str, Any] | None = None, trained: Sequence[Sequence[str]] | None = None,
           kinds: Mapping[str, str] | None = None, **numbers: Any) -> dict[str, Any]:
    """Returns the identity record of a checkpoint, in plain values.

    data: a sampler's state_dict(). trained: of trained(). kinds: of kinds(). numbers: others that a start must have alike, such as global_batch.
    """
    return {"version": _VERSION, "run": run_name(), "host": socket.gethostname(), "written": time.time(), "step": step,
            "data": dict(data) if data is not None else None, "trained": [list(group) for group in trained] if trained is not None else None,
            "kinds": dict(kinds) if kinds is not None else None, "numbers": numbers}


def continues(before: Mapping[str, Any] | None, step: int, path: str) -> str:
    """Returns the sentence that says from which checkpoint a start goes on; before: its record, None where it has none."""
    said = f"continues from step {step}, {path}"
    if not before:
        return said
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before["written"]))
    run, here = before.get("run"), run_name()
    said += f", written by {f'job {run}' if run else 'a run outside Slurm'} on {before.get('host')} at {at}"
    return said + (f"; this is job {here}, which continues that run" if here and run != here else "")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def check_same(before: Mapping[str, Any] | None, *, data: Mapping[str, Any] | None = None, trained: Sequence[Sequence[str]] | None = None,
               kinds: Mapping[str, str] | None = None, **numbers: Any) -> None:
    """Raises ValueError, one sentence, where a start differs from the run that wrote a checkpoint; before: its record.

    The arguments are those of record(). What either of the two does not say is not compared.
    """
    if not before:
        return
    for name, value in numbers.items():
        old = before.get("numbers", {}).get(name, value)
        if old != value:
            raise ValueError(f"the training so far had {name}={old}, here it is {value}; give the same, or another directory")
    for name, value in (data or {}).items():
        old = (before.get("data") or {}).get(name, value)
        if name != "samples" and old != value:
            raise ValueError(f"the checkpoint's data has {name} {old}, here it is {value}: samples would be lost or repeated; give the same, "
                             "or another directory")
    if kinds is not None and before.get("kinds") is not None:
        _check_kinds(before["kinds"], kinds)
    groups = before.get("trained")
    if trained is None or groups is None:
        return
    was, now = [name for group in groups for name in group], [name for group in trained for name in group]
    if missing := [name for name in was if name not in set(now)]:
        raise ValueError(f"the run so far trains {_some(missing)} too, this start does not: {len(now)} parameters in place of {len(was)}; set "
                         "requires_grad and the optimizer's groups before training as they were, or give another directory")
    if added := [name for name in now if name not in set(was)]:
        raise ValueError(f"this start trains {_some(added)} too, the run so far did not: {len(now)} parameters in place of {len(was)}; set "
                         "requires_grad and the optimizer's groups before training as they were, or give another directory")
    if len(groups) != len(trained):
        raise ValueError(f"the run so far has {len(groups)} groups of parameters, this start's optimizer has {len(trained)}; make the same groups "
                         "before training, or give another directory")


def _check_kinds(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name in sorted({*before, *now}):
        was, here = before.get(name), now.get(name)
        if was == here:
            continue
        if here is None:
            raise ValueError(f"the run so far had {name} ({was}), this start has none: give it as before, or another directory")
        if was is None:
            raise ValueError(f"this start has {name} ({here}), the run so far had none: leave it out as before, or give another directory")
        raise ValueError(f"the run so far had the {name} {was}, here it is {here}: give the same, or another directory")
