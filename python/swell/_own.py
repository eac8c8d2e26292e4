# SPDX-License-Identifier: BSD-3-Clause
"""Random number generators that a script makes for itself, beside the global ones of torch, Python and numpy."""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

__all__ = ["begin_by", "own_generators", "standing", "stand_at"]

_MOST, _LONGEST = 5000, 1000    # things that are looked at, and of one list
_LIBRARIES = (sysconfig.get_path("stdlib"), f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", os.path.dirname(__file__))
_LEFT_ALONE = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType, torch.Tensor, str, bytes, int, float, random.SystemRandom)


def own_generators(things: Iterable[Any]) -> list[Any]:
    """Returns the generators that things hold, or that methods and functions of theirs read, in an order of their own; not the global ones."""
    numpy: Any = sys.modules.get("numpy")
    kinds = (random.Random, torch.Generator, *((numpy.random.Generator, numpy.random.RandomState) if numpy is not None else ()))
    globals_ = {id(random._inst), id(torch.default_generator), *((id(numpy.random.mtrand._rand),) if numpy is not None else ())}     # type: ignore[attr-defined]
    array = (numpy.ndarray,) if numpy is not None else ()
    found: list[Any] = []
    seen, open_ = dict[int, Any](), list(things)
    while open_ and len(seen) < _MOST:
        thing = open_.pop(0)
        kind = type(thing)      # isinstance() would ask the thing, which may fail
        if id(thing) in seen or issubclass(kind, (*_LEFT_ALONE, *array)):
            continue
        seen[id(thing)] = thing
        if issubclass(kind, kinds):
            if id(thing) not in globals_ and getattr(thing, "device", None) in (None, torch.device("cpu")):
                found.append(thing)
        elif kind in (list, tuple, dict, set, frozenset) and len(thing) > _LONGEST:
            continue
        else:
            open_ += _read_by(thing) if kind is types.FunctionType else [*gc.get_referents(thing), *_methods(kind)]
    return found


def _read_by(function: types.FunctionType) -> Iterator[Any]:
    """Returns what a function has beside its arguments."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:      # not assigned yet
            continue
    yield from function.__defaults__ or ()
    if not _is_of_library(str(function.__module__)):
        codes = [function.__code__, *(each for each in function.__code__.co_consts if isinstance(each, types.CodeType))]
        yield from (function.__globals__[name] for code in codes for name in code.co_names if name in function.__globals__)


def _methods(kind: type) -> Iterator[Any]:
    for each in kind.__mro__:
        if not _is_of_library(str(each.__module__)):
            yield from (value for value in vars(each).values() if isinstance(value, types.FunctionType))


@functools.cache
def _is_of_library(module: str) -> bool:
    """Whether a module was installed, or is Python's: its own generators, such as those for names of files, draw no samples."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" if file is None else any(each in file for each in _LIBRARIES)


def begin_by(generator: Any) -> Callable[[int], Any]:
    """Returns what has a generator begin by a number of 32 bits."""
    if isinstance(generator, torch.Generator):
        return generator.manual_seed
    if isinstance(generator, random.Random):
        return generator.seed
    bits = _bits(generator)

    def begin(number: int) -> None:
        bits.state = type(bits)(number).state
    try:
        type(bits)(0)
    except Exception:       # of the script's own, which wants something else
        return lambda number: None
    return begin


def standing(generator: Any) -> Any:
    """Returns where a generator stands."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.getstate() if isinstance(generator, random.Random) else _bits(generator).state


def stand_at(generator: Any, place: Any) -> None:
    """Has a generator stand where standing() found it."""
    if isinstance(generator, torch.Generator):
        generator.set_state(place)
    elif isinstance(generator, random.Random):
        generator.setstate(place)
    else:
        _bits(generator).state = place


def _bits(generator: Any) -> Any:
    return getattr(generator, "bit_generator", None) or generator._bit_generator
