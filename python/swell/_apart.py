# SPDX-License-Identifier: BSD-3-Clause
"""Losses in which samples of one pass meet, as in contrastive learning: another number of workers makes other passes."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree

from swell._share import says_what_depends

__all__ = ["Outputs"]

_LARGEST = 1 << 22      # values of a pass's outputs, up to which a loss is looked at
_MOST = 20_000          # functions that are looked at


class Outputs:
    """Looks at a loss by what the model returns in its pass; where it returns the loss alone, by what its parts return that the loss is computed from.

    A mean over samples has no second derivative by what is of two samples. This asks autograd for those by the first sample's outputs. Functions in Python, whose
    backward pass may be made once alone, are not asked, and parts of a model that is compiled are not looked at.

    is_called: a pass is a call of the model; else one of its parts, as in a LightningModule.
    """

    def __init__(self, model: torch.nn.Module, *, is_called: bool = True) -> None:
        self._found: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []       # what calls return, and what calls right within these do
        self._model, self._depth, self._is_said, self._is_open = model, 0, False, True
        self._is_static = bool(getattr(model, "static_graph", False))      # then DistributedDataParallel's own functions count backward passes
        self._is_sharded = any(hasattr(each, "set_requires_gradient_sync") for each in model.modules())
        self._hooks: list[Any] = []
        for each in _called(model, is_called) if getattr(model, "_compiled_call_impl", None) is None else ():
            self._hooks += [each.register_forward_pre_hook(self._enter), each.register_forward_hook(self._leave, always_call=True)]

    def __deepcopy__(self, memo: Any) -> Outputs:
        return self     # as a script copies its model, whose hooks come along

    def __getstate__(self) -> dict[str, Any]:
        return {"_is_open": False}

    def _enter(self, _model: Any, _inputs: Any) -> None:
        if self._is_open and not torch.compiler.is_compiling():
            self._depth += 1

    def _leave(self, _model: Any, _inputs: Any, outputs: Any) -> Any:
        if not self._is_open or torch.compiler.is_compiling():
            return None
        self._depth -= 1
        if not 0 <= self._depth < len(self._found) or not torch.is_grad_enabled():
            return None
        found = self._found[self._depth]

        def note(each: Any) -> Any:
            if not isinstance(each, torch.Tensor) or not each.requires_grad or not each.dim() or not each.is_floating_point():
                return each
            made = each.view_as(each) if self._is_sharded else each     # gradients of the tensor itself would gather shards
            found.append(made)
            return made
        made = _pytree.tree_map(note, outputs)
        return made if self._is_sharded else None

    def begin(self) -> None:
        """A pass begins."""
        self._depth = 0
        for each in self._found:
            each.clear()

    def close(self) -> None:
        """No pass is looked at any more."""
        self.begin()
        self._is_open = False
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def are_outputs_apart(self, samples: int) -> bool:
        """Whether what the model returns for the first sample depends on that one alone, by what its parts have returned; where that is not known, too. Changes nothing."""
        outputs, within = ([each for each in found if type(each) is torch.Tensor and each.shape[0] == samples] for found in self._found)
        within = [each for each in within if each is not outputs[-1]] if outputs else []
        if samples < 2 or self._is_sharded or self._is_static or not within or sum(each.numel() for each in outputs + within) > _LARGEST:
            return True
        if any(isinstance(each, torch.autograd.function.BackwardCFunction) and type(each).__name__ != "_DDPSinkBackward" for each in _functions(outputs[-1], set())):
            return True
        try:
            slopes = torch.autograd.grad(outputs[-1][0].sum(), within, allow_unused=True, retain_graph=True)
        except (RuntimeError, NotImplementedError):
            return True
        return not any(each is not None and bool(each[1:].any()) for each in slopes)

    def say_what_meets(self, samples: int) -> None:
        """Say once in a job where samples of a pass meet within the model, other than by norms that are named for it."""
        if self._is_said or not says_what_depends() or any(isinstance(each, _BatchNorm) and each.training for each in self._model.modules()) or self.are_outputs_apart(samples):
            return
        self._is_said = True
        print("swell: what the model returns for a sample depends on the others in its pass, as with statistics of a batch: losses depend on the number of workers", file=sys.stderr, flush=True)

    def why_not_apart(self, loss: torch.Tensor, samples: int) -> str:
        """Returns why the loss of a pass over so many samples is not a mean of what each one's is; empty: nothing is known to speak against it. Changes nothing."""
        if samples < 2:
            return ""
        for found in self._found:
            rows = _reached(loss, [each for each in found if type(each) is torch.Tensor and each.shape[0] and not each.shape[0] % samples and not (each.dim() > 2 and samples in each.shape[1:])])
            if rows:
                return _why_rows_meet(loss, rows, samples, self._is_static)
        return ""


def _called(model: torch.nn.Module, is_called: bool) -> list[torch.nn.Module]:
    """Returns the modules whose calls count: a wrapper's own module is not one of them, as its call is the wrapper's."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    found, open_ = [model] if is_called else [], list(inner.children()) if not hasattr(inner, "_orig_mod") else []
    while open_:
        each = open_.pop()
        if each in found:
            continue
        found.append(each)
        if not hasattr(each, "_orig_mod") and getattr(each, "_compiled_call_impl", None) is None:
            open_ += each.children()
    return found


def _why_rows_meet(loss: torch.Tensor, rows: list[torch.Tensor], samples: int, is_static: bool) -> str:
    if sum(each.numel() for each in rows) > _LARGEST or not _is_differentiable_twice(loss, rows, is_static):
        return ""
    try:
        first = torch.autograd.grad(loss, rows, create_graph=True, allow_unused=True)
        probes = [each[0].sum() for each in first if each is not None and each.requires_grad]
        second = torch.autograd.grad(sum(probes[1:], probes[0]), rows, allow_unused=True, retain_graph=True) if probes else ()
    except (RuntimeError, NotImplementedError):     # a function without a second derivative
        return ""
    for each, row in zip(second, rows):
        if each is not None and each.shape[0] > 1 and bool(each[_of_others(len(row), samples).to(each.device)].any()):
            return ("the loss of a sample depends on the others in its pass, as in contrastive learning, a deviation over a batch or the root of a mean: another number of workers makes other passes; "
                    "give a mean over the samples of what each one's is by itself")
    return ""


def _of_others(rows: int, samples: int) -> torch.Tensor:
    """Returns the rows that are not the first sample's, whether a sample's rows follow each other or views of all samples do."""
    others = torch.ones(rows, dtype=torch.bool)
    others[:rows // samples] = False
    others[::samples] = False
    return others


def _functions(loss: torch.Tensor, ends: set[Any]) -> dict[Any, list[Any]]:
    """Returns the functions from a loss back to these, and what has taken each one's results; none where there are too many."""
    leads = dict[Any, list[Any]]()
    open_ = [loss.grad_fn]
    seen = set(open_)
    while open_:
        made = open_.pop()
        if made is None or made in ends:
            continue
        for before, _ in made.next_functions:
            if before is not None:
                leads.setdefault(before, []).append(made)
                if before not in seen:
                    seen.add(before)
                    open_.append(before)
        if len(seen) >= _MOST:
            return {}
    return leads


def _reached(loss: torch.Tensor, rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns those from which the loss is computed without another one between."""
    leads = _functions(loss, {each.grad_fn for each in rows}) if rows else {}
    return [each for each in rows if each.grad_fn in leads]


def _is_differentiable_twice(loss: torch.Tensor, rows: list[torch.Tensor], is_static: bool) -> bool:
    """Whether all functions between the outputs and the loss are torch's own. is_static: the graph is DistributedDataParallel's with static_graph."""
    ends = {each.grad_fn for each in rows}
    leads = _functions(loss, ends)
    if not leads:
        return False
    open_, between = [each for each in ends if each in leads], set[Any]()
    while open_:
        for made in leads.get(open_.pop(), ()):
            if made not in between:
                between.add(made)
                open_.append(made)
    return not any(isinstance(each, torch.autograd.function.BackwardCFunction) and (is_static or type(each).__name__ != "_DDPSinkBackward") for each in between)
