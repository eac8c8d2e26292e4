# SPDX-License-Identifier: BSD-3-Clause
"""Values of a loop that each start of a script begins anew: names that it carries from one step into the next, such as a queue of samples seen or the best loss so far, numbers by which it counts batches, and
attributes of the dataset that it sets."""

from __future__ import annotations

import ast
import collections
import os
import sys
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import Dataset

__all__ = ["carried_names", "loop_of", "say_what_counts", "say_what_sets_data", "script_frame", "text_of", "used_in_losses"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 12
_CHANGES = ("append", "appendleft", "add", "extend", "update", "insert", "pop", "popleft", "copy_", "add_", "mul_", "lerp_", "fill_")
_SHOWS = ("print", "log", "info", "debug", "warning", "write", "writerow", "set_postfix", "set_postfix_str", "set_description", "add_scalar", "add_scalars", "log_metrics", "log_metric", "save", "dump", "flush", "append")
_VALUES = (int, float, complex, torch.Tensor, list, dict, set, tuple, collections.deque)


def text_of(node: ast.AST) -> str:
    """Returns a name, or attributes of one, as they are written; empty: it is something else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (of := text_of(node.value)):
        return f"{of}.{node.attr}"
    return ""


class _Uses(ast.NodeVisitor):
    """Notes for each name in a loop's body whether it is read before the body has bound it, and whether the body changes it."""

    def __init__(self) -> None:
        self.bound, self.read, self.changed = set[str](), set[str](), list[str]()

    def _reads(self, name: str) -> None:
        if name and name not in self.bound:
            self.read.add(name)

    def _changes(self, name: str) -> None:
        if name and name not in self.changed:
            self.changed.append(name)

    def visit_Name(self, node: ast.Name) -> None:
        self._uses(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Store):
            self.visit(node.value)
        self._uses(node)

    def _uses(self, node: ast.Name | ast.Attribute) -> None:
        name = text_of(node)
        if isinstance(node.ctx, ast.Load):
            self._reads(name)
        elif name:
            self._changes(name)
            self.bound.add(name)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.slice)
        self._reads(text_of(node.value))
        if isinstance(node.ctx, ast.Load):
            self.visit(node.value)
        else:
            self._changes(text_of(node.value))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for each in node.targets:
            self.visit(each)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._reads(text_of(node.target))
        self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        for each in [*node.body, *node.orelse]:
            self.visit(each)

    def visit_If(self, node: ast.If) -> None:
        """A name is bound after it if both branches bind it."""
        self.visit(node.test)
        was, found = set(self.bound), list[set[str]]()
        for branch in (node.body, node.orelse):
            self.bound = set(was)
            for each in branch:
                self.visit(each)
            if not (branch and isinstance(branch[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))):
                found.append(self.bound)
        self.bound = set.intersection(*found) if found else was

    def visit_Call(self, node: ast.Call) -> None:
        for each in [*node.args, *(option.value for option in node.keywords)]:
            self.visit(each)
        self.visit(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES and (name := text_of(node.func.value)):
            self._reads(name)
            self._changes(name)

    def _comprehends(self, node: Any) -> None:
        was = set(self.bound)
        for each in node.generators:
            self.visit(each.iter)
            self.bound |= {part.id for part in ast.walk(each.target) if isinstance(part, ast.Name)}
        for each in ast.iter_child_nodes(node):
            if not isinstance(each, ast.comprehension):
                self.visit(each)
        self.bound = was

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehends

    def _passes(self, node: Any) -> None:
        """A function that the body makes runs later."""

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _passes


def loop_of(frame: types.FrameType) -> ast.For | None:
    """Returns the innermost loop whose head is being run; None: it is not known."""
    try:
        with open(frame.f_code.co_filename, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    line = frame.f_lineno
    found = [node for node in ast.walk(tree) if isinstance(node, ast.For) and node.lineno <= line <= (node.iter.end_lineno or 0)]
    return max(found, key=lambda node: node.lineno, default=None)


def script_frame() -> types.FrameType | None:
    """Returns the frame of the script that asks for a batch, through what installed libraries wrap around it."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame is None:
            return None
        path = os.path.abspath(frame.f_code.co_filename)
        if not path.startswith(_HERE) and "site-packages" + os.sep not in path:
            return frame
        frame = frame.f_back
    return None


def _value(frame: types.FrameType, name: str) -> Any:
    first, *rest = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for each in rest:
        value = getattr(value, "__dict__", {}).get(each)
    return value


def carried_names(kept: Iterable[Any]) -> list[str]:
    """Returns the names that the loop which asks for a batch carries from one step into the next, of values beside what is kept. Called by the generator of the batches."""
    frame = script_frame()
    loop = loop_of(frame) if frame is not None else None
    if frame is None or loop is None:
        return []       # as where the script asks by next()
    uses = _Uses()
    uses.visit(loop.target)
    uses.changed.clear()
    for each in loop.body:
        uses.visit(each)
    held = {id(each) for each in kept}
    return [name for name in uses.changed if name in uses.read and isinstance(value := _value(frame, name), _VALUES) and (isinstance(value, (int, float)) or id(value) not in held)
            and not any(id(_value(frame, name.rpartition(".")[0])) == each for each in held if "." in name)]


def _where(node: ast.AST, frame: types.FrameType) -> str:
    return f"(line {getattr(node, 'lineno', 0)} of {os.path.basename(frame.f_code.co_filename)})"


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


class _Counted:
    """Follows the number that enumerate() gives to each batch, and names that are computed from it, to statements that change the training."""

    def __init__(self, number: str, loop: ast.For) -> None:
        self._numbers = {number}
        self._reads = collections.Counter(each.id for each in ast.walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))

    def in_body(self, body: Iterable[ast.stmt]) -> ast.AST | None:
        """Returns the first statement by which the number changes the training; None: it is only shown."""
        return next((found for each in body if (found := self._in(each)) is not None), None)

    def _depends(self, node: ast.AST | None) -> bool:
        return node is not None and not self._numbers.isdisjoint(_names_in(node))

    def _in(self, node: ast.stmt) -> ast.AST | None:
        if isinstance(node, (ast.If, ast.While)):
            if self._depends(node.test) and any(self._has_effect(each, node) for each in [*node.body, *node.orelse]):
                return node
            if any(self._steps(each) for each in ast.walk(node.test)):
                return node
            return self.in_body([*node.body, *node.orelse])
        if isinstance(node, (ast.With, ast.For, ast.Try)):
            return self.in_body([*node.body, *getattr(node, "orelse", ())])
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and self._depends(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, (ast.Subscript, ast.Attribute)) for each in targets):
                return node
            self._numbers |= {name for each in targets for name in _names_in(each)}
        if any(self._steps(each) for each in ast.walk(node)) or isinstance(node, ast.Expr) and self._depends(node) and not _is_shown(node):
            return node
        return None

    def _steps(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("step", "backward") and any(map(self._depends, node.args))

    def _has_effect(self, node: ast.AST, within: ast.AST) -> bool:
        """Whether a statement under a condition changes more than what is shown."""
        if isinstance(node, (ast.Break, ast.Continue, ast.Return)):
            return True
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            inner = collections.Counter(each.id for each in ast.walk(within) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
            return any(isinstance(each, ast.Attribute) or self._reads[name] > inner[name] for each in targets for name in _names_in(each))
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Call) and not _is_shown(node)
        return any(self._has_effect(each, within) for each in ast.iter_child_nodes(node) if isinstance(each, (ast.stmt, ast.withitem, ast.ExceptHandler)))


def _is_shown(node: ast.Expr) -> bool:
    name = text_of(node.value.func).rpartition(".")[2] if isinstance(node.value, ast.Call) else ""
    return name in _SHOWS


def _enumerated(loop: ast.For) -> str:
    """Returns the name of the number that enumerate() gives to each batch, also where another call shows its progress; empty: there is none."""
    call: ast.AST = loop.iter
    while isinstance(call, ast.Call) and text_of(call.func) != "enumerate" and call.args:
        call = call.args[0]
    if not (isinstance(call, ast.Call) and text_of(call.func) == "enumerate" and isinstance(loop.target, ast.Tuple)):
        return ""
    return text_of(loop.target.elts[0])


def say_what_counts() -> None:
    """Say once by which line the number of a batch since this start changes the training. Called by the generator of the batches."""
    frame = script_frame()
    loop = loop_of(frame) if frame is not None else None
    number = _enumerated(loop) if loop is not None else ""
    if frame is None or loop is None or not number:
        return
    if (node := _Counted(number, loop).in_body(loop.body)) is not None:
        print(f"swell: {number} of enumerate() counts the passes that this worker has made since this start, and changes the training {_where(node, frame)}: take elastic.steps, the optimizer steps since the run "
              "began, in its place", file=sys.stderr, flush=True)


def say_what_sets_data() -> None:
    """Say once which attributes of a dataset the loop over its batches changes. Called by the generator of the batches."""
    frame = script_frame()
    loop = loop_of(frame) if frame is not None else None
    if frame is None or loop is None:
        return

    def is_data(node: ast.AST) -> bool:
        return bool(name := text_of(node)) and isinstance(_value(frame, name), Dataset)
    found = dict[str, ast.AST]()
    for node in (each for part in loop.body for each in ast.walk(part)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_data(node.value):
            found.setdefault(text_of(node), node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) and is_data(node.value.func.value):
            found.setdefault(f"{text_of(node.value.func)}()", node)
    for name, node in list(found.items())[:1]:
        print(f"swell: the loop changes the dataset by {name} {_where(node, frame)}: batches that are read ahead have what was before, and each start begins anew with what the script sets before the loop: set it "
              "before batches(dataset, epochs=epoch + 1) in a loop over epochs, by the epoch's number", file=sys.stderr, flush=True)


def used_in_losses() -> dict[str, Any]:
    """Returns the objects, by name, that the loop calls, or whose methods it calls, for a value that it uses. Called by the generator of the batches."""
    frame = script_frame()
    loop = loop_of(frame) if frame is not None else None
    if frame is None or loop is None:
        return {}
    calls = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)]
    shown = {id(node.value) for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Expr)}
    names = {name for call in calls if id(call) not in shown for node in (call.func, getattr(call.func, "value", None)) if node is not None and (name := text_of(node))}
    return {name: _value(frame, name) for name in sorted(names)}
