# SPDX-License-Identifier: BSD-3-Clause
"""One tensor of the training state: which part of it this worker holds, and where that stands.

It stands in memory that Swell gives, which the next program maps: on the host in the arena of this worker's shim, on a GPU in slabs
that the shim holds. Where a GPU's memory cannot be handed over, it stands where torch has it, and is copied at a switch.
"""

from __future__ import annotations

import math
import re
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from swell import _dlpack
from swell._native import Kind, Session

__all__ = ["LAYER", "Fixed", "Kept", "NoRoom", "Share", "Slot", "Unsupported", "free_on", "give_room", "gpu_of", "like", "no_room", "plain", "reset_peak",
           "room_on", "settle", "share_of", "span_of", "wait_for_room"]

_LEAVING_S, _STILL_S = 10, 3    # for a program to end once another has taken over, and for it to give something back
LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")      # in a parameter's name


class Unsupported(Exception):
    """This state cannot be handed over while it trains, for the reason given: the job is resized by restarts."""


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
    """Returns the share of a tensor that is on this worker; None if it has nothing of it."""
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


def peak_on(device: torch.device) -> int:
    """The most bytes of a GPU that torch has had allocated at one time; slabs are not among them."""
    return torch.cuda.max_memory_allocated(device)


def reset_peak(device: torch.device) -> None:
    """From now on peak_on() is that of what is there, and comes."""
    torch.cuda.reset_peak_memory_stats(device)


def used_on(device: torch.device) -> int:
    """Bytes of a GPU that torch has allocated."""
    return torch.cuda.memory_allocated(device)


def give_room(device: torch.device) -> int:
    """Give back what torch caches of a GPU. Returns peak_on(), for the next program's wait_for_room()."""
    torch.cuda.empty_cache()
    return peak_on(device)


def settle(device: torch.device) -> None:
    """Wait until a GPU has done what this process has launched on it."""
    torch.cuda.synchronize(device)


def wait_for_room(device: torch.device, peak: int) -> None:
    """Wait until the program before, which had `peak` bytes, has left as much of the GPU as it took; 10 s at most, 3 s where nothing comes free."""
    began = rose = time.monotonic()
    most = free_on(device)
    while (free := free_on(device)) < (needed := peak - used_on(device)):
        now = time.monotonic()
        if free > most:
            most, rose = free, now
        if now - began >= _LEAVING_S or now - rose >= _STILL_S:
            print(f"swell: GPU {gpu_of(device)} has {free} bytes free {now - began:.0f} s after the programs before have ended their training, of {needed} "
                  "that a step took there: training begins all the same", file=sys.stderr, flush=True)
            return
        time.sleep(0.01)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the part of a tensor that is on this worker."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def span_of(tensor: torch.Tensor) -> tuple[str, int, int]:
    """A tensor's device, and the addresses where it begins and ends there."""
    local = plain(tensor)
    begin = local.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(local.shape, local.stride()))
    return str(local.device), begin, begin + (last + 1) * local.dtype.itemsize


def like(parameter: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """A local part as an optimizer keeps it for a parameter."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(local, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
                              stride=parameter.stride())


class Slot:
    """One tensor of the state, and where it stands. gpu: on which; None: on the host. is_own: there in torch's memory; else in Swell's."""

    def __init__(self, name: str, share: Share, dtype: torch.dtype, kind: Kind, device: torch.device) -> None:
        self.name, self.share, self.dtype, self.kind, self.device, self.gpu = name, share, dtype, kind, device, gpu_of(device)
        self.is_own = False
        self.memory = torch.empty(0)    # of one dimension; Swell's with the padding, and after adopt()

    def on_gpu(self) -> torch.Tensor:
        """This worker's part in memory of torch's on its GPU, of one dimension."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """The bytes of this worker's part."""
        return math.prod(self.share.local) * self.dtype.itemsize

    def register(self, session: Session, is_one_layer: bool) -> None:
        """is_one_layer: the model has no numbered ones."""
        found, flat, address = LAYER.search(self.name), self.share.flat, None
        layer = int(found[1]) if found else 0 if is_one_layer else None
        if self.gpu is not None:
            if session.takes_gpu_memory(self.name, self.dtype, self.share.shape, kind=self.kind, flat=flat, device=self.gpu, layer=layer):
                return
            self.is_own, self.memory = True, self.on_gpu()
            address = self.memory.data_ptr()
            flat = flat and (flat[0], flat[0] + self.memory.numel())       # torch has no memory for the padding
        session.register(self.name, self.dtype, self.share.shape, kind=self.kind, flat=flat, address=address, device=self.gpu, layer=layer)

    def map(self, session: Session) -> None:
        if not self.is_own:
            self.memory = session.tensor(self.name, self.dtype, device=self.device if self.gpu is not None else None)

    def view(self) -> torch.Tensor:
        return self.share.view(self.memory)

    def forget(self) -> None:
        """Use the memory no longer: another Slot has the tensor."""
        self.memory = torch.empty(0)


class Fixed(Slot):
    """A parameter or a buffer: there from the start. buffers: of its module, where it has the name key."""

    def __init__(self, name: str, share: Share, tensor: torch.Tensor, kind: Kind, fsdp: Any = None, *,
                 buffers: dict[str, torch.Tensor | None] | None = None, key: str = "") -> None:
        super().__init__(name, share, tensor.dtype, kind, tensor.device)
        self.tensor, self.fsdp, self._buffers, self._key = tensor, fsdp, buffers, key
        self._at = 0        # address of its memory, once bound
        self._put_off: torch.Tensor | None = None

    def on_gpu(self) -> torch.Tensor:
        local = plain(self.tensor.detach())
        return local.as_strided((local.numel(),), (1,))

    def put_off(self) -> bool:
        """Keep the values on the host too, so that a GPU need not have room for them twice. Returns whether let_go() is to follow."""
        if self.gpu is not None and not self.is_own:
            self._put_off = plain(self.tensor.detach()).to("cpu", copy=True)
        return self._put_off is not None

    def let_go(self) -> None:
        """Use torch's memory no longer: the tensor keeps its shape, over one element. REQUIRES: all that share memory have put_off()."""
        local = plain(self.tensor.detach())
        one = local.new_empty(())
        self._move(one.expand(local.numel()), one.expand(local.shape))

    def bind(self, fresh: bool) -> None:
        """Move the tensor to its memory; fresh: with its values. Where that is torch's it is there."""
        view = self.view()
        self._at = view.data_ptr()
        if self.is_own:
            return
        if fresh:
            view.copy_(plain(self.tensor.detach()) if self._put_off is None else self._put_off)
        self._put_off = None
        self._move(self.memory, view)

    def present(self) -> torch.Tensor | None:
        """The tensor that the model has as this by now."""
        return self.tensor if self._buffers is None else self._buffers.get(self._key)

    def has_left(self) -> bool:
        """Whether the script has had the model's tensor stand elsewhere since bind(), by an assignment to its data, say, or to a buffer's name."""
        found = self.present()
        return found is None or found.layout is not torch.strided or plain(found).data_ptr() != self._at

    def come_back(self) -> None:
        """Put the tensor into its memory again, with the values that it has. Raises Unsupported where that cannot be."""
        view, found = self.view(), self.present()
        local = None if found is None else plain(found.detach())
        if local is None or _form(local) != _form(view) or (self.is_own and self.fsdp is not None):
            raise Unsupported(f"{self.name} has become another tensor than it was: {'none' if local is None else _in_words(local)} instead of {_in_words(view)}")
        ours = 2 + (plain(self.tensor).data_ptr() == self._at)
        if _dlpack.is_used(self.memory.untyped_storage(), by_more_than=ours):
            raise Unsupported(f"{self.name} stands elsewhere by now, while a tensor of the script's is over the memory where it was")
        view.copy_(local)
        if self._buffers is not None:
            self._buffers[self._key] = self.tensor
        self._move(self.memory, view)

    def _move(self, memory: torch.Tensor, local: torch.Tensor) -> None:
        if self.fsdp is not None:
            self.fsdp._sharded_param_data = memory
        if isinstance(self.tensor, DTensor):
            self.tensor._local_tensor = local
        else:
            self.tensor.data = local


class Kept(Slot):
    """A value that the optimizer keeps of a parameter; it exists once the optimizer has stepped."""

    def __init__(self, name: str, share: Share, dtype: torch.dtype, parameter: torch.Tensor, key: str, is_like: bool,
                 device: torch.device) -> None:
        super().__init__(name, share, dtype, Kind.OPTIMIZER_STEP if key == "step" else Kind.MOMENT, device)
        self.parameter, self.key, self.is_like = parameter, key, is_like
        self.value: torch.Tensor | None = None      # what the optimizer has, over the memory of view()

    def on_gpu(self) -> torch.Tensor:
        return room_on(self.device, math.prod(self.share.local), self.dtype)

    def bind(self, state: dict[str, Any]) -> None:
        view = self.view()
        self.value = like(self.parameter, view) if self.is_like else view
        state[self.key] = self.value

    def follow(self, state: dict[str, Any]) -> None:
        """Moves a value that the optimizer has made or loaded itself to the slot's memory."""
        found = state.get(self.key)
        if found is self.value or not isinstance(found, torch.Tensor):
            return
        if plain(found).device != self.device:
            raise Unsupported(f"{self.name} is on {plain(found).device}; it was expected on {self.device}")
        self.view().copy_(plain(found))
        self.bind(state)

    def forget(self) -> None:
        super().forget()
        self.value = None


def _form(local: torch.Tensor) -> tuple[Any, ...]:
    """The same for two tensors where one can stand in the memory of the other."""
    if local.layout is not torch.strided:
        return (local.layout,)
    return local.dtype, local.device, local.shape, [stride for size, stride in zip(local.shape, local.stride()) if size > 1]


def _in_words(local: torch.Tensor) -> str:
    strides = f", strides {tuple(local.stride())}" if local.layout is torch.strided else f", {local.layout}"
    return f"{str(local.dtype).removeprefix('torch.')} {tuple(local.shape)} on {local.device}{strides}"
