# SPDX-License-Identifier: BSD-3-Clause
"""Attributes of a script's own modules, optimizers, schedules and Trainers that change as it trains, and that their state_dict() lacks: each start begins them anew."""

from __future__ import annotations

import collections
import itertools
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from swell._share import says_what_depends
from swell._syntax import names_that_matter

__all__ = ["Changing", "is_of_a_library"]

_FROM, _TO = 2, 5       # steps of a start after which they are looked at: what is made in the first ones stays then
_LATER = (17, 65, 257, 1025)        # and after these modules that no checkpoint holds: a teacher may follow at some steps alone
_MOST, _VALUES, _LOOKED_AT = 5000, 4, 64     # things that are looked through for such modules; values of each of their tensors; items of a list
_NAMED = 3
_OTHERS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, torch.Tensor, torch.optim.Optimizer, torch.utils.data.Dataset, torch.utils.data.DataLoader)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def is_of_a_library(kind: type) -> bool:
    """Whether a class was installed, or is Python's: none of the script's own."""
    return _is_file_of_a_library(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _is_file_of_a_library(path: str) -> bool:
    path = os.path.abspath(path)
    return "site-packages" + os.sep in path or path.startswith((_HERE, os.path.dirname(os.__file__) + os.sep))


def _named_by_script(kind: type) -> set[str]:
    """Returns the attributes that methods of the script's own classes name: others are a library's, which knows what it saves."""
    found, open_ = set[str](), [getattr(getattr(each, "__func__", each), "__code__", None) for of in kind.__mro__ if not is_of_a_library(of) for each in vars(of).values()]
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
        return None if value.grad_fn is not None or value.is_inference() else (value.data_ptr() if type(value) is torch.Tensor else 0, value._version)     # with one it is made in a pass
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biuf":
        return value.shape, tuple(value.reshape(-1)[:_LOOKED_AT].tolist())
    if isinstance(value, (list, dict, set, collections.deque)):
        some = list(itertools.islice(value.values() if isinstance(value, dict) else value, _LOOKED_AT))
        return len(value), tuple(each for each in some if isinstance(each, (int, float)))
    return None


def saved_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """Returns the tensors that a module's state_dict() has."""
    return [*module.parameters(), *(buffer for part in module.modules() for name, buffer in part.named_buffers(recurse=False) if name not in part._non_persistent_buffers_set)]


def _reached(owners: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Returns, by their places, what things of the script's own kinds hold beside what their state_dict() has: modules in a list, a dict or an object, and among the names that their methods, or functions, read.

    Values that functions read, themselves or through objects, are among them.
    """
    owners = list(owners)
    open_ = collections.deque[tuple[str, Any, bool, bool]]((name, owner, False, False) for name, owner in owners)       # and whether it is a part of one, and whether a function reads it
    seen, held = set[int](), {id(each) for _, owner in owners if isinstance(owner, torch.nn.Module) for each in saved_tensors(owner)}
    while open_ and len(seen) < _MOST:
        name, thing, is_part, is_read = open_.popleft()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType)) or isinstance(thing, torch.Tensor) and id(thing) in held:
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.nn.Module) and is_part:
            if any(id(each) not in held for each in saved_tensors(thing)):
                yield name, thing
            continue
        if is_read and _mark(thing) is not None:
            yield name, thing
        if isinstance(thing, (list, tuple, collections.deque)) and len(thing) <= _LOOKED_AT:
            open_.extend((f"{name}[{at}]", each, True, False) for at, each in enumerate(thing))
        elif isinstance(thing, dict) and len(thing) <= _LOOKED_AT:
            open_.extend((f"{name}[{key!r}]", each, True, False) for key, each in thing.items())
        elif isinstance(thing, (types.FunctionType, types.MethodType)):
            function: Any = getattr(thing, "__func__", thing)
            if not isinstance(function, types.FunctionType) or _is_file_of_a_library(function.__code__.co_filename):     # one in C has no code
                continue
            of = f" of {function.__name__}()" if not is_part else ""
            used = names_that_matter(function.__code__)
            for key, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
                if used is not None and key not in used:
                    continue
                with suppress(ValueError):      # not bound yet
                    open_.append((key + of, cell.cell_contents, True, not is_part or is_read))
            open_.extend((key + of, function.__globals__[key], True, not is_part or is_read) for key in function.__code__.co_names if key in function.__globals__ and (used is None or key in used))
        elif not is_of_a_library(type(thing)) and hasattr(thing, "__dict__"):
            registered = {"_parameters", "_buffers", "_modules"} if isinstance(thing, torch.nn.Module) else set()
            open_.extend((f"{key} of {name}" if is_read else key, each, True, is_read) for key, each in vars(thing).items() if key not in registered)
            open_.extend((key, each, True, False) for kind in type(thing).__mro__ if not is_of_a_library(kind) for key, each in vars(kind).items() if isinstance(each, types.FunctionType))


def _say(found: list[str], why: str) -> None:
    if found:
        some = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
        print(f"swell: {some}: changed as it trains, and {why}", file=sys.stderr, flush=True)


class Changing:
    """Compares attributes after some of a start's first steps. things: by what they are called, models among them. remedy: for what no checkpoint holds."""

    def __init__(self, things: Mapping[str, Any], *, remedy: str = "give Elastic state={\"name\": it}, a module with it as a buffer, or what has it in its state_dict()") -> None:
        self._things, self._remedy, self._steps, self._was = things, remedy, 0, dict[str, Any]()
        self._beside = dict[str, Any]()     # what no checkpoint holds
        self._functions = dict[str, Any]()      # that the loop calls
        self._kept = set[int]()     # ids of what checkpoints hold
        self._modules, self._read = dict[str, torch.nn.Module](), dict[str, Any]()      # modules among it, and values that functions read
        self._held = set[int]()
        self._is_open = says_what_depends()

    def add(self, things: Mapping[str, Any], kept: Iterable[Any]) -> None:
        """Look at these, too, which the loop uses: modules, and objects of the script's own kinds. kept: things that checkpoints hold, with their parts."""
        kept = list(kept)
        held = {id(part) for each in kept for part in (each.modules() if isinstance(each, torch.nn.Module) else [each])}
        self._held |= {id(each) for thing in kept if isinstance(thing, torch.nn.Module) for each in saved_tensors(thing)}
        self._kept = {id(each) for each in kept}
        self._functions = {name: thing for name, thing in things.items() if isinstance(thing, (types.FunctionType, types.MethodType))}
        self._beside = {name: thing for name, thing in things.items() if id(thing) not in held and not isinstance(thing, _OTHERS) and
                        (isinstance(thing, torch.nn.Module) or hasattr(thing, "__dict__") and not is_of_a_library(type(thing)))}

    def stepped(self) -> None:
        """A step is done. Says once what has changed."""
        if not self._is_open:
            return
        self._steps += 1
        try:
            self._look()
        except Exception:       # of a thing of the script's that may not be read: training goes on
            self._is_open = False

    def _look(self) -> None:
        if self._steps == _FROM:
            self._find()
            self._was = dict(self._marks())
        elif self._steps == _TO:
            self._compare()
        elif self._steps in _LATER:
            self._compare()
            self._is_open = self._is_open and self._steps != _LATER[-1]

    def _compare(self) -> None:
        now = dict(self._marks())
        found = [name for name, mark in now.items() if name in self._was and self._was[name] != mark]
        beside = [name for name in found if name in self._modules or name in self._read or name.rpartition(" of ")[2] in map(self._called, self._beside)]
        _say([name for name in found if name not in beside], "no state_dict() has it, so that each start begins it anew: make it a buffer of the module, or a part of the state that is saved")
        _say(beside, f"no checkpoint holds it, so that each start begins it anew: {self._remedy}")
        self._is_open = not found

    def _find(self) -> None:
        """Find the modules and the values that the loop or what it uses holds, and no checkpoint."""
        own = [(name, thing) for name, thing in self._beside.items() if isinstance(thing, torch.nn.Module)]
        known = {id(module) for _, module in own} | self._kept
        owners = [*self._functions.items(), *self._hooks(), *self._owners(), *((name, thing) for name, thing in self._beside.items() if not isinstance(thing, torch.nn.Module))]
        for name, thing in [*own, *((name, thing) for name, thing in _reached(owners) if id(thing) not in known)]:
            if not isinstance(thing, torch.nn.Module):
                self._read[name] = thing
            elif any(id(each) not in self._held for each in saved_tensors(thing)):
                self._modules[f"{name} ({type(thing).__name__})"] = thing

    def _of_modules(self) -> Iterator[tuple[str, Any]]:
        """A few values of each: what is written through `.data` has no version. Buffers of those that the loop itself uses are named one by one."""
        named = set(map(id, self._beside.values()))
        for name, module in self._modules.items():
            tensors = [getattr(each, "_local_tensor", each) for each in (module.parameters() if id(module) in named else saved_tensors(module)) if id(each) not in self._held]
            yield name, [tuple(each.detach().reshape(-1)[:_VALUES].tolist()) for each in tensors if each.layout is torch.strided and each.device.type != "meta" and not torch.nn.parameter.is_lazy(each)]

    def _called(self, name: str) -> str:
        return f"{name} ({type(self._beside[name]).__name__})"

    def _owners(self) -> Iterator[tuple[str, Any]]:
        yield from ((self._called(name), thing) for name, thing in self._beside.items())
        for name, thing in self._things.items():
            if isinstance(thing, torch.nn.Module):
                yield from ((f"{path.removeprefix('module.') or name} ({type(module).__name__})", module) for path, module in thing.named_modules())
            elif thing is not None:
                yield f"{name} ({type(thing).__name__})", thing

    def _hooks(self) -> Iterator[tuple[str, Any]]:
        """Functions of the script's that are hooks of an optimizer or a module."""
        for _, owner in self._owners():
            for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_forward_pre_hooks", "_forward_hooks"):
                yield from ((hook.__name__, hook) for hook in list(getattr(owner, hooks, {}).values()) if isinstance(hook, types.FunctionType) and not _is_file_of_a_library(hook.__code__.co_filename))

    def _of_functions(self) -> Iterator[tuple[str, Any]]:
        """Values that functions read, as they stand now: a number in a closure is another object after a change."""
        for _, function in [*self._functions.items(), *self._hooks()]:
            function = getattr(function, "__func__", function)
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
            for name in (*cells, *function.__code__.co_names):
                if (of := f"{name} of {function.__name__}()") in self._read:
                    with suppress(ValueError, KeyError):
                        self._read[of] = cells[name].cell_contents if name in cells else function.__globals__[name]
        yield from self._read.items()

    def _marks(self) -> Iterator[tuple[str, Any]]:
        for name, thing in self._beside.items():
            if isinstance(thing, torch.nn.Module):
                yield from ((f"{of} of {self._called(name)}", mark) for of, each in thing.named_buffers() if (mark := _mark(each)) is not None)
        yield from self._of_modules()
        yield from ((name, mark) for name, value in self._of_functions() if (mark := _mark(value)) is not None)
        for name, owner in self._owners():
            if is_of_a_library(type(owner)):
                continue
            if isinstance(owner, torch.nn.Module):
                yield from ((f"{of} of {name}", mark) for of in owner._non_persistent_buffers_set if (mark := _mark(owner._buffers.get(of))) is not None)
            saved: Iterable[str] = owner.state_dict() if hasattr(owner, "state_dict") and not isinstance(owner, torch.nn.Module) else ()
            named = _named_by_script(type(owner))
            # A number of the class is one of the object from its first change on.
            numbers = {of: value for kind in reversed(type(owner).__mro__) if not is_of_a_library(kind) for of, value in vars(kind).items() if isinstance(value, (int, float))}
            for of, value in {**numbers, **vars(owner)}.items():
                if of in named and of not in ("training", "state", "param_groups", "last_epoch") and of not in saved and (mark := _mark(value)) is not None:
                    yield f"{of} of {name}", mark
