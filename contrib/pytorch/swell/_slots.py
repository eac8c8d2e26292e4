# SPDX-License-Identifier: BSD-3-Clause
"""One tensor of the training state: which part of it this worker holds, and where that stands.

On the host it stands in Swell's arena. On a GPU it stands where torch has it: no other process can map memory of torch's
allocator, so that it is copied where it is handed over, and at no other time.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from swell._native import Kind, Session

__all__ = ["LAYER", "Fixed", "Kept", "NoRoom", "Share", "Slot", "Unsupported", "gpu_of", "like", "no_room", "plain", "room_on", "share_of"]

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


def gpu_of(device: torch.device) -> int | None:
    """Which GPU it is, as CUDA counts them in this process; None: the host."""
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise Unsupported(f"state stands on {device}: live mode knows the host's memory and that of CUDA's devices")
    return torch.cuda.current_device() if device.index is None else device.index


def room_on(device: torch.device, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory of torch's for so many elements, zero as Swell's own is."""
    return torch.zeros(count, dtype=dtype, device=device)


class NoRoom(Exception):
    """A GPU has too little memory for the state beside what is there. room: the bytes that are needed and free."""

    def __init__(self, why: str, room: tuple[int, int]) -> None:
        super().__init__(why)
        self.room = room


def no_room(device: torch.device, needed: int) -> NoRoom:
    """Says in one sentence what does not fit."""
    free = free_on(device)
    return NoRoom(f"no room on GPU {gpu_of(device)}: {needed} bytes are needed, {free} are free", (needed, free))


def free_on(device: torch.device) -> int:
    """Bytes of a GPU that nobody has taken."""
    return int(torch.cuda.mem_get_info(device)[0])


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
    """One tensor of the state, and where it stands. gpu: on which; None: in Swell's arena."""

    def __init__(self, name: str, share: Share, dtype: torch.dtype, kind: Kind, gpu: int | None) -> None:
        self.name, self.share, self.dtype, self.kind, self.gpu = name, share, dtype, kind, gpu
        self.memory = torch.empty(0)    # of one dimension; of the arena with the padding, and after adopt()

    def on_gpu(self) -> torch.Tensor:
        """This worker's part in memory of torch's on its GPU, of one dimension."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """Of this worker's part."""
        return math.prod(self.share.local) * self.dtype.itemsize

    def register(self, session: Session, is_one_layer: bool) -> None:
        """is_one_layer: the model has no numbered ones."""
        layer, flat, address = LAYER.search(self.name), self.share.flat, None
        if self.gpu is not None:
            self.memory = self.on_gpu()
            address = self.memory.data_ptr()
            flat = flat and (flat[0], flat[0] + self.memory.numel())       # torch has no memory for the padding
        session.register(self.name, self.dtype, self.share.shape, kind=self.kind, flat=flat, address=address, device=self.gpu,
                         layer=int(layer[1]) if layer else 0 if is_one_layer else None)

    def map(self, session: Session) -> None:
        if self.gpu is None:
            self.memory = session.tensor(self.name, self.dtype)

    def view(self) -> torch.Tensor:
        return self.share.view(self.memory)


class Fixed(Slot):
    """A parameter or a buffer: there from the start."""

    def __init__(self, name: str, share: Share, tensor: torch.Tensor, kind: Kind, fsdp: Any = None) -> None:
        super().__init__(name, share, tensor.dtype, kind, gpu_of(tensor.device))
        self.tensor, self.fsdp = tensor, fsdp

    def on_gpu(self) -> torch.Tensor:
        local = plain(self.tensor.detach())
        return local.as_strided((local.numel(),), (1,))

    def bind(self, fresh: bool) -> None:
        """Move the tensor to its memory; fresh: with its values. On a GPU it is there."""
        if self.gpu is not None:
            return
        view = self.view()
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
        super().__init__(name, share, dtype, Kind.OPTIMIZER_STEP if key == "step" else Kind.MOMENT, gpu_of(device))
        self.parameter, self.key, self.is_like, self.device = parameter, key, is_like, device
        self.value: torch.Tensor | None = None      # what the optimizer has, over the memory of view()

    def on_gpu(self) -> torch.Tensor:
        return room_on(self.device, math.prod(self.share.local), self.dtype)

    def bind(self, state: dict[str, Any]) -> None:
        view = self.view()
        self.value = like(self.parameter, view) if self.is_like else view
        state[self.key] = self.value

    def follow(self, state: dict[str, Any]) -> None:
        """What the optimizer has made or loaded itself moves to its memory."""
        found = state.get(self.key)
        if found is self.value or not isinstance(found, torch.Tensor):
            return
        self.view().copy_(plain(found))
        self.bind(state)
