# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint folder belongs to the run that writes to it. Needs no torch."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
import time
import uuid
from typing import Any

__all__ = ["FolderLock", "InUse", "run_name"]

_NAME = "run.lock"
_BEAT_S = 5.0       # the holder touches the file so often
_SILENT_S = 20.0    # one that is not touched for so long is of a run that was killed


class InUse(RuntimeError):
    """Another run that is alive writes to the folder."""


def run_name() -> str:
    """Returns the job's name, which outlives its resizes and requeues: ARRAYJOB_TASK or its number; empty outside Slurm."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID", ""), os.environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else os.environ.get("SWELL_JOB_ID") or os.environ.get("SLURM_JOB_ID") or ""


def _described(holder: dict[str, Any]) -> str:
    run = f"job {holder['run']}" if holder.get("run") else "a run"
    return f"{run} (process {holder.get('pid')} on {holder.get('host')})"


def _start_of(pid: int) -> str:
    """Returns when a process of this machine started, as the kernel counts; empty: there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _numbers(start: Any) -> tuple[int, int]:
    """Returns generation and number of requeues of a lock's start_number; 0 for what is not there, or damaged."""
    try:
        generation, requeues = (int(text or 0) for text in start)
    except (TypeError, ValueError):
        return 0, 0
    return generation, requeues


class FolderLock:
    """A file in a folder that says which run writes there; its holder touches it while it lives.

    One process of a run holds it. A later start of the same swellrun, or of the job that Slurm has requeued, takes it over at once.
    So does any run where the holder is gone: on this machine its process has ended, on another the file is not touched any more. Safe on NFS: the file comes
    into being by link(), and its age is never compared with this machine's clock.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)       # wherever the script goes later
        self.path = os.path.join(self.folder, _NAME)
        self.is_held = False
        self._token = ""
        self._end = threading.Event()
        self._pid = os.getpid()

    def _content(self) -> dict[str, Any]:
        pid = os.getpid()
        return {"run": run_name(), "host": socket.gethostname(), "pid": pid, "boot": _boot(), "start": _start_of(pid), "since": time.time(),
                "token": self._token, "swellrun": os.environ.get("SWELL_RUN", ""), "shim": os.environ.get("SWELL_SHIM", ""),
                "start_number": [os.environ.get("SWELL_GENERATION", os.environ.get("SWELL_EPOCH", "")), os.environ.get("SLURM_RESTART_COUNT", "")]}

    def _read(self) -> tuple[dict[str, Any], float] | None:
        """The holder and when the file was touched, by the file server's clock; None: there is no file."""
        try:
            with open(self.path, errors="replace") as file:       # open() makes NFS ask the server
                text, touched = file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        try:
            holder = json.loads(text)
        except ValueError:
            holder = {}
        return (holder if isinstance(holder, dict) else {}), touched

    def _is_gone(self, holder: dict[str, Any], touched: float) -> bool:
        """Whether the holder is not alive. Waits for a sign of life of one on another machine."""
        if holder.get("boot") and holder.get("boot") == _boot() and holder.get("host") == socket.gethostname():
            return _start_of(int(holder.get("pid", 0))) != holder.get("start")
        until = time.monotonic() + _SILENT_S
        while time.monotonic() < until:
            time.sleep(min(0.5, _SILENT_S / 10))
            again = self._read()
            if again is None or again[0].get("token") != holder.get("token"):
                return True         # let go, or taken by somebody: look anew
            if again[1] != touched:
                return False
        return True

    def _is_earlier_start(self, holder: dict[str, Any]) -> bool:
        """Whether the holder is a start before this one, which this swellrun or Slurm has ended or ends now, or this process."""
        mine = self._content()
        if all(holder.get(name) == mine[name] for name in ("boot", "host", "pid", "start")):
            return True
        generation, requeues = _numbers(holder.get("start_number"))
        my_generation, my_requeues = _numbers(mine["start_number"])
        # One job may have several swellruns, whose generations have nothing to do with each other's.
        is_of_job = bool(mine["run"]) and holder.get("run") == mine["run"]
        is_of_swellrun = any(mine[name] and holder.get(name) == mine[name] for name in ("swellrun", "shim"))
        if not mine["swellrun"] and not holder.get("swellrun"):     # of a version that does not give SWELL_RUN
            is_of_swellrun = is_of_swellrun or is_of_job
        return (is_of_swellrun and generation < my_generation) or (is_of_job and requeues < my_requeues)

    def acquire(self) -> None:
        """Take the folder for this run; it is made where it is not there. Raises InUse where another one writes to it."""
        if self.is_held:
            return
        os.makedirs(self.folder, exist_ok=True)
        self._token = uuid.uuid4().hex
        new = f"{self.path}.{self._token}"
        try:
            with open(new, "w") as file:
                json.dump(self._content(), file)
            while True:
                try:
                    os.link(new, self.path)
                    break
                except FileExistsError:
                    pass
                found = self._read()
                if found is None:
                    continue
                holder, touched = found
                if not self._is_earlier_start(holder) and not self._is_gone(holder, touched):
                    me = f"job {run_name()}" if run_name() else "this run"
                    raise InUse(f"{_described(holder)} is training with the checkpoints in {self.folder}: {me} would continue its training and "
                                "delete its checkpoints; give each run a directory of its own, or end that one first")
                self._remove(holder.get("token"))
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            print(f"swell: {self.folder} cannot be locked ({error.strerror or error}): let no other run write to it", file=sys.stderr, flush=True)
            return
        finally:
            try:
                os.unlink(new)
            except OSError:
                pass
        self.is_held, self._end, self._pid = True, threading.Event(), os.getpid()
        threading.Thread(target=self._beat, args=(self._end, self._token), name="swell lock", daemon=True).start()
        atexit.register(self.release)

    def _remove(self, token: str | None) -> None:
        found = self._read()
        if found is not None and found[0].get("token") == token:
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                pass

    def _beat(self, end: threading.Event, token: str) -> None:
        while not end.wait(_BEAT_S):
            try:
                found = self._read()
                if found is None or found[0].get("token") != token:
                    if found is not None and found[0].get("run") != run_name():
                        print(f"swell: {_described(found[0])} has taken {self.folder}, which this run writes to", file=sys.stderr, flush=True)
                    return
                os.utime(self.path)
            except OSError:     # as where the server is away: it may come back
                pass

    def release(self) -> None:
        """Let go of the folder. Twice, or in a process that was forked, does nothing."""
        if not self.is_held or os.getpid() != self._pid:
            return
        self.is_held = False
        self._end.set()
        atexit.unregister(self.release)
        try:
            self._remove(self._token)
        except OSError:
            pass
