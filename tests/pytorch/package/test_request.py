# SPDX-License-Identifier: GPL-2.0-or-later
"""How a worker leaves: what it has set up to be done at its end is done, and nothing else."""

import os
import subprocess
import sys

import pytest

from swell import _request

LEAVES = """
import atexit, sys
from swell import _request

class Big:
    def __del__(self):
        print("taken down")

sys.modules["big"] = Big()
atexit.register(print, "atexit")
try:
    _request.leave()
finally:
    print("finally")
    FINALLY
"""


def leaving(what="pass"):
    return subprocess.run([sys.executable, "-c", LEAVES.replace("FINALLY", what)], capture_output=True, text=True, check=False)


def test_finally_and_atexit_have_their_turn_and_the_interpreter_is_not_taken_down():
    done = leaving()
    assert (done.returncode, done.stdout, done.stderr) == (0, "finally\natexit\n", "")


def test_a_finally_that_fails_is_a_failure():
    done = leaving("raise ValueError('mine')")
    assert done.returncode == 1 and "ValueError: mine" in done.stderr and "atexit" in done.stdout


def test_a_leave_has_the_exit_code_that_swellrun_names():
    done = subprocess.run([sys.executable, "-c", "from swell import _request; _request.leave()"], env={**os.environ, "SWELL_LEAVE_CODE": "3"}, check=False)
    assert done.returncode == 3


ENDS = """
import sys, time
import torch, torch.distributed as dist
from swell import _agreement, _staying
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.destroy_process_group = lambda: time.sleep(120)        # as NCCL's, where another rank was killed
_agreement._ENDS_S = 1.0
if sys.argv[1] == "leaves":
    _agreement.leave()
_staying._take_place = lambda session: None
_staying.regroup(None, torch.device("cpu"))
"""


@pytest.mark.parametrize("way, code", [("leaves", 3), ("stays", 1)])
def test_process_groups_that_never_end_as_a_worker_was_killed_end_this_one(way, code):
    done = subprocess.run([sys.executable, "-c", ENDS, way], env={**os.environ, "SWELL_LEAVE_CODE": "3"}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code and "rank 0: the process groups have not ended within 1 s" in done.stderr, done.stderr


GIVEN = {"SWELL_GENERATION": "0", "SWELL_JOB_ID": "5", "SWELL_RANK": "1", "SWELL_WORLD_SIZE": "4", "RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "5"}
LISTENS = "import swell; swell.listen(); print('trains')"


@pytest.mark.parametrize("changed", [{"RANK": "0", "WORLD_SIZE": "1"}, {"TORCHELASTIC_RUN_ID": "none"}, {"WORLD_SIZE": "8"}])
def test_a_launcher_between_swellrun_and_the_program_is_refused(changed):
    done = subprocess.run([sys.executable, "-c", LISTENS], env={**os.environ, **GIVEN, **changed}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "trains" not in done.stdout
    assert all(f"{name}={value}" in done.stderr for name, value in changed.items())
    assert "Write the program alone: swellrun python SCRIPT [ARGUMENTS]" in done.stderr


@pytest.mark.parametrize("environment", [GIVEN, {"SWELL_GENERATION": "0"}, {"SWELL_EPOCH": "0"}, {**GIVEN, "MASTER_PORT": "29500", "LOCAL_RANK": "0"}])
def test_variables_of_swellrun_are_not_refused(environment):
    done = subprocess.run([sys.executable, "-c", LISTENS], env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "trains\n")


@pytest.mark.parametrize("given", [{"SWELL_GENERATION": "2"}, {"SWELL_EPOCH": "2"}, {"SWELL_GENERATION": "2", "SWELL_EPOCH": "2"}])
def test_a_generation_has_its_former_name_under_a_swellrun_of_the_version_before(given, monkeypatch):
    for name in ("SWELL_GENERATION", "SWELL_EPOCH"):
        monkeypatch.delenv(name, raising=False)
    assert not _request.under_swellrun() and _request.place().generation == 0
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert _request.under_swellrun() and _request.place().generation == 2


CALLED_OFF = """
import errno, tempfile
import torch, torch.distributed as dist
from swell import live
from swell._native import NativeError
from swell.engine.live import NativeArena

class Session:
    def adopt(self):
        raise NativeError(errno.ECANCELED, "called off")

    def register(self, *_, **__):
        pass

dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
state = object.__new__(live.LiveState)
state.session, state._fixed = Session(), []
try:
    TAKE
finally:
    print("groups" if dist.is_initialized() else "no groups")
"""


@pytest.mark.parametrize("take", ["state.take_over()", "NativeArena(Session()).take([], torch.device('cpu'))"])
def test_a_new_worker_whose_switch_is_called_off_ends_its_process_groups_and_leaves(take):
    done = subprocess.run([sys.executable, "-c", CALLED_OFF.replace("TAKE", take)], env={**os.environ, "SWELL_LEAVE_CODE": "3"}, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "no groups\n"), done.stderr
