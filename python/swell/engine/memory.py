# SPDX-License-Identifier: BSD-3-Clause
"""Measures the host memory that one step takes, and that its layers keep: the figures that a GPU's allocator would give."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from swell.engine.stage import StageModel

__all__ = ["DevicePeak", "Peak", "WholeActivations"]


class Peak(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is entered. now: of those alive; most: at one time."""

    def __init__(self, known: Sequence[torch.Tensor]) -> None:
        super().__init__()      # type: ignore[no-untyped-call]
        self.most = self.now = 0
        self._alive: dict[int, weakref.ref[Any]] = {id(one.untyped_storage()): weakref.ref(one.untyped_storage()) for one in known}

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in tree_iter(result):
            if isinstance(one, torch.Tensor):
                self._see(one.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._alive or not size:
            return

        def gone(_: Any) -> None:
            del self._alive[key]
            self.now -= size
        self._alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.most = max(self.most, self.now)


class DevicePeak:
    """The most that a GPU's allocator has had at one time while it is entered, whatever it had before, under another plan. most: in bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device, self.most = device, 0

    def __enter__(self) -> DevicePeak:
        torch.cuda.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *_: Any) -> None:
        self.most = torch.cuda.max_memory_allocated(self._device)


class WholeActivations:
    """Counts what the layers' forward pass keeps for the backward one and tensor parallelism does not split.

    stage: the chunk whose layers are watched. recompute: its layers keep their inputs alone.
    That is all that is kept outside the modules which tensor parallelism takes apart, and what goes into those.
    """

    def __init__(self, stage: StageModel, recompute: bool = False) -> None:
        self.stage, self.kept_bytes, self.is_done, self._recompute = stage, 0, False, recompute
        self._layer = self._split = 0       # how deep in layers, and in modules that are taken apart
        self._seen: set[int] = set()
        self._whole: set[int] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Stands around one forward pass, after which it is done."""
        self.is_done = True
        hooks = []
        for number in self.stage.layers:
            layer = self.stage.layer(number)
            hooks += [layer.register_forward_pre_hook(self._enter), layer.register_forward_hook(self._leave)]
            if not self._recompute:     # a layer that puts its weight's gradient off keeps its input itself, where autograd does not see it
                hooks += [module.register_forward_pre_hook(self._put_off) for module in layer.modules() if "multiply" in module.__dict__]
            for module in self._taken_apart(layer, self.stage.skeleton.layer_path(number)):
                hooks += [module.register_forward_pre_hook(self._enter_split, with_kwargs=True), module.register_forward_hook(self._leave_split)]
        self._seen = {parameter.untyped_storage().data_ptr() for parameter in self.stage.parameters.values()}
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda one: one):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _taken_apart(self, layer: nn.Module, path: str) -> list[nn.Module]:
        family, base = self.stage.skeleton.family, self.stage.skeleton.base_path

        def is_split(name: str) -> bool:
            style = family.style(f"{path}.{name}".removeprefix(f"{base}."))
            return style is not None and style[0] != "replicated_with_grad_allreduce"
        found = {name.rpartition(".")[0] for name, _ in layer.named_modules() if name and is_split(name)}
        return [layer.get_submodule(name) for name in sorted(found)]

    def _enter(self, *_: Any) -> None:
        self._layer += 1

    def _leave(self, *_: Any) -> None:
        self._layer -= 1

    def _enter_split(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        self._split += 1
        self._whole |= {one.untyped_storage().data_ptr() for one in tree_iter((args, kwargs)) if isinstance(one, torch.Tensor)}

    def _put_off(self, _: nn.Module, args: Any) -> None:
        self._keep(args[0])

    def _leave_split(self, *_: Any) -> None:
        self._split -= 1

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if self._layer and storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            if not self._split or storage.data_ptr() in self._whole:
                self.kept_bytes += storage.nbytes()
        return tensor
