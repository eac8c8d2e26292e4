# SPDX-License-Identifier: BSD-3-Clause
"""Names that a loop carries from one step into the next, such as a queue of samples seen, a hidden state or the best loss so far: each start of a script begins them anew."""

from __future__ import annotations

import ast
import collections
import os
import sys
import types
from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["carried_names", "loop_of", "script_frame", "text_of"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 12
_CHANGES = ("append", "appendleft", "add", "extend", "update", "insert", "pop", "popleft", "copy_", "add_", "mul_", "lerp_", "fill_")
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
