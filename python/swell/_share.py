# SPDX-License-Identifier: BSD-3-Clause
"""Modules whose results depend on how many workers share a batch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from swell import _request
from swell._dropout import draws_by_sample

__all__ = ["balance_of_experts", "depends_on_workers", "draws_masks", "fails_on_one_sample", "function_of", "kept_buffers", "say_what_changes", "say_what_depends", "says_what_depends", "why_no_mean"]

_NAMED = 3
_LARGEST = 1 << 24      # values of a buffer that is looked at
_PASSED_ON = ("ToCopyBackward0", "AliasBackward0", "ViewBackward0", "SqueezeBackward0", "CloneBackward0", "_DDPSinkBackward")
_SUM = 2        # of torch's reductions


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
    if how := balance_of_experts(model):
        said.append(f"the balance of experts ({how}) is a loss over the tokens of a pass, so losses depend on the number of workers; output_router_logits=False avoids it")
    return said


def balance_of_experts(model: torch.nn.Module) -> str:
    """Returns the option with which a transformers model adds a loss for an uneven use of its experts; empty: it adds none."""
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        for each in (config, getattr(config, "text_config", None)):
            weight = getattr(each, "router_aux_loss_coef", None) or getattr(getattr(each, "ffn_config", None), "moe_loss_weight", None)
            if weight and getattr(each, "output_router_logits", False):
                return f"router_aux_loss_coef={weight:g}"
    return ""


def _drops(module: torch.nn.Module) -> bool:
    """Whether a module draws masks, in a call of its own or, as in attention, within another function."""
    if isinstance(module, _DropoutNd):
        return module.p > 0 and not draws_by_sample(module)
    fused = getattr(getattr(module, "config", None), "_attn_implementation", "eager") not in ("eager", None) and "Attention" in type(module).__name__
    return any(isinstance(value, float) and value > 0 and "drop" in name for name, value in vars(module).items()) or \
        fused and any(isinstance(child, _DropoutNd) and child.p > 0 for child in module.children())


def draws_masks(model: torch.nn.Module) -> bool:
    """Whether a module of a model that trains now draws masks, which depends_on_workers() names."""
    return any(module.training and _drops(module) for module in model.modules())


def fails_on_one_sample(model: torch.nn.Module, *, trains: bool = False) -> bool:
    """Whether a forward pass over a single sample fails, as BatchNorm1d of torch's does in training: it has no variance. trains: as above."""
    return any(isinstance(module, torch.nn.BatchNorm1d) and (trains or module.training) for module in model.modules())


def function_of(value: torch.Tensor) -> Any:
    """Returns the function that has made a value, behind those that pass it on; None: it has no gradient."""
    made: Any = value.grad_fn
    while made is not None and made.name().rpartition(".")[2] in _PASSED_ON and len(made.next_functions) == 1:
        made = made.next_functions[0][0]
    return made


def why_no_mean(loss: torch.Tensor, samples: int) -> str:
    """Returns why the loss of a pass over so many samples is not a mean over these, as the function that made it says; empty: nothing is known to speak against it."""
    made = function_of(loss)
    name = "" if made is None else made.name().removesuffix("Backward0")
    if getattr(made, "_saved_reduction", None) == _SUM:
        return f"the loss is a sum over a pass ({name}), which depends on how many samples a worker has: divide it by their number"
    if not name.startswith("NllLoss"):
        return ""
    each = "give the mean over the samples of the sum of each one's: loss(..., reduction=\"none\").view(samples, -1).sum(1).mean(), divided by a number of targets that does not change"
    if made._saved_weight is not None:
        return f"the loss is divided by the weights of the classes in a pass, which depends on how many samples a worker has: {each}"
    target = made._saved_target
    if samples < 2 or target.numel() % samples:
        return ""
    counts = (target != made._saved_ignore_index).view(samples, -1).sum(1)
    if bool((counts != counts[0]).any()):
        return f"the loss is a mean over the targets of a pass that are not ignored, of which samples have unlike numbers, so that it depends on how samples are divided: {each}"
    return ""


def says_what_depends() -> bool:
    """Whether this process is the one that says what depends on the number of workers."""
    here = _request.place()
    return _request.under_swellrun() and here.rank == 0 and here.generation == 0


def kept_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns copies of the buffers that no pass should change, by the names of their modules and themselves."""
    return {f"{name}.{of}": each.detach().clone() for name, module in model.named_modules() if not isinstance(module, _BatchNorm)
            for of, each in module.named_buffers(recurse=False) if type(each) is torch.Tensor and each.numel() <= _LARGEST}


def say_what_changes(model: torch.nn.Module, before: Mapping[str, torch.Tensor]) -> None:
    """Say which modules have changed buffers in a pass: BatchNorm's kind, of which say_what_depends() does not know."""
    found = {}
    for name, module in model.named_modules():
        for of, each in module.named_buffers(recurse=False):
            was = before.get(f"{name}.{of}")
            if was is not None and type(each) is torch.Tensor and each.shape == was.shape and not torch.equal(each, was.to(each.device)):
                found[f"{name.removeprefix('_orig_mod.').removeprefix('module.') or 'the model'} ({type(module).__name__})"] = True
    if found:
        print(f"swell: {_some(list(found))}: each forward pass changes buffers, from one worker's share and as often as there are passes, so losses depend on the number of workers; "
              "change them once after each optimizer step, from what all workers have alike", file=sys.stderr, flush=True)


def say_what_depends(model: torch.nn.Module, *, trains: bool = False, noise: str = "") -> None:
    """Say depends_on_workers() once in a job: at its first start, on rank 0, where its workers may change.

    noise: the name of an option by which the framework draws noise for each worker; empty: there is none.
    """
    if not says_what_depends():
        return
    drawn = [f"{noise}: another number of workers draws other noise, so losses differ within it; {noise}=None avoids it"] if noise else []
    for each in depends_on_workers(model, trains=trains) + drawn:
        print(f"swell: {each}", file=sys.stderr, flush=True)
