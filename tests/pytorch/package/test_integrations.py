# SPDX-License-Identifier: GPL-2.0-or-later
"""Trainer, Accelerate and Lightning: resized, the loss of every step stays what it was."""

import os

import pytest

pytest.importorskip("transformers")
pytest.importorskip("lightning")

import accelerate  # noqa: E402,F401  once, for all workers
import lightning.pytorch  # noqa: E402,F401
import transformers  # noqa: E402,F401
from transformers import GPT2LMHeadModel, Trainer  # noqa: E402,F401

from forked import Run, deviation  # noqa: E402

SAME = 1e-5
JOBS = {"Trainer": "hf", "Accelerate": "accelerated", "Lightning": "pl_resnet"}
STEPS = 30


@pytest.mark.parametrize("framework", JOBS)
def test_resizes_leave_the_loss_of_every_step_as_it_is(framework, tmp_path):
    reference = Run(tmp_path / "reference", JOBS[framework], steps=STEPS).fast().start(1)
    try:
        run = Run(tmp_path / "resized", JOBS[framework], steps=STEPS)
        for world in (1, 3):
            run.start(world).reach(run.step() + 4).ask().leave_well()
        run.fast().start(2).leave_well()
        reference.leave_well()
    finally:
        reference.end()
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)), "a step is missing or was trained twice"
    assert run.worlds() == [1, 3, 2]
    assert run.sizes() == (list(range(1, 13)) if framework == "Accelerate" else [1, 2, 3, 4, 6, 12])    # of a global batch of 12
    worst = deviation(run.curve(), reference.curve())
    assert worst < SAME
    print(f"largest deviation {worst:.1e}")


@pytest.mark.slow
def test_Trainer_with_FSDP2_is_resized_like_Trainer_without(tmp_path):
    reference = Run(tmp_path / "reference", "hf", steps=20).fast().start(1)
    run = Run(tmp_path / "sharded", "hf", "fsdp", steps=20)
    try:
        run.start(2).reach(4).ask().leave_well()
        run.fast().start(3).leave_well()
        reference.leave_well()
    finally:
        reference.end()
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 21)) and run.worlds() == [2, 3]
    assert deviation(run.curve(), reference.curve()) < SAME


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["Trainer", "Lightning"])
def test_a_request_in_an_evaluation_is_acted_on(framework, tmp_path):
    reference = Run(tmp_path / "reference", JOBS[framework], "evaluate", steps=10).fast().start(1)
    run = Run(tmp_path / "evaluation", JOBS[framework], "evaluate", steps=10).fast()
    slowly = tmp_path / "evaluation" / "slowly"
    slowly.touch()
    run.start(2)
    try:
        run.until(lambda: os.path.exists(os.path.join(run.folder, "evaluating")), "an evaluation")
        step = run.step()
        run.ask().leave_well()
        assert run.step() == step, "it trained on after the evaluation"
        os.unlink(os.path.join(run.folder, "evaluating"))
        slowly.unlink()
        run.start(1).leave_well()
        reference.leave_well()
    finally:
        reference.end()
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 11)) and deviation(run.curve(), reference.curve()) < SAME
    if framework == "Trainer":
        assert os.path.exists(os.path.join(run.folder, "evaluating")), "the evaluation was not made up for"


@pytest.mark.parametrize("framework", JOBS)
def test_a_finished_run_started_again_trains_nothing(framework, tmp_path):
    run = Run(tmp_path / "finished", JOBS[framework], steps=5).fast().start(1).leave_well().start(2)
    try:
        run.leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines()] == [1, 2, 3, 4, 5]
