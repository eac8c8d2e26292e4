# SPDX-License-Identifier: BSD-3-Clause
"""Exchanges requests and answers with swellrun, and reads the place in the job that it gives. Needs no torch."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from swell import _launcher

__all__ = ["Place", "asked_to_leave", "begun", "can_run_with", "is_heard", "leave", "listen", "made_step", "place", "run_folder", "under_swellrun", "wait_to_be_asked"]

_asked = False
_starting = False       # nothing has been trained by this process yet
_waker: tuple[int, int] | None = None       # what signals wake while it starts, and what they woke before
_listening: signal.Signals | None = None


@dataclass(frozen=True)
class Place:
    """Where this worker stands in its run.

    rank, world: as torchrun's RANK and WORLD_SIZE.
    basic_workers: workers on the GPUs that the job asked for; world where nobody says.
    generation: how many times swellrun has started the workers before this.
    """

    rank: int
    world: int
    basic_workers: int
    generation: int


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name}={text}: it must be a whole number, as torchrun and swellrun set it") from None


def place() -> Place:
    """The place that the environment names; one worker alone where it names none."""
    world = _number("WORLD_SIZE", 1)
    return Place(rank=_number("RANK", 0), world=world, basic_workers=_number("SWELL_BASIC_WORKERS", world),
                 generation=_number(_generation_variable(), 0))


def run_folder(path: str | os.PathLike[str]) -> str:
    """Absolute path of the folder of a run's checkpoints, wherever the script goes later.

    Under swell.check it is below the check's own folder: the check continues no job's run, and no job the check's.
    """
    there = os.path.abspath(path)
    checks = os.environ.get("SWELL_CHECK_FOLDER")
    return os.path.join(checks, "run", there.lstrip(os.sep)) if checks else there


def under_swellrun() -> bool:
    """Whether swellrun started this process, so that it may be asked to leave."""
    return _generation_variable() in os.environ


def _generation_variable() -> str:
    """A swellrun of the version before sets SWELL_EPOCH alone."""
    return "SWELL_GENERATION" if "SWELL_GENERATION" in os.environ else "SWELL_EPOCH"


def restart_signal() -> signal.Signals:
    """The signal of SWELL_RESTART_SIGNAL, a name or a number; USR1 where it is not set."""
    text = os.environ.get("SWELL_RESTART_SIGNAL") or "USR1"
    try:
        if text.isdigit():
            return signal.Signals(int(text))
        return signal.Signals["SIG" + text.upper().removeprefix("SIG")]
    except (KeyError, ValueError):
        raise ValueError(f"SWELL_RESTART_SIGNAL={text}: it must be a signal's name or number, such as USR1") from None


def _note(_number: int, _frame: FrameType | None) -> None:
    global _asked
    _asked = True
    if _starting:
        _leave_the_start()


def _leave_the_start() -> NoReturn:
    """Leaves before training began: all progress is in a checkpoint, and swellrun asks every worker, so none waits for the others."""
    os.write(2, f"swell: rank {place().rank}: asked to leave before training began\n".encode())
    os._exit(leave_code())


def _watch_start(pipe: int, number: int) -> None:
    """Hear the signal although the main thread is within a call that hears none, as one that waits for other workers."""
    while heard := os.read(pipe, 64):
        if number in heard and _starting:
            _leave_the_start()
    os.close(pipe)


def listen(*, leaves_at_once: bool = False) -> bool:
    """Handle the restart signal from now on, in place of who handled it before. Main thread only.

    Until this is called swellrun keeps the signal back, and the job is lent nothing. leaves_at_once: when it is asked
    before begun(). Returns whether there is somebody who would send it.
    """
    global _listening, _starting, _waker
    if not under_swellrun():
        return False
    _launcher.refuse_other_launchers()
    number = restart_signal()
    if _listening is None and leaves_at_once:
        pipe, waker = os.pipe()
        os.set_blocking(waker, False)
        _waker, _starting = (waker, signal.set_wakeup_fd(waker, warn_on_full_buffer=False)), True
        threading.Thread(target=_watch_start, args=(pipe, number), name="swell start", daemon=True).start()
    if _listening != number or signal.getsignal(number) is not _note:
        signal.signal(number, _note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        _listening = number
    return True


def wait_to_be_asked(seconds: float) -> None:
    """Where training has not begun, leave if that is asked within so many seconds: other workers may have been asked before this one."""
    end = time.monotonic() + seconds
    while _starting and time.monotonic() < end:
        if _asked:
            _leave_the_start()
        time.sleep(0.01)


def begun() -> None:
    """Training begins: from now on there is something to lose, and all workers leave together. Main thread only."""
    global _starting, _waker
    _starting = False
    if _waker is not None:
        waker, before = _waker
        _waker = None
        signal.set_wakeup_fd(before)
        os.close(waker)


def leave_code() -> int:
    """The exit code of a worker that leaves for a resize: of swellrun --leave-code, else 0."""
    return _number("SWELL_LEAVE_CODE", 0)


def leave() -> NoReturn:
    """Leave with leave_code(): `finally:` and atexit have their turn, but the interpreter is not taken down.

    That takes more than a second of computing with torch loaded, and half a minute of a busy host's time to leave.
    """
    def end() -> None:      # registered last: it is the first, and has the others run
        atexit.unregister(end)
        if hasattr(sys, "last_type"):       # a `finally:` has failed: that is the exit code's matter
            return
        try:
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        finally:
            os._exit(leave_code())
    atexit.register(end)
    sys.exit(leave_code())


def ask() -> None:
    """As if the restart signal had come."""
    global _asked
    _asked = True


def asked_to_leave() -> bool:
    """Whether this worker has been asked; others may not have been yet: agree before you leave."""
    return _asked


_MAX_SIZES = 4096       # that swellrun reads
_STEP_PAUSE = 1.0       # seconds between two numbers of steps that are told
_step_told = 0.0


def is_heard() -> bool:
    """Whether there is a swellrun that this worker may tell something: to rank 0's it is told."""
    return os.environ.get("SWELL_SHIM", "").startswith("@") and place().rank == 0


_MAX_WHY = 500          # bytes that swellrun reads


def can_run_with(workers: Iterable[int], why: str = "") -> None:
    """Tell swellrun the numbers of workers, rising, that this program can run with; it asks for no others. None: for any.

    Say it before listen(), so that nothing is lent before it is known. More than 4096 numbers are not told.
    why: one sentence for `swell why` that says why the program runs with these numbers alone; the job is then lent nothing.
    """
    sizes = list(workers)
    if not is_heard() or len(sizes) > _MAX_SIZES:
        return
    try:
        for text in [f"why {why}"] * bool(why) + [" ".join(["sizes", *map(str, sizes)])]:
            _tell(text)
    except OSError as error:    # as in a container with a network of its own
        print(f"swell: swellrun cannot be told the numbers of workers ({error}): submit with --elastic=sizes=...", file=sys.stderr, flush=True)


def _tell(text: str) -> None:
    key = os.environ.get("SWELL_SHIM_KEY", "")
    said = (f"{key} {text}" if key else text).encode(errors="replace")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as shim:
        shim.sendto(said[:_MAX_WHY] if text.startswith("why") else said, socket.MSG_DONTWAIT, "\0" + os.environ.get("SWELL_SHIM", "")[1:])


def made_step(steps: int, total: int | None = None) -> None:
    """Tell swellrun how many steps are made, 1 or more, so that it sees a training that hangs. Call it after each: once a second is told.

    total: those at the training's end, so that what is left decides which resizes pay; None: not known.
    """
    global _step_told
    now = time.monotonic()
    if now < _step_told + _STEP_PAUSE or not is_heard():
        return
    _step_told = now
    with contextlib.suppress(OSError):
        _tell(f"step {steps} of {total}" if total and total > 0 else f"step {steps}")


def not_live(error: OSError) -> None:
    """The state cannot be handed over: train on with these workers, and be lent nothing."""
    why = error.strerror or str(error)
    print(f"swell: {why}: this worker trains on, and cannot be resized live", file=sys.stderr, flush=True)
    can_run_with([place().world], why)


def decline(why: str, workers: int) -> None:
    """Do not leave although it was asked: train on with these workers, and be lent nothing. All workers decline together.

    swellrun calls a growth off then. Where GPUs must go back, it ends the workers when their time is over, and the checkpoint before is what there is.
    """
    global _asked
    _asked = False
    if place().rank == 0:
        print(f"swell: asked to leave, but training goes on: {why}", file=sys.stderr, flush=True)
    can_run_with([workers], why)    # nothing more
