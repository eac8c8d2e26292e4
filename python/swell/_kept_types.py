# SPDX-License-Identifier: BSD-3-Clause
"""Has optimizers keep the precision of their state over a load: torch converts each value to the precision of its parameter, so that weights kept in float32 for a parameter in bfloat16 would be rounded."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["keep_types"]


def keep_types(optimizer: Any) -> None:
    """From now on what an optimizer loads has the types that it was saved in."""
    given: list[dict[str, Any]] = []

    def before(_: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        given[:] = [state]

    def after(loaded: torch.optim.Optimizer) -> None:
        state = given.pop()
        numbers = [each for group in state["param_groups"] for each in group["params"]]
        parameters = [each for group in loaded.param_groups for each in group["params"]]
        for number, parameter in zip(numbers, parameters):
            here = loaded.state.get(parameter, {})
            for name, value in state["state"].get(number, {}).items():
                mine = here.get(name)
                if isinstance(value, torch.Tensor) and isinstance(mine, torch.Tensor) and value.is_floating_point() and mine.dtype != value.dtype:
                    here[name] = value.detach().to(device=mine.device, copy=True)
    optimizer = getattr(optimizer, "optimizer", optimizer)      # within Accelerate's
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizer.register_load_state_dict_pre_hook(before)
        optimizer.register_load_state_dict_post_hook(after)
