# SPDX-License-Identifier: BSD-3-Clause
"""Values of a loop that each start of a script begins anew: names that it carries from one step into the next, such as a queue of samples seen or the best loss so far, numbers by which it counts batches, and
attributes of the dataset that it sets."""

from __future__ import annotations

import ast
import collections
import os
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from swell._syntax import QUIET, awaited, bodies, captured, expressions, is_shown, names_in, own_names, parameters, targets, text_of, what_matters

__all__ = ["carried_names", "loop_of", "say_what_counts", "say_what_sets_data", "script_frame", "text_of", "used_in_losses"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 12
_CHANGES = ("append", "appendleft", "add", "extend", "update", "insert", "pop", "popleft", "copy_", "add_", "mul_", "lerp_", "fill_")
_LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Raise)
_VALUES = (int, float, complex, torch.Tensor, list, dict, set, tuple, collections.deque, Iterator)


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
        elif isinstance(node.ctx, ast.Del):
            self.bound.discard(name)
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

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def _loops(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        for each in [*node.body, *node.orelse]:
            self.visit(each)

    visit_For = visit_AsyncFor = _loops

    def _branches(self, *branches: list[ast.stmt], are_all: bool = True) -> None:
        """A name is bound after these if each that goes on binds it. are_all: one of them is run."""
        was, found = set(self.bound), list[set[str]]()
        for branch in branches:
            self.bound = set(was)
            for each in branch:
                self.visit(each)
            if not (branch and isinstance(branch[-1], _LEAVES)):
                found.append(self.bound)
        self.bound = set.intersection(*found, *([] if are_all else [was])) if found else was

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse)

    def _tries(self, node: Any) -> None:
        """A handler may begin before the body has bound anything."""
        self._branches([*node.body, *node.orelse], *([ast.Expr(each.type), *each.body] if each.type is not None else each.body for each in node.handlers))
        for each in node.finalbody:
            self.visit(each)

    visit_Try = visit_TryStar = _tries

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        was, found = set(self.bound), list[set[str]]()
        for case in node.cases:
            self.bound = was | captured(case.pattern)
            for each in [*([case.guard] if case.guard is not None else []), *case.body]:
                self.visit(each)
            if not isinstance(case.body[-1], _LEAVES):
                found.append(self.bound)
        last = node.cases[-1]
        is_whole = last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        self.bound = set.intersection(*found, *([] if is_whole else [was])) if found else was

    def visit_Call(self, node: ast.Call) -> None:
        for each in [*node.args, *(option.value for option in node.keywords)]:
            self.visit(each)
        self.visit(node.func)
        if text_of(node.func) == "next" and node.args and (name := text_of(node.args[0])):
            self._reads(name)
            self._changes(name)
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

    def visit_Lambda(self, node: ast.Lambda) -> None:
        was, self.bound = self.bound, self.bound | parameters(node.args)
        self.visit(node.body)
        self.bound = was

    def _makes(self, node: Any) -> None:
        """A function that the body makes reads and changes what is outside of it when it is called; its own names are made anew then."""
        inner, own = _Uses(), own_names(node)
        inner.bound = self.bound | own
        for each in node.body:
            inner.visit(each)
        self.read |= inner.read
        for name in inner.changed:
            if name.partition(".")[0] not in own:
                self._changes(name)
        self.bound.add(node.name)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _makes


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
    return [name for name in uses.changed if name in uses.read and isinstance(value := _value(frame, name), _VALUES) and not isinstance(value, _BaseDataLoaderIter) and (isinstance(value, (int, float)) or id(value) not in held)
            and not any(id(_value(frame, name.rpartition(".")[0])) == each for each in held if "." in name)]


def _where(node: ast.AST, frame: types.FrameType) -> str:
    return f"(line {getattr(node, 'lineno', 0)} of {os.path.basename(frame.f_code.co_filename)})"


def _loads(node: ast.AST) -> collections.Counter[str]:
    """Returns how often each name is read in a node."""
    return collections.Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def _changes_part(targets: Iterable[ast.expr]) -> bool:
    """Whether a part of something is bound, as an attribute, and not a name."""
    return any(isinstance(each, (ast.Subscript, ast.Attribute)) and not isinstance(each.ctx, ast.Load) for target in targets for each in ast.walk(target))


class _Counted:
    """Follows the number that enumerate() gives to each batch, and names that are computed from it, to statements that change the training."""

    def __init__(self, number: str, loop: ast.For) -> None:
        self._numbers = {number}
        self._reads = _loads(loop)
        self._is_made = False       # within a function that the loop makes

    def in_body(self, body: Iterable[ast.stmt]) -> ast.AST | None:
        """Returns the first statement by which the number changes the training; None: it is only shown."""
        return next((found for each in body if (found := self._in(each)) is not None), None)

    def _depends(self, node: ast.AST | None) -> bool:
        return node is not None and not self._numbers.isdisjoint(names_in(node))

    def _in(self, node: ast.stmt) -> ast.AST | None:
        for part in expressions(node):     # of the statement itself: what it binds within them, and steps that are taken there
            for each in ast.walk(part):
                if isinstance(each, ast.NamedExpr) and self._depends(each.value):
                    self._numbers.add(each.target.id)
            if any(map(self._steps, ast.walk(part))):
                return node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return self._in_made(node)
        if isinstance(node, (ast.Assert, ast.Raise)):
            return node if self._depends(getattr(node, "test", None)) else None
        if self._decides(node) and any(self._has_effect(each, node) for each in bodies(node)):
            return node
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and self._depends(node.value) or isinstance(node, ast.Delete):
            if _changes_part(each for each in targets(node) if not isinstance(node, ast.Delete) or self._depends(each)):
                return node
            if not isinstance(node, ast.Delete):
                self._numbers |= {name for each in targets(node) for name in names_in(each)}
        if isinstance(node, ast.Expr) and self._depends(node) and not is_shown(node) and not (self._is_made and isinstance(node.value, (ast.Yield, ast.YieldFrom))):
            return node
        return self.in_body(bodies(node))

    def _in_made(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST | None:
        """In a function or class that the loop makes: it reads the number when it is called, and its own names hide those outside."""
        if not self._depends(node):
            return None
        was, was_made, own = set(self._numbers), self._is_made, own_names(node)
        self._numbers, self._is_made = self._numbers - own, not isinstance(node, ast.ClassDef)
        if not isinstance(node, ast.ClassDef):
            given = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(reversed(given), reversed(node.args.defaults)), *zip(node.args.kwonlyargs, node.args.kw_defaults)]
            self._numbers |= {name.arg for name, value in pairs if value is not None and not was.isdisjoint(names_in(value))}
        found = self.in_body(node.body)
        gives = isinstance(node, ast.ClassDef) or any(getattr(each, "value", None) is not None for each in ast.walk(node) if isinstance(each, (ast.Return, ast.Yield, ast.YieldFrom)))
        self._numbers, self._is_made = was | (self._numbers - own) | ({node.name} if gives else set()), was_made
        return found

    def _decides(self, node: ast.stmt) -> bool:
        """Whether the number decides which statements within one are run, how often, or within which context. Names that it binds depend on the number then."""
        if isinstance(node, (ast.If, ast.While)):
            return self._depends(node.test)
        if isinstance(node, (ast.For, ast.AsyncFor)):
            if is_one := self._depends(node.iter):
                self._numbers |= names_in(node.target)
            return is_one
        if isinstance(node, ast.Match):
            if is_one := self._depends(node.subject):
                self._numbers |= set[str]().union(*(captured(case.pattern) for case in node.cases))
            return is_one or any(self._depends(case.guard) or self._depends(case.pattern) for case in node.cases)
        if not isinstance(node, (ast.With, ast.AsyncWith)):
            return False
        mine = [item for item in node.items if self._depends(item.context_expr)]
        self._numbers |= {name for item in mine if item.optional_vars is not None for name in names_in(item.optional_vars)}
        return any(not (isinstance(item.context_expr, ast.Call) and text_of(item.context_expr.func).rpartition(".")[2] in QUIET) for item in mine)

    def _steps(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("step", "backward") and \
            any(map(self._depends, [*node.args, *(option.value for option in node.keywords)]))

    def _has_effect(self, node: ast.AST, within: ast.AST, *, leaves: bool = True) -> bool:
        """Whether a statement under a condition changes more than what is shown. leaves: break and continue leave the loop over batches, or are of one that the condition is of."""
        if isinstance(node, (ast.Break, ast.Continue)):
            return leaves
        if isinstance(node, (ast.Return, ast.Raise)):
            return isinstance(node, ast.Raise) or not self._is_made
        inner = _loads(within)

        def is_used(name: str) -> bool:
            return self._reads[name] > inner[name]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return is_used(node.name)       # it is not run here
        bound = [*targets(node), *(each.target for part in expressions(node) for each in ast.walk(part) if isinstance(each, ast.NamedExpr))]
        if any(isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load) for each in bound for part in ast.walk(each)) or any(is_used(name) for each in bound for name in names_in(each)):
            return True
        if isinstance(node, ast.Expr):
            made = awaited(node.value)
            return isinstance(made, ast.Call) and not is_shown(node) or isinstance(made, (ast.Yield, ast.YieldFrom)) and not self._is_made
        is_loop = isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        return any(self._has_effect(each, within, leaves=leaves and not is_loop) for each in bodies(node))


def _number_of(loop: ast.For, frame: types.FrameType) -> str:
    """Returns the name of the number that enumerate() gives to each batch, or of that which a bar like tqdm's shows; empty: there is none."""
    call: ast.AST = loop.iter
    if isinstance(call, ast.Name) and hasattr(bar := _value(frame, call.id), "set_postfix") and isinstance(getattr(bar, "n", None), int):
        return f"{call.id}.n"
    while isinstance(call, ast.Call) and text_of(call.func) != "enumerate" and call.args:
        call = call.args[0]
    if not (isinstance(call, ast.Call) and text_of(call.func) == "enumerate" and isinstance(loop.target, ast.Tuple)):
        return ""
    return text_of(loop.target.elts[0])


def say_what_counts() -> None:
    """Say once by which line the number of a batch since this start changes the training. Called by the generator of the batches."""
    frame = script_frame()
    loop = loop_of(frame) if frame is not None else None
    number = _number_of(loop, frame) if loop is not None and frame is not None else ""
    if frame is None or loop is None or not number:
        return
    if (node := _Counted(number, loop).in_body(loop.body)) is not None:
        print(f"swell: {number}{'' if '.' in number else ' of enumerate()'} counts the passes that this worker has made since this start, and changes the training {_where(node, frame)}: take elastic.steps, the optimizer steps since the run "
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
    calls = [node for part in what_matters(loop.body) for node in ast.walk(part) if isinstance(node, ast.Call)]
    shown = {id(node.value) for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Expr)}
    names = {name for call in calls if id(call) not in shown for node in (call.func, getattr(call.func, "value", None)) if node is not None and (name := text_of(node))}
    return {name: _value(frame, name) for name in sorted(names)}
