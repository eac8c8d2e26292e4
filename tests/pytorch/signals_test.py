#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The frameworks' own loops do on USR1, USR2 and TERM what docs/frameworks.md says.

Every row of its table is run: one process a loop and signal, in the environment that swellrun gives.
Prints one `ok` or `not ok` line a row. `--print` prints the table as it was seen. Exits with 77 if a
framework is not there.
"""

import gc
import importlib.util
import os
import re
import signal
import sys
import tempfile
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SIGNALS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]
MORE_STEPS = 120        # so many after the signal: it was of no consequence. transformers' JIT waits 3 s
PATIENCE_S = 400


def documented():
    """{row: [what the table says for each signal]}"""
    with open(os.path.join(TOP, "docs", "frameworks.md")) as file:
        page = file.read()
    # The table whose columns are the signals; others have rows of the same names.
    table = re.search(r"^\|[^\n]*USR1[^\n]*\n((?:\|.*\n)+)", page, re.M)
    lines = [line for line in table[1].splitlines() if re.match(r"\| .* \|$", line)]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {row[0]: row[1:4] for row in rows if len(row) >= 4}


def start(loop, folder, bin_folder):
    """A child that runs the loop."""
    child = os.fork()
    if child:
        return child
    try:
        log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(folder)
        os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                           "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                           "TORCHELASTIC_RUN_ID": "7", "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train",
                           "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
                           "SLURM_JOB_NODELIST": "localhost", "SLURM_NODELIST": "localhost",
                           "PATH": bin_folder + ":" + os.environ["PATH"]})
        os.environ.pop("SLURM_ARRAY_JOB_ID", None)
        import loops
        code = 1
        loop(folder, loops.counter(os.path.join(folder, "step")))
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    else:
        code = 0
    sys.stderr.flush()
    os._exit(code)


def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def step_of(folder):
    try:
        with open(os.path.join(folder, "step")) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def checkpoints(folder):
    return [name for name in os.listdir(folder) if re.search(r"^checkpoint(-\d+)?$|\.ckpt$", name)]


class Case:
    """A loop that is sent one signal, watched step by step."""

    def __init__(self, name, loop, number, folder, bin_folder):
        self.name, self.number, self.folder = name, number, folder
        os.makedirs(folder)
        self.child = start(loop, folder, bin_folder)
        self.sent_at = self.status = self.seen = None

    def look(self):
        """Returns whether it is over."""
        if self.seen:
            return True
        gone, status = os.waitpid(self.child, os.WNOHANG)
        step = step_of(self.folder)
        if gone:
            self.status, self.child = status, None
            self.seen = self.outcome() if self.sent_at else f"ended before the signal: {self.tail()}"
        elif self.sent_at is None and step >= 3:
            self.sent_at = step
            os.kill(self.child, self.number)
        elif self.sent_at is not None and step >= self.sent_at + MORE_STEPS:
            self.seen = self.requeues() or "goes on"
            self.end()
        return self.seen is not None

    def requeues(self):
        if os.path.exists(os.path.join(self.folder, "requeued")):
            with open(os.path.join(self.folder, "requeued")) as file:
                return f"`{file.read().strip()}`"
        return None

    def outcome(self):
        if self.requeues():
            return self.requeues()
        if os.WIFSIGNALED(self.status):
            died = os.WTERMSIG(self.status)
            return "dies of it" if died == self.number else f"dies of signal {died}: {self.tail()}"
        code = os.WEXITSTATUS(self.status)
        return f"checkpoint, exits with {code}" if checkpoints(self.folder) else f"exits with {code}, no checkpoint"

    def tail(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as file:
            return file.read()[-400:]

    def end(self):
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = None


def main():
    missing = [name for name in ("torch", "transformers", "accelerate", "lightning") if not importlib.util.find_spec(name)]
    if missing:
        print(f"1..0 # SKIP {sys.executable} has no {', '.join(missing)}: run contrib/setup --pytorch DIR")
        return 77
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch  # noqa: F401  once, for all children
    import lightning.pytorch  # noqa: F401
    from accelerate import Accelerator  # noqa: F401
    from transformers import Trainer  # noqa: F401
    from loops import LOOPS

    said = documented()
    with tempfile.TemporaryDirectory(prefix="swell-signals-") as top:
        bin_folder = os.path.join(top, "bin")
        os.makedirs(bin_folder)
        with open(os.path.join(bin_folder, "scontrol"), "w") as file:
            file.write("#!/bin/sh\necho scontrol $1 > requeued\n")
        os.chmod(file.name, 0o755)
        gc.freeze()     # loops need not look through all that was imported, nor copy its pages
        cases = [Case(name, loop, number, os.path.join(top, f"{at}-{number.name}"), bin_folder)
                 for at, (name, loop) in enumerate(LOOPS.items()) for number in SIGNALS]
        deadline = time.monotonic() + PATIENCE_S
        try:
            while not all([case.look() for case in cases]) and time.monotonic() < deadline:
                time.sleep(0.02)
            for case in cases:
                case.seen = case.seen or f"nothing within {PATIENCE_S} s, at step {step_of(case.folder)}: {case.tail()}"
        finally:
            for case in cases:
                case.end()
    seen = {name: [case.seen for case in cases if case.name == name] for name in LOOPS}
    if sys.argv[1:] == ["--print"]:
        for name, row in seen.items():
            print("| " + " | ".join([name, *row]) + " |")
        return 0
    print(f"1..{len(seen)}")
    for number, (name, row) in enumerate(seen.items(), 1):
        good = said.get(name) == row
        print(f"{'ok' if good else 'not ok'} {number} - {name}: {', '.join(row)}"
              + ("" if good else f"; docs/frameworks.md says {said.get(name)}"), flush=True)
    return int(any(said.get(name) != row for name, row in seen.items()))


if __name__ == "__main__":
    sys.exit(main())
