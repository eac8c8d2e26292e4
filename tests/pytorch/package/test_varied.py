# SPDX-License-Identifier: GPL-2.0-or-later
"""More scripts of researchers, each of another kind: the same training however they are resized, or one line says what is not."""

import pytest

from forked import Run
from test_odd import is_the_same_training

SAME = ["averages_stochastically", "restarts_within_epochs", "plateaus_on_a_validation", "buckets", "keeps_readers", "accumulates_unevenly", "mixes_tasks_by_sample", "adapts", "follows_a_part_and_keeps_it"]
CARRIES = "the loop carries {} from one step to the next, which each start begins anew"
BESIDE = "{}: changed as it trains, and no checkpoint holds it, so that each start begins it anew: give Elastic state="
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
    ("queues", CARRIES.format("queue, at")), ("carries_a_state", CARRIES.format("hidden")), ("plays", CARRIES.format("baseline")), ("clips_by_history", "history of clip(): changed as it trains, and no checkpoint holds it"),
    ("looks_ahead", CHANGED.format("count of the optimizer (Ahead)")), ("counts_in_its_optimizer", CHANGED.format("done of the optimizer (Counting)")),
    ("lightning_counts_by_itself", CHANGED.format("mean of the module (Module)")),
    ("remembers_in_a_function", BESIDE.format("seen of loss()")), ("weighs_by_an_array", BESIDE.format("WEIGHTS of <lambda>()")), ("weighs_by_an_object", BESIDE.format("weights of weighs of loss()")),
    ("centres_by_a_buffer", CHANGED.format("mean of module (Centred)")), ("counts_by_a_bar", "bar.n counts the passes that this worker has made since this start, and changes the training (line "),
    ("cycles_beside", CARRIES.format("others")), ("follows_a_part", BESIDE.format("target (Sequential)")), ("averages_its_own_norm", "what the model returns for a sample depends on the others in its pass")])
def test_what_a_script_carries_by_itself_is_said(name, says, runs):
    run = runs(Run, "carries", "varied", name, "step@6", steps=9).fast()
    for _ in range(2):
        run.start(1).leave_well()
    assert run.said_by(0).count("swell: " + says) == 1 and "swell: " + says not in run.said_by(1), run.said_by(0)


@pytest.mark.parametrize("name", ["lightning_logs_of_samples", "lightning_reduces_by_functions", "lightning_hides_a_fixed_teacher", "lightning_warms_its_rate_up"])
def test_a_module_of_Lightning_whose_values_are_those_of_all_samples_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 27, [3, 12, 20], [1, 2, 1, 2], job="varied")
    said = "".join(run.said_by(start) for start in range(4))
    assert not any(each in said for each in ("lent nothing", "sync_dist", "reduced over", "begins it anew", "number of workers")), said


HIDDEN = "swell: {}: changed as it trains, and no checkpoint holds it, so that each start begins it anew: make it a part of the module"


@pytest.mark.parametrize("name, says", [
    ("lightning_logs_of_workers", ["swell: alone: logged without sync_dist=True, and so from the first worker's samples alone", "swell: worst (reduce_fx=max), total (reduce_fx=sum): reduced over the values of workers"]),
    ("lightning_hides_a_teacher", [HIDDEN.format("teachers[0] (Sequential)")]), ("lightning_hides_a_teacher_in_an_object", [HIDDEN.format("module (Sequential)")]),
    ("lightning_hides_a_teacher_in_a_closure", [HIDDEN.format("held[0] (Sequential)")]),
    ("lightning_decays_by_epochs", ["swell: weight of the module (Module): changed as it trains, and no state_dict() has it"]),
    ("lightning_scales_its_rate", ["swell: the script sets the learning rate by the number of workers as it trains (line "])])
def test_what_a_start_would_change_in_a_module_of_Lightning_is_said(name, says, runs):
    run = runs(Run, "said", "varied", name, "step@20", steps=27).fast()
    for world in (1, 2):
        run.start(world).leave_well()
    assert all(run.said_by(0).count(each) == 1 and each not in run.said_by(1) for each in says), run.said_by(0)
    assert name != "lightning_scales_its_rate" or "swell: the script sets the learning rate by the number of workers: 0.05 with 1, 0.1 with 2" in run.said_by(1)
