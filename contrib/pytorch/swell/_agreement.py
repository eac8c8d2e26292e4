# SPDX-License-Identifier: BSD-3-Clause
"""How workers agree to leave together, and leave."""

from __future__ import annotations

import errno
import sys
from typing import NoReturn

import torch
import torch.distributed as dist

from swell import _native, _request
from swell._lock import FolderLock

__all__ = ["Agreement", "adopt", "cpu_group", "leave", "leave_with_checkpoint"]


class Agreement:
    """How all workers learn at the same poll that one of them was asked to leave.

    Each poll takes the sum that the poll before has begun, over a group on the CPU: nobody waits for
    a GPU, or for the network unless it takes longer than a step. Every worker polls equally often.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._asked = torch.zeros(1, dtype=torch.int32)
        self._work: dist.Work | None = None

    def poll(self) -> bool:
        """Whether all are to leave now."""
        _request.begun()
        if self._group is None:
            return _request.asked_to_leave()
        if self._work is not None:
            self._work.wait()
            if self._asked.item():
                self._work = None
                return True
        self._asked.fill_(_request.asked_to_leave())
        self._work = dist.all_reduce(self._asked, group=self._group, async_op=True)
        return False

    def end(self) -> None:
        """Wait for what is under way; whatever was asked comes too late."""
        if self._work is not None:
            self._work.wait()
            self._work = None


def cpu_group() -> dist.ProcessGroup | None:
    """A group of all workers for the CPU alone; None for one worker without a process group."""
    if not dist.is_initialized():
        return None
    group: dist.ProcessGroup = dist.new_group(backend="gloo")
    return group


def leave() -> NoReturn:
    """Leave at a step boundary, as all workers do, or train on in other groups.

    The process groups end first, on all of them: NCCL's ranks of one node wait for each other as they end theirs.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    _request.leave()


def adopt(session: _native.Session) -> _native.Epoch:
    """Take over what was registered once this epoch begins. Leaves where the switch is called off: those who train go on."""
    try:
        return session.adopt()
    except _native.NativeError as error:
        if error.errno == errno.ECANCELED:
            leave()
        raise


def leave_with_checkpoint(step: int, lock: FolderLock | None) -> NoReturn:
    """Leave once all workers have come here, with the checkpoint of a step, whose folder is this run's by the lock."""
    if (dist.get_rank() if dist.is_initialized() else 0) == 0:
        print(f"swell: asked to leave: checkpoint at step {step}", file=sys.stderr, flush=True)
    if dist.is_initialized():
        dist.barrier()      # the checkpoint is whole before the first one leaves
    if lock is not None:
        lock.release()
    leave()
