# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts with what papers and tutorials do today: the same training however they are resized, or one line says what is not."""

import pytest

from forked import Run, deviation
from test_odd import SAME, end, is_same, is_the_same_training

for framework in ("transformers", "lightning", "accelerate"):      # once, for all workers
    pytest.importorskip(f"swell.integrations.{framework}")

THE_SAME = ["normalizes_samples", "adds_noise_to_gradients", "clips_adaptively", "averages_with_norms", "crops_as_it_reads", "crops_without_batches", "smooths_with_ignored_alike", "recomputes_blocks",
            "decays_by_epochs", "halves_rates_by_epochs", "accelerates_split_batches"]
ACROSS = "taken over the samples that a worker has in a pass, and a part of the loss, so losses depend on the number of workers"
DECIDES = "is of the samples that a worker has in a pass, so that workers differ, and the training depends on the number of workers"
HALF = "swell: passes compute in {}, and round the gradients of a pass to it as a whole: passes of other sizes, as another number of workers makes them,"


@pytest.mark.parametrize("name", THE_SAME)
def test_a_script_as_papers_have_it_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="practice")
    said = "".join(run.said_by(start) for start in range(3))
    assert run.sizes() == list(range(1, 13)) and "lent nothing" not in said and ACROSS not in said and DECIDES not in said, said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accelerates_dispatched_batches", "trainer_keeps_its_best", "trl_prefers", "trl_packs"])
def test_a_script_over_a_framework_is_resized_as_any_other(name, runs):
    if name.startswith("trl"):
        pytest.importorskip("trl")
    is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="practice")


@pytest.mark.parametrize("name, of", [("autocasts", "bfloat16"), ("autocasts_to_float16", "float16")])
def test_passes_of_the_same_sizes_train_alike_in_half_precision(name, of, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="practice")
    assert run.said_by(0).count(HALF.format(of)) == 1 and HALF.format(of) not in run.said_by(1)


def test_passes_of_other_sizes_differ_in_half_precision_as_without_swell(runs):
    bare = [runs(Run, f"bare{world}", "practice", "autocasts_without_swell", steps=8).fast().start(world).leave_well().curve() for world in (1, 3)]
    ours = [runs(Run, f"ours{world}", "practice", "autocasts_whole_shares", steps=8).fast().start(world).leave_well().curve() for world in (1, 3)]
    without, ours_ = deviation(*bare), deviation(*ours)
    assert without > SAME and ours_ < 4 * without, (without, ours_)


@pytest.mark.parametrize("name, says", [
    ("standardizes_advantages", ["advantages.mean() (line ", "advantages.std() (line "]), ("whitens", ["values.mean(0) (line ", "values.var(0) (line "]), ("takes_a_baseline", ["y.mean() (line "]),
    ("normalizes_its_batch", ["x.mean(0) (line ", "x.std(0) (line "]), ("weighs_by_counts", ["torch.bincount(of, minlength=4) (line "]), ("normalizes_in_collate", ["x.mean(0) (line "]),
    ("normalizes_in_collate_of_readers", ["x.std(0) (line "])])
def test_values_over_a_pass_that_go_into_the_loss_are_named(name, says, runs):
    run = runs(Run, "across", "practice", name, "step@2", steps=4).fast()
    for _ in range(2):
        run.start(1).leave_well()
    [line] = [line for line in run.said_by(0).splitlines() if ACROSS in line]
    assert all(each in line for each in says) and " of practice.py)" in line and ACROSS not in run.said_by(1), line


@pytest.mark.parametrize("name, says", [("plateaus_on_a_pass", "plateau.step(loss.item()) (line "), ("stops_by_a_pass", "the condition of break (line ")])
def test_what_is_decided_by_one_worker_s_samples_is_named(name, says, runs):
    run = runs(Run, "decides", "practice", name, steps=4).fast().start(1).leave_well()
    [line] = [line for line in run.said().splitlines() if DECIDES in line]
    assert line.startswith("swell: " + says), line


@pytest.mark.parametrize("name, model", [("mixes_experts", "MixtralForCausalLM"), ("mixes_experts_of_qwen", "Qwen3MoeForCausalLM")])
def test_a_balance_of_experts_that_grows_with_passes_is_lent_nothing(name, model, runs):
    run = runs(Run, "experts", "practice", name, steps=3).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.step() == 3 and run.why.startswith(
        f"the balance of experts (router_aux_loss_coef=0.1) is added to the loss of each pass as it is, and grows with the passes of a step: set accepts_loss_kwargs = False in {model}"), run.why


def test_a_balance_of_experts_over_a_pass_is_named(runs):
    run = runs(Run, "experts", "practice", "mixes_experts_as_the_mean_of_passes", steps=3).fast().start(1).leave_well()
    assert run.said().count("swell: the balance of experts (router_aux_loss_coef=0.1) is a loss over the tokens of a pass, so losses depend on the number of workers") == 1 and "lent nothing" not in run.said()


def test_experts_without_a_loss_of_their_balance_are_resized_as_any_other(runs):
    run = is_the_same_training(runs, "mixes_experts_without_balance", 8, [2, 5], [1, 2, 1], job="practice")
    assert "balance" not in run.said_by(0)


def test_an_optimizer_that_steps_another_one_whose_state_it_does_not_save_is_lent_nothing(runs):
    run = runs(Run, "sharp", "practice", "sharpens_whole_shares", steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("the optimizer steps another one, SGD, whose state its state_dict() lacks, and each start would make anew: have both share one state") and run.step() == 4


@pytest.mark.parametrize("name", ["smooths_with_ignored", "smooths_weighted_classes", "packs"])
def test_a_smoothed_loss_that_is_divided_by_what_a_pass_has_is_lent_nothing(name, runs):
    run = runs(Run, "smooths", "practice", name, steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("the loss is divided by a number that does not go with the samples of a pass") and run.step() == 4


def test_gradients_that_wait_for_a_step_by_hand_are_not_left_behind(runs):
    alone = runs(Run, "alone", "practice", "lightning_accumulates_by_hand", steps=27).fast().start(1).leave_well()
    run = runs(Run, "resized", "practice", "lightning_accumulates_by_hand", "step@3", "step@9", "step@20", steps=27).fast()     # two batches a step, over the ends of epochs
    for world in (1, 2, 1, 2):
        run.start(world).leave_well()
    assert all(is_same(end(run)[each], end(alone)[each]) for each in ("weights", "steps", "rate")), (end(run), end(alone))
