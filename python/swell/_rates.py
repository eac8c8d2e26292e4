# SPDX-License-Identifier: BSD-3-Clause
"""Learning rates that a script sets by the number of workers as it trains: each resize would change them."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
import types
from collections.abc import Iterable, Sequence
from typing import Any

from swell._carried import loop_of, script_frame, text_of
from swell._changing import is_of_a_library
from swell._share import says_what_depends

__all__ = ["say_rates_by_workers", "say_rates_in", "say_scaled_rates"]

_ABOUT = 0.1        # part by which a schedule may have changed a rate from one step to the next
_WORKERS = {"world", "world_size", "get_world_size", "WORLD_SIZE", "num_devices", "num_nodes", "num_processes", "n_gpu", "device_count"}
_RATES = {"lr", "initial_lr"}
_ONCE = {"configure_optimizers", "__init__"}        # what these give stands in the checkpoint


def say_scaled_rates(before: Sequence[Any], came_from: int, rates: Sequence[Any], world: int) -> None:
    """Says where a start's first step has rates that differ from those before as the numbers of workers do, or their roots."""
    for was, now in zip(before, rates):
        if world != came_from and was and any(abs(now / was / factor - 1) < _ABOUT for factor in (world / came_from, (world / came_from) ** 0.5)):
            print(f"swell: the script sets the learning rate by the number of workers: {float(was):g} with {came_from}, {float(now):g} with {world}: take a rate for the global batch, which no resize "
                  "changes", file=sys.stderr, flush=True)
            return


def _bound(tree: ast.AST) -> list[tuple[list[ast.expr], ast.expr]]:
    """Returns what a program binds, with the value."""
    found: list[tuple[list[ast.expr], ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found.append((node.targets, node.value))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            found.append(([node.target], node.value))
    return found


def _makes_an_object(value: ast.expr) -> bool:
    """Whether a call of a class gives the value, whose other attributes say nothing of the number of workers."""
    return isinstance(value, ast.Call) and text_of(value.func).rpartition(".")[2][:1].isupper()


def _line_of(trees: Sequence[ast.AST]) -> ast.AST | None:
    """Returns the first statement of these that sets a rate by the number of workers; None: none is known."""
    names = set[str]()

    def depends(value: ast.expr) -> bool:
        return any(text_of(each) in names or getattr(each, "attr", getattr(each, "id", getattr(each, "value", None))) in _WORKERS for each in ast.walk(value)
                   if isinstance(each, (ast.Name, ast.Attribute)) or isinstance(each, ast.Constant) and isinstance(each.value, str))
    bound = [each for tree in trees for each in _bound(tree)]
    for _ in range(3):      # a name may come of another
        names |= {text_of(part) for targets, value in bound if depends(value) and not _makes_an_object(value) for target in targets for part in ast.walk(target)
                  if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Store) and text_of(part) and not isinstance(target, ast.Subscript)}
    return next((target for targets, value in bound for target in targets if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value in _RATES and depends(value)), None)


def _say(node: ast.AST, path: str) -> None:
    print(f"swell: the script sets the learning rate by the number of workers as it trains (line {getattr(node, 'lineno', 0)} of {os.path.basename(path)}): take a rate for the global batch, which no "
          "resize changes", file=sys.stderr, flush=True)


def _around(path: str, line: int) -> ast.AST | None:
    """Returns the outermost function around a line of a file, or all of the file; None: it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    return next((each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.lineno <= line <= (each.end_lineno or 0)), tree)


def say_rates_by_workers() -> None:
    """Say once by which line the loop that asks for a batch, or a function that it calls, does so. Called by the generator of the batches."""
    frame = script_frame()
    loop = loop_of(frame) if frame is not None else None
    if frame is None or loop is None:
        return
    places = [(frame.f_code.co_filename, loop.lineno)]
    for name in {node.func.id for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}:
        called = frame.f_locals.get(name, frame.f_globals.get(name))
        if isinstance(called, types.FunctionType):
            places.append((called.__code__.co_filename, called.__code__.co_firstlineno))
    for path, line in dict.fromkeys(places):
        tree = _around(path, line)
        node = _line_of([tree]) if tree is not None else None
        if node is not None:
            _say(node, path)
            return


def say_rates_in(owners: Iterable[Any]) -> None:
    """Say once by which line a method of these, of the script's own kinds, does so at each start."""
    if not says_what_depends():
        return
    for kind in {kind: None for owner in owners for kind in type(owner).__mro__ if not is_of_a_library(kind)}:
        functions = [each for name, each in vars(kind).items() if isinstance(each, types.FunctionType) and name not in _ONCE]
        try:
            found = [(inspect.getsourcelines(each), each) for each in functions]
            trees = [ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1) for (lines, first), _ in found]
            node = _line_of(trees)
        except (OSError, SyntaxError, TypeError, ValueError):     # no source is known
            continue
        if node is not None:
            _say(node, functions[0].__code__.co_filename)
            return
