# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared by the stages: the programs of the bundle, the time that is left, and what is written down."""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
STAND_IN = os.environ.get("GPU_STAND_IN") == "1"
BUILD = os.path.abspath(os.path.join(os.environ["SWELL_STAGE"], ".."))
UNIT = 1 << (20 if STAND_IN else 30)        # bytes of a stated GiB; the stand-in has a thousandth of everything
os.environ["SWELL_LIBRARY"] = os.path.join(BUILD, "stage", "lib", "libswell.so.1")
sys.path[:0] = [os.path.join(TOP, "tests", "pytorch"), os.path.join(TOP, "tests", "gpu", "jobs"), os.path.join(TOP, "tests", "pytorch", "jobs"),
                os.path.join(TOP, "python")]
STAGE_S, LAST_S = 480, 10       # all that a stage may take; of this for its end


class Skipped(Exception):
    """A case that cannot run here; its text says why."""


class Case(NamedTuple):
    """run(stage, folder) measures something in a folder of its own. needs_s: it is not begun with less time left. on_stand_in: whether it says anything there."""

    what: str
    needs_s: int
    run: Callable
    on_stand_in: bool = True


class Stage:
    """One stage: cases that go on after a failure, and a file with what was measured so far, whatever happens next."""

    def __init__(self, name):
        self.name, self.rows, self.failures, self.running = name, [], 0, None
        self.ends = time.monotonic() + float(os.environ.get("GPU_STAGE_SECONDS", STAGE_S)) - (0 if STAND_IN else LAST_S)
        self.folder = tempfile.mkdtemp(prefix=f"swell-gpu-{name}-")

    def row(self, what, measured, unit="", *, predicted=None, by="", goal=None, passed=None):
        """Writes down one measurement. predicted: before it, from what `by` says; goal: of the issue; passed: whether it is met, None: not judged."""
        beside = [] if predicted is None else [f"predicted {_text(predicted, unit)}{' by ' + by if by else ''}"]
        beside += [] if goal is None else [f"goal {_text(goal, unit)}"]
        self.rows.append({"what": what, "measured": measured, "text": _text(measured, unit), "beside": ", ".join(beside), "passed": passed})
        self.failures += passed is False
        verdict = "" if passed is None else " ok" if passed else " MISSED"
        print(f"{self.name}: {what}: {_text(measured, unit)}{' (' + ', '.join(beside) + ')' if beside else ''}{verdict}", flush=True)
        self._write()

    def measure(self, case):
        """Writes an error in a case as a row, and the stage goes on."""
        # The stand-in's thousandth of the state needs less.
        if time.monotonic() + (case.needs_s / 100 if STAND_IN else case.needs_s) > self.ends:
            self.row(case.what, "skipped: the stage's time is over")
            return
        if "forked" in sys.modules and not STAND_IN:        # one that hangs leaves time to the others
            sys.modules["forked"].PATIENCE_S = max(20, 2 * case.needs_s)
        self.running = case.what
        self._write()
        try:
            case.run(self, tempfile.mkdtemp(dir=self.folder))
        except Skipped as skipped:
            self.row(case.what, f"skipped: {skipped}")
        except Exception as error:
            traceback.print_exc()
            self.row(case.what, f"failed: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}", passed=False)
        self.running = None

    def _write(self):
        path = os.path.join(os.environ.get("GPU_OUT", "."), f"{self.name}.json")
        with open(path + ".new", "w") as file:
            json.dump({"stage": self.name, "stand_in": STAND_IN, "running": self.running, "rows": self.rows}, file, indent=1)
        os.replace(path + ".new", path)


def main(name, *cases):
    """Measures the cases, the most important one first, and ends the process: with 1 where anything failed or missed its goal."""
    reserved = sum(case.needs_s for case in cases)
    assert reserved <= STAGE_S - LAST_S, f"the cases of {name} need {reserved} s"
    stage = Stage(name)
    for case in cases:
        if case.on_stand_in or not STAND_IN:
            stage.measure(case)
    stage._write()
    shutil.rmtree(stage.folder, ignore_errors=True)
    print(json.dumps({"stage": name, "rows": len(stage.rows), "failures": stage.failures}), flush=True)
    sys.exit(1 if stage.failures else 0)


def on_gpu(passed):
    """A verdict on a time, which the stand-in's says nothing about."""
    return None if STAND_IN else passed


def _text(value, unit):
    return f"{value:.4g} {unit}".rstrip() if isinstance(value, float) else f"{value} {unit}".rstrip()


def pause(lines):
    """Seconds by which the first step of the last generation came later than a usual step, from the losses of a run that changed once more."""
    last = lines[-1]["generation"]
    before = [line["at"] for line in lines if line["generation"] != last]
    after = [line["at"] for line in lines if line["generation"] == last]
    usual = statistics.median(b - a for a, b in zip(before, before[1:], strict=False))
    return after[0] - before[-1] - usual


def same_losses(run, alone):
    """Whether every step that both made, after the change too, has the same loss, bit by bit."""
    ours, theirs = run.curve(), alone.curve()
    both = set(ours) & set(theirs)
    assert any(line["step"] in both for line in run.lines() if line["generation"]), "no step after the change is in both runs"
    return all(ours[step] == theirs[step] for step in both)
