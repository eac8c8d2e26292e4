# SPDX-License-Identifier: BSD-3-Clause
"""Names and statements in the source of a script, and which of them change a training: not those that only keep, print or log values."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Iterator

__all__ = ["QUIET", "awaited", "bodies", "captured", "expressions", "is_shown", "names_in", "names_that_matter", "own_names", "parameters", "targets", "text_of", "what_matters"]

_SHOWS = ("print", "log", "info", "debug", "warning", "write", "writerow", "set_postfix", "set_postfix_str", "set_description", "add_scalar", "add_scalars", "add_image", "add_figure", "add_histogram", "display", "makedirs", "mkdir", "savefig", "collect", "empty_cache", "log_metrics", "log_metric", "save", "dump", "flush", "append")
QUIET = ("record_function", "range", "annotate", "profile", "timer", "Timer", "span", "open", "tqdm", "trange", "suppress", "catch_warnings", "closing")      # contexts that change no training
_KEEPS = ("append", "appendleft", "add", "extend", "update", "insert", "pop", "popleft", "clear", "discard", "remove")
_LASTS = ("save", "collect", "empty_cache", "append")       # shown for the number of a batch; here a file of weights depends on its condition, and a list on what reads it


def text_of(node: ast.AST) -> str:
    """Returns a name, or attributes of one, as they are written; empty: it is something else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (of := text_of(node.value)):
        return f"{of}.{node.attr}"
    return ""


def parameters(given: ast.arguments) -> set[str]:
    return {each.arg for each in ast.walk(given) if isinstance(each, ast.arg)}


def captured(pattern: ast.pattern) -> set[str]:
    """Returns the names that a pattern of match binds."""
    return {name for each in ast.walk(pattern) if isinstance(name := getattr(each, "rest", None) if isinstance(each, ast.MatchMapping) else getattr(each, "name", None), str)}


def own_names(made: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Returns the names that a function or a class has for itself."""
    parts = [each for part in made.body for each in ast.walk(part)]
    outer = {name for each in parts if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names}
    found = {each.id for each in parts if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    return (found | (set() if isinstance(made, ast.ClassDef) else parameters(made.args))) - outer


def names_in(node: ast.AST) -> set[str]:
    """Returns the names in a node that are of its surroundings: not those that a function or a comprehension has for itself."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute) and (name := text_of(node)):
        return {name} | names_in(node.value)
    found = set[str]().union(*map(names_in, ast.iter_child_nodes(node)))
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        own = set[str]().union(*(names_in(each.target) for each in node.generators))
        return (found - own) | names_in(node.generators[0].iter)
    if isinstance(node, ast.ClassDef):
        return found - own_names(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        own = parameters(node.args) if isinstance(node, ast.Lambda) else own_names(node)
        return (found - own).union(*(names_in(each) for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None))
    return found


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Returns the expressions of a statement itself, and not those of statements within it."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.expr):
            yield each
        elif not isinstance(each, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from expressions(each)


def bodies(node: ast.AST) -> Iterator[ast.stmt]:
    """Returns the statements within one, in their order: those of handlers and cases, too."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            yield each
        elif isinstance(each, (ast.ExceptHandler, ast.match_case)):
            yield from bodies(each)


def targets(node: ast.AST) -> list[ast.expr]:
    """Returns what an assignment of any kind binds; nothing where it is another statement."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        return node.targets
    return [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) else []


def awaited(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Await) else node


def is_shown(node: ast.Expr) -> bool:
    made = awaited(node.value)
    name = text_of(made.func).rpartition(".")[2] if isinstance(made, ast.Call) else ""
    return name in _SHOWS


def _root(node: ast.AST) -> str:
    """Returns the name that an attribute or an item is of; empty: of something else."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def what_matters(body: Iterable[ast.stmt]) -> list[ast.AST]:
    """Returns the statements and conditions of a body that may change the training, and those whose values these use: not what is only kept, printed or logged."""
    body, names = list(body), set[str]()
    bound = {each.id for part in body for each in ast.walk(part) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}     # perhaps to a part of the training
    while True:
        found = [each for part in body for each in _matters(part, names, bound)]
        if (now := set[str]().union(*map(names_in, found))) <= names:
            return found
        names |= now


def _matters(node: ast.stmt, names: set[str], bound: set[str]) -> list[ast.AST]:
    """As what_matters(), of one statement. names: those that are used in what matters."""
    if any(isinstance(each, ast.NamedExpr) for part in expressions(node) for each in ast.walk(part)):
        return [node]
    inner = [each for part in bodies(node) for each in _matters(part, names, bound)]
    if isinstance(node, ast.Expr):
        made = awaited(node.value)
        if isinstance(made, ast.Constant) or is_shown(node) and text_of(getattr(made, "func", made)).rpartition(".")[2] not in _LASTS:
            return []
        keeps = isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _KEEPS and (root := _root(made.func.value)) and root not in names | bound
        return [] if keeps else [node]
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        parts = [each for target in targets(node) for each in ([*target.elts] if isinstance(target, (ast.Tuple, ast.List)) else [target])]
        is_kept = all(isinstance(each, ast.Name) and each.id not in names or isinstance(each, ast.Subscript) and text_of(each.value) and "." not in text_of(each.value) and _root(each) not in names | bound for each in parts)
        return [] if is_kept else [node]
    if isinstance(node, (ast.If, ast.While)):
        return [node.test, *inner] if inner else []
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter, *inner] if inner else []
    if isinstance(node, (ast.With, ast.AsyncWith)):
        is_quiet = all(isinstance(each.context_expr, ast.Call) and text_of(each.context_expr.func).rpartition(".")[2] in QUIET for each in node.items)
        return [*([] if is_quiet and not inner else [each.context_expr for each in node.items]), *inner]
    if isinstance(node, (ast.Try, ast.TryStar)):
        return inner
    return [] if isinstance(node, (ast.Pass, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)) else [node]


def names_that_matter(code: types.CodeType) -> set[str] | None:
    """Returns the names that a function reads in what_matters() of its body; None: its source is not known."""
    try:
        with open(code.co_filename, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    found = [each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == code.co_name and
             min(each.lineno, *(one.lineno for one in each.decorator_list), each.lineno) == code.co_firstlineno]
    return set[str]().union(*map(names_in, what_matters(found[0].body))) if len(found) == 1 else None
