# SPDX-License-Identifier: GPL-2.0-or-later
"""A launcher as small as a test needs: starts the example's workers on this machine with the
environment that swellrun gives them, signals them, waits for them."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "..", "..", "python", "examples")
PYTHON = os.environ.get("SWELL_PYTHON", sys.executable)
PATIENCE_S = 300.0       # a deadline for what takes seconds, on a busy machine


class Failed(Exception):
    """A test failed: says what it saw, and what would be right."""


def check(holds, words):
    if not holds:
        raise Failed(words)


def wait_until(holds, words, patience_s=PATIENCE_S):
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"waited {patience_s:.0f} s for {words}")
        time.sleep(0.005)


class _Forker:
    """A process of forker.py: workers of it have imported torch before they start."""

    def __init__(self):
        here = os.path.dirname(os.path.abspath(__file__))
        self.process = subprocess.Popen(
            [PYTHON, os.path.join(here, "forker.py"), EXAMPLES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,      # select() sees all that there is
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"})
        self.codes = {}

    def fork(self, arguments, environment, output):
        """The process id of a new worker."""
        order = {"arguments": arguments, "environment": environment, "output": output}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        while True:
            said = self.hear()
            if "code" not in said:
                self.codes.pop(said["pid"], None)       # an earlier worker's that had this number
                return said["pid"]

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"forker.py has left with {self.process.wait()}")
        said = json.loads(line)
        if "code" in said:
            self.codes[said["pid"]] = said["code"]
        return said

    def code(self, pid):
        """The exit code of a worker; None while it runs."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            self.hear()
        return self.codes.get(pid)


_forker = None


class _Worker:
    """A forked worker, with what is used here of subprocess.Popen."""

    def __init__(self, *order):
        global _forker
        _forker = _forker or _Forker()
        self.pid, self.returncode = _forker.fork(*order), None

    def poll(self):
        if self.returncode is None:
            self.returncode = _forker.code(self.pid)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self):
        wait_until(lambda: self.poll() is not None, f"process {self.pid} to end")


class Run:
    """One training run in a folder of its own; generations of it are started one after the other."""

    def __init__(self, folder, **options):
        self.folder, self.generation, self.workers = folder, -1, []
        self.log_path = os.path.join(folder, "log.jsonl")
        self.checkpoints = os.path.join(folder, "checkpoints")
        options = {"device": "cpu", "log": self.log_path, "checkpoint_dir": self.checkpoints,
                   "print_every": 0, **options}
        self.arguments = [word for name, value in options.items()
                          for word in ("--" + name.replace("_", "-"), str(value))]
        os.makedirs(folder)

    def start(self, world, only=None, afresh=False):
        """Start a generation of world workers. only: just the first few of them, the others never come; afresh: each imports torch itself."""
        self.generation += 1
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        place = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "NODE_RANK": 0, "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, "SWELL_GENERATION": self.generation}
        self.workers = []
        # The signal waits until a worker has its handler, as with swellrun.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            for rank in range(only or world):
                mine = {"RANK": rank, "LOCAL_RANK": rank, **place}
                environment = {**os.environ, **{name: str(value) for name, value in mine.items()}}
                if not afresh:
                    with open(self._output(rank), "wb"):     # there is something to read at once
                        pass
                    self.workers.append(_Worker(self.arguments, environment, self._output(rank)))
                    continue
                with open(self._output(rank), "wb") as output:
                    self.workers.append(subprocess.Popen(
                        [PYTHON, os.path.join(EXAMPLES, "train_gpt.py"), *self.arguments],
                        env=environment,
                        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        return self

    def _output(self, rank):
        return os.path.join(self.folder, f"generation{self.generation}.rank{rank}.out")

    def output(self, rank):
        with open(self._output(rank), errors="replace") as file:
            return file.read()

    def signal(self, number, *ranks):
        for rank in ranks or range(len(self.workers)):
            self.workers[rank].send_signal(number)
        return self

    def leave(self, patience_s=PATIENCE_S):
        """The exit codes of all workers, once all have left."""
        wait_until(lambda: all(worker.poll() is not None for worker in self.workers),
                   "all workers to leave: " + self.tails(), patience_s)
        return [worker.returncode for worker in self.workers]

    def leave_with(self, code, patience_s=PATIENCE_S):
        codes = self.leave(patience_s)
        check(codes == [code] * len(codes), f"exit codes {codes}, expected {code} from all: {self.tails()}")
        return self

    def end(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()

    def tails(self):
        return " | ".join(f"rank {rank}: {self.output(rank)[-600:]}" for rank in range(len(self.workers)))

    def lines(self):
        """The log's whole lines, as written."""
        try:
            with open(self.log_path) as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def step(self):
        lines = self.lines()
        return lines[-1]["step"] if lines else 0

    def curve(self):
        """Loss by step; the last line of a step counts."""
        return {line["step"]: line["loss"] for line in self.lines()}

    def reach(self, step):
        """Wait until the log has come to step."""
        def there():
            if self.step() >= step:
                return True
            gone = [worker.returncode for worker in self.workers if worker.poll() is not None]
            check(not gone, f"workers left with {gone} before step {step}: {self.tails()}")
            return False
        wait_until(there, f"step {step}")
        return self

    def saved_steps(self):
        """Steps of the complete checkpoints."""
        try:
            names = os.listdir(self.checkpoints)
        except FileNotFoundError:
            return []
        return sorted(int(name[4:-3]) for name in names if name.endswith(".pt"))
