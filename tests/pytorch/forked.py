# SPDX-License-Identifier: GPL-2.0-or-later
"""The jobs of the tests as forked processes of one that has imported all: resizes in seconds.

start() is for a process that has not computed anything with torch yet."""

import contextlib
import functools
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "jobs"), os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "contrib", "lib")]

import torch._dynamo  # noqa: E402,F401  once, for all workers: optimizers import it when they are first used
import torch.distributed.fsdp  # noqa: E402,F401
import torch.distributed.tensor  # noqa: E402,F401
import torch.onnx  # noqa: E402,F401

import swell.torch  # noqa: E402,F401
from ending import end_with  # noqa: E402

PATIENCE_S = int(os.environ.get("TEST_PATIENCE", "400"))


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def apart(test):
    """A test that computes with torch, in a process of its own: what is forked after it has computed would hang."""
    @functools.wraps(test)
    def forked(*arguments, **options):
        child = os.fork()
        if not child:
            code = 1
            try:
                test(*arguments, **options)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0, "failed in its process: see its traceback on stderr"
    return forked


class Run:
    """A job in a folder of its own, generation after generation. basic: its workers on GPUs of its own."""

    def __init__(self, folder, job, *arguments, steps=60, basic=1):
        self.folder, self.job, self.arguments, self.steps, self.basic = str(folder), job, arguments, steps, basic
        self.generation, self.workers, self.why = -1, {}, ""
        self.shim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.shim.bind("")      # the kernel finds an abstract name
        self.heard = []         # what the programs said there of numbers of workers
        importlib.import_module(job)    # with its framework, once for all workers
        os.makedirs(self.folder, exist_ok=True)

    def start(self, world):
        self.generation += 1
        self.workers = self._fork(world)
        return self

    def _environment(self, rank):
        return {}

    def _fork(self, world):
        workers, port = {}, str(_free_port())
        gc.freeze()     # workers need not look through all that was imported, nor copy its pages
        for rank in range(world):
            child = os.fork()
            if child:
                workers[rank] = child
                continue
            os.environ.update({
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
                "GROUP_RANK": "0", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "TORCHELASTIC_RUN_ID": os.environ.get("SWELL_JOB_ID", "1"), "SWELL_GENERATION": str(self.generation), "SWELL_RESTART_SIGNAL": "USR1",
                "SWELL_BASIC_WORKERS": str(self.basic), "SWELL_SHIM": "@" + self.shim.getsockname()[1:].decode(), "TEST_FOLDER": self.folder, "TEST_STEPS": str(self.steps),
                **self._environment(rank)})
            self._work()
        return workers

    def _work(self):
        log = os.open(self._log(int(os.environ["RANK"])), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)    # not those of pytest
        end_with(lambda: importlib.import_module(self.job).main(list(self.arguments)))

    def _log(self, rank):
        return os.path.join(self.folder, f"said.{self.generation}.{rank}")

    def said(self, rank=0):
        with open(self._log(rank), errors="replace") as file:
            return file.read()

    def said_by(self, start):
        """Returns the words of rank 0 in a start, by the start's number."""
        with open(os.path.join(self.folder, f"said.{start}.0"), errors="replace") as file:
            return file.read()

    def step(self):
        try:
            with open(os.path.join(self.folder, "step.0")) as file:
                return int(file.read())
        except FileNotFoundError:
            return 0

    def until(self, there, what):
        deadline = time.monotonic() + PATIENCE_S
        while not there():
            for rank, child in self.workers.items():
                gone, status = os.waitpid(child, os.WNOHANG)
                if gone:
                    del self.workers[rank]
                    raise AssertionError(f"rank {rank} left with {os.waitstatus_to_exitcode(status)} before {what}:\n{self.said(rank)}")
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
            self.hear()
            time.sleep(0.01)
        return self

    def reach(self, step):
        return self.until(lambda: self.step() >= step, f"step {step}")

    def ask(self, *ranks):
        """The restart signal to some of the workers, or to all."""
        for rank in ranks or list(self.workers):
            os.kill(self.workers[rank], signal.SIGUSR1)
        return self

    def kill(self, rank):
        os.kill(self.workers[rank], signal.SIGKILL)
        return self

    def killed_in_a_save(self, step, at):
        """Start one worker, which is killed as common.die_as_told() says; returns what it came to touch then."""
        with open(os.path.join(self.folder, "dies"), "w") as file:
            file.write(f"{step} {at}")
        codes = self.start(1).leave()
        assert codes == [-signal.SIGKILL], (codes, self.said())
        with open(os.path.join(self.folder, "touched")) as file:
            return file.read().splitlines()[-1]

    def fast(self):
        with open(os.path.join(self.folder, "fast"), "w"):
            return self

    def leave(self):
        """Exit codes, by rank."""
        deadline, codes = time.monotonic() + PATIENCE_S, {}
        while self.workers:
            for rank, child in list(self.workers.items()):
                gone, status = os.waitpid(child, os.WNOHANG)
                if gone:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    del self.workers[rank]
            if time.monotonic() > deadline:
                said = {rank: self.said(rank)[-500:] for rank in self.workers}
                self.end()
                raise AssertionError(f"did not leave within {PATIENCE_S} s: {said}")
            self.hear()
            time.sleep(0.01)
        return [codes[rank] for rank in sorted(codes)]

    def leave_well(self):
        codes = self.leave()
        assert set(codes) == {0}, f"exit codes {codes}: " + "\n".join(self.said(rank) for rank, code in enumerate(codes) if code)
        return self

    def end(self):
        for child in self.workers.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.workers = {}

    def sizes(self):
        """The numbers of workers that the programs have said last that they can run with; None: nothing new. `why` is what they said of them."""
        said, why = None, ""
        for text in self.hear():
            word, _, rest = text.partition(" ")
            if word == "why":
                why = rest
                continue
            assert word == "sizes"
            said, self.why, why = [int(number) for number in rest.split()], why, ""
        self.heard.clear()
        return said

    def hear(self):
        """Returns what the programs have said, but for their steps. Called often: the kernel keeps ten messages, and drops what comes then."""
        with contextlib.suppress(BlockingIOError):
            while True:
                text = self.shim.recv(65536).decode()
                if not text.startswith("step "):
                    self.heard.append(text)
        return self.heard

    def lines(self):
        with open(os.path.join(self.folder, "losses")) as file:
            return [json.loads(line) for line in file]

    def begun(self):
        """The steps that callbacks have seen begin, in their order."""
        with open(os.path.join(self.folder, "begun")) as file:
            return [int(line) for line in file]

    def curve(self):
        """Loss by step; a step that was trained twice counts once."""
        return {line["step"]: line["loss"] for line in self.lines()}

    def worlds(self):
        """Numbers of workers, one after the other."""
        found = [line["world"] for line in self.lines()]
        return [world for at, world in enumerate(found) if at == 0 or found[at - 1] != world]


class LiveRun(Run):
    """A job in live mode: its shims' keepers, and who has the state moved, are a process of live_host."""

    def __init__(self, folder, job, *arguments, keepers=5, slab_mib=0, **options):
        super().__init__(folder, job, *arguments, **options)
        host = os.path.join(os.environ["SWELL_STAGE"], "..", "tests", "unit", "live_host")
        self.host = subprocess.Popen([host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.old, self.seats, self._before = {}, [], ({}, [])     # seats: the keeper of each rank
        self._tried = 0     # generations of the keepers, also those that did not come
        self._sockets = tempfile.mkdtemp(prefix="swell-live-")     # paths of sockets are short
        self.sockets = self.tell(f"keepers {keepers} {self._sockets} {slab_mib}")["sockets"]

    def _environment(self, rank):
        return {"SWELL_RUNTIME": self.sockets[rank]}

    def tell(self, command, wait=True):
        self.host.stdin.write(command + "\n")
        self.host.stdin.flush()
        return self.answer() if wait else None

    def answer(self):
        return json.loads(self.host.stdout.readline())

    def start(self, world):
        self.seats = list(range(world))
        super().start(world)
        self._tried += 1
        began = self.tell(f"begin {self._tried} {world}")
        assert "why" not in began, began["why"] + "\n" + self.said()
        return self

    def switch(self, world, wait=True, limit_s=60):
        """To other workers while it trains. wait: until it is over; returns how it went. limit_s: for the others to be ready."""
        self._before, self.old = (self.workers, self.seats), self.workers
        self.generation, self._tried = self.generation + 1, self._tried + 1
        self.seats = list(range(world))
        self.workers = self._fork(world)
        self._tell_to_switch(limit_s)
        return self.switched() if wait else None

    def _tell_to_switch(self, limit_s):
        before, after = (",".join(map(str, seats)) for seats in (self._before[1], self.seats))
        with open(os.path.join(self.folder, "switching"), "w"):     # steps are slow meanwhile
            self.tell(f"switch {self._tried} {before} {after} {limit_s}", wait=False)

    def profile(self):
        """Returns the programs' reports of their steps, and the launch time of the coefficients that these yield."""
        found = self.tell(f"profile {len(self.seats)}")
        assert "why" not in found, found["why"] + "\n" + self.said()
        return found

    def offer(self, *keepers):
        """Whether the workers on these keepers, the next ranks in this order, keep their processes for another generation."""
        self._tried += 1
        place = f"WORLD_SIZE={len(keepers)} LOCAL_WORLD_SIZE={len(keepers)} MASTER_PORT={_free_port()} SWELL_GENERATION={self.generation + 1}"
        return [self.tell(f"offer {keeper} {self._tried} {place} RANK={rank} LOCAL_RANK={rank}")["stays"] for rank, keeper in enumerate(keepers)]

    def shrink(self, *keepers, wait=True, limit_s=60):
        """To the workers on these keepers, the next ranks in this order, which keep their processes; the others leave."""
        self._before = self.workers, self.seats
        on = {keeper: self.workers[rank] for rank, keeper in enumerate(self.seats)}
        said = {keeper: self._log(rank) for rank, keeper in enumerate(self.seats)}
        assert all(self.offer(*keepers))
        self.generation += 1
        self.seats, self.workers = list(keepers), {rank: on.pop(keeper) for rank, keeper in enumerate(keepers)}
        self.old = dict(enumerate(on.values()))
        for rank, keeper in enumerate(keepers):
            os.symlink(os.path.realpath(said[keeper]), self._log(rank))
        self._tell_to_switch(limit_s)
        return self.switched() if wait else None

    def switched(self):
        """How the switch went that is under way; the programs that it ends have left, or are killed as by swellrun."""
        report = self.answer()
        os.remove(os.path.join(self.folder, "switching"))
        before, seats = self._before
        leaving = self.old if report.get("committed") else {rank: child for rank, child in self.workers.items() if child not in before.values()}
        for child in leaving.values():
            if not report.get("committed"):
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            report.setdefault("codes", []).append(code)
        if not report.get("committed"):
            for keeper in seats:
                self.tell(f"withdraw {keeper}")
            for log in filter(os.path.islink, map(self._log, self.workers)):
                os.remove(log)
            self.workers, self.seats, self.generation = before, seats, self.generation - 1
        self.old = {}
        return report

    def switched_badly(self):
        """The same where an old worker was killed: what is left of either generation is ended."""
        report = self.answer()
        os.remove(os.path.join(self.folder, "switching"))
        for child in [*self.old.values(), *self.workers.values()]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.old, self.workers = {}, {}
        return report

    def switch_killing(self, world, phase, kills_old):
        """Switches, and kills a worker as that phase begins; "after": as soon as it is committed. The old programs train on, or start
        again from the last checkpoint. Returns how the switch went, and whether they started again."""
        held, was = os.path.join(self.folder, "held"), len(self.workers)
        if phase != "after":
            with open(held, "w"):
                self.tell(f"hold {phase} {held}")
        self.switch(world, wait=False)
        if phase != "after":
            self.until(lambda: os.path.exists(held + ".reached"), phase)
            os.kill((self.old if kills_old else self.workers)[1], signal.SIGKILL)
            os.remove(held + ".reached")
            os.remove(held)
        report = self.answer()
        if phase == "after":
            os.kill((self.old if kills_old else self.workers)[1], signal.SIGKILL)
        os.remove(os.path.join(self.folder, "switching"))
        committed = bool(report.get("committed"))
        leaving, staying = (self.old, self.workers) if committed else (self.workers, self.old)
        is_hit = kills_old != committed     # one of those that should train on is dead
        for child in leaving.values() if not is_hit else [*leaving.values(), *staying.values()]:
            if is_hit or not committed:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.old, self.workers = {}, {} if is_hit else staying
        if is_hit:
            self.start(world if committed else was)
        elif not committed:
            self.seats, self.generation = self._before[1], self.generation - 1
        return report, is_hit

    def end(self):
        for child in self.old.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        super().end()
        self.host.kill()
        self.host.wait()
        self.host.stdin.close()
        self.host.stdout.close()
        shutil.rmtree(self._sockets, ignore_errors=True)


def deviation(curve, reference):
    """Largest relative difference of two curves of the same steps."""
    assert sorted(curve) == sorted(reference), f"steps {sorted(set(curve) ^ set(reference))} are in one of two only"
    return max(abs(curve[step] / loss - 1) for step, loss in reference.items())
