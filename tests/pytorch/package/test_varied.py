# SPDX-License-Identifier: GPL-2.0-or-later
"""More scripts of researchers, each of another kind: the same training however they are resized, or one line says what is not."""

import pytest

from forked import Run
from test_odd import is_the_same_training

SAME = ["averages_stochastically", "restarts_within_epochs", "plateaus_on_a_validation", "buckets", "keeps_readers", "accumulates_unevenly", "mixes_tasks_by_sample", "adapts"]
CARRIES = "the loop carries {} from one step to the next, which each start begins anew"
CHANGED = "{}: changed as it trains, and no state_dict() has it"


@pytest.mark.parametrize("name", SAME)
def test_a_script_of_another_kind_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="varied")
    said = "".join(run.said_by(start) for start in range(3))
    assert run.sizes() == list(range(1, 13)) and "lent nothing" not in said and "carries" not in said and "changed as it trains" not in said


@pytest.mark.parametrize("name", ["plays_a_gan", "lightning_decays_by_plateau"])
def test_a_module_of_Lightning_of_another_kind_is_resized_as_any_other(name, runs):
    is_the_same_training(runs, name, 27, [3, 9, 20], [1, 2, 1, 2], job="varied")


@pytest.mark.parametrize("name, says", [
    ("buckets_over_values", "the loss is divided by a number that does not go with the samples of a pass"), ("buckets_over_all", "the loss is divided by a number that does not go with the samples of a pass"),
    ("mixes_tasks", "the loss is divided by a number that does not go with the samples of a pass"), ("mines_the_hardest", "the loss is of some samples of a pass that are chosen by what the others are")])
def test_a_loss_that_is_divided_by_what_a_pass_has_is_lent_nothing(name, says, runs):
    run = runs(Run, "divided", "varied", name, steps=6).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith(says) and run.said().count("the job is lent nothing: ") == 1 and run.step() == 6


@pytest.mark.parametrize("name, says", [
    ("queues", CARRIES.format("queue, at")), ("carries_a_state", CARRIES.format("hidden")), ("plays", CARRIES.format("baseline")), ("clips_by_history", CHANGED.format("history of clip()")),
    ("looks_ahead", CHANGED.format("count of the optimizer (Ahead)")), ("counts_in_its_optimizer", CHANGED.format("done of the optimizer (Counting)")),
    ("lightning_counts_by_itself", CHANGED.format("mean of the module (Module)")),
    ("averages_its_own_norm", "what the model returns for a sample depends on the others in its pass")])
def test_what_a_script_carries_by_itself_is_said(name, says, runs):
    run = runs(Run, "carries", "varied", name, "step@6", steps=9).fast()
    for _ in range(2):
        run.start(1).leave_well()
    assert run.said_by(0).count("swell: " + says) == 1 and "swell: " + says not in run.said_by(1), run.said_by(0)
