# SPDX-License-Identifier: BSD-3-Clause
"""State that a Trainer's own checkpoints leave out: TRL's counts, and of a model with adapters all but these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel

from swell._identity import bare
from swell._plain import decoded
from swell.checkpoint import write_rest

__all__ = ["BUFFERS", "GIVEN", "counts", "frozen_weights", "go_on_counting", "load_buffers", "load_given", "save_buffers", "save_given", "why_averages_are_lost"]

BUFFERS, GIVEN = "swell_buffers.pt", "swell_state.pt"
_LOOKED_AT = 64     # values of each parameter


def counts(trainer: Any) -> dict[str, Any]:
    """Returns what TRL's trainers count towards their next log, and of the whole training; empty for others."""
    metrics = getattr(trainer, "_metrics", None)
    if not isinstance(metrics, dict) or not isinstance(metrics.get("train"), dict):
        return {}
    return {"tokens": getattr(trainer, "_total_train_tokens", None), "metrics": {name: list(values) for name, values in metrics["train"].items()}}


def go_on_counting(trainer: Any, found: dict[str, Any]) -> None:
    """A trainer of TRL's goes on from what counts() returned."""
    if not counts(trainer) or not found:
        return
    if found["tokens"] is not None:
        trainer._total_train_tokens = found["tokens"]
    for name, values in found["metrics"].items():
        trainer._metrics["train"][name] = list(values)


def _saves_adapters_alone(model: Any) -> bool:
    return getattr(model, "peft_config", None) is not None or bool(getattr(model, "_hf_peft_config_loaded", False))


def frozen_weights(model: Any) -> str:
    """Returns a digest of the weights that checkpoints of a model with adapters leave to the script; empty for other models."""
    if not _saves_adapters_alone(model):
        return ""
    into = hashlib.blake2b(digest_size=8)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad or isinstance(parameter, DTensor) or parameter.device.type == "meta":
            continue        # of a shard each number of workers has another part
        flat = parameter.detach().flatten()
        values = flat[::max(1, len(flat) // _LOOKED_AT)][:_LOOKED_AT].cpu().contiguous()
        into.update(f"{name} {tuple(parameter.shape)}".encode() + values.view(torch.uint8).numpy().tobytes())
    return into.hexdigest()


def _buffers(model: Any) -> dict[str, torch.Tensor]:
    """The persistent buffers of numbers that training may change, by name."""
    return {f"{prefix}.{name}": buffer for prefix, module in model.named_modules() for name, buffer in module.named_buffers(recurse=False)
            if name not in module._non_persistent_buffers_set and (buffer.is_floating_point() or buffer.numel() == 1)}


def save_buffers(model: Any, folder: str) -> None:
    """Write the buffers, such as BatchNorm's statistics, of a model with adapters into the folder of a checkpoint."""
    if _saves_adapters_alone(model) and (found := _buffers(model)):
        torch.save({name: buffer.detach().cpu() for name, buffer in found.items()}, os.path.join(folder, BUFFERS))


def load_buffers(model: Any, folder: str) -> None:
    """The buffers are those that save_buffers() has written; nothing where it has not."""
    path = os.path.join(folder, BUFFERS)
    if not os.path.exists(path):
        return
    saved = torch.load(path, map_location="cpu", weights_only=True)
    for name, buffer in _buffers(model).items():
        if name in saved and saved[name].shape == buffer.shape:
            buffer.copy_(saved[name])


def why_averages_are_lost(callbacks: Iterable[Any], model: Any, given: Iterable[Any], remedy: str) -> str:
    """Returns which callback keeps weights that no checkpoint holds, such as an average; empty: none. Costs little.

    callbacks: those whose state nothing saves. given: what is saved beside them.
    """
    saved, names = set(map(id, given)), set[str]()
    for callback in callbacks:
        for name, value in vars(callback).items():
            if id(value) in saved or id(callback) in saved:
                continue
            if isinstance(value, dict) and value and all(isinstance(key, str) and isinstance(each, torch.Tensor) for key, each in value.items()):
                names = names or {bare(each) for each, _ in model.named_parameters()}
                is_kept = {bare(key) for key in value} <= names
            else:
                is_kept = isinstance(value, AveragedModel)
            if is_kept:
                return f"{type(callback).__name__}.{name} keeps weights, such as an average, that no checkpoint holds, and each start would make anew: {remedy}"
    return ""


def save_given(state: Mapping[str, Any], folder: str) -> None:
    """Write the states of what the script has given by name into the folder of a checkpoint."""
    if state:
        write_rest(os.path.join(folder, GIVEN), {"state": {name: thing.state_dict() for name, thing in state.items()}})


def load_given(state: Mapping[str, Any], folder: str) -> None:
    """Loads the states of what the script has given. Raises ValueError where a name is new, or left out."""
    path = os.path.join(folder, GIVEN)
    saved = decoded(torch.load(path, map_location="cpu", weights_only=True))["state"] if os.path.exists(path) else {}
    if others := sorted(set(saved) ^ set(state)):
        raise ValueError(f"{folder} {'has' if others[0] in saved else 'lacks'} state[{others[0]!r}], which this start {'lacks' if others[0] in saved else 'has'}: give attach() the same, or "
                         "another output_dir")
    for name, thing in state.items():
        thing.load_state_dict(saved[name])
