# SPDX-License-Identifier: BSD-3-Clause
"""The identity of a run, by which its checkpoints are known: written beside its state, and compared before it is gone on with."""

from __future__ import annotations

import collections
import functools
import os
import socket
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler

from swell import _request
from swell._lock import run_name
from swell._plain import plain

__all__ = ["Trained", "bare", "check_kinds", "check_same", "continues", "factors", "kinds", "options_of", "record", "say_others", "why_not_the_models"]

_VERSION = 1
_STEPS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000)     # at which functions of schedules are compared
_NAMED = 3      # names of parameters in a message
# No trained number depends on these options of an optimizer's groups; initial_lr, a schedule's first rate, is told as lr.
_NOT_TOLD = {"params", "param_names", "foreach", "fused", "capturable", "differentiable", "initial_lr"}


class Trained:
    """The identity of what a program trains: at the start of the run, where each start of it begins, and now."""

    def __init__(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._model, self._optimizers = model, list(optimizers)
        self.tensors = sorted({bare(name) for each in (model.named_parameters, model.named_buffers) for name, _ in each(remove_duplicate=False)})    # as it begins
        self.options = options_of(self._groups())       # as the script gives them
        self._flags = self._judged = self._seen()
        self._began, self._known, self._why = self.groups(), set(self._names().values()), ""
        self._has_changed = False       # at some time, if not now: callbacks would make the change before the last anew
        self._followed: Mapping[str, Any] | None = None     # the record of a run that has changed what it trains
        # Where each parameter stands in its module; those of shards stand there only between passes.
        self._places = [(module._parameters, key, parameter, bare(f"{prefix}.{key}" if prefix else key)) for prefix, module in model.named_modules()
                        for key, parameter in module._parameters.items() if parameter is not None and not isinstance(parameter, DTensor)]
        self._parts = [(module._modules, key, part, f"{prefix}.{key}" if prefix else key) for prefix, module in model.named_modules()
                       for key, part in module._modules.items() if part is not None]

    def groups(self) -> list[list[str]]:
        """Returns the names of what is trained now, by the optimizers' groups; the same however the model is wrapped."""
        names = self._names()
        return [[names.get(id(parameter), "") for parameter in group["params"] if parameter.requires_grad] for group in self._groups()]

    def precision(self) -> str:
        """Returns the types of the model's parameters."""
        return " and ".join(sorted({str(parameter.dtype).removeprefix("torch.") for parameter in self._model.parameters()}))

    def _names(self) -> dict[int, str]:
        return {id(parameter): bare(name) for name, parameter in self._model.named_parameters()}

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _seen(self) -> list[list[tuple[int, bool]]]:
        return [[(id(parameter), parameter.requires_grad) for parameter in group["params"]] for group in self._groups()]

    def changed(self) -> str:
        """Returns what the script has changed since training began, as a part of a sentence; empty: nothing. Costs little then."""
        if self._seen() == self._flags:
            return ""
        now = self.groups()
        if _are_alike(self._began, now):
            return ""
        names, before = ({name for group in groups for name in group} for groups in (now, self._began))
        other = _some(sorted(names ^ before)) or f"{len(now)} groups of parameters in place of {len(self._began)}"
        return f"the script has changed what is trained since training began ({other})"

    def why_not(self) -> str:
        """Returns why no start could train what is trained now; empty: following() would have it do so. Costs little where nothing changes."""
        return self._why_not_followed() or self.replaced()

    def _why_not_followed(self) -> str:
        if (seen := self._seen()) != self._judged:
            self._judged, self._has_changed = seen, True
            names = self._names()
            new = {names.get(id(parameter), "") for group in self._groups() for parameter in group["params"]} - self._known
            other = _some(sorted(new - {""})) or "parameters that are not the model's"
            self._why = f"the script has changed what is trained since training began ({other}), and a start could not" if new else ""
        return self._why

    def replaced(self) -> str:
        """Returns which parameter the optimizer trains, and the model has no more; empty: none. Costs little then."""
        how = self._how_replaced(trained=True)
        return how and f"{how}, which the optimizer still trains: {'keep it, frozen,' if ' removed ' in how else 'copy its values into the parameter'} instead"

    def why_not_live(self) -> str:
        """Returns why the next workers of a live switch would not train what is trained now; empty: they would."""
        if why := self._why_not_followed():
            return why
        if how := self._how_replaced():
            return self.replaced() or f"{how}, and the next workers of a live switch would take over the one before"
        if not self._has_changed and self._followed is None:
            return ""
        return f"{self.changed() or 'the run so far has changed what is trained'}, and the next workers of a live switch would not"

    def _how_replaced(self, *, trained: bool = False) -> str:
        """Returns that the script has put another tensor in a parameter's place, or removed it; empty: it has not. Costs little then.

        trained: looks at those that the optimizer trains alone.
        """
        gone = [(parameter, name) for there, key, parameter, name in self._places if there.get(key) is not parameter and not isinstance(there.get(key), DTensor)]
        gone += [(parameter, bare(f"{prefix}.{name}")) for there, key, part, prefix in self._parts if there.get(key) is not part
                 for name, parameter in part.named_parameters()]
        if not gone:
            return ""
        present = self._names()     # a parametrization gives another name to the same one
        if trained:
            known = {id(parameter) for group in self._groups() for parameter in group["params"]}
            gone = [(parameter, name) for parameter, name in gone if id(parameter) in known]
        name = next((name for parameter, name in gone if id(parameter) not in present), "")
        return name and f"the script has {'put another tensor in the place of' if name in present.values() else 'removed'} {name}"

    def change(self) -> dict[str, Any] | None:
        """Returns what following() needs, in plain values; None where all is as in the beginning."""
        names = self._names()
        kept = [names[id(parameter)] for optimizer in self._optimizers for parameter in optimizer.state if id(parameter) in names]
        # One that was trained for a while has moments, too; one that no loss has needed so far has none.
        are_others_kept = bool(kept) and set(kept) != {name for group in self.groups() for name in group}
        if self.why_not() or not (self._has_changed or self._followed or are_others_kept):
            return None
        if any(id(parameter) not in names for group in self._groups() for parameter in group["params"]):
            return None     # an optimizer of more than the model: its own state is by number
        return {"began": self._began, "has_changed": self._has_changed or self._followed is not None, "kept": kept,
                "trains": [bare(name) for name, parameter in self._model.named_parameters() if parameter.requires_grad],
                "untracked": [bare(name) for name, module in self._model.named_modules() if getattr(module, "track_running_stats", True) is False],
                "groups": [[{"names": [names[id(parameter)] for parameter in group["params"]],
                             "options": {name: value for name, value in group.items() if name != "params" and _is_option(value)}}
                            for group in optimizer.param_groups] for optimizer in self._optimizers]}

    def can_follow(self, before: Mapping[str, Any] | None) -> bool:
        """Whether a run that began as this program has changed since what it trains; before: its record."""
        change: dict[str, Any] | None = (before or {}).get("change")
        return change is not None and len(change["groups"]) == len(self._optimizers) and _are_alike(change["began"], self._began) and \
            {name for groups in change["groups"] for group in groups for name in group["names"]} <= self._known

    @contextmanager
    def following(self, before: Mapping[str, Any] | None) -> Iterator[None]:
        """Has this program train what the run so far does, where that has changed it: by name, the optimizers' groups too.

        before: its record. Within this, what the optimizers are to load has its place: parameters that they keep nothing of are frozen.
        """
        if not self.can_follow(before):
            yield
            return
        assert before is not None
        change, parameters = before["change"], {bare(name): parameter for name, parameter in self._model.named_parameters()}
        for optimizer, groups in zip(self._optimizers, change["groups"], strict=True):
            optimizer.state.clear()     # made for what the program trains: torch makes it anew where it is loaded
            _regroup(optimizer, [([parameters[name] for name in group["names"]], group["options"]) for group in groups])
        kept = set(change["kept"])
        if change["has_changed"]:       # else a loss has not needed all
            self._followed = before
        self._train_alone(kept)
        yield
        self._train_as(change)

    def follow(self) -> None:
        """Freeze and unfreeze as following() did, where the program has undone that as it begins."""
        if self._followed is not None:
            self._train_as(self._followed["change"])

    def _train_as(self, change: Mapping[str, Any]) -> None:
        self._train_alone(set(change["trains"]))
        if "untracked" not in change:       # an older record
            return
        untracked = set(change["untracked"])    # modules whose running statistics stand still, as a frozen BatchNorm's may
        for name, module in self._model.named_modules():
            if hasattr(module, "track_running_stats"):
                module.track_running_stats = bare(name) not in untracked

    def _train_alone(self, names: set[str]) -> None:
        for name, parameter in self._model.named_parameters():
            parameter.requires_grad_(bare(name) in names)


def why_not_the_models(model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> str:
    """Returns why parameters of optimizers are neither averaged over workers nor found by a start; empty: all are the model's."""
    known = set(map(id, model.parameters()))
    for parameter in (parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]):
        if id(parameter) not in known:
            return (f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not the model's: nobody would average its gradient over workers, and "
                    "no checkpoint names it; make it a parameter of the module that is trained")
    return ""


def _regroup(optimizer: torch.optim.Optimizer, groups: list[tuple[list[torch.nn.Parameter], dict[str, Any]]]) -> None:
    """The optimizer's groups become these, in their order."""
    there = optimizer.param_groups
    added = [set(map(id, parameters)) for parameters, _ in groups[len(there):]]
    del there[len(groups):]
    for group in there:
        group["params"] = []
    for at, (parameters, options) in enumerate(groups):
        if at < len(there):
            there[at]["params"] = parameters
        else:
            optimizer.add_param_group({**options, "params": parameters})
    add = optimizer.add_param_group

    def add_once(group: dict[str, Any]) -> None:
        """A script that adds a group when it sees that it is due does so again at a start: it is there."""
        parameters = group["params"]
        mine = {id(parameters)} if isinstance(parameters, torch.Tensor) else set(map(id, parameters := list(parameters)))
        if mine in added:
            added.remove(mine)
        else:
            add({**group, "params": parameters})
    if added:
        setattr(optimizer, "add_param_group", add_once)


def _is_option(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str)) or (isinstance(value, (tuple, list)) and all(map(_is_option, value)))


def _are_alike(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> bool:
    return [sorted(group) for group in one] == [sorted(group) for group in other]


def kinds(things: Mapping[str, Any]) -> dict[str, str]:
    """Returns the kind of each thing that has a state beside the model, by its name; None is not one."""
    return {name: type(thing).__name__ for name, thing in things.items() if thing is not None}


def bare(name: str) -> str:
    """Returns a parameter's or a module's name as it is without wrappers."""
    name = name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "").replace("_fsdp_wrapped_module.", "")
    return name.removeprefix("module.")


def record(step: int, *, data: Mapping[str, Any] | None = None, trained: Trained | None = None,
           kinds: Mapping[str, str] | None = None, told: Mapping[str, Any] | None = None, **numbers: Any) -> dict[str, Any]:
    """Returns the identity record of a checkpoint, in plain values.

    data: a sampler's state_dict(). kinds: of kinds(). told: what a start may change, and what is said then. numbers: others that a start must
    have alike, such as global_batch.
    """
    return {"version": _VERSION, "run": run_name(), "host": socket.gethostname(), "written": time.time(), "step": step,
            "data": dict(data) if data is not None else None, "trained": trained.groups() if trained is not None else None,
            "tensors": trained.tensors if trained is not None else None,
            "told": dict(told or {}), "options": [trained.options, options_of(trained._groups())] if trained is not None else None,
            "precision": trained.precision() if trained is not None else None, "change": trained.change() if trained is not None else None, "kinds": dict(kinds) if kinds is not None else None, "numbers": numbers}


def continues(before: Mapping[str, Any] | None, step: int, path: str) -> str:
    """Returns the sentence that says from which checkpoint a start goes on; before: its record, None where it has none."""
    said = f"continues from step {step}, {path}"
    if not before:
        return said
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before["written"]))
    run, here = before.get("run"), run_name()
    said += f", written by {f'job {run}' if run else 'a run outside Slurm'} on {before.get('host')} at {at}"
    said += f"; this is job {here}, which continues that run" if here and run != here else ""
    return said + ("; it trains what that run has come to train" if _has_changed(before) else "")


def _has_changed(before: Mapping[str, Any]) -> bool:
    change: dict[str, Any] | None = before.get("change")
    return change is not None and not _are_alike(change["began"], before["trained"])


def factors(things: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns what functions of the script's give for schedules among these, which no state_dict() has, at some steps. A function that fails is left out.

    Schedules of one kind are told apart by their names.
    """
    found, open_ = list[tuple[str, str, list[Any]]](), list(things.items())
    for name, each in open_:
        if isinstance(each, LRScheduler):
            open_ += ((f"{name}[{at}]", part) for at, part in enumerate(getattr(each, "_schedulers", ())))
        with suppress(Exception):
            if values := [float(f"{function(step):.6g}") for function in getattr(each, "lr_lambdas", ()) if isinstance(function, (types.FunctionType, functools.partial)) for step in _STEPS]:
                found.append((type(each).__name__, name, values))
    kinds = collections.Counter(kind for kind, _, _ in found)
    return {f"factors of {kind}{f' {name}' if kinds[kind] > 1 else ''} at steps {_STEPS[0]} to {_STEPS[-1]}": values for kind, name, values in found}


def options_of(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the options of an optimizer's groups on which a training depends, in plain values."""
    found = [{"lr": None, **group} | {"lr": group.get("initial_lr", group.get("lr"))} for group in groups]      # the rate comes first
    return [{name: told for name, value in group.items() if name not in _NOT_TOLD and _is_option(told := plain(value))} for group in found]


def say_others(before: Mapping[str, Any], *, options: Sequence[Mapping[str, Any]], told: Mapping[str, Any] | None) -> None:
    """Says in one line where a start gives other hyperparameters than the run so far; before: its record.

    A start may change them; the line says which of the two counts. options: of options_of(), as the script gives them.
    """
    there = before.get("told") or {}
    begins = _listed([f"{name}={value} (it was {there[name]})" for name, value in (told or {}).items() if name in there and _flat(there[name]) != _flat(value)])
    stays: dict[str, list[int]] = {}
    given, stand = before.get("options") or ((), ())
    if len(given) == len(options) == len(stand):
        for at, (was, now, here) in enumerate(zip(given, stand, options)):
            for name, value in here.items():
                if name in was and _flat(value) not in (_flat(was[name]), _flat(now.get(name))):
                    stays.setdefault(f"{name}={value} of the optimizer{{}} (it was {_said(was[name], value)})", []).append(at)
    kept = _listed([said.format("" if len(at) == len(options) else f"'s group{'s' * (len(at) > 1)} {_listed(list(map(str, at)))}") for said, at in stays.items()])
    if (begins or kept) and _request.place().rank == 0:
        parts = [f"{begins}, with which it trains on"] * bool(begins) + [f"{kept}, in whose place the checkpoint's stay{'s' * (len(stays) == 1)}"] * bool(kept)
        print(f"swell: this start gives other hyperparameters than the run so far: {'; '.join(parts)}", file=sys.stderr, flush=True)


def _flat(value: Any) -> Any:
    """JSON makes lists of tuples."""
    return list(map(_flat, value)) if isinstance(value, (tuple, list)) else value


def _said(was: Any, like: Any) -> Any:
    return tuple(was) if isinstance(like, tuple) and isinstance(was, list) else was


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:]))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def check_same(before: Mapping[str, Any] | None, *, data: Mapping[str, Any] | None = None, trained: Trained | None = None,
               kinds: Mapping[str, str] | None = None, told: Mapping[str, Any] | None = None, **numbers: Any) -> None:
    """Raises ValueError, one sentence, where a start differs from the run that wrote a checkpoint; before: its record.

    The arguments are those of record(). A value that either of the two lacks is not compared.
    """
    if not before:
        return
    _check_same(before, data, trained, kinds, numbers)
    say_others(before, options=trained.options if trained is not None else (), told=told)


def _check_same(before: Mapping[str, Any], data: Mapping[str, Any] | None, trained: Trained | None, kinds: Mapping[str, str] | None, numbers: Mapping[str, Any]) -> None:
    for name, value in numbers.items():
        old = before.get("numbers", {}).get(name, value)
        if old != value:
            raise ValueError(f"the training so far had {name}={old}, here it is {value}; give the same, or another directory")
    for name, value in (data or {}).items():
        old = (before.get("data") or {}).get(name, value)
        if name == "content":
            if old and old != value and _request.place().rank == 0:     # a script may train over several datasets, one after the other
                print(f"swell: a few samples of the dataset are not those of the run so far (digest {value}, it was {old}): where the script does not train over several, "
                      "give the same data, or another directory. Data that the script draws at random is the same if it is made before Elastic(), or from a generator with a seed",
                      file=sys.stderr, flush=True)
            continue
        if name != "samples" and old != value:
            raise ValueError(f"the checkpoint's data has {name} {old}, here it is {value}: samples would be lost or repeated; give the same, "
                             "or another directory")
    if kinds is not None and before.get("kinds") is not None:
        check_kinds(before["kinds"], kinds)
    if trained is not None and (was := before.get("precision")) and was != (here := trained.precision()):
        raise ValueError(f"the run so far trains parameters in {was}, here they are in {here}: give the same, or another directory")
    groups = before.get("trained")
    if trained is None or groups is None or trained.can_follow(before):
        return
    now_groups = trained.groups()
    names, now = [name for group in groups for name in group], [name for group in now_groups for name in group]
    if missing := [name for name in names if name not in set(now)]:
        raise ValueError(f"the run so far trains {_some(missing)} too, this start does not: {len(now)} parameters in place of {len(names)}; set "
                         "requires_grad and the optimizer's groups before training as they were, or give another directory")
    if added := [name for name in now if name not in set(names)]:
        raise ValueError(f"this start trains {_some(added)} too, the run so far did not: {len(now)} parameters in place of {len(names)}; set "
                         "requires_grad and the optimizer's groups before training as they were, or give another directory")
    if len(groups) != len(now_groups):
        raise ValueError(f"the run so far has {len(groups)} groups of parameters, this start's optimizer has {len(now_groups)}; make the same groups "
                         "before training, or give another directory")
    for at, (group, names) in enumerate(zip(groups, now_groups)):
        if moved := sorted(set(names) - set(group)):
            raise ValueError(f"this start's optimizer has {_some(moved)} in its group {at}, the run so far had not: make the same groups in the same order "
                             "before training, or give another directory")


def check_kinds(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises ValueError, one sentence, where kinds() of this start are not those of the run so far."""
    for name in sorted({*before, *now}):
        was, here = before.get(name), now.get(name)
        if was == here:
            continue
        if here is None:
            raise ValueError(f"the run so far had {name} ({was}), this start has none: give it as before, or another directory")
        if was is None:
            raise ValueError(f"this start has {name} ({here}), the run so far had none: leave it out as before, or give another directory")
        raise ValueError(f"the run so far had the {name} {was}, here it is {here}: give the same, or another directory")
