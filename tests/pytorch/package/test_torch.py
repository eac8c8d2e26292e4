# SPDX-License-Identifier: GPL-2.0-or-later
"""swell.torch.Elastic: resized, asked at odd moments, killed."""

import os
import random
import time

import pytest
import torch
import torch.distributed as dist

from forked import Run, apart, deviation
from swell._agreement import Agreement
from swell._generators import generators, restore_generators
from swell.torch import Elastic

SAME = 1e-5


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Loss by step of one worker that nobody disturbs."""
    run = Run(tmp_path_factory.mktemp("reference"), "ddp").fast().start(1).leave_well()
    assert sorted(run.curve()) == list(range(1, 61)) and run.curve()[60] < run.curve()[1] * 2
    return run.curve()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_resizes_leave_the_loss_of_every_step_as_it_is(runs, reference, kind):
    run = runs(Run, "resized", "ddp", *(["fsdp"] if kind == "fsdp" else []))
    for world in (1, 5):    # 5 has no equal shares of the global batch of 12
        run.start(world).reach(run.step() + 5).ask().leave_well()
    run.fast().start(2).leave_well()
    steps = [line["step"] for line in run.lines()]
    assert steps == list(range(1, 61)), "a step is missing or was trained twice"
    assert run.worlds() == [1, 5, 2]
    assert deviation(run.curve(), reference) < SAME


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_dropout_is_the_same_over_any_number_of_workers(runs, kind):
    words = ["ddp", "drops", *(["fsdp"] if kind == "fsdp" else [])]
    alone = runs(Run, "alone", *words).fast().start(1).leave_well()
    run = runs(Run, "resized", *words)
    for world in (1, 2, 4):
        run.start(world).reach(run.step() + 5).ask().leave_well()
    run.fast().start(3).leave_well()
    assert run.worlds() == [1, 2, 4, 3] and deviation(run.curve(), alone.curve()) < SAME
    assert "draws other masks" not in "".join(map(run.said, range(3)))


def test_a_request_to_one_worker_makes_all_leave_at_the_same_step(runs):
    run = runs(Run, "one", "ddp").start(3).reach(4)
    asked_at = run.ask(2).step()        # no earlier than when it was asked
    run.leave_well()
    assert run.step() <= asked_at + 3 and "checkpoint at step" in run.said(0)


def test_workers_that_still_start_leave_at_once(runs):
    run = runs(Run, "starting", "ddp", "starting").start(2)
    run.until(lambda: all(os.path.exists(os.path.join(run.folder, f"starting.{rank}")) for rank in range(2)), "both workers, within their start")
    run.ask().leave_well()
    assert all("asked to leave before training began" in run.said(rank) for rank in range(2))


def test_a_request_in_an_evaluation_is_acted_on(runs, reference):
    run = runs(Run, "evaluation", "ddp", "evaluate").fast().start(2)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "evaluating")), "the evaluation")
    run.ask().leave_well()
    assert run.step() == 13
    run.arguments = ()
    run.start(1).leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_worker_killed_at_any_moment_costs_no_more_than_an_interval(runs, reference):
    run, chance = runs(Run, "killed", "ddp"), random.Random(2)
    for _ in range(2):
        run.start(2).reach(run.step() + 11)
        time.sleep(chance.uniform(0, 0.2))      # some moment of a step, or of the save after each tenth
        run.kill(1)
        assert run.leave() != [0, 0]
    run.fast().start(3).leave_well()
    assert sorted(run.curve()) == list(range(1, 61)) and deviation(run.curve(), reference) < SAME
    begins = [line["step"] for at, line in enumerate(run.lines()) if at and line["generation"] != run.lines()[at - 1]["generation"]]
    ends = [run.lines()[at - 1]["step"] for at, line in enumerate(run.lines()) if at and line["generation"] != run.lines()[at - 1]["generation"]]
    assert all(end - begin < 20 for begin, end in zip(begins, ends)), (begins, ends)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_killed_in_the_middle_of_an_asynchronous_save_costs_that_checkpoint_alone(runs, reference, rank):
    run = runs(Run, "saving", "ddp", "held-saves")
    checkpoint, hold = os.path.join(run.folder, "checkpoints", "step-0000000{}0"), os.path.join(run.folder, "hold")
    with open(hold, "w"):
        run.start(2).until(lambda: os.path.exists(os.path.join(run.folder, f"writing.{rank}")), "the second checkpoint, under way")
    assert os.path.exists(os.path.join(checkpoint.format(1), ".metadata"))
    run.reach(22).kill(rank)        # it trains on meanwhile
    os.remove(hold)
    assert 0 not in run.leave()
    assert not os.path.exists(os.path.join(checkpoint.format(2), ".metadata"))
    run.fast().start(3).leave_well()
    begins = next(line["step"] for line in run.lines() if line["generation"])
    assert begins == 11, "it went on from another state than the last whole checkpoint's"
    assert sorted(run.curve()) == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_worker_killed_in_an_evaluation_leads_to_the_last_checkpoint(runs, reference):
    run = runs(Run, "evaluation", "ddp", "evaluate").fast().start(2)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "evaluating")), "the evaluation")
    run.until(lambda: os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000010", ".metadata")), "the checkpoint")
    run.kill(1)
    assert 0 not in run.leave()
    run.arguments = ()
    run.start(3).leave_well()
    begins = next(line["step"] for line in run.lines() if line["generation"])
    assert begins == 11, "it went on from another state than the last checkpoint's"
    assert sorted(run.curve()) == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_finished_run_started_again_trains_nothing(runs):
    run = runs(Run, "finished", "ddp", steps=5).fast().start(2).leave_well()
    run.start(1).leave_well()
    assert [line["step"] for line in run.lines()] == [1, 2, 3, 4, 5]


def test_only_the_newest_complete_checkpoints_are_kept(runs):
    run = runs(Run, "kept", "ddp", steps=35).fast().start(1).leave_well()
    assert sorted(os.listdir(os.path.join(run.folder, "checkpoints"))) == ["step-000000030", "step-000000035"]


def test_a_growth_that_cannot_be_saved_is_declined_and_training_goes_on(runs, reference):
    run = runs(Run, "full", "ddp").start(2)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000010", ".metadata")), "the first checkpoint")
    assert run.sizes() == list(range(1, 13))
    with open(os.path.join(run.folder, "full"), "w"):
        run.reach(run.step() + 2).ask().reach(22)       # beyond the periodic save of step 20, which fails too
    folder, said = os.path.join(run.folder, "checkpoints"), run.said()
    assert f"could not be written to {folder}: File too large; the one before, of step 10, is whole" in said, said
    assert said.count("asked to leave, but training goes on: ") == 1 and said.count("could not be written") == 1, said
    assert run.sizes() == [2] and run.why.startswith("the checkpoint of step ") and run.why in said
    assert sorted(name for name in os.listdir(folder) if name.startswith("step")) == ["step-000000010"], "what is not whole takes space"
    os.remove(os.path.join(run.folder, "full"))
    run.reach(33)
    assert run.sizes() == list(range(1, 13)) and not run.why, "it can save again"
    run.ask().leave_well()
    run.fast().start(1).leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_growth_that_cannot_be_saved_is_declined_where_there_is_no_checkpoint_before(runs):
    run = runs(Run, "full", "ddp", "no-checkpoints", steps=12).start(1).reach(2)
    with open(os.path.join(run.folder, "full"), "w"):
        run.reach(4).ask().reach(7)
    assert run.sizes() == [1] and run.why.endswith(": File too large, and there is none before it"), run.why
    os.remove(os.path.join(run.folder, "full"))
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 13))


def test_a_periodic_checkpoint_that_fails_ends_nothing_and_is_said_once(runs):
    run = runs(Run, "full", "ddp", steps=45).start(1)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000010", ".metadata")), "the first checkpoint")
    with open(os.path.join(run.folder, "full"), "w"):
        run.fast().leave_well()
    assert run.said().count("could not be written") == 1 and run.said().count("; training goes on") == 1
    os.remove(os.path.join(run.folder, "full"))
    run.start(2).leave_well()
    assert "continues from step 10, " in run.said()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_worker_that_fails_within_a_save_keeps_nobody_waiting(runs, kind):
    run = runs(Run, "fails", "ddp", *(["fsdp"] if kind == "fsdp" else []), "fails-once", steps=32).fast().start(2).leave_well()
    said = [line for line in run.said().splitlines() if "could not be written" in line]
    assert len(said) == 1 and "step 20" in said[0] and "out of memory; the one before, of step 10, is whole; training goes on" in said[0]
    assert len(run.curve()) == 32 and os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000030", ".metadata"))


def test_a_worker_that_fails_among_collectives_of_a_save_ends_and_does_not_wait(runs):
    run = runs(Run, "together", "ddp", "together").start(2)
    gone, status = os.waitpid(run.workers.pop(1), 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert "swell: rank 1: a save that all workers make together failed: out of memory; this worker ends" in run.said(1)
    run.end()       # as swellrun ends those that wait for its shard
    assert all("all have failed: No space left on device" in run.said(rank) for rank in (0, 1)), "a write that fails is agreed on"


@pytest.mark.parametrize("kind", ["unfreezes", "freezes", "adds", "alternates"])
def test_a_run_that_changes_what_it_trains_is_resized_as_one_that_does_not(runs, kind):
    alone = runs(Run, "alone", "ddp", kind, steps=20).fast().start(1)
    run = runs(Run, "changed", "ddp", kind, steps=20).start(2).reach(7)
    assert run.sizes() == list(range(1, 13)), "it may be lent more"
    run.ask().leave_well()
    run.start(1).reach(11).ask().leave_well()
    assert "it trains what that run has come to train" in run.said()
    run.start(3).reach(14).ask().leave_well()
    run.fast().start(1).leave_well()
    alone.leave_well()
    assert run.worlds() == [2, 1, 3, 1] and len(run.curve()) == 20
    assert deviation(run.curve(), alone.curve()) < SAME


def test_state_that_no_start_could_train_is_not_a_reason_to_leave(runs):
    run = runs(Run, "changed", "ddp", "outside", steps=20).start(1).reach(7)
    assert run.sizes() == [1] and "(parameters that are not the model's), and a start could not" in run.why, "before anything is asked"
    run.ask().reach(12).fast().leave_well()
    assert f"asked to leave, but training goes on: {run.why}" in run.said()


def test_a_gradient_that_nothing_averages_is_an_error(runs):
    run = runs(Run, "apart", "ddp", "unfreezes", "inner", steps=12).start(2)
    assert run.leave() == [1, 1]
    assert "0.weight has a gradient that DistributedDataParallel does not average over the 2 workers" in run.said(1)


def test_a_compiled_ddp_is_resized_as_one_that_is_not(runs, reference):
    run = runs(Run, "compiled", "ddp", "compiled", steps=12).start(1).reach(4).ask().leave_well()
    run.fast().start(2).leave_well()
    assert run.worlds() == [1, 2] and deviation(run.curve(), {step: reference[step] for step in range(1, 13)}) < SAME


def named(optimizer, tmp_path):
    model = torch.nn.Linear(2, 1)
    with pytest.raises(TypeError) as error:
        Elastic(model, optimizer(model), directory=tmp_path, global_batch=4)
    return str(error.value)


@apart
def test_several_optimizers_are_refused_by_name(tmp_path):
    said = named(lambda model: [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.AdamW(model.parameters())], tmp_path)
    assert said.startswith("optimizer= has 2 optimizers (SGD, AdamW), and Elastic steps one: give one with their parameters as groups"), said
    assert named(lambda model: torch.optim.SGD, tmp_path / "made").startswith("optimizer= is of type type; give an optimizer over"), "what makes one"
    assert named(lambda model: None, tmp_path / "none").startswith("optimizer= is of type NoneType; give an optimizer over")


@apart
@pytest.mark.parametrize("given", ["an engine", "an optimizer", "a partitioned model"])
def test_DeepSpeed_is_refused_by_name(given, tmp_path, monkeypatch):
    """By types as it has them: of its modules, and with its marks on parameters."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if given == "an engine":
        model = type("DeepSpeedEngine", (torch.nn.Module,), {"__module__": "deepspeed.runtime.engine"})()
    elif given == "an optimizer":
        optimizer = type("DeepSpeedZeroOptimizer", (), {"__module__": "deepspeed.runtime.zero.stage_1_and_2"})()
    else:
        model.weight.ds_id = 0
    with pytest.raises(TypeError, match="Elastic cannot resize a training with DeepSpeed .*as many workers as wrote them; use fully_shard"):
        Elastic(model, optimizer, directory=tmp_path, global_batch=4)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given, says", [
    ({"model": [torch.nn.Linear(2, 1)]}, "model= is of type list; give one torch.nn.Module"), ({"global_batch": "8"}, "global_batch='8'; give a whole number of at least 1"),
    ({"global_batch": 0}, "global_batch=0; give"), ({"global_batch": 2.5}, "global_batch=2.5; give"), ({"global_batch": True}, "global_batch=True; give"),
    ({"micro_batch": 0}, "micro_batch=0; give a whole number"), ({"scaler": 5}, "scaler= is of type int; give a torch.amp.GradScaler")])
def test_arguments_of_another_kind_are_refused_by_name(tmp_path, given, says):
    model = torch.nn.Linear(2, 1)
    with pytest.raises((TypeError, ValueError)) as refused:
        Elastic(given.pop("model", model), torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path, **{"global_batch": 8, **given})
    assert str(refused.value).startswith(says)


def taken_ahead(batches):
    """One batch ahead, as a prefetcher takes them."""
    before = None
    for batch in batches:
        if before is not None:
            yield before
        before = batch
    yield before


def left_out_once(batches):
    for at, batch in enumerate(batches):
        if at != 0:
            yield batch


def given_twice(batches):
    for batch in batches:
        yield batch
        yield batch


@apart
@pytest.mark.parametrize("micro_batch", [4, 2])
@pytest.mark.parametrize("wrap, says", [(taken_ahead, "elastic.step(loss) was not called for the last batch; call it once for each batch, before the next one is taken, or `if elastic.skip(...): continue`"),
                                        (left_out_once, "elastic.step(loss) was not called"), (given_twice, "elastic.step() was called twice for one batch")])
def test_every_batch_has_one_step_before_the_next_one_is_taken(wrap, says, micro_batch, tmp_path):
    data = torch.utils.data.TensorDataset(torch.ones(24, 2), torch.ones(24, 1))
    model = torch.nn.Linear(2, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path, global_batch=4, micro_batch=micro_batch)
    with pytest.raises(RuntimeError) as error:
        for x, y in wrap(elastic.batches(data, steps=4)):
            elastic.step(torch.nn.functional.mse_loss(model(x), y))
    assert says in str(error.value) and elastic.steps == (0 if micro_batch == 2 or wrap != given_twice else 1)


@pytest.fixture(scope="module")
def skipping(tmp_path_factory):
    """Loss by step of one worker that nobody disturbs, and that skips some batches."""
    run = Run(tmp_path_factory.mktemp("skipping"), "ddp", "skips").fast().start(1).leave_well()
    missing = set(range(1, 61)) - set(run.curve())
    assert {7, 21} < missing and len(missing) > 8
    assert os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000060")), "a skipped batch is not a step"
    return run.curve()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_run_that_skips_batches_is_resized_as_any_other(runs, skipping, kind):
    run = runs(Run, "resized", "ddp", "skips", "leaves", *(["fsdp"] if kind == "fsdp" else [])).start(1).leave_well()
    assert "asked to leave: checkpoint at step 7" in run.said() and run.step() < 7, "it leaves at a step that was skipped"
    for world in (2, 5):
        run.start(world).reach(run.step() + 5).ask().leave_well()
    run.fast().start(1).leave_well()
    assert run.worlds() == [1, 2, 5, 1] and [line["step"] for line in run.lines()] == sorted(skipping), "a step is missing or was trained twice"
    assert deviation(run.curve(), skipping) < SAME


def test_skipped_batches_of_a_stream_are_not_read_again(runs):
    alone = runs(Run, "alone", "ddp", "skips", "stream", steps=30).fast().start(1).leave_well()
    run = runs(Run, "resized", "ddp", "skips", "stream", "leaves", steps=30).start(1).leave_well()
    run.fast().start(2).leave_well()
    assert not {7, 21} & set(run.curve()) and deviation(run.curve(), alone.curve()) < SAME


def test_a_skip_on_one_worker_alone_is_named_and_keeps_nobody_waiting(runs):
    run = runs(Run, "apart", "ddp", "skips-apart").fast().start(2)
    assert 0 not in run.leave() and run.step() == 6
    assert "RuntimeError: elastic.skip() was called for a batch by 1 of 2 workers; call it on every worker for each batch" in run.said(1), run.said(1)


@apart
def test_votes_and_requests_go_over_a_group_of_their_own_on_the_host(tmp_path):
    """NCCL takes no tensor of the host, and the script's default group may be of it."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    real, seen = dist.all_reduce, []

    def all_reduce(tensor, *arguments, group=None, **options):
        seen.append((tensor.device.type, tuple(tensor.shape), dist.get_backend(group), group in (None, dist.group.WORLD)))
        return real(tensor, *arguments, group=group, **options)
    dist.all_reduce = all_reduce
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path / "checkpoints", global_batch=4)
    for x, y in elastic.batches(torch.utils.data.TensorDataset(torch.ones(24, 2), torch.ones(24, 1)), steps=4):
        if not elastic.skip(elastic.steps == 2):
            elastic.step(torch.nn.functional.mse_loss(model(x), y))
    assert len(seen) >= 7 and set(seen) == {("cpu", (1,), "gloo", False), ("cpu", (2,), "gloo", False)}, set(seen)


def test_what_workers_tell_each_other_is_on_the_host_whatever_the_default_device_is():
    with torch.device("meta"):
        agreement, drawn = Agreement(None), generators()
    assert {each.device.type for each in (agreement._asked, agreement._skips, drawn["torch"], drawn["python"][1])} == {"cpu"}
    restore_generators(drawn)


@apart
@pytest.mark.parametrize("micro_batch", [4, 2])
def test_a_skipped_batch_leaves_all_but_the_position_as_it_is(micro_batch, tmp_path):
    data = torch.utils.data.TensorDataset(torch.arange(24.0)[:, None], torch.ones(24, 1))
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    elastic = Elastic(model, optimizer, directory=tmp_path, global_batch=4, micro_batch=micro_batch, scheduler=schedule)
    assert elastic.mean_loss() != elastic.mean_loss(), "there is none yet"
    seen, at = [], 0
    for x, y in elastic.batches(data, steps=6, shuffle=False):
        seen += x.flatten().int().tolist()
        loss = torch.nn.functional.mse_loss(model(x), y)
        before, was, rate = model.weight.clone(), elastic.mean_loss(), schedule.get_last_lr()
        if elastic.skip(torch.tensor(elastic.steps in (0, 3) and at == (micro_batch == 2))):      # in the last pass of a global batch
            at = 0
            assert elastic.skip() and torch.equal(model.weight, before) and model.weight.grad is None and schedule.get_last_lr() == rate
            assert elastic.steps in (1, 4) and elastic.samples == 4 * elastic.steps and (elastic.mean_loss() == was or elastic.steps == 1)
            with pytest.raises(RuntimeError, match="a batch that elastic.skip.. has left out"):
                elastic.step(loss)
            continue
        at = 0 if elastic.step(loss) else 1
        assert at or not torch.equal(model.weight, before)
    assert seen == list(range(24)) and elastic.steps == 6


@apart
def test_a_skip_in_the_first_pass_leaves_the_whole_global_batch_out(tmp_path):
    data = torch.utils.data.TensorDataset(torch.arange(24.0)[:, None], torch.ones(24, 1))
    model = torch.nn.Linear(1, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=1e-4), directory=tmp_path, global_batch=4, micro_batch=1)
    seen = []
    for x, y in elastic.batches(data, steps=6, shuffle=False, num_workers=1):
        if elastic.skip(elastic.steps == 2):
            continue
        seen.append(int(x))
        elastic.step(torch.nn.functional.mse_loss(model(x), y))
    assert seen == [*range(8), *range(12, 24)]
    with pytest.raises(RuntimeError, match="elastic.skip.. was called for a batch that elastic.step.. has trained on; call it before"):
        elastic.skip()


def test_faults_that_more_workers_would_show_are_found_on_one(runs):
    run = runs(Run, "plain", "ddp", "plain", steps=5).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("Sequential can train on one worker alone") and f"the job is lent nothing: {run.why}" in run.said()
    run = runs(Run, "static", "ddp", "static").start(1)
    assert run.leave() == [1] and "static_graph=True does not go with passes that share no gradients" in run.said()
    assert "leave micro_batch out" in run.said() and run.sizes() is None
