# SPDX-License-Identifier: GPL-2.0-or-later
"""Ordinary scripts with something odd in each: they are the same training however they are resized, or are lent nothing."""

import itertools
import json
import os

import pytest

from forked import LiveRun, Run, deviation
from native import needs_live_host

for framework in ("transformers", "lightning", "accelerate"):      # once, for all workers
    pytest.importorskip(f"swell.integrations.{framework}")

SAME = 1e-5


def end(run):
    with open(os.path.join(run.folder, "end")) as file:
        return json.load(file)


def is_same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return abs(one - other) <= SAME * max(abs(one), abs(other), 0.01) if isinstance(one, float) else one == other


def is_the_same_training(runs, name, steps, asked, worlds, job="odd"):
    """Resizes a job after these steps, or moments, and compares it with one that nobody resizes."""
    alone = runs(Run, "alone", job, name, steps=steps).fast().start(1).leave_well()
    run = runs(Run, "resized", job, name, *(f"step@{each}" if isinstance(each, int) else each for each in asked), steps=steps).fast()
    for world in worlds:
        run.start(world).leave_well()
    assert run.worlds() == [world for world, _ in itertools.groupby(worlds)] and deviation(run.curve(), alone.curve()) < SAME
    assert is_same(end(run), end(alone)), (end(run), end(alone))
    return run


def test_work_of_a_script_after_a_step_is_part_of_its_checkpoint(runs):
    is_the_same_training(runs, "averages", 10, [3, 7], [1, 2, 1])     # leaves a step later, where there is a checkpoint already


def test_a_save_of_the_script_s_that_is_under_way_comes_to_its_end_before_workers_leave(runs):
    run = is_the_same_training(runs, "saves_beside", 6, [3], [2, 1])
    assert os.path.exists(os.path.join(run.folder, "own", ".metadata"))


def test_an_average_that_a_callback_of_the_Trainer_keeps_is_part_of_its_checkpoint(runs):
    is_the_same_training(runs, "trainer_averages", 8, [2, 5], [1, 2, 1])


@pytest.mark.parametrize("name, says", [
    ("forgets_its_average", "the script updates an average of weights, AveragedModel, as it trains, which no checkpoint holds"), ("forgets_an_average_of_its_own_kind", "average of weights, Mean,"),
    ("forgets_another_optimizer", "another optimizer of the script's, AdamW, steps in this loop, which no checkpoint holds, and each start would make anew: give Elastic state={\"other\": optimizer} and its module"),
    ("forgets_another_optimizer_without_a_state", "another optimizer of the script's, SGD"),
    ("forgets_its_schedule", "the script steps a schedule of its own, StepLR, as it trains"), ("forgets_its_plateau", "a schedule of its own, ReduceLROnPlateau,")])
def test_a_loop_that_changes_values_outside_of_its_checkpoint_is_lent_nothing(name, says, runs):
    run = runs(Run, "odd", "odd", name, steps=5).fast().start(1).leave_well()
    assert run.sizes() == [1] and says in run.why and run.said().count("the job is lent nothing: ") == 1 and run.step() == 5


@pytest.mark.parametrize("name", ["averages", "holds_another_optimizer", "begins_its_schedule_where_it_goes_on", "has_others_that_do_not_change"])
def test_a_loop_whose_checkpoint_holds_all_changed_values_is_lent_more(name, runs):
    run = runs(Run, "odd", "odd", name, steps=5).fast().start(1).leave_well()
    assert run.sizes() == list(range(1, 13)) and "lent nothing" not in run.said(), run.said()


@pytest.mark.parametrize("name, kind", [("forgets_averages_by_name", "a dict"), ("forgets_a_copy_that_averages", "a Sequential")])
def test_an_average_of_the_script_s_own_that_no_checkpoint_holds_is_lent_nothing(name, kind, runs):
    run = runs(Run, "odd", "odd", name, steps=8).fast().start(1).leave_well()
    assert run.sizes() == [1] and f"keeps an average of the weights of its own, {kind}, as it trains, which no checkpoint holds" in run.why and run.step() == 8


@pytest.mark.parametrize("name", ["holds_averages_by_name", "notes_differences_by_name"])
def test_an_average_of_the_script_s_own_that_a_checkpoint_holds_is_lent_more(name, runs):
    run = runs(Run, "odd", "odd", name, steps=24).fast().start(1).leave_well()
    assert run.sizes() == list(range(1, 13)) and "lent nothing" not in run.said(), run.said()


def test_what_a_script_counts_by_itself_goes_on_where_it_is_given(runs):
    run = is_the_same_training(runs, "counts_by_itself", 12, [3, 7], [1, 2, 1])
    assert end(run)["running"] > 12 * end(run)["best"] > 0
    lost = runs(Run, "lost", "odd", "forgets_what_it_counts", "step@3", steps=12).fast()
    for _ in range(2):
        lost.start(1).leave_well()
    assert not is_same(end(lost)["mean"], end(run)["mean"]), "nothing tells it from what is made anew on purpose"


@pytest.mark.parametrize("name", ["one_cycle", "warm_restarts", "schedules_in_turn", "schedules_in_a_chain", "plateau", "ties_and_checkpoints", "changes_rates_by_hand", "smooths"])
def test_an_ordinary_loop_of_research_is_resized_as_any_other(name, runs):
    is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1])     # a step of 2 samples is the last of an epoch


@pytest.mark.parametrize("name, says", [("sums_its_loss", "the loss is a sum over a pass (MseLoss)"), ("weighs_classes", "the loss is divided by the weights of the classes in a pass"),
                                        ("ignores_unlike_numbers", "the loss is a mean over the targets of a pass that are not ignored, of which samples have unlike numbers")])
def test_a_loss_that_is_not_a_mean_over_samples_is_lent_nothing(name, says, runs):
    run = runs(Run, "odd", "odd", name, steps=3).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith(says) and run.said().count("the job is lent nothing: ") == 1 and run.step() == 3


@pytest.mark.parametrize("name", ["ignores_one_of_each", "ignores_and_divides_by_samples", "divides_its_sum"])
def test_a_loss_that_is_a_mean_over_samples_is_the_same_over_any_number_of_workers(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1])
    assert run.sizes() == list(range(1, 13)) and "lent nothing" not in run.said()


@pytest.mark.parametrize("name, says", [("reads_a_second_loader", "the loop reads a second loader beside batches(), of a TensorDataset,"), ("evaluates_by_a_loader", "")])
def test_a_second_loader_in_the_loop_is_lent_nothing(name, says, runs):
    run = runs(Run, "odd", "odd", name, steps=6).fast().start(1).leave_well()
    assert run.step() == 6 and (run.sizes() == [1]) == bool(says) and run.why.startswith(says), run.said()
    assert ("StackDataset" in run.said()) == bool(says)


@pytest.mark.parametrize("name, says", [("changes_buffers", ["0 (Counts), 1.parametrizations.weight.0 (_SpectralNorm): each forward pass changes buffers"]), ("changes_no_buffers", [])])
def test_modules_that_change_buffers_in_a_pass_are_named_once(name, says, runs):
    run = runs(Run, "odd", "odd", name, "step@2", steps=5).fast()
    for start in range(2):
        said = [line.removeprefix("swell: ").partition(",")[0] + "," + line.partition(",")[2].partition(", from")[0] for line in run.start(1).leave_well() and run.said().splitlines() if "changes buffers" in line]
        assert said == (says if start == 0 else []), run.said()


@pytest.mark.parametrize("name, says, steps", [("trainer_forgets_its_average", "Averages.average keeps weights, such as an average, that no checkpoint holds", 4),
                                               ("trainer_forgets_weights_by_name", "Averages.average keeps weights, such as an average, that no checkpoint holds", 4),
                                               ("lightning_forgets_its_average", "use Lightning's WeightAveraging", 9)])
def test_a_callback_s_average_that_no_checkpoint_holds_is_lent_nothing(name, says, steps, runs):
    run = runs(Run, "odd", "odd", name, "step@2", steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and says in run.why and run.step() == steps


@pytest.mark.parametrize("name, says", [
    ("trainer_changes_hyperparameters", "max_grad_norm=2.0 (it was 1.0) and lr_scheduler_type=cosine (it was linear), with which it trains on; weight_decay=0.5 of the optimizer (it was 0.0), "
     "in whose place the checkpoint's stays"),
    ("lightning_changes_hyperparameters", "gradient_clip_val=2.0 (it was 1.0), accumulate_grad_batches=2 (it was 1) and precision=bf16-mixed (it was 32-true), with which it trains on; "
     "momentum=0.5 of the optimizer (it was 0.9), in whose place the checkpoint's stays")])
def test_other_hyperparameters_than_those_of_the_run_so_far_are_said_once(name, says, runs):
    run = runs(Run, "odd", "odd", name, "step@3", "step@6", steps=9).fast()
    for start in range(3):
        run.start(1).leave_well()
        said = [line for line in run.said().splitlines() if "gives other" in line]
        assert said == (["swell: this start gives other hyperparameters than the run so far: " + says] if start == 1 else []), run.said()


@pytest.mark.parametrize("name, sizes", [
    ("normalizes", [1, 2, 3, 4, 5, 6]), ("normalizes_a_rest", [1]), ("trainer_normalizes", [1, 2, 3, 4, 6]), ("trainer_normalizes_a_rest", [1]),
    ("lightning_normalizes", [1, 2, 3, 4, 6])])
def test_a_model_that_fails_on_one_sample_is_lent_no_workers_that_would_have_one(name, sizes, runs):
    assert runs(Run, "odd", "odd", name, steps=3).fast().start(1).leave_well().sizes() == sizes


@pytest.mark.parametrize("name, says", [("trains_more_than_the_model", "the optimizer has a parameter of shape () that is not the model's"),
                                        ("trainer_trains_more_than_the_model", "the optimizer has a parameter of shape () that is not the model's"),
                                        ("notes_a_function", "decay of the optimizer's groups is a function, which a checkpoint cannot hold")])
def test_an_optimizer_that_no_start_could_make_is_lent_nothing(name, says, runs):
    run = runs(Run, "odd", "odd", name, "step@2", steps=6).fast().start(1).leave_well()
    assert run.sizes() == [1] and says in run.why and run.step() == 6
    assert says in next(line for line in run.said().splitlines() if line.startswith("swell: ")), "before it trains"


@pytest.mark.parametrize("of, says", [("model", "set accepts_loss_kwargs = False in Model, whose loss is a mean"),
                                      ("function", "have compute_loss_func return the sum over the pass, divided by num_items_in_batch"),
                                      ("method", "set loss_is_scaled_for_ga = False in Mean, whose compute_loss() gives a mean")])
def test_a_Trainer_whose_loss_grows_with_its_passes_is_lent_nothing_until_that_is_repaired(of, says, runs):
    run = runs(Run, "odd", "odd", f"trainer_mean_of_{of}", "step@2", steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.step() == 4
    assert run.why == f"the loss is not divided by num_items_in_batch, and grows with the passes of a step: {says}"
    is_the_same_training(runs, f"trainer_repaired_{of}", 8, [2, 5], [1, 3, 1])


@pytest.mark.parametrize("name, model", [("trainer_classifies", "BertForSequenceClassification"), ("trainer_translates", "T5ForConditionalGeneration")])
def test_a_model_of_transformers_whose_loss_is_a_mean_is_lent_nothing_until_that_is_said(name, model, runs):
    run = runs(Run, "odd", "odd", name, "step@2", steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.step() == 4
    assert run.why == f"the loss is not divided by num_items_in_batch, and grows with the passes of a step: set accepts_loss_kwargs = False in {model}, whose loss is a mean"
    if name == "trainer_classifies":
        is_the_same_training(runs, "trainer_classifies_repaired", 8, [2, 5], [1, 3, 1])


def test_a_language_model_that_hands_its_items_on_is_not_computed_more_than_once():
    from swell.integrations._loss import _hands_on
    import transformers
    assert all(_hands_on(getattr(transformers, name)) for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "OPTForCausalLM"))
    assert not any(_hands_on(getattr(transformers, name)) for name in ("BartForCausalLM", "XLNetLMHeadModel", "BertForSequenceClassification", "T5ForConditionalGeneration", "ViTForImageClassification"))


def test_objects_given_to_Accelerate_are_part_of_its_checkpoint(runs):
    is_the_same_training(runs, "accelerate_registers", 9, [2, 5], [1, 2, 1])


def test_a_loader_that_Accelerate_has_prepared_is_refused_in_one_sentence(runs):
    run = runs(Run, "odd", "odd", "accelerate_prepares_its_loader").fast().start(1)
    assert run.leave() == [1] and "TypeError: batches() is given a prepared DataLoaderShard, which shares out its samples itself" in run.said()


@pytest.mark.parametrize("name, batches, asked", [
    ("lightning_monitors_its_epochs", 27, [3, 9, 20]),      # after 9 batches, within the validation of an epoch's end
    ("lightning_averages_weights", 27, [3, 9, 20]), ("lightning_swaps_its_schedule", 36, [3, 14, 30]), ("lightning_accumulates_from_its_second_epoch_on", 27, [3, 11, 14])])
def test_Lightning_s_epochs_and_callbacks_go_on_within_an_epoch(name, batches, asked, runs):
    is_the_same_training(runs, name, batches, asked, [1, 2, 1, 2])


def test_a_save_that_fails_within_a_validation_leaves_the_model_its_own_weights(runs):
    alone = runs(Run, "alone", "odd", "lightning_averages_weights", steps=27).fast().start(1).leave_well()
    run = runs(Run, "odd", "odd", "lightning_cannot_save_within_a_validation", "validation@9", steps=27).fast().start(1).leave_well()
    assert "the checkpoint of step 9 could not be written" in run.said() and run.worlds() == [1]
    assert is_same(end(run), end(alone)), (end(run), end(alone))


def test_a_norm_that_a_script_has_thawed_keeps_its_statistics_from_then_on(runs):
    is_the_same_training(runs, "lightning_thaws_a_norm", 27, [3, 14, 20], [1, 1, 1, 1])


@needs_live_host
@pytest.mark.parametrize("step", [3, pytest.param(9, marks=pytest.mark.slow)])
def test_Lightning_s_epochs_go_on_over_a_live_resize(step, runs):
    alone = runs(Run, "alone", "odd", "lightning_logs_its_epochs", steps=63).fast().start(1).leave_well()
    run = runs(LiveRun, "live", "odd", "lightning_logs_its_epochs", f"step@{step}", f"step@{step + 10}", steps=63).start(1)
    for at, world in ((step, 2), (step + 10, 1)):
        run.until(lambda: os.path.exists(os.path.join(run.folder, f"moment.step.{at}")), "the step")
        assert run.switch(world).get("committed")
    run.fast().leave_well()
    assert deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))


@needs_live_host
def test_an_average_given_to_a_Trainer_s_callback_goes_along_live(runs):
    alone = runs(Run, "alone", "odd", "trainer_averages", steps=60).fast().start(1).leave_well()
    run = runs(LiveRun, "live", "odd", "trainer_averages", "step@3", "step@8", steps=60).start(1)
    for step, world in ((3, 2), (8, 1)):
        run.until(lambda: os.path.exists(os.path.join(run.folder, f"moment.step.{step}")), "the step")
        report = run.switch(world)
        assert report.get("committed"), report
    run.fast().leave_well()
    assert run.worlds() == [1, 2, 1] and deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))


def test_Lightning_s_second_loader_is_refused_in_one_sentence(runs):
    run = runs(Run, "odd", "odd", "lightning_reads_from_two_loaders").fast().start(1)
    assert run.leave() == [1] and "RuntimeError: the training reads from 2 loaders; LightningElastic shares out the samples of one" in run.said()
    assert not run.step()


def test_a_layer_without_a_gradient_is_found_on_one_worker(runs):
    run = runs(Run, "odd", "odd", "lightning_leaves_a_layer_out", "step@3").fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("spare.weight takes no part in the loss, for which DistributedDataParallel would end"), run.why
