# SPDX-License-Identifier: GPL-2.0-or-later
"""How a worker of swellrun ends with an error that Swell raises for its user."""

import os
import signal
import subprocess
import sys
import time

import pytest
from swell import _lock, _uncaught

LOCKS = """
import os, torch.distributed as dist
from swell import checkpoint
dist.init_process_group("gloo")
checkpoint.lock_together(checkpoint.FolderLock(os.environ["FOLDER"]), dist.group.WORLD)
"""
CALLS = """
import swell.torch
from torch import nn
def of_mine():
    return swell.torch.Elastic(nn.Linear(1, 1), [], directory="c", global_batch=2)
of_mine()
"""
LEAVES_WHILE_OTHERS_WAIT = """
import os, signal, time, torch.distributed as dist
from swell import _request
_request.listen(leaves_at_once=True)
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    open("up", "w").close()
    time.sleep(60)
dist.barrier()
"""


class Workers:
    """Two workers of a swellrun that is not there; said: of each, once all have ended."""

    def __init__(self, folder, script, **environment):
        (folder / "script.py").write_text(script)
        given = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000), "SWELL_GENERATION": "1",
                 "SWELL_JOB_ID": "7", "SWELL_RUN": folder.name, "SWELL_LEAVE_CODE": "75", **environment}
        self.folder = folder
        self.all = [subprocess.Popen([sys.executable, "script.py"], cwd=folder, env={**given, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
                                     stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for rank in range(2)]

    def end(self):
        self.said = [one.communicate(timeout=120)[1] for one in self.all]
        return [one.returncode for one in self.all]


def test_a_folder_that_another_run_has_is_said_in_one_sentence_by_one_worker(tmp_path):
    held = _lock.FolderLock(tmp_path / "c")
    held.acquire()
    workers = Workers(tmp_path, LOCKS, FOLDER=str(tmp_path / "c"))
    assert workers.end() == [1, 1]
    assert "is training with the checkpoints in" in workers.said[0] and workers.said[0].startswith("swell: a run (process "), workers.said[0]
    assert workers.said[0].count("\n") == 1 and workers.said[1] == "", workers.said
    held.release()


def test_a_wrong_argument_is_said_once_with_the_script_s_own_line(tmp_path):
    workers = Workers(tmp_path, CALLS)
    assert workers.end() == [1, 1]
    both = "".join(workers.said)
    assert "swell: script.py, line 5: TypeError: optimizer= has 0 optimizers" in both and "Traceback" not in both, both
    assert both.count("\n") <= 2, both      # a worker that comes to it when the other has ended says it again


@pytest.mark.parametrize("script", ["raise ValueError('of the script')", "import swell.torch\nswell.torch.Elastic()", "import swell\nswell.place(1)"])
def test_errors_of_scripts_and_calls_that_python_refuses_keep_their_tracebacks(tmp_path, script):
    workers = Workers(tmp_path, f"import swell\n{script}\n")
    assert workers.end() == [1, 1]
    assert all("Traceback" in said for said in workers.said), workers.said


def test_without_swellrun_errors_keep_their_tracebacks(tmp_path):
    (tmp_path / "script.py").write_text(CALLS)
    given = {name: value for name, value in os.environ.items() if not name.startswith("SWELL_")}
    alone = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert alone.returncode == 1 and "Traceback" in alone.stderr


def test_a_worker_that_loses_one_which_was_asked_before_it_leaves_too(tmp_path):
    workers = Workers(tmp_path, LEAVES_WHILE_OTHERS_WAIT)
    end = time.monotonic() + 120
    while not (tmp_path / "up").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)     # the other is in the barrier
    first, other = workers.all
    first.send_signal(signal.SIGUSR1)
    first.wait(timeout=60)
    time.sleep(0.5)
    other.send_signal(signal.SIGUSR1)
    assert workers.end() == [75, 75], workers.said
    assert all(said == f"swell: rank {rank}: asked to leave before training began\n" for rank, said in enumerate(workers.said)), workers.said


def test_a_worker_that_loses_one_which_nobody_asked_says_so_as_ever(tmp_path):
    workers = Workers(tmp_path, LEAVES_WHILE_OTHERS_WAIT)
    end = time.monotonic() + 120
    while not (tmp_path / "up").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)
    workers.all[0].kill()
    assert workers.end() == [-signal.SIGKILL, 1]
    assert "Traceback" in workers.said[1] and "peer" in workers.said[1].lower()


@pytest.mark.parametrize("user, is_first", [(os.getuid(), False), pytest.param(65534, True, marks=pytest.mark.skipif(os.getuid() != 0, reason="root alone can be another user"))])
def test_a_stranger_that_has_the_place_of_a_sentence_does_not_keep_it_from_being_said(user, is_first):
    holds = "import os, socket, sys\nos.setuid(int(sys.argv[1]))\none = socket.socket(socket.AF_UNIX)\none.bind(chr(0) + sys.argv[2])\none.listen(9)\nprint('there', flush=True)\nsys.stdin.read()"
    place = _uncaught._place_of("a sentence")
    other = subprocess.Popen([sys.executable, "-c", holds, str(user), place[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "there\n"
    assert _uncaught._is_first(ValueError(), "a sentence") is is_first
    other.communicate("")
