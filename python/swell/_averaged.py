# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel averages the gradients of what was trained when it was made; here it follows what is trained."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Averaged", "average_what_is_trained"]


class Averaged:
    """Has the gradients of all that is trained averaged, from the forward pass on before which a script has changed that.

    model: DistributedDataParallel, compiled or not. All workers change what they train before the same pass.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        wrapped = getattr(model, "_orig_mod", model)
        assert isinstance(wrapped, DistributedDataParallel)
        self._wrapped = wrapped
        self._seen = self._trained()
        self._left: set[int] = set()        # frozen when the set has changed last: their gradients of passes before are averaged
        model.register_forward_pre_hook(self._passes, prepend=True)

    def has(self, parameter: torch.nn.Parameter) -> bool:
        """Whether this one's gradient is averaged."""
        return id(parameter) in self._seen or id(parameter) in self._left

    def _trained(self) -> set[int]:
        return {id(parameter) for parameter in self._wrapped.parameters() if parameter.requires_grad}

    def _passes(self, _model: torch.nn.Module, _inputs: Any) -> None:
        if not torch.is_grad_enabled():
            return
        now, model = self._trained(), self._wrapped
        if now == self._seen or not now:
            return
        if why := self._is_fixed_by():
            names = [name for name, parameter in model.module.named_parameters() if id(parameter) in now - self._seen]
            if names and dist.get_world_size(model.process_group) > 1:
                raise RuntimeError(f"{names[0]} was frozen when DistributedDataParallel was made, which does not average its gradient and, with {why}, cannot "
                                   f"be made to: leave {why} out, or set requires_grad of all that is trained at some time before")
            return
        self._average_what_has_left(now)
        # A reducer has the parameters that it was made for.
        del model.reducer, model.logger
        parameters, are_sparse = model._build_params_for_reducer()      # type: ignore[no-untyped-call]
        names = model._build_debug_param_to_name_mapping(parameters)    # type: ignore[no-untyped-call]
        model._ddp_init_helper(parameters, are_sparse, names, model.static_graph)       # type: ignore[no-untyped-call]
        for hook, state in model._comm_hooks:
            getattr(dist, "_register_comm_hook")(model.reducer, state, hook)
        self._seen = now

    def why_not(self) -> str:
        """Returns why more workers could not average what is trained now, as a part of a sentence; empty: they could. Costs little where nothing changes."""
        if self._trained() <= self._seen or not (why := self._is_fixed_by()):
            return ""
        return f"the script has unfrozen parameters since DistributedDataParallel was made, and with {why} more workers would not average their gradients"

    def _average_what_has_left(self, now: set[int]) -> None:
        """Averages what passes of this global batch without synchronization have left in gradients of what is frozen now."""
        model = self._wrapped
        left = [parameter for parameter in model.parameters() if id(parameter) in self._seen - now]
        self._left = set(map(id, left))
        world = dist.get_world_size(model.process_group)
        for parameter in left if world > 1 else ():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            holders = torch.tensor(float(parameter.grad is not None), device=gradient.device)
            dist.all_reduce(holders, group=model.process_group)
            if holders:
                dist.all_reduce(gradient, group=model.process_group)
                parameter.grad = gradient.div_(world)

    def _is_fixed_by(self) -> str:
        """Returns what could not be given to another reducer; empty: nothing."""
        model = self._wrapped
        has_hook = bool(model._get_ddp_logging_data().get("comm_hook"))     # type: ignore[no-untyped-call]
        kinds = {"static_graph=True": model.static_graph, "mixed_precision=": model.mixed_precision is not None, "DDP's Python reducer": model._use_python_reducer,
                 "delay_all_reduce_named_params=": bool(model._delay_all_reduce_params), "a communication hook of C++": has_hook and not model._comm_hooks}
        return next((kind for kind, is_there in kinds.items() if is_there), "")


def average_what_is_trained(model: torch.nn.Module) -> Averaged | None:
    """Returns the Averaged of a model, one for each; None where DistributedDataParallel does not wrap it."""
    wrapped: Any = getattr(model, "_orig_mod", model)
    if not isinstance(wrapped, DistributedDataParallel):
        return None
    found: Averaged | None = wrapped.__dict__.get("swell_averaged")
    if found is None:
        found = wrapped.__dict__["swell_averaged"] = Averaged(model)
    return found
