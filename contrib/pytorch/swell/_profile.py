# SPDX-License-Identifier: BSD-3-Clause
"""The regions of an ordinary loop, for the profiler: forward, backward, synchronization, optimizer.

Nothing waits for a device: on a GPU each region is two events on the stream of its work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from swell._native import NativeError, Region, Session

__all__ = ["Profile"]

_NONE = -1
_LAYERS = 1     # to a planner the model is one layer, which nobody can cut


class Profile:
    """Opens and closes the regions of a model's steps.

    Forward passes are those of a training model, or with sees_forward=False where the loop says; it says always where a backward
    pass and an optimizer's step begin and end.
    """

    def __init__(self, session: Session, model: torch.nn.Module, *, rank: int, sees_forward: bool = True) -> None:
        self.session, self.model, self.rank = session, model, rank
        self.micro_batch = 0        # of the present step
        self._forward = self._backward = self._sync = self._optimizer = _NONE
        self._last: torch.nn.Parameter | None = None    # whose gradient is the last of a backward pass
        self._order: list[torch.nn.Parameter] = []
        self._hooks: list[Any] = []
        self._has_role = False
        self._measures = False      # whether the device's peak is that of the present step
        self._seen: tuple[str, tuple[int, ...]] | None = None       # a layer's activation of one sample
        if sees_forward:
            model.register_forward_pre_hook(self._sees_input, prepend=True)
            model.register_forward_hook(self._sees_output, always_call=True)     # where a pass fails, too
        self._watch_layer(model)
        if isinstance(model, DistributedDataParallel):
            self._hooks = [_on_gradient(parameter, self._has_gradient) for parameter in model.parameters() if parameter.requires_grad]
        else:
            _time_collectives(model, self)

    def _stream(self) -> int | None:
        if not torch.cuda.is_initialized():     # type: ignore[no-untyped-call]
            return None
        return torch.cuda.current_stream().cuda_stream or 1     # CU_STREAM_LEGACY: the default one is no stream to the profiler

    def begin(self, kind: Region) -> int:
        """A region's number, for end()."""
        is_pass = kind in (Region.FORWARD, Region.BACKWARD)
        return self.session.begin_region(kind, micro_batch=self.micro_batch if is_pass else None, layers=(0, _LAYERS) if is_pass else None,
                                         stream=self._stream())

    def end(self, number: int) -> None:
        """Close a region."""
        self.session.end_region(number)

    # ---- forward

    def _sees_input(self, model: torch.nn.Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self.begin_forward()

    def _sees_output(self, _model: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        self.end_forward()

    def begin_forward(self) -> None:
        """A training pass begins, where no hook of the model's sees it."""
        if not self._has_role:
            self._measure()
        self._forward = self.begin(Region.FORWARD)

    def end_forward(self) -> None:
        """After it, loss included if the loop likes."""
        if self._forward != _NONE:
            self.end(self._forward)
            self._forward = _NONE

    # ---- backward, and what no backward pass hides of the synchronization

    def begin_backward(self) -> None:
        """The loop calls this before backward()."""
        self._backward = self.begin(Region.BACKWARD)

    def end_backward(self) -> None:
        """After it; what follows is of the step's next micro-batch."""
        for name in ("_sync", "_backward"):
            number = getattr(self, name)
            if number != _NONE:
                self.end(number)
                setattr(self, name, _NONE)
        self.micro_batch += 1
        if self._order:     # after the first one it is known which gradient is the last
            for hook in self._hooks:
                hook.remove()
            self._last = self._order[-1]
            self._order, self._hooks = [], []
            _on_gradient(self._last, self._has_last_gradient)

    def _has_gradient(self, parameter: torch.nn.Parameter) -> None:
        self._order.append(parameter)

    def _has_last_gradient(self, _parameter: torch.nn.Parameter) -> None:
        if isinstance(self.model, DistributedDataParallel) and self.model.require_backward_grad_sync and self._backward != _NONE:
            self.end(self._backward)
            self._backward, self._sync = _NONE, self.begin(Region.DP_SYNC)

    # ---- the optimizer

    def begin_optimizer(self) -> None:
        """The loop calls this before the optimizer's step."""
        self._optimizer = self.begin(Region.OPTIMIZER)

    def end_optimizer(self) -> None:
        """After it."""
        if self._optimizer != _NONE:
            self.end(self._optimizer)
            self._optimizer = _NONE

    # ---- what this worker is

    def _watch_layer(self, model: torch.nn.Module) -> None:
        """See once what goes from layer to layer: of the longest row of modules that have parameters."""
        rows = [[child for child in module.children() if next(child.parameters(), None) is not None] for module in model.modules()]
        longest = max(rows, key=len, default=[])
        if not longest:
            return

        def see(_layer: torch.nn.Module, _inputs: Any, output: Any) -> None:
            while isinstance(output, (tuple, list)) and output:
                output = output[0]
            if isinstance(output, torch.Tensor) and output.dim() > 1 and output.numel():
                self._seen = str(output.dtype), tuple(output.shape[1:])
            hook.remove()
        hook = longest[0].register_forward_hook(see)

    def go_on(self, session: Session, *, rank: int) -> None:
        """This worker is of another epoch: its regions and its role are of that epoch's session."""
        self.session, self.rank, self._has_role, self._measures = session, rank, False, False

    def boundary(self, samples: float) -> None:
        """A step may be done, whose passes had so many samples of this worker's each. After the first one its role is known.

        This worker is a group of its own of one stage.
        """
        passes, self.micro_batch = self.micro_batch, 0
        if self._has_role or not passes:
            return
        self._has_role = True
        if self._measures:
            self.session.memory(torch.cuda.max_memory_allocated())
        batch = max(1, round(samples))
        dtype, shape = self._seen or ("float32", (1,))
        try:
            # Any part of what a layer keeps may be called whole: it matters to tensor parallelism alone. The rest follows from the peak.
            self.session.set_role(group=self.rank, layers=_LAYERS, local_batch=batch, activation=dtype, activation_shape=shape, whole_activations=1.0)
        except (NativeError, TypeError):
            self.session.set_role(group=self.rank, layers=_LAYERS, local_batch=batch)     # a profile, but no coefficients

    def _measure(self) -> None:
        """Of the first step in an epoch: the device's peak, without that of a plan before."""
        if not self._measures and torch.cuda.is_initialized():      # type: ignore[no-untyped-call]
            torch.cuda.reset_peak_memory_stats()
            self._measures = True


def _on_gradient(parameter: torch.Tensor, hook: Any) -> Any:
    """Have a hook called when a parameter's gradient is there."""
    return parameter.register_post_accumulate_grad_hook(hook)       # type: ignore[no-untyped-call]


def _time_collectives(model: torch.nn.Module, profile: Profile) -> None:
    """fully_shard's gathering and scattering become regions: a subclass of what each group has, with the call timed."""
    made: dict[type, type] = {}

    def timed(kind: type) -> type:
        if kind not in made:
            def call(self: Any, *arguments: Any, **options: Any) -> Any:
                number = profile.begin(Region.DP_SYNC)
                try:
                    return getattr(kind, "__call__")(self, *arguments, **options)
                finally:
                    profile.end(number)
            made[kind] = type(kind.__name__, (kind,), {"__call__": call})
        return made[kind]
    for module in model.modules():
        get = getattr(module, "_get_fsdp_state", None)
        state = get() if get is not None else None
        if state is None:
            continue
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        for group in groups:
            for name in ("_all_gather_comm", "_reduce_scatter_comm"):
                comm = getattr(group, name, None)
                if comm is not None and type(comm) not in made.values():
                    comm.__class__ = timed(type(comm))
