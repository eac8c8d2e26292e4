#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The example training program, resized, killed and started again as swellrun does it.

Prints one `ok` or `not ok` line a behaviour. Exits with 0 if all hold, 77 if PyTorch is not
there to test with. SWELL_PYTHON names the Python interpreter that has it. Arguments: words that
the names of the tests to run contain (default: all).
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

from launcher import EXAMPLES, PYTHON, Failed, Run, check

STEPS = 60
ENDLESS = 100000        # of runs that are asked to leave, however late that is seen
# 10 samples divide evenly among 2 workers, and not among 3 or 4. The pace (50 ms a step over two
# workers) leaves time to signal a run before it ends.
COMMON = {"steps": STEPS, "global_batch": 10, "micro_batch": 2, "seq": 48, "layers": 2, "hidden": 32,
          "checkpoint_every": 0, "step_time": 0.1}
SAME = 1e-4     # relative; the order of summation makes 1e-6 here, a wrong weight of one worker more

folder = None       # of this test program, removed at its end
runs = []           # to be ended if a test fails
_reference = None


def run(name, **options):
    runs.append(Run(os.path.join(folder, name), **{**COMMON, **options}))
    return runs[-1]


def reference():
    """The loss by step of a run on two workers that nobody disturbs."""
    global _reference
    if _reference is None:
        undisturbed = run("reference", step_time=0).start(2).leave_with(0)
        _reference = undisturbed.curve()
        check(sorted(_reference) == list(range(1, STEPS + 1)), f"steps logged: {sorted(_reference)}")
    return _reference


def deviation(curve, expected):
    """Largest relative difference at any step; both must have the same steps."""
    check(sorted(curve) == sorted(expected),
          f"steps {sorted(set(expected) ^ set(curve))} are in one of two curves only")
    return max(abs(curve[step] / loss - 1) for step, loss in expected.items())


def the_loss_falls():
    curve = reference()
    check(curve[STEPS] < 0.75 * curve[1], f"from {curve[1]} to {curve[STEPS]} in {STEPS} steps")
    return f"{curve[1]:.3f} -> {curve[STEPS]:.3f}"


def resizing_2_4_3_workers_keeps_the_loss_of_every_step():
    resized = run("resized").start(2).reach(15)
    resized.signal(signal.SIGUSR1).leave_with(0)
    resized.start(4).reach(30)
    resized.signal(signal.SIGUSR1).leave_with(0)
    resized.start(3).leave_with(0)

    lines = resized.lines()
    check([line["step"] for line in lines] == list(range(1, STEPS + 1)), "a step is missing or was trained twice")
    worlds = [line["world_size"] for line in lines]
    check(sorted(set(worlds), key=worlds.index) == [2, 4, 3], f"world sizes {worlds}")
    check([line["generation"] for line in lines] == [[2, 4, 3].index(world) for world in worlds], "wrong generations")
    worst = deviation(resized.curve(), reference())
    check(worst < SAME, f"the loss deviates by {worst:.2e}")
    return f"largest deviation {worst:.1e}"


def more_workers_than_samples_train_the_same_model():
    alone = run("alone", steps=25, global_batch=3, step_time=0).start(1).leave_with(0)
    crowd = run("crowd", steps=25, global_batch=3, step_time=0).start(5).leave_with(0)
    worst = deviation(crowd.curve(), alone.curve())
    check(worst < SAME, f"the loss deviates by {worst:.2e}")
    return f"largest deviation {worst:.1e}"


def a_signal_to_one_worker_makes_all_leave_within_two_steps():
    one = run("one", steps=ENDLESS).start(3).reach(5)
    one.signal(signal.SIGUSR1, 2)
    asked_at = one.step()       # read after the signal: never earlier than the step in flight minus one
    one.leave_with(0)
    check(one.step() < ENDLESS, "the run went on to its end")
    check(one.step() <= asked_at + 2, f"asked after step {asked_at}, left after step {one.step()}")
    check(one.saved_steps() == [one.step()], f"checkpoints {one.saved_steps()}, left after step {one.step()}")
    return f"asked after step {asked_at}, left after step {one.step()}"


def a_signal_during_start_up_loses_nothing():
    early = run("early", steps=ENDLESS).start(2).reach(3).signal(signal.SIGUSR1).leave_with(0)
    begun_at = early.step()
    for delay_s, rank in ((0, 0), (0.02, 1), (0.2, 0), (0.4, 1), (0.6, 0), (0.8, 1)):
        early.start(2, afresh=True)
        time.sleep(delay_s)     # no event to wait for: some moment between exec and the first step
        early.signal(signal.SIGUSR1, rank).leave_with(0)
        check(early.step() < ENDLESS, f"signalled after {delay_s} s, the run went on to its end")
        check(early.saved_steps()[-1] == early.step(), f"left after step {early.step()} with "
              f"checkpoints {early.saved_steps()}")
    return f"6 starts, from step {begun_at} to {early.step()}"


def a_signal_before_all_workers_have_come_lets_the_others_leave():
    early = run("absent").start(3, only=2, afresh=True)
    time.sleep(1.5)     # most likely they wait for the third by now; if not, the outcome is the same
    early.signal(signal.SIGUSR1, 1).leave_with(0)
    check(not early.lines(), "they trained without the third")


def swellruns_workers_leave_at_once_before_they_have_met():
    os.environ["SWELL_BASIC_WORKERS"] = "3"
    try:
        early = run("importing").start(3, only=1, afresh=True)
    finally:
        del os.environ["SWELL_BASIC_WORKERS"]
    began = time.monotonic()
    early.signal(signal.SIGUSR1, 0).leave_with(0)
    check("asked to leave before it met the others" in early.output(0), f"it waited for workers that had left: {early.output(0)}")
    return f"left after {time.monotonic() - began:.2f} s"


def workers_started_ahead_wait_and_resume_where_the_others_left():
    gate = os.path.join(folder, "gate")
    present = run("ahead").start(2).reach(5)
    ahead = Run(os.path.join(folder, "ahead-next"), **COMMON)
    runs.append(ahead)
    ahead.arguments, ahead.generation = present.arguments, 0
    os.environ["SWELL_START_AFTER"] = gate
    try:
        ahead.start(3, afresh=True)
    finally:
        del os.environ["SWELL_START_AFTER"]
    present.reach(present.step() + 10)      # goes on meanwhile
    present.signal(signal.SIGUSR1).leave_with(0)
    left_at = present.step()
    check(not any(line["generation"] for line in present.lines()), "the next workers did not wait")
    with open(gate, "w"):
        opened = time.time()
    ahead.leave_with(0)
    lines = [line for line in present.lines() if line["generation"] == 1]
    check(lines[0]["step"] == left_at + 1, f"left after step {left_at}, resumed with {lines[0]['step']}")
    return f"first step {lines[0]['time'] - opened:.2f} s after the start"


def TERM_checkpoints_and_leaves_with_143():
    ended = run("ended", steps=ENDLESS).start(2).reach(5).signal(signal.SIGTERM, 1).leave_with(143)
    check(ended.saved_steps() == [ended.step()], f"checkpoints {ended.saved_steps()} after step {ended.step()}")


def another_restart_signal_can_be_chosen():
    os.environ["SWELL_RESTART_SIGNAL"] = "USR2"
    try:
        other = run("other", steps=ENDLESS).start(1).reach(2).signal(signal.SIGUSR2).leave_with(0)
    finally:
        del os.environ["SWELL_RESTART_SIGNAL"]
    check(other.step() < ENDLESS, "the run went on to its end")


def a_killed_worker_ends_the_others_and_costs_at_most_one_interval():
    every = 7
    killed = run("killed", checkpoint_every=every).start(3).reach(2 * every + 3)
    killed.signal(signal.SIGKILL, 1)
    began = time.monotonic()
    codes = killed.leave()
    seconds = time.monotonic() - began
    check(codes[1] == -signal.SIGKILL and codes[0] > 0 and codes[2] > 0,
          f"exit codes {codes}, expected the others to fail: {killed.tails()}")
    for rank in (0, 2):
        said = [line for line in killed.output(rank).splitlines() if "resumed at" not in line
                and "generation 0" not in line]
        check(len(said) == 1 and "lost another worker" in said[0], f"rank {rank} said {said}, expected one line")
    reached, saved = killed.step(), killed.saved_steps()[-1]
    check(reached - saved <= every, f"reached step {reached}, last checkpoint is of step {saved}")
    # As kill -9 in the middle of a line would leave it:
    with open(killed.log_path, "a") as log:
        log.write('{"step": 4')

    killed.start(2).leave_with(0)
    lines = killed.lines()
    again = [line["step"] for line in lines if line["generation"] == 1]
    check(again[0] == saved + 1, f"resumed with step {again[0]}, the checkpoint was of step {saved}")
    check([line["step"] for line in lines] == list(range(1, STEPS + 1)), "the log does not have each step once")
    check(deviation(killed.curve(), reference()) < SAME, "the loss deviates")
    return f"others left after {seconds:.2f} s, {reached - saved} steps trained again"


def a_kill_while_writing_leaves_a_readable_checkpoint():
    writer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kill_writer.py")
    done = subprocess.run([PYTHON, "-Wignore", writer, os.path.join(folder, "kills")], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": EXAMPLES}, check=False)
    check(done.returncode == 0, (done.stdout + done.stderr).strip())
    return done.stdout.strip()


def a_finished_run_started_again_exits_0_and_trains_nothing():
    finished = run("finished", steps=4, step_time=0).start(2).leave_with(0)
    before, log = finished.saved_steps(), finished.lines()
    finished.start(2, only=1).leave_with(0)     # without waiting for anybody
    check(finished.lines() == log and finished.saved_steps() == before, "it trained again")


def a_wrong_argument_is_one_line_that_names_it():
    for option, value, fix in (("hidden", 30, "--hidden 28 or 32"), ("steps", "many", "give 1 or more"),
                               ("text", "/nonexistent", "give a text file")):
        wrong = run(f"wrong-{option}", **{option: value}).start(1)
        codes, said = wrong.leave(), wrong.output(0)
        check(codes[0] > 0 and said.count("\n") == 1 and str(value) in said and fix in said,
              f"--{option} {value}: exit code {codes[0]}, said {said!r}")


def a_damaged_checkpoint_is_put_aside_for_the_one_before():
    damaged = run("damaged", steps=6, checkpoint_every=2, step_time=0).start(1).leave_with(0)
    with open(os.path.join(damaged.checkpoints, "gpt-000000006.pt"), "wb") as file:
        file.write(b"PK")
    damaged.arguments += ["--steps", "7"]
    damaged.start(2).leave_with(0)
    check([line["step"] for line in damaged.lines() if line["generation"] == 1] == [5, 6, 7], "it did not resume at 4")
    check(damaged.saved_steps() == [6, 7], f"checkpoints {damaged.saved_steps()}")
    check(deviation(damaged.curve(), {step: reference()[step] for step in range(1, 8)}) < SAME, "the loss deviates")


def a_checkpoint_of_another_model_is_refused():
    other = run("shape", steps=4, step_time=0).start(1).leave_with(0)
    other.arguments += ["--steps", "8", "--layers", "1"]
    codes, said = other.start(2).leave(), other.output(0)
    check(min(codes) > 0 and "give --layers 2" in said, f"exit codes {codes}, said {said!r}")


def a_script_that_compiles_gets_all_of_torch():
    script = ("import lean_torch, sys, torch; assert 'sympy' not in sys.modules; "
              "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item(), "
              "torch.nn.Linear(2, 3, device='meta')(torch.ones(1, 2, device='meta')).shape[1], "
              "torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step())")
    done = subprocess.run([PYTHON, "-Wignore", "-c", script], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": EXAMPLES}, check=False)
    check(done.stdout == "2.0 3 None\n", done.stdout + done.stderr)


TESTS = [
    the_loss_falls,
    resizing_2_4_3_workers_keeps_the_loss_of_every_step,
    more_workers_than_samples_train_the_same_model,
    a_signal_to_one_worker_makes_all_leave_within_two_steps,
    a_signal_during_start_up_loses_nothing,
    a_signal_before_all_workers_have_come_lets_the_others_leave,
    swellruns_workers_leave_at_once_before_they_have_met,
    workers_started_ahead_wait_and_resume_where_the_others_left,
    TERM_checkpoints_and_leaves_with_143,
    another_restart_signal_can_be_chosen,
    a_killed_worker_ends_the_others_and_costs_at_most_one_interval,
    a_kill_while_writing_leaves_a_readable_checkpoint,
    a_finished_run_started_again_exits_0_and_trains_nothing,
    a_wrong_argument_is_one_line_that_names_it,
    a_damaged_checkpoint_is_put_aside_for_the_one_before,
    a_checkpoint_of_another_model_is_refused,
    a_script_that_compiles_gets_all_of_torch,
]


def main():
    global folder
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([PYTHON, "-c", probe], check=False).returncode:
        print(f"skip: {PYTHON} has no torch; name a Python that has it in SWELL_PYTHON")
        return 77
    chosen = [test for test in TESTS if not sys.argv[1:] or any(word in test.__name__ for word in sys.argv[1:])]
    print(f"1..{len(chosen)}")
    failures = 0
    with tempfile.TemporaryDirectory(prefix="swell-resize-") as folder:
        for number, test in enumerate(chosen, 1):
            began = time.monotonic()
            try:
                seen = test()
                print(f"ok {number} {test.__name__}" + (f"  # {seen}" if seen else "")
                      + f" ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception as failure:
                failures += 1
                kind = "" if isinstance(failure, Failed) else f"{type(failure).__name__}: "
                print(f"not ok {number} {test.__name__}: {kind}{failure}", flush=True)
            finally:
                for each in runs:
                    each.end()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
