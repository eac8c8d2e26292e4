# SPDX-License-Identifier: BSD-3-Clause
"""Values that a script takes over all samples of a pass and puts into the loss, such as the mean of a batch's advantages: another number of workers makes other passes."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from swell._carried import loop_of, script_frame, text_of
from swell._share import says_what_depends

__all__ = ["say_what_is_across", "say_what_is_across_in"]

_DEEP = 5           # functions of the script's that call each other
_MOST = 20_000      # expressions that are looked at
_NAMED = 3
_OVER_ALL = ("mean", "std", "var", "std_mean", "var_mean", "sum", "max", "min", "amax", "amin", "norm", "median", "quantile", "prod", "nanmean", "nansum", "bincount", "unique", "aminmax", "histc",
             "average", "count_nonzero")
_ALONG = ("normalize", "softmax", "log_softmax", "logsumexp", "cumsum", "sort", "argsort", "topk", "kthvalue")      # where they are told the first dimension
_SAME = ("float", "int", "item", "tolist", "detach", "clone", "to", "cpu", "cuda", "double", "half", "bfloat16", "squeeze", "unsqueeze", "stack", "cat", "Tensor", "tensor", "numpy",
         "as_tensor", "from_numpy", "dict", "list", "tuple")
_SHAPED = ("pad", "zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "expand", "repeat", "split", "narrow", "view", "reshape", "chunk", "range", "rand", "randn", "empty", "repeat_interleave",
           "pad_sequence", "one_hot")      # whose other arguments say a shape
_COUNTS = ("len", "size", "numel", "shape", "dim", "ndim", "ones_like", "zeros_like", "arange")


class _Scope:
    """Names of a function's, or of a loop's body, with what is assigned to each.

    given: names that are bound to samples. outer: what a name is bound to by a call, with the scope of that. found: returns the object that a name stands for.
    """

    def __init__(self, body: Iterable[ast.AST], given: Iterable[str], found: Callable[[str], Any],
                 outer: Mapping[str, tuple[ast.expr, _Scope]] | None = None, path: str = "", deep: int = 0) -> None:
        self.given, self.found, self.outer, self.path, self.deep = set(given), found, dict(outer or {}), path, deep
        self.assigned: dict[str, list[ast.expr]] = {}
        self.singles = set[str]()       # bound to one sample after the other
        self.returned: list[ast.expr] = []
        for each in body:
            self._note(each)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._bind(node.target, node.value)
        elif isinstance(node, ast.For) or isinstance(node, ast.comprehension):
            self.singles |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Return) and node.value is not None:
            self.returned.append(node.value)
        for each in ast.iter_child_nodes(node):
            self._note(each)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else [value] * len(target.elts)
            for each, its in zip(target.elts, values):
                self._bind(each, its)
        elif name := text_of(target.value if isinstance(target, (ast.Subscript, ast.Starred)) else target):
            self.assigned.setdefault(name, []).append(value)


class _Finder:
    """Follows expressions back from those that a loss is made of."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}
        self._seen = set[tuple[int, int, bool]]()

    def follow(self, node: ast.AST | None, scope: _Scope, within: bool = False) -> None:
        """within: what it gives goes into more than sums and means over samples."""
        key = (id(node), id(scope), within)
        if node is None or key in self._seen or len(self._seen) > _MOST:
            return
        self._seen.add(key)
        if isinstance(node, (ast.Name, ast.Attribute)) and (name := text_of(node)):
            for each in scope.assigned.get(name, ()):
                self.follow(each, scope, within)
            if name in scope.outer:
                self.follow(*scope.outer[name], within)
            elif isinstance(node, ast.Attribute):
                self.follow(node.value, scope, within)
        elif isinstance(node, ast.Call):
            self._call(node, scope, within)
        elif isinstance(node, ast.Subscript):
            self.follow(node.value, scope, within)
            for each in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                if not isinstance(each, ast.Slice):
                    self.follow(each, scope, True)
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.GeneratorExp, ast.ListComp)):
            for part in ast.iter_child_nodes(node):
                self.follow(part, scope, within or isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.MatMult)))
        else:
            for part in ast.iter_child_nodes(node):
                self.follow(part, scope, True)

    def _call(self, node: ast.Call, scope: _Scope, within: bool) -> None:
        name = text_of(node.func).rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        if name in _COUNTS:
            return
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_of_library = owner is not None and isinstance(self._object(owner, scope), types.ModuleType)
        operand = (node.args[0] if node.args else None) if owner is None or is_of_library else owner
        if name in _SHAPED:
            self.follow(operand, scope, True)
            return
        if name == "grad" and node.args and isinstance(summed := node.args[0], ast.Call) and isinstance(summed.func, ast.Attribute) and summed.func.attr == "sum":
            for part in (summed.func.value, *node.args[1:]):     # the slope of a sum over samples has each sample's own
                self.follow(part, scope, True)
            return
        over = _is_over_all(node, name, is_method=operand is owner)
        if over and operand is not None and not (isinstance(operand, (ast.GeneratorExp, ast.ListComp, ast.List, ast.Tuple)) or owner is None):
            if within and _depends(operand, scope, set()):
                self.found[f"{ast.unparse(node)} (line {node.lineno} of {os.path.basename(scope.path)})"] = None
            self.follow(operand, scope, True)
            return
        if name in ("max", "min", "maximum", "minimum", "where") or name in _SAME or (owner is None and name == "sum"):
            for each in [owner if not is_of_library else None, *node.args]:
                self.follow(each, scope, within)
            return
        if (called := self._called(node.func, scope)) is not None:
            tree, bound = called
            inner = _scope_of(tree, bound, node, scope)
            if inner is not None:
                for each in inner.returned:
                    self.follow(each, inner, within)
                return
        for each in [owner if not is_of_library else None, *node.args, *(option.value for option in node.keywords)]:
            self.follow(each, scope, True)

    @staticmethod
    def _object(node: ast.expr, scope: _Scope) -> Any:
        name = text_of(node)
        first = name.partition(".")[0]
        if first in scope.outer and isinstance(scope.outer[first][0], (ast.Name, ast.Attribute)):
            return _Finder._object(*scope.outer[first]) if first == name else None
        return scope.found(name) if name and first not in scope.assigned else None

    def _called(self, node: ast.expr, scope: _Scope) -> tuple[ast.AST, Any] | None:
        """Returns a function's tree and the function, or that of a module's forward pass, if it is the script's own."""
        thing = self._object(node, scope)
        while isinstance(thing, torch.nn.Module) and isinstance(inner := getattr(thing, "module", getattr(thing, "_orig_mod", None)), torch.nn.Module):
            thing = inner
        if isinstance(thing, torch.nn.Module):
            thing = thing.forward
        if scope.deep >= _DEEP or thing is None:
            return None
        tree = _tree_of(thing)
        return (tree, thing) if tree is not None else None


def _is_over_all(node: ast.Call, name: str, *, is_method: bool) -> bool:
    """Returns whether a call reduces its argument over the first dimension, or over all dimensions."""
    if name not in _OVER_ALL + _ALONG:
        return False
    others = node.args if is_method else node.args[1:]
    named = {option.arg: option.value for option in node.keywords}
    dim = named.get("dim", named.get("axis", others[0] if others else None))
    if name in ("norm", "quantile", "topk", "kthvalue") and "dim" not in named and "axis" not in named:
        dim = others[1] if len(others) > 1 else None
    if name in ("bincount", "unique", "histc"):
        return True
    if dim is None or isinstance(dim, ast.Constant) and dim.value is None:
        return name in _OVER_ALL
    values = dim.elts if isinstance(dim, (ast.Tuple, ast.List)) else [dim]
    return any(isinstance(each, ast.Constant) and each.value == 0 and type(each.value) is int for each in values)


def _depends(node: ast.AST, scope: _Scope, seen: set[tuple[str, int]]) -> bool:
    """Returns whether the value of an expression depends on the samples of a pass."""
    if isinstance(node, (ast.Name, ast.Attribute)) and (name := text_of(node)):
        if (name, id(scope)) in seen:
            return False
        seen.add((name, id(scope)))
        first = name.partition(".")[0]
        if first in scope.given or name in scope.given:
            return True
        if first in scope.singles:
            return False
        if any(_depends(each, scope, seen) for each in scope.assigned.get(name, scope.assigned.get(first, ()))):
            return True
        return first in scope.outer and _depends(*scope.outer[first], seen)
    if isinstance(node, ast.Call) and text_of(node.func).rpartition(".")[2] in _COUNTS:
        return False
    return any(_depends(each, scope, seen) for each in ast.iter_child_nodes(node))


@functools.cache
def _tree_of(thing: Any) -> ast.FunctionDef | ast.Lambda | None:
    """Returns the tree of a function, if it is the script's own."""
    function = getattr(inspect.unwrap(thing) if callable(thing) else thing, "__func__", thing)
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or _is_of_a_library(code.co_filename):
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    ast.increment_lineno(tree, first - 1)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and getattr(node, "name", "<lambda>") == code.co_name and [each.arg for each in node.args.posonlyargs + node.args.args] == \
                list(code.co_varnames[:code.co_argcount]):
            return node
    return None


def _is_of_a_library(path: str) -> bool:
    path = os.path.abspath(path)
    return "site-packages" + os.sep in path or path.startswith((os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.dirname(os.__file__) + os.sep))


def _names_of(function: Any) -> Callable[[str], Any]:
    """Returns how a name in a function is found."""
    own = getattr(function, "__self__", None)
    inner = getattr(function, "__func__", function)
    cells = {}
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:      # not bound yet
            continue

    def found(name: str) -> Any:
        first, *rest = name.split(".")
        value = own if first == "self" and own is not None else cells.get(first, inner.__globals__.get(first))
        for each in rest:
            value = inspect.getattr_static(value, each, None) if not isinstance(value, types.ModuleType) else getattr(value, each, None)
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, types.FunctionType) and own is not None and first == "self":
                value = types.MethodType(value, own)
        return value
    return found


def _parameters(tree: ast.FunctionDef | ast.Lambda, function: Any) -> list[str]:
    names = [each.arg for each in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]]
    return names[1:] if inspect.ismethod(function) else names


def _body_of(tree: ast.FunctionDef | ast.Lambda) -> list[ast.AST]:
    return [ast.Return(tree.body)] if isinstance(tree, ast.Lambda) else list(tree.body)


def _scope_of(tree: Any, function: Any, node: ast.Call, scope: _Scope) -> _Scope | None:
    """Returns the scope of a function as it is called there."""
    names = _parameters(tree, function)
    outer = {name: (each, scope) for name, each in zip(names, node.args) if not isinstance(each, ast.Starred)}
    outer.update({option.arg: (option.value, scope) for option in node.keywords if option.arg})
    starred = [each.value for each in node.args if isinstance(each, ast.Starred)]
    if starred:
        outer.update({name: (starred[0], scope) for name in names if name not in outer})
    return _Scope(_body_of(tree), (), _names_of(function), outer, inspect.unwrap(getattr(function, "__func__", function)).__code__.co_filename, scope.deep + 1)


_said = set[str]()


def _say(found: Iterable[str]) -> None:
    some = [each for each in found if each not in _said]
    _said.update(some)
    if some:
        named = ", ".join(some[:_NAMED]) + (f" and {len(some) - _NAMED} more" if len(some) > _NAMED else "")
        print(f"swell: {named}: taken over the samples that a worker has in a pass, and a part of the loss, so losses depend on the number of workers: take it of each sample by itself, or over what no "
              "division changes, such as the whole data", file=sys.stderr, flush=True)


def say_what_is_across(steps: Any) -> None:
    """Say which values of the loop that asks for a batch are taken over a pass and go into the loss. steps: the object whose step() is given the loss. Called by the generator of the batches."""
    if not says_what_depends():
        return
    try:
        frame = script_frame()
        loop = loop_of(frame) if frame is not None else None
        if frame is None or loop is None:
            return

        def found(name: str) -> Any:
            first, *rest = name.split(".")
            value = frame.f_locals.get(first, frame.f_globals.get(first))
            for each in rest:
                value = getattr(value, each, None) if isinstance(value, types.ModuleType) else inspect.getattr_static(value, each, None)
            return value
        scope = _Scope(loop.body, {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}, found, path=frame.f_code.co_filename)
        finder = _Finder()
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step" and node.args and found(text_of(node.func.value)) is steps:
                finder.follow(node.args[0], scope)
        _say(finder.found)
        _say_what_decides(loop, scope)
    except Exception:       # of what a script may write: it ends no training
        return


def _say_what_decides(loop: ast.For, scope: _Scope) -> None:
    """Say where a schedule is stepped by, or the loop is left for, what one worker has of a batch."""
    made = [f"{ast.unparse(node)} (line {node.lineno} of {os.path.basename(scope.path)})" for node in ast.walk(loop)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step" and node.args and
            isinstance(scope.found(text_of(node.func.value)), (LRScheduler, ReduceLROnPlateau)) and _depends(node.args[0], scope, set())]
    made += [f"the condition of break (line {node.lineno} of {os.path.basename(scope.path)})" for node in ast.walk(loop)
             if isinstance(node, ast.If) and any(isinstance(each, ast.Break) for part in node.body for each in ast.walk(part)) and _depends(node.test, scope, set())]
    if made:
        print(f"swell: {', '.join(made[:_NAMED])}: is of the samples that a worker has in a pass, so that workers differ, and the training depends on the number of workers: "
              "take elastic.mean_loss(), called on every worker, or what is alike on all", file=sys.stderr, flush=True)


def say_what_is_across_in(function: Any, *, takes_samples: bool = False) -> None:
    """The same of a function that makes the loss of a batch; takes_samples: that makes a batch of samples."""
    if not says_what_depends():
        return
    try:
        tree = _tree_of(function)
        if tree is None:
            return
        scope = _Scope(_body_of(tree), _parameters(tree, function), _names_of(function), path=inspect.unwrap(getattr(function, "__func__", function)).__code__.co_filename)
        finder = _Finder()
        backward = [node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "manual_backward" and node.args]
        for each in [*scope.returned, *backward]:
            finder.follow(each, scope, takes_samples)
        _say(finder.found)
    except Exception:       # of what a script may write: it ends no training
        return
