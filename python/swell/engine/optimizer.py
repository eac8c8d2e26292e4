# SPDX-License-Identifier: BSD-3-Clause
"""The user's optimizer over one worker's parameters, with its state in memory that Swell gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from swell.engine.given import optimizer_of

__all__ = ["Factory", "StateEntry", "entries"]

Factory = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class StateEntry:
    """A value that an optimizer keeps of each parameter. moment: a tensor of the parameter's shape; else one number.

    on_host: it is read by the host in each step, which would wait for a GPU.
    """

    name: str
    moment: bool
    dtype: torch.dtype
    on_host: bool


def _stepped(factory: Factory, state: dict[str, torch.Tensor] | None) -> tuple[torch.optim.Optimizer, torch.nn.Parameter]:
    parameter = torch.nn.Parameter(torch.tensor([[1.0, -2.0, 3.0]]))
    optimizer = optimizer_of(factory([parameter]))
    if state is not None:
        optimizer.state[parameter].update(state)
    for gradient in (0.5, -0.25):
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    return optimizer, parameter


def kind(factory: Factory) -> str:
    """The name of what the factory makes."""
    return type(optimizer_of(factory([torch.nn.Parameter(torch.zeros(1, 3))]))).__name__


def entries(factory: Factory) -> list[StateEntry]:
    """Lists the values that this optimizer keeps of a parameter, seen from steps with a parameter of three numbers.

    Raises ValueError unless it works element by element on state that begins as zeros: AdamW, Adam, SGD and the like.
    """
    optimizer, reference = _stepped(factory, None)
    name, found = type(optimizer).__name__, []
    steps_on_device = any(group.get("capturable") or group.get("fused") for group in optimizer.param_groups)
    for key, value in optimizer.state[reference].items():
        if value is None:
            continue
        if not isinstance(value, torch.Tensor) or value.shape not in (reference.shape, torch.Size([])):
            raise ValueError(f"{name} keeps {key} of each parameter, which is neither a number in a tensor nor of the parameter's shape; use one "
                             "such as AdamW or SGD")
        moment = value.shape == reference.shape
        found.append(StateEntry(str(key), moment, value.dtype, not moment and not steps_on_device))
    zeros = {one.name: torch.zeros(reference.shape if one.moment else (), dtype=one.dtype) for one in found}
    _, again = _stepped(factory, zeros)
    if not torch.equal(reference, again):
        raise ValueError(f"{name} steps differently from state that is zero than from none (SGD with dampening does); use one such as AdamW")
    return found
