# SPDX-License-Identifier: BSD-3-Clause
"""The arguments of an Engine that stay what they are for the whole run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from swell.engine.given import GivenPlan
from swell.engine.optimizer import Factory

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The program's arguments, checked: see Engine, whose names these are.

    config: transformers' description of the model. divides: replicas divide what the optimizer keeps (zero=1). directory: of the run's checkpoints.
    """

    config: Any
    optimizer: Factory
    scheduler: Callable[[torch.optim.Optimizer], Any] | None
    global_batch: int
    micro_batch: int
    plan: GivenPlan
    initial_plan: GivenPlan
    dtype: torch.dtype
    recompute: bool
    seed: int
    directory: str | None
    log: str | os.PathLike[str] | None
    peak_flops: float | None
    description: Mapping[str, Any] | str | None
    mtp_heads: int
    mtp_weight: float
    divides: bool
