# SPDX-License-Identifier: BSD-3-Clause
"""How workers agree to leave together, and leave."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.checkpoint

from swell import _native, _request
from swell._lock import FolderLock

__all__ = ["Agreement", "adopt", "cpu_group", "end_groups", "finish_saves", "gather", "leave", "leave_with_checkpoint"]

_OF_SAVES = os.path.join(os.path.dirname(torch.distributed.checkpoint.__file__), "")
_SAID_AFTER_S = 2.0     # seconds of waiting
_ENDS_S = 60.0      # after which process groups that have not ended never do
_SAYS = 1 << 15     # a word for a skip, beside a count of workers


class Agreement:
    """How all workers learn at the same poll that one of them was asked to leave.

    Each poll takes the sum that the poll before has begun, over a group on the CPU: nobody waits for
    a GPU, or for the network unless it takes longer than a step. Every worker polls equally often.

    has_parts: whether this worker has something that all are to exchange. exchanges: whether one has, as all know alike two polls later; until the first is over,
    it is so. of: whose skip() it is, "elastic" or "engine".
    """

    def __init__(self, group: dist.ProcessGroup | None, has_parts: Callable[[], bool] = lambda: False, *, of: str = "elastic") -> None:
        self._group, self._has_parts, self.exchanges, self._of = group, has_parts, True, of
        self._asked = torch.zeros(2, dtype=torch.int32, device="cpu")       # whatever torch.set_default_device() says
        self._work: dist.Work | None = None
        self._skips = torch.zeros(2, dtype=torch.int32, device="cpu")       # shaped as a poll, with which it would be summed where workers disagree
        self._vote: dist.Work | None = None

    def poll(self) -> bool:
        """Whether all are to leave now."""
        _request.begun()
        if self._group is None:
            return _request.asked_to_leave()
        if self._work is not None:
            self._work.wait()
            asked, parts = self._asked.tolist()
            self.exchanges = parts > 0
            if asked:
                self._work = None
                return True
        self._asked[0], self._asked[1] = _request.asked_to_leave(), self._has_parts()
        self._work = dist.all_reduce(self._asked, group=self._group, async_op=True)
        return False

    def skips(self, says: bool) -> bool:
        """Whether one worker says that a batch is skipped. All workers call it for that batch; where some call steps(), it raises RuntimeError."""
        if self._group is None:
            return says
        self._begin_vote(1 + says * _SAYS)
        return self._voted() >= _SAYS

    def steps(self) -> None:
        """This worker trains on the last batch of a step. It waits for nobody; check() raises RuntimeError where another one skips that batch."""
        if self._group is not None:
            self._begin_vote(0)

    def check(self) -> None:
        """Raises RuntimeError where another worker has skipped what this one has trained on."""
        if self._vote is not None:
            self._voted()

    def _begin_vote(self, word: int) -> None:
        self.check()
        self._skips[0], self._skips[1] = 0, word
        self._vote = dist.all_reduce(self._skips, group=self._group, async_op=True)

    def _voted(self) -> int:
        """Returns the sum of all workers' words, of which either all are from skips() or all from steps()."""
        assert self._vote is not None
        vote, self._vote = self._vote, None
        vote.wait()
        words: int = self._skips.tolist()[1]
        count, world = words % _SAYS, dist.get_world_size(self._group)
        if count not in (0, world):
            raise RuntimeError(f"{self._of}.skip() was called for a batch by {count} of {world} workers; call it on every worker for each batch, before {self._of}.step(), as in "
                               f"`if {self._of}.skip(not torch.isfinite(loss)): continue`: where one worker says so, all skip the batch")
        return words

    def end(self) -> None:
        """Wait for what is under way; whatever was asked comes too late."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        self.check()


def cpu_group() -> dist.ProcessGroup | None:
    """A group of all workers for the CPU alone; None for one worker without a process group."""
    if not dist.is_initialized():
        return None
    group: dist.ProcessGroup = dist.new_group(backend="gloo")
    return group


def gather(mine: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """Returns what each worker has given, by rank. Every worker calls it; group: of cpu_group()."""
    if group is None:
        return [mine]
    each: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(each, mine, group=group)
    return each


def finish_saves() -> None:
    """Wait for saves of the script's that torch.distributed.checkpoint makes beside the training: their workers need the process groups."""
    began, is_said = time.monotonic(), False
    while _is_saving():
        if not is_said and time.monotonic() - began > _SAID_AFTER_S:
            is_said = True
            print(f"swell: rank {dist.get_rank() if dist.is_initialized() else 0}: waits for a save of the script's that is under way", file=sys.stderr, flush=True)
        time.sleep(0.01)


def _is_saving() -> bool:
    """Whether a thread beside this one is within torch.distributed.checkpoint."""
    frames = sys._current_frames()
    del frames[threading.get_ident()]       # a frame that refers to itself would keep what its callers have
    for frame in frames.values():
        while frame is not None:
            if frame.f_code.co_filename.startswith(_OF_SAVES):
                return True
            frame = frame.f_back    # type: ignore[assignment]
    return False


def end_groups(code: int) -> None:
    """End the process groups, as all workers do at the same time. code: of this process where that takes too long.

    NCCL's ranks of one node wait for each other in that. One that was killed comes no more, and the others would keep their GPUs for ever.
    """
    rank = dist.get_rank()

    def give_up() -> None:
        print(f"swell: rank {rank}: the process groups have not ended within {_ENDS_S:.0f} s, as where a worker was killed: this one ends without that", file=sys.stderr, flush=True)
        os._exit(code)
    timer = threading.Timer(_ENDS_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        dist.destroy_process_group()
    finally:
        timer.cancel()


def leave() -> NoReturn:
    """Leave at a step boundary, as all workers do, or train on in other groups.

    The process groups end first, on all of them: NCCL's ranks of one node wait for each other as they end theirs.
    """
    finish_saves()
    if dist.is_initialized():
        end_groups(_request.leave_code())
    _request.leave()


def adopt(session: _native.Session) -> _native.Generation:
    """Take over what was registered once this generation begins. Leaves where the switch is called off: those who train go on."""
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
        finish_saves()      # which may be over the same group
        dist.barrier()      # the checkpoint is whole before the first one leaves
    if lock is not None:
        lock.release()
    leave()
