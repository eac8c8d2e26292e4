# SPDX-License-Identifier: BSD-3-Clause
"""Attributes of a script's own modules, optimizers, schedules and Trainers that change as it trains, and that their state_dict() lacks: each start begins them anew."""

from __future__ import annotations

import collections
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from swell._share import says_what_depends

__all__ = ["Changing"]

_FROM, _TO = 2, 5       # steps of a start after which they are looked at: what is made in the first ones stays then
_NAMED = 3
_OTHERS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, torch.Tensor, torch.optim.Optimizer, torch.utils.data.Dataset, torch.utils.data.DataLoader)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _is_of_a_library(kind: type) -> bool:
    path = os.path.abspath(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    return "site-packages" + os.sep in path or path.startswith((_HERE, os.path.dirname(os.__file__) + os.sep))


def _named_by_script(kind: type) -> set[str]:
    """Returns the attributes that methods of the script's own classes name: others are a library's, which knows what it saves."""
    found, open_ = set[str](), [getattr(getattr(each, "__func__", each), "__code__", None) for of in kind.__mro__ if not _is_of_a_library(of) for each in vars(of).values()]
    while open_:
        code = open_.pop()
        if isinstance(code, types.CodeType):
            found.update(code.co_names)
            open_ += code.co_consts
    return found


def _mark(value: Any) -> Any:
    """Returns what is another after a change; None: of a kind that is not looked at."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, torch.Tensor):
        return None if value.grad_fn is not None else (value.data_ptr() if type(value) is torch.Tensor else 0, value._version)     # with one it is made in a pass
    return len(value) if isinstance(value, (list, dict, set, collections.deque)) else None


def _say(found: list[str], why: str) -> None:
    if found:
        some = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
        print(f"swell: {some}: changed as it trains, and {why}", file=sys.stderr, flush=True)


class Changing:
    """Compares attributes after some of a start's first steps. things: by what they are called, models among them."""

    def __init__(self, things: Mapping[str, Any]) -> None:
        self._things, self._steps, self._was = things, 0, dict[str, Any]()
        self._beside = dict[str, Any]()     # what no checkpoint holds
        self._is_open = says_what_depends()

    def add(self, things: Mapping[str, Any], kept: Iterable[Any]) -> None:
        """Look at these, too, which the loop uses: modules, and objects of the script's own kinds. kept: things that checkpoints hold, with their parts."""
        held = {id(part) for each in kept for part in (each.modules() if isinstance(each, torch.nn.Module) else [each])}
        self._beside = {name: thing for name, thing in things.items() if id(thing) not in held and not isinstance(thing, _OTHERS) and
                        (isinstance(thing, torch.nn.Module) or hasattr(thing, "__dict__") and not _is_of_a_library(type(thing)))}

    def stepped(self) -> None:
        """A step is done. Says once what has changed."""
        if not self._is_open:
            return
        self._steps += 1
        if self._steps == _FROM:
            self._was = dict(self._marks())
        elif self._steps == _TO:
            now, self._is_open = dict(self._marks()), False
            found = [name for name, mark in now.items() if name in self._was and self._was[name] != mark]
            beside = [name for name in found if name.rpartition(" of ")[2] in map(self._called, self._beside)]
            _say([name for name in found if name not in beside], "no state_dict() has it, so that each start begins it anew: make it a buffer of the module, or a part of the state that is saved")
            _say(beside, "no checkpoint holds it, so that each start begins it anew: give Elastic state={\"name\": it}, a module with it as a buffer, or what has it in its state_dict()")
            self._was.clear()

    def _called(self, name: str) -> str:
        return f"{name} ({type(self._beside[name]).__name__})"

    def _owners(self) -> Iterator[tuple[str, Any]]:
        yield from ((self._called(name), thing) for name, thing in self._beside.items())
        for name, thing in self._things.items():
            if isinstance(thing, torch.nn.Module):
                yield from ((f"{path.removeprefix('module.') or name} ({type(module).__name__})", module) for path, module in thing.named_modules())
            elif thing is not None:
                yield f"{name} ({type(thing).__name__})", thing

    def _of_hooks(self) -> Iterator[tuple[str, Any]]:
        """The variables of functions that are hooks of an optimizer or a module."""
        for _, owner in self._owners():
            for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_forward_pre_hooks", "_forward_hooks"):
                for hook in list(getattr(owner, hooks, {}).values()):
                    path = getattr(getattr(hook, "__code__", None), "co_filename", "")
                    if path and "site-packages" + os.sep not in path and not os.path.abspath(path).startswith(_HERE):
                        yield from ((f"{name} of {hook.__name__}()", hook.__globals__[name]) for name in hook.__code__.co_names if name in hook.__globals__)
                        for name, cell in zip(hook.__code__.co_freevars, hook.__closure__ or ()):
                            with suppress(ValueError):      # not bound yet
                                yield f"{name} of {hook.__name__}()", cell.cell_contents

    def _marks(self) -> Iterator[tuple[str, Any]]:
        for name, thing in self._beside.items():
            if isinstance(thing, torch.nn.Module):
                yield from ((f"{of} of {self._called(name)}", mark) for of, each in thing.named_buffers() if (mark := _mark(each)) is not None)
        yield from ((name, mark) for name, value in self._of_hooks() if (mark := _mark(value)) is not None)
        for name, owner in self._owners():
            if _is_of_a_library(type(owner)):
                continue
            saved: Iterable[str] = owner.state_dict() if hasattr(owner, "state_dict") and not isinstance(owner, torch.nn.Module) else ()
            named = _named_by_script(type(owner))
            for of, value in list(vars(owner).items()):
                if of in named and of not in ("training", "state", "param_groups", "last_epoch") and of not in saved and (mark := _mark(value)) is not None:
                    yield f"{of} of {name}", mark
