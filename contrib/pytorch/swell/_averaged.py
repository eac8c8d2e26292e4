# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel averages the gradients of what was trained when it was made; here it follows what is trained."""

from __future__ import annotations

from typing import Any

import torch
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
        model.register_forward_pre_hook(self._passes, prepend=True)

    def has(self, parameter: torch.nn.Parameter) -> bool:
        """Whether this one's gradient is averaged."""
        return id(parameter) in self._seen

    def _trained(self) -> set[int]:
        return {id(parameter) for parameter in self._wrapped.parameters() if parameter.requires_grad}

    def _passes(self, _model: torch.nn.Module, _inputs: Any) -> None:
        if not torch.is_grad_enabled():
            return
        now, model = self._trained(), self._wrapped
        if now == self._seen or not now or self._is_fixed():
            return
        # A reducer has the parameters that it was made for.
        del model.reducer, model.logger
        parameters, are_sparse = model._build_params_for_reducer()      # type: ignore[no-untyped-call]
        names = model._build_debug_param_to_name_mapping(parameters)    # type: ignore[no-untyped-call]
        model._ddp_init_helper(parameters, are_sparse, names, model.static_graph)       # type: ignore[no-untyped-call]
        for hook, state in model._comm_hooks:
            getattr(torch.distributed, "_register_comm_hook")(model.reducer, state, hook)
        self._seen = now

    def _is_fixed(self) -> bool:
        """Whether there is what could not be given to another reducer."""
        model = self._wrapped
        has_hook = bool(model._get_ddp_logging_data().get("comm_hook"))     # type: ignore[no-untyped-call]
        return bool(has_hook and not model._comm_hooks) or model.mixed_precision is not None or model._use_python_reducer or model.static_graph \
            or bool(model._delay_all_reduce_params)


def average_what_is_trained(model: torch.nn.Module) -> Averaged | None:
    """Returns the Averaged of a model, one for each; None where DistributedDataParallel does not wrap it."""
    wrapped: Any = getattr(model, "_orig_mod", model)
    if not isinstance(wrapped, DistributedDataParallel):
        return None
    found: Averaged | None = wrapped.__dict__.get("swell_averaged")
    if found is None:
        found = wrapped.__dict__["swell_averaged"] = Averaged(model)
    return found
