# SPDX-License-Identifier: BSD-3-Clause
"""One tensor of the training state: which part of it this worker holds, and where that stands.

On the host it stands in Swell's arena itself. What is on a device stays there, and the arena has a copy, made at each step boundary.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from swell._native import Kind, Session

__all__ = ["LAYER", "Fixed", "Kept", "Share", "Slot", "Unsupported", "is_on_host", "like", "plain", "share_of"]

LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")      # in a parameter's name


class Unsupported(Exception):
    """What this state has that cannot be handed over while it trains: the job is resized by restarts."""


@dataclass(frozen=True)
class Share:
    """The part of a tensor that this worker holds, and how a tensor is made of its memory.

    shape: of the whole tensor. local: of this worker's part. flat: the range of the whole in row-major order; what is past its
    end is padding. None: all of it. stride: of the local part where it is not contiguous.
    """

    shape: tuple[int, ...]
    local: tuple[int, ...]
    flat: tuple[int, int] | None = None
    stride: tuple[int, ...] | None = None

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        """The local part, over its memory of one dimension."""
        if self.stride is not None:
            return memory.as_strided(self.local, self.stride)
        count = 1
        for each in self.local:
            count *= each
        return memory[:count].view(self.local)


def share_of(name: str, tensor: torch.Tensor) -> Share | None:
    """Of a tensor as it stands on this worker; None where it has nothing of it."""
    shape = tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        if tensor.numel() == 0:
            return None
        if tensor.is_contiguous():
            return Share(shape, shape)
        dense = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
        if dense != tensor.numel():
            raise Unsupported(f"{name} has holes in its memory (strides {tuple(tensor.stride())}); make it contiguous()")
        return Share((tensor.numel(),), shape, stride=tuple(tensor.stride()))
    sharded = [(at, placement) for at, placement in enumerate(tensor.placements) if not isinstance(placement, Replicate)]
    if not sharded:
        return Share(shape, shape) if tensor.numel() else None
    if len(sharded) > 1 or type(sharded[0][1]) is not Shard or sharded[0][1].dim != 0:
        raise Unsupported(f"{name} is laid out as {tensor.placements}; live mode knows tensors that are whole, or sharded in dimension 0")
    world, at = tensor.device_mesh.size(sharded[0][0]), tensor.device_mesh.get_local_rank(sharded[0][0])
    rows = -(-shape[0] // world)
    width = tensor.numel() // shape[0] if shape[0] else 0
    begin = at * rows * width
    if begin >= tensor.numel():
        return None
    local = (min(rows, shape[0] - at * rows), *shape[1:])
    return Share(shape, local, flat=(begin, begin + rows * width))


def is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor stands on this worker."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def like(parameter: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """A local part as an optimizer keeps it for a parameter."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(local, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
                              stride=parameter.stride())


class Slot:
    """One tensor of the state, and where it stands: in our memory, or on a device, of which that is a copy."""

    def __init__(self, name: str, share: Share, dtype: torch.dtype, kind: Kind, is_copied: bool) -> None:
        self.name, self.share, self.dtype, self.kind, self.is_copied = name, share, dtype, kind, is_copied
        self.memory = torch.empty(0)    # of one dimension, with the padding; after adopt()

    def register(self, session: Session, is_one_layer: bool) -> None:
        """is_one_layer: the model has no numbered ones."""
        layer = LAYER.search(self.name)
        session.register(self.name, self.dtype, self.share.shape, kind=self.kind, flat=self.share.flat,
                         layer=int(layer[1]) if layer else 0 if is_one_layer else None)

    def map(self, session: Session) -> None:
        self.memory = session.tensor(self.name, self.dtype)

    def view(self) -> torch.Tensor:
        return self.share.view(self.memory)

    def present(self) -> torch.Tensor | None:
        """What the program has, where that is."""
        raise NotImplementedError

    def copy_out(self) -> None:
        """A device's values go to our memory."""
        found = self.present()
        if self.is_copied and found is not None:
            self.view().copy_(plain(found.detach()))

    def copied_bytes(self) -> int:
        return math.prod(self.share.local) * self.dtype.itemsize if self.is_copied else 0


class Fixed(Slot):
    """A parameter or a buffer: there from the start."""

    def __init__(self, name: str, share: Share, tensor: torch.Tensor, kind: Kind, fsdp: Any = None) -> None:
        super().__init__(name, share, tensor.dtype, kind, not is_on_host(tensor))
        self.tensor, self.fsdp = tensor, fsdp

    def present(self) -> torch.Tensor:
        return self.tensor

    def bind(self, fresh: bool) -> None:
        """Move the tensor to its memory; fresh: with its values. On a device it stays where it is."""
        view = self.view()
        if self.is_copied:
            if not fresh:
                plain(self.tensor.detach()).copy_(view)
            return
        if fresh:
            view.copy_(plain(self.tensor.detach()))
        if self.fsdp is not None:
            self.fsdp._sharded_param_data = self.memory
        if isinstance(self.tensor, DTensor):
            self.tensor._local_tensor = view
        else:
            self.tensor.data = view


class Kept(Slot):
    """What the optimizer keeps of a parameter: there once it has stepped."""

    def __init__(self, name: str, share: Share, dtype: torch.dtype, parameter: torch.Tensor, key: str, is_like: bool,
                 device: torch.device) -> None:
        super().__init__(name, share, dtype, Kind.OPTIMIZER_STEP if key == "step" else Kind.MOMENT, not is_on_host(parameter))
        self.parameter, self.key, self.is_like, self.device = parameter, key, is_like, device
        self.value: torch.Tensor | None = None      # what the optimizer has, over our memory or on a device

    def present(self) -> torch.Tensor | None:
        return self.value

    def bind(self, state: dict[str, Any]) -> None:
        view = self.view()
        if self.is_copied:
            view = torch.empty_like(view, device=self.device).copy_(view)
        self.value = like(self.parameter, view) if self.is_like else view
        state[self.key] = self.value

    def follow(self, state: dict[str, Any]) -> None:
        """What the optimizer has made or loaded itself moves to our memory."""
        found = state.get(self.key)
        if found is self.value or not isinstance(found, torch.Tensor):
            return
        if self.is_copied:
            self.value = found
            return
        self.view().copy_(plain(found))
        self.bind(state)
