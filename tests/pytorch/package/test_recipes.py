# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts with recipes that research code shares: the same training however they are resized, or one line says what is not."""

import os

import pytest

from forked import Run, deviation
from test_odd import SAME, end, is_same, is_the_same_training

for framework in ("transformers", "lightning", "accelerate"):      # once, for all workers
    pytest.importorskip(f"swell.integrations.{framework}")

THE_SAME = ["one_cycle_by_loader", "prints_by_number", "ends_by_the_clock", "centers_and_keeps", "shows_means", "plays_two", "loads_its_own_before", "trains_in_phases", "seeds_readers", "prefers", "adapts_by_hand",
            "shards_in_half", "shards_and_offloads"]
AGAIN = "swell: the script has put other weights, or other values of the optimizer, in the place of those of step 2 since Elastic() has loaded them"
BESIDE = "changed as it trains, and no checkpoint holds it, so that each start begins it anew: give Elastic state="


@pytest.mark.parametrize("name", THE_SAME)
def test_a_recipe_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 14, [6, 9], [1, 3, 1], job="recipes")
    said = "".join(run.said_by(start) for start in range(3))
    assert run.sizes() == list(range(1, 13)) and not any(each in said for each in ("lent nothing", "changed as it trains", "carries", "enumerate()", "the loop changes", "taken a copy", "by the number of workers", "other hyperparameters", "loaded again")), said


def test_a_callback_whose_state_is_saved_is_not_said(runs):
    run = is_the_same_training(runs, "trainer_keeps_the_state_of_a_callback", 12, [6, 9], [1, 3, 1], job="recipes")
    assert "changed as it trains" not in run.said_by(0)


@pytest.mark.parametrize("name", ["loads_its_own", "initializes_late", "loads_its_optimizer"])
def test_values_that_a_script_puts_in_the_place_of_loaded_ones_are_loaded_again(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="recipes")
    assert "loaded again" not in run.said_by(0) and run.said_by(1).count(AGAIN) == 1


@pytest.mark.parametrize("name, says", [
    ("penalizes_lazily", "i of enumerate() counts the passes that this worker has made since this start, and changes the training (line "), ("raises_a_weight_once", "the loop carries weight from one step to the next"),
    ("resizes_once", "the loop changes the dataset by data.level (line "), ("resizes_by_steps_in_readers", "the loop changes the dataset by data.level (line "),
    ("centers", "center of loss (Center): " + BESIDE), ("distils_a_teacher_that_trains", "1.num_batches_tracked of teacher (Sequential): " + BESIDE), ("remembers_samples", "target of criterion (Regularizes): " + BESIDE),
    ("adapts_its_loss", "scale of criterion (Adaptive): " + BESIDE), ("lightning_warms_up_by_a_callback", "seen of callback 1 (Warms): changed as it trains, and no state_dict() has it"),
    ("trainer_warms_up_by_a_callback", "seen of callback 1 (Warms): changed as it trains, and no state_dict() has it")])
def test_values_that_each_start_begins_anew_are_said(name, says, runs):
    run = runs(Run, "anew", "recipes", name, "step@6", steps=8).fast()
    for _ in range(2):
        run.start(1).leave_well()
    assert run.said_by(0).count("swell: " + says) == 1 and says not in run.said_by(1), run.said_by(0)


@pytest.mark.parametrize("name, of", [("warms_up_by_workers", "[0.833333, 0.5, 0.1,"), ("decays_by_workers", "[0.5, 0.933013, 0.25,"), ("lightning_decays_by_workers", "[0.875, 0.625, 0.1,")])
def test_a_schedule_that_another_start_makes_otherwise_is_said(name, of, runs):
    run = runs(Run, "rates", "recipes", name, "step@2", steps=6).fast()
    for world in (1, 3):
        run.start(world).leave_well()
    assert "other hyperparameters" not in run.said_by(0) and f"other hyperparameters than the run so far: factors of LambdaLR at steps 1 to 100000={of}" in run.said_by(1), run.said_by(1)


def test_rates_by_the_number_of_workers_are_said(runs):
    run = runs(Run, "rates", "recipes", "scales_its_rate", "step@8", "step@11", steps=14).fast()
    for world in (1, 3, 3):
        run.start(world).leave_well()
    said = "swell: the script sets the learning rate by the number of workers: 0.005 with 1, 0.015 with 3"
    assert [run.said_by(start).count(said) for start in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("name, kind", [("prefers_its_first_weights", "a Acts"), ("keeps_its_best", "a dict")])
def test_a_copy_of_weights_that_each_start_takes_anew_is_said(name, kind, runs):
    run = runs(Run, "copies", "recipes", name, "step@3", steps=5).fast()
    for _ in range(2):
        run.start(1).leave_well()
    said = f"swell: the script has taken a copy of the weights, {kind}, since Elastic()"
    assert [run.said_by(start).count(said) for start in range(2)] == [1, 0]


def test_another_optimizer_that_steps_in_each_pass_is_lent_nothing(runs):
    run = runs(Run, "passes", "recipes", "plays_two_in_passes", steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("Adam of state= steps in each pass, and the number of passes changes with the number of workers: leave micro_batch out")


def test_another_optimizer_is_lent_workers_that_make_one_pass(runs):
    run = runs(Run, "passes", "recipes", "plays_two", steps=4, basic=2).fast().start(2).leave_well()
    assert run.sizes() == list(range(2, 13)) and "lent nothing" not in run.said()


def test_state_of_an_optimizer_keeps_its_precision(runs):
    alone = runs(Run, "alone", "recipes", "keeps_masters", steps=14).fast().start(1).leave_well()
    run = runs(Run, "resized", "recipes", "keeps_masters", "step@1", "step@5", "step@9", steps=14).fast()
    for _ in range(4):
        run.start(1).leave_well()
    assert deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))


@pytest.mark.parametrize("name", ["lightning_logs_by_hand", "lightning_steps_twice"])
def test_rows_of_a_module_that_optimizes_by_hand_stand_once_in_its_log(name, runs):
    alone = runs(Run, "alone", "recipes", name, steps=27).fast().start(1).leave_well()
    run = runs(Run, "resized", "recipes", name, "step@3", "step@9", steps=27)
    for world in (1, 2):
        run.start(world).leave_well()
    run.start(1).reach(16).kill(0).leave()
    run.fast().start(2).leave_well()
    assert is_same(end(run), end(alone)), (end(run), end(alone))


@pytest.mark.parametrize("place", ["before.0", "after.0", "before.2", "after.2", "before.3", "after.3"])
@pytest.mark.parametrize("world", [1, 2])
def test_actions_behind_an_epoch_are_done_once_over_a_kill(place, world, runs):
    alone = runs(Run, "alone", "recipes", "acts_behind_epochs", steps=16).fast().start(1).leave_well()
    run = runs(Run, "killed", "recipes", "acts_behind_epochs", "step@6", steps=16).fast()
    with open(os.path.join(run.folder, f"dies.{place}"), "w"):
        pass
    starts = 0
    while run.start(world).leave()[0] != 0 or "asked to leave" in run.said():
        starts += 1
        assert starts < 4, run.said()
    assert starts == 2 and not os.path.exists(os.path.join(run.folder, f"dies.{place}")) and deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))
