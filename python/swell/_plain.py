# SPDX-License-Identifier: BSD-3-Clause
"""Values that torch.load(weights_only=True) reads back: the encoding of others without loss, and the names of those that have none."""

from __future__ import annotations

import io
import pathlib
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["Unreadable", "check_readable", "decoded", "encoded", "hollow", "plain", "unreadable", "why_not_pickled", "why_not_read"]

_MARK = "swell.encoded"     # the only key of a value that was encoded
_FACTORIES: dict[str, Any] = {"None": None, "int": int, "float": float, "str": str, "bool": bool, "list": list, "dict": dict, "set": set, "tuple": tuple}
_PATHS = {each.__name__: each for each in (pathlib.PurePosixPath, pathlib.PureWindowsPath)}


class Unreadable(TypeError):
    """A value of a checkpoint that no start could read; the message names its place and its type."""


def _numpy() -> Any:
    return sys.modules.get("numpy")     # where nobody has imported it, no value is of it


def encoded(value: Any) -> Any:
    """Returns a value in types that weights_only reads; decoded() makes the same of it again.

    Encodes numpy's scalars and arrays, paths, deques and defaultdicts, at any depth. Others are left as they are.
    """
    numpy = _numpy()
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufcSUMm":
        held = numpy.asarray(value)     # an empty string has one character there, and none in its own type
        return {_MARK: ["numpy scalar", held.dtype.str, held.tobytes()]}
    if numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in "biufcSUMm":
        return {_MARK: ["numpy array", value.dtype.str, list(value.shape), value.tobytes()]}
    if isinstance(value, pathlib.PurePath):
        kind = "PureWindowsPath" if isinstance(value, pathlib.PureWindowsPath) else "PurePosixPath"
        return {_MARK: ["path", kind, isinstance(value, pathlib.Path), str(value)]}
    if type(value) is deque:
        return {_MARK: ["deque", value.maxlen, [encoded(each) for each in value]]}
    if type(value) is defaultdict:
        factory = next((name for name, each in _FACTORIES.items() if each is value.default_factory), None)
        return value if factory is None else {_MARK: ["defaultdict", factory, [[encoded(key), encoded(each)] for key, each in value.items()]]}
    if type(value) in (dict, OrderedDict):
        changed = {key: encoded(each) for key, each in value.items()}
        if _MARK in value or any(encoded(key) is not key for key in value):
            return {_MARK: ["dict", type(value).__name__, [[encoded(key), each] for key, each in changed.items()]]}
        return value if all(changed[key] is value[key] for key in value) else type(value)(changed)
    if type(value) in (list, tuple):
        items = [encoded(each) for each in value]
        return value if all(new is old for new, old in zip(items, value)) else type(value)(items)
    return value


def decoded(value: Any) -> Any:
    """Returns what encoded() was given."""
    if type(value) in (list, tuple):
        items = [decoded(each) for each in value]
        return value if all(new is old for new, old in zip(items, value)) else type(value)(items)
    if not isinstance(value, dict):
        return value
    if list(value) != [_MARK]:
        for key in value:
            value[key] = decoded(value[key])
        return value
    kind, *rest = value[_MARK]
    if kind in ("numpy scalar", "numpy array"):
        import numpy
        flat = numpy.frombuffer(rest[-1], dtype=numpy.dtype(rest[0])).copy()
        return flat[0] if kind == "numpy scalar" else flat.reshape(rest[1])
    if kind == "path":
        made = _PATHS[rest[0]](rest[2])
        return pathlib.Path(made) if rest[1] else made
    if kind == "deque":
        return deque(map(decoded, rest[1]), maxlen=rest[0])
    items = [(decoded(key), decoded(each)) for key, each in rest[1]]
    if kind == "defaultdict":
        return defaultdict(_FACTORIES[rest[0]], items)
    return OrderedDict(items) if rest[0] == "OrderedDict" else dict(items)


def plain(value: Any, *, paths: bool = False) -> Any:
    """Returns a value with Python's numbers in place of numpy's, at any depth; paths: with strings in place of paths, too."""
    numpy = _numpy()
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if paths and isinstance(value, pathlib.PurePath):
        return str(value)
    if type(value) is dict:
        return {key: plain(each, paths=paths) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(each, paths=paths) for each in value)
    return value


def _is_read(value: Any) -> str:
    """Why weights_only does not read a value; empty: it does."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        decoded(torch.load(file, map_location="cpu", weights_only=True))
    except Exception as error:      # each kind of object fails in its own way
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


def why_not_pickled(value: Any) -> str:
    """Returns why torch.save() cannot write a value; empty: it can."""
    try:
        torch.save(hollow(value), io.BytesIO())
    except Exception as error:      # each kind of object fails in its own way
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


def why_not_read(value: Any) -> str:
    """Returns why weights_only does not read a value as it is, not encoded; empty: it does."""
    return _is_read(hollow(value))


def hollow(value: Any) -> Any:
    """Returns a value with empty tensors in place of its tensors, so that looking at it takes no memory."""
    if type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_quantized:
        return torch.empty(0, dtype=value.dtype)
    if type(value) in (dict, OrderedDict):
        return type(value)((key, hollow(each)) for key, each in value.items())
    if type(value) in (list, tuple):
        return type(value)(hollow(each) for each in value)
    return value


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"{path}[{at}]", each) for at, each in enumerate(value))
    elif isinstance(value, (deque, set, frozenset)):
        yield from ((f"an item of {path}", each) for each in value)


def unreadable(value: Any, path: str) -> str:
    """Returns which part of a value no start could read, by its path and its type; empty: every part is read back."""
    try:
        looked = hollow(encoded(value))
    except RecursionError:
        return f"{path} contains itself, or is nested too deeply"
    if not _is_read(looked):
        return ""
    original = value
    while True:
        for place, part in _parts(original, path):
            if _is_read(hollow(encoded(part))):
                path, original = place, part
                break
        else:
            kind = type(original)
            return f"{path} is of type {kind.__module__}.{kind.__qualname__}"


def check_readable(things: Mapping[str, Any]) -> None:
    """Raises Unreadable where a start could not read one of these back; the name of each is part of the message."""
    for name, value in things.items():
        found = unreadable(value, name)
        if found:
            raise Unreadable(f"{found}, which a checkpoint cannot hold: no start could load it; save numbers, strings, lists, dicts or tensors")
