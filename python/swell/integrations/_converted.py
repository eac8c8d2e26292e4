# SPDX-License-Identifier: BSD-3-Clause
"""Weights that a Trainer's checkpoint has under other names than the model: transformers saves experts one by one, and keeps them as one tensor."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

__all__ = ["load_converted"]

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def _names(folder: str) -> set[str]:
    """Returns the names of the weights in a checkpoint; empty: it has no such file."""
    if os.path.exists(path := os.path.join(folder, _FILE)):
        with safe_open(path, framework="pt") as file:
            return set(file.keys())
    if os.path.exists(path := os.path.join(folder, _INDEX)):
        with open(path) as index:
            return set(json.load(index)["weight_map"])
    return set()


def _left_out(model: PreTrainedModel, names: set[str]) -> dict[str, torch.nn.Parameter]:
    """Returns the model's parameters that are missing from a checkpoint: neither they nor another tensor over the same memory is in `names`."""
    there = {each.data_ptr() for name, each in model.state_dict().items() if name in names and isinstance(each, torch.Tensor)}
    return {name: each for name, each in model.named_parameters() if name not in names and each.numel() and each.data_ptr() not in there}


def load_converted(model: Any, folder: str) -> None:
    """Load the parameters of a checkpoint that the Trainer's own loader, which goes by names, has left out. Raises ValueError where that cannot be read."""
    names = _names(folder) if isinstance(model, PreTrainedModel) else set[str]()
    missing = _left_out(model, names) if names else {}
    if not missing:
        return
    kind, first = type(model).__name__, next(iter(missing))
    try:
        made, found = type(model).from_pretrained(folder, config=model.config, dtype=model.dtype, output_loading_info=True)
    except Exception as error:      # each version of transformers has its own
        raise ValueError(f"the checkpoint {folder} has {len(missing)} parameters of {kind}, such as {first}, under no name of its own, and cannot be read: {error}") from error
    state, gone = dict(made.named_parameters()), set(found["missing_keys"])
    with torch.no_grad():
        for name, each in missing.items():
            if name in state and name not in gone:
                each.copy_(state[name])
            elif each.requires_grad:
                raise ValueError(f"the checkpoint {folder} lacks {name} of {kind}, which would begin anew; give the same model, or another output_dir")
