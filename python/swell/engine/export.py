# SPDX-License-Identifier: BSD-3-Clause
"""The trained model as a plain transformers folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from swell.engine.plan import Place, Plan
from swell.engine.skeleton import Skeleton

__all__ = ["gathered", "save_pretrained"]


def gathered(skeleton: Skeleton, plan: Plan, place: Place, held: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
    """All parameters, whole, in the host's memory of rank 0; None elsewhere. Every worker calls it."""
    whole: dict[str, torch.Tensor] = {}
    for name in skeleton.parameters:
        if name.startswith("mtp."):     # transformers has no place for them
            continue
        layer = skeleton.parameters[name].layer
        stage = next((number for number in range(plan.pp) if layer is not None and layer in plan.contents.layers(number)), None)
        if stage is None:
            stage = plan.contents.embedding_stage if any(name.startswith(path + ".") for path in skeleton.input_paths) else plan.contents.head_stage
        tp, one = plan.stages[stage].tp, skeleton.held(name, skeleton.by_vocabulary(plan, stage))
        if place.rank == 0:
            whole[name] = torch.empty(one.shape, dtype=one.dtype)
        for shard in range(tp if one.dim is not None else 1):
            owner = plan.rank(stage, 0, shard)
            if place.rank == owner == 0:
                one.put(whole[name], held[name].detach().cpu(), shard, tp)
            elif place.rank == owner:
                dist.send(held[name].detach().contiguous(), 0)
            elif place.rank == 0:
                part = torch.empty(one.local_shape(tp), dtype=one.dtype, device=next(iter(held.values())).device)
                dist.recv(part, owner)
                one.put(whole[name], part.cpu(), shard, tp)
    return whole if place.rank == 0 else None


def save_pretrained(folder: str | os.PathLike[str], config: Any, dtype: torch.dtype, skeleton: Skeleton, whole: Mapping[str, torch.Tensor]) -> None:
    """Writes what from_pretrained() reads. Takes the host's memory of the whole model."""
    from transformers import AutoModelForCausalLM
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    state = {**whole, **{head: whole[embedding] for head, embedding in skeleton.tied.items()}}
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
