# SPDX-License-Identifier: BSD-3-Clause
"""The engine's state in libswell's arena, where the next plan's programs take it over; and its regions for the profiler."""

from __future__ import annotations

import errno
import pickle
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist

from swell import _staying
from swell._agreement import adopt
from swell._generators import generators
from swell._native import Action, Generation, Kind, NativeError, Region, Session
from swell._slots import NoRoom, give_room, gpu_of, no_room, wait_for_room
from swell.engine.arena import Ordinary, Request
from swell.engine.regions import Regions

__all__ = ["NativeArena", "NativeRegions"]

_KINDS = {"parameter": Kind.PARAMETER, "gradient": Kind.GRADIENT, "moment": Kind.MOMENT, "step": Kind.OPTIMIZER_STEP}
_REST, _REST_BYTES, _LENGTH = "engine#rest", 1 << 16, 8
_DRAWN, _SUM = "engine#drawn", 4     # of some worker, with a checksum before it
_DRAWN_BYTES = 1 << 16      # of a worker's random number generators
_REGIONS = {"forward": Region.FORWARD, "backward": Region.BACKWARD, "optimizer": Region.OPTIMIZER, "tp": Region.TP_ALLREDUCE,
            "dp": Region.DP_SYNC, "send": Region.SEND, "receive": Region.RECEIVE, "head": Region.HEAD,
            "head backward": Region.HEAD, "inputs": Region.BACKWARD, "weights": Region.WEIGHTS, "head inputs": Region.HEAD}


class NativeArena:
    """Memory of this worker's shim, on the host and on a GPU; where the GPU's cannot be handed over torch's, which is copied at a switch.
    take() blocks until this generation begins: all that takes long comes before. rank: in that generation."""

    def __init__(self, session: Session, rank: int = 0) -> None:
        self._session, self._of_worker = session, f"engine#worker.{rank}"
        self.generation = Generation(0, 0, True)
        self._rest = torch.empty(0, dtype=torch.uint8)
        self._drawn, self._of_some = torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8)
        self._is_registered = False
        self._gpu: torch.device | None = None       # where there is state on one
        self._peak = 0      # of torch's memory there
        self._on_gpu: dict[str, torch.Tensor] = {}      # in torch's memory

    def register(self, requests: Sequence[Request], device: torch.device) -> None:
        """Say what take() will want, before it. Where it is torch's memory of a GPU, that is taken by this."""
        gpu = gpu_of(device)
        there = [one for one in requests if gpu is not None and not one.on_host]
        self._gpu = device if there else None
        for one in requests:
            block: dict[str, Any] = {"kind": _KINDS[one.kind], "layer": one.layer, "block": (one.begin, one.end), "flat": one.flat}
            if gpu is None or one.on_host:
                self._session.register(one.name, one.dtype, one.shape, **block)
                continue
            if not self._on_gpu:
                if self._session.takes_gpu_memory(one.name, one.dtype, one.shape, device=gpu, **block):
                    continue
                try:
                    self._on_gpu = Ordinary().take(there, device)[0]
                except torch.OutOfMemoryError as error:
                    raise no_room(device, sum(torch.Size(one.local).numel() * one.dtype.itemsize for one in there)) from error
            self._session.register(one.name, one.dtype, one.shape, address=self._on_gpu[one.name].data_ptr(), device=gpu, **block)
        self._session.register(_REST, torch.uint8, (_REST_BYTES,), kind=Kind.SCHEDULER)
        for name in (self._of_worker, _DRAWN):
            self._session.register(name, torch.uint8, (_DRAWN_BYTES,), kind=Kind.RNG, optional=True)
        self._is_registered = True

    def take(self, requests: Sequence[Request], device: torch.device) -> tuple[dict[str, torch.Tensor], bool]:
        """See swell.engine.arena.Arena."""
        trains = self._is_registered     # in this process
        if not trains:
            try:
                self.register(requests, device)
            except NoRoom as error:
                _staying.give_way(self._session, dist.get_rank() if dist.is_initialized() else 0, error)
                raise
        self.generation = adopt(self._session)
        self._rest = self._session.tensor(_REST, torch.uint8, (_REST_BYTES,))
        self._drawn, self._of_some = (self._session.tensor(name, torch.uint8, (_DRAWN_BYTES,)) for name in (self._of_worker, _DRAWN))
        if self._gpu is not None and not self.generation.fresh and not trains:
            wait_for_room(self._gpu, (self.generators() or {}).get("peak", 0))      # gradients, and a first step
        of_swell = {one.name: self._session.tensor(one.name, one.dtype, one.local, device=None if one.on_host else self._gpu)
                    for one in requests if one.name not in self._on_gpu}
        return {**self._on_gpu, **of_swell}, self.generation.fresh

    def rest(self) -> dict[str, Any]:
        """Returns the value that the generation before gave to its last boundary()."""
        found: dict[str, Any] = pickle.loads(_read(self._rest))
        return found

    def generators(self) -> dict[str, Any] | None:
        """Where the random number generators of this rank's worker stood at the last boundary(), and the peak of its memory; of a new rank, those of another.

        None: a switch with little memory has brought them in pieces from several workers, whose numbers are not the same.
        """
        text = _read(self._drawn)
        if not text:
            text = _read(self._of_some)
            of_text, text = text[:_SUM], text[_SUM:]
            if zlib.crc32(text).to_bytes(_SUM, "little") != of_text:
                return None
        found: dict[str, Any] = pickle.loads(text)
        return found

    def boundary(self, step: int, rest: dict[str, Any]) -> Action:
        """A step is done and the state is whole. Blocks during a switch."""
        if self._gpu is not None and self._session.make_room():
            self._peak = give_room(self._gpu)       # the next program's memory comes beside this one's
        try:
            drawn = pickle.dumps({**generators(), "peak": self._peak})      # what differs between workers
            text = pickle.dumps({**rest, "handed": True})       # a switch may bring it in pieces from several
        except Exception as error:      # each kind of object fails in its own way
            raise NativeError(errno.EINVAL, f"the scheduler's state cannot be pickled: {error}") from error
        if len(text) > _REST_BYTES - _LENGTH:
            raise NativeError(errno.EMSGSIZE, f"the scheduler's state takes {len(text)} bytes; at most {_REST_BYTES - _LENGTH} can be handed over")
        if len(drawn) > _DRAWN_BYTES - _LENGTH - _SUM:
            raise NativeError(errno.EMSGSIZE, f"the states of random number generators take {len(drawn)} bytes; at most {_DRAWN_BYTES - _LENGTH - _SUM} can be handed over")
        _write(self._rest, text)
        _write(self._drawn, drawn)
        _write(self._of_some, zlib.crc32(drawn).to_bytes(_SUM, "little") + drawn)
        return self._session.step(step)


def _write(where: torch.Tensor, text: bytes) -> None:
    whole = len(text).to_bytes(_LENGTH, "little") + text
    where[:len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)


def _read(where: torch.Tensor) -> bytes:
    """Returns what _write() was given; nothing where it was not called."""
    count = int.from_bytes(bytes(where[:_LENGTH].tolist()), "little")
    return bytes(where[_LENGTH:_LENGTH + count].tolist())


class NativeRegions(Regions):
    """Opens the profiler's regions. layers: of this worker's chunks, by their number in the model."""

    def __init__(self, session: Session, device: torch.device, layers: Sequence[range]) -> None:
        self._session, self._device = session, device
        self._layers = [(its.start, len(its)) if its else None for its in layers]

    def region(self, kind: str, micro_batch: int | None = None, size: int = 0, chunk: int = 0) -> AbstractContextManager[Any]:
        """See Regions."""
        return self._open(_REGIONS[kind], micro_batch, chunk)

    def _stream(self) -> int | None:
        """Returns the stream that work goes to; None: the host computes."""
        if self._device.type != "cuda":
            return None
        return torch.cuda.current_stream(self._device).cuda_stream or 1     # 1: CUDA's legacy stream

    @contextmanager
    def _open(self, kind: Region, micro_batch: int | None, chunk: int) -> Iterator[None]:
        # Allocated memory is read where the profile needs it, in one micro-batch's passes: each reading takes the allocator's lock.
        passes = kind in (Region.FORWARD, Region.BACKWARD, Region.WEIGHTS)
        reads = self._device.type == "cuda" and passes and micro_batch == 0
        # The layers of a pass let the solver find the host's time to launch one layer.
        layers = self._layers[chunk] if passes else None
        number = self._session.profiler.begin_region(kind, micro_batch=micro_batch, layers=layers, stream=self._stream(),
                                                     allocated_bytes=torch.cuda.memory_allocated(self._device) if reads else None)
        try:
            yield
        finally:
            self._session.profiler.end_region(number, torch.cuda.memory_allocated(self._device) if reads else 0)
