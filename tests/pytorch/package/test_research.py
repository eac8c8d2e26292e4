# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts of researchers, written from the documents alone: the same training however they are resized, or one line says what is not."""

import pytest

from forked import Run
from test_odd import is_the_same_training

THE_SAME = ["loops_over_epochs", "stops_early", "weighs_losses", "decays_by_layer", "distils", "pairs_views", "penalizes_gradients"]
AUGMENTS = ["augments_by_its_own_generator", "augments_by_its_own_older_generator", "augments_by_its_own_generator_of_python", "augments_by_its_own_generator_of_torch",
            "augments_by_its_own_generator_in_readers", "augments_by_a_generator_made_later", "augments_by_a_generator_of_its_file"]
REFUSED = "ValueError: the checkpoint's data has length 36, here it is 60: samples would be lost or repeated; give the same, or another directory"
DIVIDED = "the loss is divided by a number that does not go with the samples of a pass"
APART = "the loss of a sample depends on the others in its pass"


@pytest.mark.parametrize("name", THE_SAME + AUGMENTS)
def test_a_script_of_a_researcher_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9] if name != "stops_early" else [1, 3], [1, 3, 1], job="research")
    assert run.sizes() == list(range(1, 13)) and not any(each in run.said_by(0) for each in ("lent nothing", " draws ", "taken over the samples"))


def test_a_curriculum_in_an_order_of_its_own_is_resized_as_any_other(runs):
    is_the_same_training(runs, "goes_from_easy_to_hard", 14, [1, 9], [1, 3, 1], job="research")


def test_a_curriculum_by_several_loops_is_refused_in_one_sentence(runs):
    run = runs(Run, "stages", "research", "goes_through_stages").fast().start(1)
    assert run.leave() == [1] and REFUSED in run.said() and run.step() == 2


@pytest.mark.parametrize("name", ["draws_by_its_own", "draws_by_its_own_of_torch", "draws_by_its_own_of_python"])
def test_a_generator_of_the_script_s_own_in_the_loop_is_said(name, runs):
    run = runs(Run, "draws", "research", name, "step@2", steps=6).fast()
    for _ in range(2):
        run.start(1).leave_well()
    assert run.said_by(0).count("swell: the training step draws random numbers (one of the script's own, which each start makes anew) for the samples that a worker has") == 1
    assert " draws " not in run.said_by(1)


@pytest.mark.parametrize("name", ["contrasts", "contrasts_both_at_once", "keeps_variance", "takes_a_root", "overlaps"])
def test_a_loss_between_samples_is_lent_nothing(name, runs):
    run = runs(Run, "apart", "research", name, steps=3).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith(APART) and run.said().count("the job is lent nothing: ") == 1 and run.step() == 3


FRAMEWORKS = ["meets_in_the_model", "meets_in_shards", "meets_in_shards_within", "meets_in_accelerate", "meets_in_lightning", "meets_in_lightning_by_hand", "meets_in_trainer", "meets_in_trainer_s_model"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_loss_that_other_passes_would_change_is_found_in_every_framework(name, runs):
    for loss, says in (("nce", APART), ("root", APART), ("spread", APART), ("dice", APART), ("sum", "the loss is a sum over a pass"), ("ignores", "the loss is a mean over the targets of a pass that are not ignored"), ("part", DIVIDED), ("mask", DIVIDED), ("mean", "")):
        run = runs(Run, loss, "research", name, loss, steps=3).fast().start(1).leave_well()
        assert (run.sizes() == [1]) == bool(says) and run.why.startswith(says) and run.said().count("the job is lent nothing: ") == bool(says) and run.step() >= 3, (loss, run.why, run.said())


@pytest.mark.parametrize("name", ["averages_in_half", "averages_in_float16", "averages_a_copy_in_half"])
def test_an_average_in_half_precision_is_lent_nothing(name, runs):
    run = runs(Run, "half", "research", name, steps=24).fast().start(1).leave_well()
    assert run.sizes() == [1] and "keeps an average of the weights of its own" in run.why and run.step() == 24
