# SPDX-License-Identifier: BSD-3-Clause
"""The regions of an ordinary loop, for the profiler: forward, backward, synchronization, optimizer.

Nothing waits for a device: on a GPU each region is two events on the stream of its work.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from swell import _structs
from swell._native import NativeError, Region, Session

__all__ = ["Profile"]

_NONE = -1
_LAYERS = 1     # to a planner the model is one layer, which nobody can cut
_OBSERVED = 1   # step of a generation, from 0: the first one makes optimizer state and the libraries' workspaces


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
        self._steps = 0             # of this generation
        self._measures = False      # whether the device's peak is that of the present step
        self._watch: _Kept | None = None    # while a forward pass is watched
        self._kept_bytes: int | None = None     # by the forward passes of one micro-batch; None: not known
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

    def begin(self, kind: Region, allocated_bytes: int | None = None) -> int:
        """A region's number, for end(). allocated_bytes: of the device's memory, where that was read."""
        is_pass = kind in (Region.FORWARD, Region.BACKWARD)
        return self.session.profiler.begin_region(kind, micro_batch=self.micro_batch if is_pass else None, layers=(0, _LAYERS) if is_pass else None,
                                                  stream=self._stream(), allocated_bytes=allocated_bytes)

    def end(self, number: int, allocated_bytes: int = 0) -> None:
        """Close a region."""
        self.session.profiler.end_region(number, allocated_bytes)

    # ---- forward

    def _sees_input(self, model: torch.nn.Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self.begin_forward()

    def _sees_output(self, _model: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        self.end_forward()

    def begin_forward(self) -> None:
        """A training pass begins, where no hook of the model's sees it."""
        before = None
        if self._steps == _OBSERVED and not self._has_role:
            self._measure()
            if self.micro_batch == 0 and self._watch is None:
                self._watch = _Kept.of(self.model)
                before = self._watch.before if self._watch is not None else None
        self._forward = self.begin(Region.FORWARD, allocated_bytes=before)

    def end_forward(self) -> None:
        """After it, loss included if the loop likes."""
        watch, self._watch = self._watch, None
        after = 0
        if watch is not None:
            self._kept_bytes = (self._kept_bytes or 0) + watch.end()
            after = watch.after
        if self._forward != _NONE:
            self.end(self._forward, after)
            self._forward = _NONE

    # ---- backward, and what no backward pass hides of the synchronization

    def begin_backward(self) -> None:
        """The loop calls this before backward()."""
        self._backward = self.begin(Region.BACKWARD)

    def end_backward(self) -> None:
        """The loop calls this after backward(). Regions that begin later belong to the next micro-batch of the step."""
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
        """This worker is of another generation: its regions and its role are of that generation's session."""
        self.session, self.rank, self._has_role, self._measures = session, rank, False, False
        self._steps, self._kept_bytes = 0, None

    def boundary(self, samples: float) -> None:
        """A step may be done, whose passes had so many samples of this worker's each. After the second one its role is known.

        This worker is a group of its own of one stage. All that its forward pass keeps counts as what tensor parallelism does not
        split, since it takes no part in any.
        """
        passes, self.micro_batch = self.micro_batch, 0
        if not passes:
            return
        self.end_forward()      # of a framework's pass that failed
        step, self._steps = self._steps, self._steps + 1
        if self._has_role or step != _OBSERVED:
            return
        self._has_role = True
        if self._measures:
            self.session.profiler.memory(torch.cuda.max_memory_allocated() + self.session.gpu_bytes)
        batch = max(1, round(samples))
        dtype, shape = self._seen or ("float32", (1,))
        whole = None
        try:
            if self._kept_bytes is not None:    # 0 would say that it is not known
                whole = max(1, self._kept_bytes) / (batch * math.prod(shape) * _structs.dtype_of(dtype)[1])
            self.session.profiler.set_role(group=self.rank, layers=_LAYERS, local_batch=batch, activation=dtype, activation_shape=shape, whole_activations=whole)
        except (NativeError, TypeError):
            self.session.profiler.set_role(group=self.rank, layers=_LAYERS, local_batch=batch)     # a profile, but no coefficients

    def _measure(self) -> None:
        """From here on the device's peak is that of the observed step, without that of a plan before."""
        if not self._measures and torch.cuda.is_initialized():      # type: ignore[no-untyped-call]
            torch.cuda.reset_peak_memory_stats()
            self._measures = True


class _Kept:
    """Counts what a forward pass keeps for its backward one: by the allocator of the current GPU; without one by the tensors that autograd saves."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.before: int | None = None      # bytes that the GPU's allocator had as the pass began; None: the host computes
        self.after = 0
        self._saved_bytes = 0
        self._hooks: Any = None
        if torch.cuda.is_initialized():     # type: ignore[no-untyped-call]
            self.before = torch.cuda.memory_allocated()
            return
        held = (*model.parameters(), *model.buffers())
        self._seen = {one.untyped_storage().data_ptr() for one in held if not isinstance(one, DTensor)}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda one: one)
        self._hooks.__enter__()

    @classmethod
    def of(cls, model: torch.nn.Module) -> _Kept | None:
        """Begins; None where autograd takes no hooks here, as within torch.func."""
        try:
            return cls(model)
        except RuntimeError:
            return None

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        # FSDP gathers parameters into memory of theirs.
        if isinstance(tensor, torch.nn.Parameter) or isinstance(tensor._base, torch.nn.Parameter):
            return tensor
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):     # a tensor without one
            return tensor
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self._saved_bytes += storage.nbytes()
        return tensor

    def end(self) -> int:
        """Returns bytes."""
        if self._hooks is not None:
            self._hooks.__exit__()
            return self._saved_bytes
        self.after = torch.cuda.memory_allocated()
        return max(0, self.after - (self.before or 0))


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
