# SPDX-License-Identifier: GPL-2.0-or-later
"""Ordinary scripts, written from the documents alone: the same training however they are resized, or one line says what is not."""

import os

import pytest

from forked import LiveRun, Run, deviation
from native import needs_live_host
from test_odd import SAME, end, is_same, is_the_same_training

LIVE = 40       # steps of a run that is resized live
slow = pytest.mark.slow
PLAIN = ["adds_a_group", "recomputes", "draws_in_readers", "weighs_samples", "steps_each_epoch", "does_all_of_it_after_a_step", "takes_norms_of_passes",
         *(pytest.param(name, marks=slow) for name in ("splits_by_a_seed", "freezes_a_part", "lazy", "thaws", "compiled", "compiled_in_place", "cycles", "cycles_by_a_function", "warms_up_in_turn", "clips", "draws"))]
LIGHTNING = ["lightning_steps_by_hand", "lightning_finds_a_rate", "lightning_finds_a_rate_later",
             *(pytest.param(name, marks=slow) for name in ("lightning_finds_a_rate_by_a_tuner", "lightning_stops_early", "lightning_clips", "lightning_compiles", "lightning_chains"))]
NOISE = "draws random numbers ({}) for the samples that a worker has, so losses differ within their noise on another number of workers"


@pytest.mark.parametrize("name", PLAIN)
def test_an_ordinary_script_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="ordinary")      # a step of 2 samples is the last of an epoch
    assert run.sizes() == list(range(1, 13)) and not any("draws" in run.said_by(start) for start in range(3))


@pytest.mark.parametrize("name", LIGHTNING)
def test_an_ordinary_script_with_Lightning_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 27, [3, 9, 20], [1, 2, 1, 2], job="ordinary")
    assert "continues" not in run.said_by(0) and "continues from step " in run.said_by(1) and "continues from step 0," not in run.said_by(1)
    assert not any(" draws " in run.said_by(start) for start in range(4))


@pytest.mark.parametrize("name, asked", [("trainer_loads_the_best", ["evaluation@4", "evaluation@8"]), pytest.param("trainer_checkpoints_activations", [3, 7], marks=slow)])
def test_an_ordinary_script_with_a_Trainer_is_resized_as_any_other(name, asked, runs):
    run = is_the_same_training(runs, name, 12, asked, [1, 3, 1], job="ordinary")
    assert not any(" draws " in run.said_by(start) for start in range(3))


@pytest.mark.parametrize("name, what, of", [
    ("draws_in_the_loop", "the training step", "torch's"), ("draws_python_in_the_loop", "the training step", "Python's"), ("seeds_in_the_loop", "the training step", "torch's"),
    ("drops_and_draws_in_the_loop", "the training step", "torch's"), ("draws_in_collate", "collate_fn", "torch's"), ("draws_in_collate_of_readers", "collate_fn", "torch's"),
    ("lightning_draws", "the training step", "torch's, numpy's"), ("trainer_draws", "the training step", "torch's"), ("trainer_masks", "collate_fn", "torch's")])
def test_draws_for_a_part_of_a_batch_are_said_once(name, what, of, runs):
    run = runs(Run, "draws", "ordinary", name, "step@2", steps=6).fast()
    for _ in range(2):
        run.start(1).leave_well()
    said = [line for start in range(2) for line in run.said_by(start).splitlines() if " draws " in line]
    assert len(said) == 1 and said[0].startswith(f"swell: {what} " + NOISE.format(of)) and said[0] in run.said_by(0), said


@pytest.mark.parametrize("name", ["splits_anew", "weighs_samples_anew"])
def test_another_part_of_a_dataset_is_said(name, runs):
    run = runs(Run, "parts", "ordinary", name, "step@2", steps=4).fast()
    for _ in range(2):
        run.start(1).leave_well()
    assert "not those of the run so far" not in run.said_by(0) and "a few samples of the dataset are not those of the run so far" in run.said_by(1)


def test_a_callback_that_changes_the_batch_of_Lightning_is_refused(runs):
    run = runs(Run, "finds", "ordinary", "lightning_finds_a_batch").fast().start(1)
    assert run.leave() == [1] and "RuntimeError: BatchSizeFinder changes the batch of a worker, and LightningElastic keeps the global batch: leave it out" in run.said()
    assert not run.step()


def test_a_callback_that_looks_for_rates_within_the_training_is_lent_nothing(runs):
    run = runs(Run, "finds", "ordinary", "lightning_finds_rates_at_epochs", "step@2", steps=9).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("Finder may look for learning rates within the training") and run.step() == 9


@pytest.mark.parametrize("name, says", [
    ("zeroes_gradients", "gradients were dropped between two passes of one global batch"), ("zeroes_gradients_in_place", "gradients were dropped between two passes of one global batch"),
    ("steps_the_optimizer", "the optimizer was stepped between two passes of one global batch")])
def test_lines_of_a_loop_of_before_that_spoil_a_sum_of_passes_are_refused(name, says, runs):
    run = runs(Run, "left", "ordinary", name, steps=4).fast().start(1)
    assert run.leave() == [1] and f"RuntimeError: {says}" in run.said() and not run.step()


@pytest.mark.parametrize("name, says", [("clips_each_pass", "gradients are changed between passes of one global batch, of which another number of workers makes others: leave clip_grad_norm_()"),
                                        ("steps_its_schedule_too", "the script steps StepLR, which Elastic steps once for each global batch: leave scheduler.step() out of the loop")])
def test_lines_of_a_loop_of_before_that_are_done_once_a_pass_are_lent_nothing(name, says, runs):
    run = runs(Run, "left", "ordinary", name, steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith(says) and run.step() == 4


@needs_live_host
@pytest.mark.parametrize("name", ["draws_in_readers", *(pytest.param(name, marks=slow) for name in (
    "recomputes", "steps_each_epoch", "lightning_clips", "trainer_loads_the_best", "lazy", "compiled", "compiled_in_place", "splits_by_a_seed", "lightning_compiles"))])
def test_an_ordinary_script_is_resized_live_as_any_other(name, runs):
    alone = runs(Run, "alone", "ordinary", name, steps=LIVE).fast().start(1).leave_well()
    run = runs(LiveRun, "live", "ordinary", name, "step@3", "step@9", steps=LIVE).start(1)
    for step, world in ((3, 2), (9, 1)):
        run.until(lambda: os.path.exists(os.path.join(run.folder, f"moment.step.{step}")), "the step")
        report = run.switch(world)
        assert report.get("committed"), report
    run.fast().leave_well()
    assert run.worlds() == [1, 2, 1] and deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))
