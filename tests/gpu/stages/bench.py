# SPDX-License-Identifier: GPL-2.0-or-later
"""What the stages share: the programs of the bundle, the time that is left, and what is written down."""

import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
STAND_IN = os.environ.get("GPU_STAND_IN") == "1"
BUILD = os.path.abspath(os.path.join(os.environ["SWELL_STAGE"], ".."))
UNIT = 1 << (20 if STAND_IN else 30)        # bytes of a stated GiB; the stand-in has a thousandth of everything
os.environ["SWELL_LIBRARY"] = os.path.join(BUILD, "stage", "lib", "libswell.so.1")
sys.path[:0] = [os.path.join(TOP, "tests", "pytorch"), os.path.join(TOP, "tests", "gpu", "jobs"), os.path.join(TOP, "tests", "pytorch", "jobs"),
                os.path.join(TOP, "tests", "pytorch", "engine"), os.path.join(TOP, "contrib", "pytorch")]


class Skipped(Exception):
    """A case that cannot run here; its text says why."""


class Stage:
    """One stage: cases that go on after a failure, and a file with what they measured."""

    def __init__(self, name):
        self.name, self.rows, self.failures = name, [], 0
        self.ends = time.monotonic() + float(os.environ.get("GPU_STAGE_SECONDS", "480"))
        self.folder = tempfile.mkdtemp(prefix=f"swell-gpu-{name}-")
        self._cases = 0

    def row(self, what, measured, unit="", predicted=None, goal=None, passed=None):
        """Writes down one measurement. predicted: by what was known before; goal: of the issue; passed: whether it is met, None: no goal."""
        self.rows.append({"what": what, "measured": measured, "unit": unit, "predicted": predicted, "goal": goal, "passed": passed})
        self.failures += passed is False
        beside = [f"{word} {_text(value, unit)}" for word, value in (("predicted", predicted), ("goal", goal)) if value is not None]
        verdict = "" if passed is None else " ok" if passed else " MISSED"
        print(f"{self.name}: {what}: {_text(measured, unit)}{' (' + ', '.join(beside) + ')' if beside else ''}{verdict}", flush=True)

    @contextlib.contextmanager
    def case(self, what, needs_s=30):
        """One case in a folder of its own. What goes wrong in it is a row, and the stage goes on."""
        self._cases += 1
        folder = os.path.join(self.folder, str(self._cases))
        os.mkdir(folder)
        if time.monotonic() + needs_s > self.ends:
            self.row(what, "not run: the stage's time is over")
            folder = ""
        try:
            yield folder
        except Skipped as skipped:
            self.row(what, f"not run: {skipped}")
        except Exception as error:
            if folder:
                traceback.print_exc()
                self.row(what, f"failed: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}", passed=False)

    def close(self):
        """Writes the file, and ends the process: with 1 where anything failed or missed its goal."""
        out = os.environ.get("GPU_OUT", ".")
        with open(os.path.join(out, f"{self.name}.json"), "w") as file:
            json.dump({"stage": self.name, "stand_in": STAND_IN, "rows": self.rows}, file, indent=1)
        shutil.rmtree(self.folder, ignore_errors=True)
        print(json.dumps({"stage": self.name, "rows": len(self.rows), "failures": self.failures}), flush=True)
        sys.exit(1 if self.failures else 0)


def _text(value, unit):
    return f"{value:.4g} {unit}".rstrip() if isinstance(value, float) else f"{value} {unit}".rstrip()


def pause(lines):
    """Seconds by which the first step of the last epoch came later than a usual step, from the losses of a run that changed once more."""
    last = lines[-1]["epoch"]
    before = [line["at"] for line in lines if line["epoch"] != last]
    after = [line["at"] for line in lines if line["epoch"] == last]
    usual = statistics.median(b - a for a, b in zip(before, before[1:], strict=False))
    return after[0] - before[-1] - usual


def same_losses(run, alone):
    """Whether every step that both made has the same loss, bit by bit."""
    ours, theirs = run.curve(), alone.curve()
    both = sorted(set(ours) & set(theirs))
    assert both, "no step is in both runs"
    return all(ours[step] == theirs[step] for step in both)
