# SPDX-License-Identifier: BSD-3-Clause
"""Workers on this machine, started, asked to leave and started again as swellrun does it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

__all__ = ["Workers"]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _below(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except OSError:     # it has ended meanwhile
        pass
    return found + [each for child in found for each in _below(child)]


class Workers:
    """The workers of one run, generation after generation.

    command: the program with its arguments. logs: a folder for their output, `GENERATION.RANK`. basic: workers
    on the GPUs that the job would have asked for. environment: on top of this process's.
    """

    def __init__(self, command: Sequence[str], logs: str, *, basic: int = 1, environment: Mapping[str, str] | None = None,
                 restart_signal: signal.Signals = signal.SIGUSR1) -> None:
        self.command, self.logs, self.basic = list(command), logs, basic
        self.environment = dict(environment or {})
        self.restart_signal = restart_signal
        self.generation = -1
        self.processes: list[subprocess.Popen[bytes]] = []
        os.makedirs(logs, exist_ok=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def start(self, world: int) -> None:
        """Start the next generation over this many workers."""
        self.generation += 1
        self.processes = []
        port = str(_free_port())
        for rank in range(world):
            environment = {
                **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
                "NODE_RANK": "0", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_NAME": "default",
                "ROLE_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
                "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "3",
                "TORCHELASTIC_USE_AGENT_STORE": "False", "SWELL_GENERATION": str(self.generation), "SWELL_JOB_ID": "1",
                "SWELL_RANK": str(rank), "SWELL_WORLD_SIZE": str(world),
                "SWELL_BASIC_WORKERS": str(self.basic), "SWELL_RESTART_SIGNAL": self.restart_signal.name.removeprefix("SIG"),
                **self.environment}
            with open(self.log(rank), "wb") as log:
                self.processes.append(subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                                       stderr=subprocess.STDOUT))

    def log(self, rank: int) -> str:
        """Path of a worker's output in the present generation."""
        return os.path.join(self.logs, f"{self.generation}.{rank}")

    def said(self, rank: int) -> str:
        """A worker's output in the present generation."""
        with open(self.log(rank), errors="replace") as file:
            return file.read()

    def handle_signal(self) -> bool:
        """Whether all of them have a handler for the restart signal; before, it would kill them."""
        return all(self._handles(process.pid) for process in self.processes)

    def _handles(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/status") as file:
                caught = next(line for line in file if line.startswith("SigCgt:"))
        except (OSError, StopIteration):
            return False
        return bool(int(caught.split()[1], 16) >> (self.restart_signal - 1) & 1)

    def ask(self, ranks: Sequence[int] | None = None) -> None:
        """Send the restart signal, to all or to some."""
        for rank, process in enumerate(self.processes):
            if (ranks is None or rank in ranks) and process.poll() is None:
                process.send_signal(self.restart_signal)

    def running(self) -> bool:
        """Whether any of them still runs."""
        return any(process.poll() is None for process in self.processes)

    def wait(self, seconds: float) -> list[int] | None:
        """Their exit codes, -N for signal N; None where they have not all left within the time."""
        deadline = time.monotonic() + seconds
        while self.running():
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)
        return [process.returncode for process in self.processes]

    def kill(self) -> None:
        """End what still runs, with what it has started."""
        for process in self.processes:
            if process.poll() is None:
                below = _below(process.pid)
                process.kill()
                for pid in below:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.wait()


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs a script with this Python."""
    return [sys.executable, script, *arguments]
