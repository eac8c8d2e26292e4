# SPDX-License-Identifier: BSD-3-Clause
"""Modules whose results depend on how many workers share a batch."""

from __future__ import annotations

import sys

import torch
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from swell import _request
from swell._dropout import draws_by_sample

__all__ = ["depends_on_workers", "fails_on_one_sample", "say_what_depends"]

_NAMED = 3


def _some(found: list[str]) -> str:
    return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def depends_on_workers(model: torch.nn.Module, *, trains: bool = False) -> list[str]:
    """Returns a sentence for each kind of module whose results depend on the number of workers; none: the training does not.

    trains: all modules will be in training mode, whatever they are in now.
    """
    norms, drops = [], []
    for name, module in model.named_modules():
        name = f"{name.removeprefix('_orig_mod.').removeprefix('module.') or 'the model'} ({type(module).__name__})"
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm) and (trains or module.training):
            norms.append(name)
        elif (trains or module.training) and _drops(module):
            drops.append(name)
    said = []
    if norms:
        said.append(f"{_some(norms)}: batch statistics are of one worker's share, so losses depend on the number of workers; "
                    "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before it is wrapped makes them those of all workers")
    if drops:
        said.append(f"{_some(drops)}: another number of workers draws other masks, so losses differ within their noise; p=0 avoids it")
    return said


def _drops(module: torch.nn.Module) -> bool:
    """Whether a module draws masks, in a call of its own or, as in attention, within another function."""
    if isinstance(module, _DropoutNd):
        return module.p > 0 and not draws_by_sample(module)
    fused = getattr(getattr(module, "config", None), "_attn_implementation", "eager") not in ("eager", None) and "Attention" in type(module).__name__
    return any(isinstance(value, float) and value > 0 and "drop" in name for name, value in vars(module).items()) or \
        fused and any(isinstance(child, _DropoutNd) and child.p > 0 for child in module.children())


def fails_on_one_sample(model: torch.nn.Module, *, trains: bool = False) -> bool:
    """Whether a forward pass over a single sample fails, as BatchNorm1d of torch's does in training: it has no variance. trains: as above."""
    return any(isinstance(module, torch.nn.BatchNorm1d) and (trains or module.training) for module in model.modules())


def say_what_depends(model: torch.nn.Module, *, trains: bool = False, noise: str = "") -> None:
    """Say depends_on_workers() once in a job: at its first start, on rank 0, where its workers may change.

    noise: the name of an option by which the framework draws noise for each worker; empty: there is none.
    """
    here = _request.place()
    if not _request.under_swellrun() or here.rank != 0 or here.epoch != 0:
        return
    drawn = [f"{noise}: another number of workers draws other noise, so losses differ within it; {noise}=None avoids it"] if noise else []
    for each in depends_on_workers(model, trains=trains) + drawn:
        print(f"swell: {each}", file=sys.stderr, flush=True)
