# SPDX-License-Identifier: BSD-3-Clause
"""Losses in which samples of one pass meet, as in contrastive learning: another number of workers makes other passes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree

__all__ = ["Outputs"]

_LARGEST = 1 << 22      # values of a pass's outputs, up to which a loss is looked at
_MOST = 20_000          # functions that are looked at


class Outputs:
    """Looks at a loss by what the model returns in its pass.

    A mean over samples has no second derivative by what is of two samples. This asks autograd for those by the first sample's outputs. Functions in Python, whose
    backward pass may be made once alone, are not asked, and a model that is compiled as a whole is not looked at.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._found: list[torch.Tensor] = []
        self._hook = None if getattr(model, "_compiled_call_impl", None) is not None else model.register_forward_hook(self._note)

    def _note(self, _model: Any, _inputs: Any, outputs: Any) -> None:
        if torch.is_grad_enabled():
            self._found += [each for each in _pytree.tree_leaves(outputs) if isinstance(each, torch.Tensor) and each.requires_grad and each.dim() and each.is_floating_point()]

    def begin(self) -> None:
        """A pass begins."""
        self._found.clear()

    def close(self) -> None:
        """No pass is looked at any more."""
        self._found.clear()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def why_not_apart(self, loss: torch.Tensor, samples: int) -> str:
        """Returns why the loss of a pass over so many samples is not a mean of what each one's is; empty: nothing is known to speak against it. Changes nothing."""
        rows = [each for each in self._found if type(each) is torch.Tensor and each.shape[0] and not each.shape[0] % samples and not (each.dim() > 2 and samples in each.shape[1:])]
        if samples < 2 or not rows or sum(each.numel() for each in rows) > _LARGEST or not _is_differentiable_twice(loss, rows):
            return ""
        try:
            first = torch.autograd.grad(loss, rows, create_graph=True, allow_unused=True)
            probes = [each[0].sum() for each in first if each is not None and each.requires_grad]
            second = torch.autograd.grad(sum(probes[1:], probes[0]), rows, allow_unused=True, retain_graph=True) if probes else ()
        except (RuntimeError, NotImplementedError):     # a function without a second derivative
            return ""
        for each, row in zip(second, rows):
            if each is not None and each.shape[0] > 1 and bool(each[_of_others(len(row), samples)].any()):
                return ("the loss of a sample depends on the others in its pass, as in contrastive learning, a deviation over a batch or the root of a mean: another number of workers makes other passes; "
                        "give a mean over the samples of what each one's is by itself")
        return ""


def _of_others(rows: int, samples: int) -> torch.Tensor:
    """Returns the rows that are not the first sample's, whether a sample's rows follow each other or views of all samples do."""
    others = torch.ones(rows, dtype=torch.bool)
    others[:rows // samples] = False
    others[::samples] = False
    return others


def _is_differentiable_twice(loss: torch.Tensor, rows: list[torch.Tensor]) -> bool:
    """Whether all functions between the outputs and the loss are torch's own."""
    ends, leads = {each.grad_fn for each in rows}, dict[Any, list[Any]]()      # what a function's gradient comes from
    open_ = [loss.grad_fn]
    seen = set(open_)
    while open_ and len(seen) < _MOST:
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
        return False
    open_, between = [each for each in ends if each in leads], set[Any]()
    while open_:
        for made in leads.get(open_.pop(), ()):
            if made not in between:
                between.add(made)
                open_.append(made)
    return not any(isinstance(each, torch.autograd.function.BackwardCFunction) for each in between)
