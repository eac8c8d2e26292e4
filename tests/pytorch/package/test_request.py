# SPDX-License-Identifier: GPL-2.0-or-later
"""How a worker leaves: what it has set up to be done at its end is done, and nothing else."""

import subprocess
import sys

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
