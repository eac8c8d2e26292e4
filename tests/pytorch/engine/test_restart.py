# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine without live mode: it leaves with a checkpoint when it is asked, and goes on over other workers."""

import errno
import json
import os
import re
import subprocess
import sys

import pool  # noqa: F401  imports what workers need, once
import pytest
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

JOB = "engine_job", "llama", "any", "dataset", "checkpoints"


@pytest.fixture
def runs(tmp_path):
    from forked import Run
    made = []

    def run(name, *arguments, steps=24):
        made.append(Run(tmp_path / name, *JOB, *arguments, steps=steps))
        return made[-1]
    yield run
    for each in made:
        each.end()


def test_it_is_resized_by_checkpoints(runs):
    reference = runs("reference").fast().start(1).leave_well()
    run = runs("resized").start(1).reach(3)
    assert run.sizes() == [1, 2, 3, 4, 5]
    asked_at = run.ask().step()
    run.leave_well()
    assert run.step() <= asked_at + 3 and f"asked to leave: checkpoint at step {run.step()}" in run.said()
    run.start(3).reach(run.step() + 3).ask(2).leave_well()      # one of them: the others hear of it
    left_at = run.step()
    run.fast().start(2).leave_well()
    assert f"continues from step {left_at}, " in run.said()
    assert [line["step"] for line in run.lines()] == list(range(1, 25)), "a step is missing or was trained twice"
    assert run.worlds() == [1, 3, 2]
    assert max(abs(run.curve()[step] / loss - 1) for step, loss in reference.curve().items()) < 1e-4


def test_half_precision_is_said_once(runs):
    said = "swell: passes compute in bfloat16, and round the gradients of a pass to it as a whole"
    run = runs("half", "half", steps=6).start(1).reach(2).ask().leave_well()
    run.fast().start(1).leave_well()
    assert [run.said_by(start).count(said) for start in range(2)] == [1, 0]
    assert said not in runs("single", steps=1).fast().start(1).leave_well().said()


def drawn(run, rank=0):
    """Returns the loop's draws, by step; steps that a start gives again are drawn as before."""
    found = {}
    with open(os.path.join(run.folder, f"drawn.{rank}")) as file:
        for line in file:
            step, _, numbers = line.partition(" ")
            assert found.setdefault(int(step), numbers) == numbers, f"step {step} is drawn otherwise the second time"
    return found


def test_draws_of_the_loop_go_on_over_restarts(runs):
    reference = runs("reference", "draws").fast().start(1).leave_well()
    run = runs("resized", "draws").start(1).reach(3).ask().leave_well()
    run.start(3).reach(run.step() + 3).ask().leave_well()
    run.fast().start(2).leave_well()
    assert run.worlds() == [1, 3, 2] and drawn(run) == drawn(reference) and len(drawn(run)) == 24
    assert drawn(run, 1).items() <= drawn(run).items() and len(drawn(run, 1)) > 15, "a new worker works on the same batches"


def test_each_ranks_own_draws_go_on_over_a_restart(runs):
    reference = runs("reference", "draws", "apart").fast().start(2).leave_well()
    run = runs("resized", "draws", "apart").start(2).reach(3).ask().leave_well()
    run.fast().start(2).leave_well()
    assert drawn(run, 0) == drawn(reference, 0) != drawn(run, 1) == drawn(reference, 1)


def test_batches_that_are_skipped_count_as_steps_over_restarts(runs):
    reference = runs("reference", "skips").fast().start(1).leave_well()
    run = runs("resized", "skips").start(1).reach(3).ask().leave_well()
    run.start(3).reach(run.step() + 3).ask(1).leave_well()
    run.fast().start(2).leave_well()
    assert run.worlds() == [1, 3, 2] and [line["step"] for line in run.lines()] == [step for step in range(1, 25) if step % 7 != 3] == sorted(reference.curve())
    assert max(abs(run.curve()[step] / loss - 1) for step, loss in reference.curve().items()) < 1e-4


def test_a_skip_on_one_worker_alone_is_named_and_keeps_nobody_waiting(runs):
    run = runs("apart", "skips-apart").fast().start(2)
    assert all(run.leave())
    assert "RuntimeError: engine.skip() was called for a batch by 1 of 2 workers; call it on every worker for each batch" in run.said(1), run.said(1)


def test_another_order_or_length_is_refused_and_another_run_in_the_folder_too(runs, monkeypatch):
    run = runs("run").start(1).reach(7).ask().leave_well()
    whole = run.arguments
    for other, said in (("shorter", "length 60, here it is 48"), ("unshuffled", "shuffle True, here it is False")):
        run.arguments = (*whole, other)
        assert run.start(1).leave() == [1] and said in run.said()
    run.arguments = (*whole, "clips")
    run.start(2).reach(10)
    assert "swell: this start gives other hyperparameters than the run so far: max_grad_norm=0.7 (it was 0.5), with which it trains on; lr=0.005 of the optimizer (it was 0.003), in whose place" in run.said()
    other = runs("other")
    os.symlink(os.path.join(run.folder, "checkpoints"), os.path.join(other.folder, "checkpoints"))
    assert other.start(1).leave() == [1] and "is training with the checkpoints in" in other.said()
    run.ask().leave_well()
    # As before checkpoints had a record: the order was another one.
    folder = max(os.scandir(os.path.join(run.folder, "checkpoints")), key=lambda each: each.name).path
    rest = torch.load(os.path.join(folder, "engine.pt"), weights_only=True)
    with open(os.path.join(folder, "engine.json"), "w") as file:
        json.dump({name: value for name, value in rest.items() if name not in ("identity", "data", "generators")}, file)
    os.remove(os.path.join(folder, "engine.pt"))
    run.fast().start(1).leave_well()
    assert run.lines()[-1]["step"] == 24


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(runs):
    reference = runs("reference").fast().start(1).leave_well()
    run = runs("damaged").start(1).reach(3).ask().leave_well()
    run.start(1).reach(run.step() + 3).ask().leave_well()
    there = os.path.join(run.folder, "checkpoints")

    def damage(folder):
        data = next(each.path for each in os.scandir(folder) if each.name.endswith(".distcp"))
        os.truncate(data, os.path.getsize(data) - 100)
    damage(os.path.join(there, f"step-{(newest := run.step()):09d}"))
    run.fast().start(2).leave_well()
    assert re.search(rf"the checkpoint of step {newest} is damaged \(\S*\.distcp has \d+ of \d+ bytes\).*; this start takes the one before it", run.said()), run.said()
    assert max(abs(run.curve()[step] / loss - 1) for step, loss in reference.curve().items()) < 1e-4
    for each in os.scandir(there):
        if each.name.startswith("step-"):
            damage(each.path)
    assert run.start(2).leave() == [1, 1]
    assert re.search(r"step-000000020 is damaged \(\S*\.distcp has \d+ of \d+ bytes\), .*, and there is no whole one before it: move them away", run.said()), run.said()


def test_a_worker_killed_at_moments_of_a_save_goes_on_from_the_checkpoint_before(runs):
    reference = runs("reference", steps=11).fast().start(1).leave_well()
    run = runs("killed", steps=11).fast()
    for at, touches in ((3, "open engine.pt"), (6, "open __0_0.distcp"), (8, "os.rename .metadata.tmp")):
        assert run.killed_in_a_save(10, at) == touches
        assert run.generation == 0 or "continues from step 5, " in run.said()
    run.start(2).leave_well()
    assert "continues from step 5, " in run.said()
    assert max(abs(run.curve()[step] / loss - 1) for step, loss in reference.curve().items()) < 1e-4


def test_another_optimizer_or_schedule_is_refused_in_one_sentence(runs):
    run = runs("run", steps=6).fast().start(1).leave_well()
    whole, run.steps = run.arguments, 8
    for other, said in (("sgd", "ValueError: the run so far had the optimizer AdamW, here it is SGD: give the same, or another directory"),
                        ("adam", "had the optimizer AdamW, here it is Adam"), ("stepped", "had the scheduler LambdaLR, here it is StepLR"),
                        ("unscheduled", "had scheduler (LambdaLR), this start has none: give it as before, or another directory")):
        run.arguments = (*whole, other)
        assert run.start(2).leave() == [1, 1] and said in run.said() and said in run.said(1)
    run.arguments = whole
    run.start(2).leave_well()
    assert "continues from step 5" in run.said() and run.lines()[-1]["step"] == 8


def test_a_folder_that_cannot_be_looked_into_is_kept_at_a_start(tmp_path, monkeypatch):
    from swell._lock import FolderLock
    from swell.engine.checkpoint import Checkpoints
    for step in range(1, 4):
        (tmp_path / f"step-{step:09d}").mkdir()
        if step > 1:
            (tmp_path / f"step-{step:09d}" / ".metadata").touch()
    stat, hidden = os.stat, str(tmp_path / "step-000000002" / ".metadata")

    def away(path, *arguments, **options):
        if path == hidden:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return stat(path, *arguments, **options)
    lock = FolderLock(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", away)
        found = Checkpoints(lock, None)
        found.take_folder()
        assert found.newest() == 3
        hidden = str(tmp_path / "step-000000003" / ".metadata")
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            found.newest()      # and not an older one
    lock.release()
    assert found.complete() == [3, 2] and not (tmp_path / "step-000000001").exists()


def test_a_schedule_that_no_start_could_read_is_named_and_nothing_is_lent(runs):
    run = runs("run", "unreadable", steps=12).start(1).reach(3)
    run.ask().reach(6)      # it trains on
    run.fast().leave_well()
    said = run.said()
    assert "the job is lent nothing: scheduler['owner'] is of type engine_job.Rows" in said, said
    assert "asked to leave, but training goes on: scheduler['owner'] is of type engine_job.Rows" in said, said
    assert run.sizes() == [1] and run.why.startswith("scheduler['owner'] is of type engine_job.Rows")


@pytest.fixture
def disk(tmp_path):
    """A file system of 8 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "swell-test", path], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here: run as root")
    yield str(path)
    subprocess.run(["umount", "--lazy", path], check=False)


def test_on_a_full_disk_it_declines_to_leave_and_trains_on(runs, disk):
    run = runs("run", steps=24)
    os.symlink(disk, os.path.join(run.folder, "checkpoints"))
    run.start(1).reach(3)       # the first checkpoint is of step 5
    may = run.sizes()
    ballast = os.path.join(disk, "ballast")
    with open(ballast, "wb") as file:
        found = os.statvfs(disk)
        file.write(bytes(found.f_bavail * found.f_frsize))
    run.ask().reach(7)
    assert run.sizes() == [1] and "could not be written to" in run.why and run.why.endswith("No space left on device, and there is none before it"), run.why
    assert not [name for name in os.listdir(disk) if name.startswith("step")], "a part of one is left"
    os.unlink(ballast)
    run.reach(11)               # past the checkpoint of step 10
    assert run.sizes() == may and not run.why, "it can save again"
    run.ask().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, run.step() + 1))
