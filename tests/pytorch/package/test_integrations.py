# SPDX-License-Identifier: GPL-2.0-or-later
"""Trainer, Accelerate and Lightning: resized, the loss of every step stays what it was."""

import argparse
import errno
import json
import os
import pathlib
import re
import shutil
import types

import pytest

pytest.importorskip("transformers")
pytest.importorskip("lightning")

import accelerate  # noqa: E402,F401  once, for all workers
import lightning.pytorch  # noqa: E402,F401
import transformers  # noqa: E402,F401
from transformers import GPT2LMHeadModel, Trainer  # noqa: E402,F401

import torch  # noqa: E402

from forked import LiveRun, Run, apart, deviation  # noqa: E402
from native import needs_live_host  # noqa: E402
from swell.integrations import LightningElastic, SwellCallback  # noqa: E402
from swell.integrations._trainer import Folder  # noqa: E402

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


@pytest.mark.parametrize("model", ["", "own"])
def test_an_epoch_s_end_with_fewer_samples_than_workers_is_as_on_one_worker(model, runs):
    made = [runs(Run, str(world), "hf", "few", model, steps=10).fast().start(world).leave_well() for world in (1, 3)]
    assert deviation(made[1].curve(), made[0].curve()) < SAME


def test_a_worker_that_fails_within_a_save_of_the_Trainer_keeps_nobody_waiting(tmp_path):
    run = Run(tmp_path / "fails", "hf", "fails-alone", steps=34).fast().start(2)
    try:
        run.leave_well()
    finally:
        run.end()
    assert "the checkpoint of step 20 could not be written" in run.said() and len(run.lines()) == 34


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
    assert os.path.exists(os.path.join(run.folder, "evaluating")), "the evaluation was not made up for"


@pytest.mark.parametrize("framework, options", [*((each, ()) for each in JOBS), ("Trainer", ("evaluate", "one"))])
def test_a_finished_run_started_again_trains_nothing(framework, options, tmp_path):
    run = Run(tmp_path / "finished", JOBS[framework], *options, steps=12).fast().start(1).leave_well().start(2)
    try:
        run.leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 13))
    if options:
        assert "checkpoint-12" not in os.listdir(tmp_path / "finished" / "out") and "nothing is left to train of max_steps=12" in run.said()


def test_a_Trainer_that_does_not_load_the_best_at_its_end_is_not_over_at_the_best(runs):
    run = runs(Run, "best", "hf", "evaluate", "best", steps=8).fast().start(1).leave_well().start(1).leave_well()
    assert "continues from step 5" in run.said() and "nothing is left to train" not in run.said()
    assert [line["step"] for line in run.lines() if line["generation"]] == [6, 7, 8]


@pytest.mark.parametrize("job, option", [("hf", "model-only"), ("hf", "numpy"), ("pl_resnet", "numpy")])
def test_a_job_leaves_with_a_whole_checkpoint_that_can_be_read(job, option, tmp_path):
    reference = Run(tmp_path / "reference", job, option, steps=12).fast().start(1)
    run = Run(tmp_path / "resized", job, option, steps=12)
    try:
        run.start(1).reach(4).ask().leave_well()
        run.fast().start(2).leave_well()
        reference.leave_well()
    finally:
        reference.end()
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 13)) and deviation(run.curve(), reference.curve()) < SAME
    if job == "pl_resnet":
        with open(os.path.join(run.folder, "hyperparameters")) as file:
            assert json.load(file) == {"rate": 3e-3, "folder": "data"}, "what load_from_checkpoint() gives to a module"


@pytest.mark.parametrize("job, file, gone, says", [
    ("hf", "optimizer.pt", True, "optimizer.pt is gone"), ("hf", "scheduler.pt", False, r"scheduler.pt has \d+ of \d+ bytes"),
    ("hf", "swell.json", False, "swell.json cannot be read"), ("pl_resnet", "", False, "it has no end")])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(job, file, gone, says, runs):
    reference = runs(Run, "reference", job, steps=18).fast().start(1).leave_well()
    run = runs(Run, "damaged", job, steps=18).start(1).reach(12).ask().leave_well()
    there = sorted((path for path in pathlib.Path(run.folder).rglob("*") if re.fullmatch(r"checkpoint-\d+|step-\d+\.ckpt", path.name)), key=lambda path: int(re.sub(r"\D", "", path.name)))
    assert len(there) == 2

    def damage(path):
        path = path / file if file else path
        path.unlink() if gone else path.write_bytes(path.read_bytes()[:-50])
    damage(there[1])
    run.fast().start(2).leave_well()
    assert re.search(f"swell: the checkpoint {there[1]} is damaged[ (:]+{says}", run.said()), run.said()
    assert f", {there[0]}, written by" in run.said() and deviation(run.curve(), reference.curve()) < SAME
    assert job != "pl_resnet" or there[1].with_name(f"damaged-{there[1].name}").exists(), "it would count among those that are kept"
    shutil.rmtree(there[1], ignore_errors=True)
    alone = runs(Run, "alone", job, steps=18).start(1).reach(4).ask().leave_well()
    damage(next(path for path in pathlib.Path(alone.folder).rglob("*") if re.fullmatch(r"checkpoint-\d+|step-\d+\.ckpt", path.name)))
    assert alone.start(1).leave() == [1] and re.search(f"is damaged[ (:]+{says}.*there is no whole one before it", alone.said())


@apart
def test_only_files_that_a_start_of_a_Trainer_reads_are_looked_at(tmp_path, capfd):
    folder = Folder(str(tmp_path))
    for step in (1, 2):
        path = tmp_path / f"checkpoint-{step}"
        folder.begin(step)
        for name in ("optimizer.pt", "scheduler.pt", "README.md", "rng_state.pth", "pytorch_model.bin", ".nfs0001"):
            (path / name).write_bytes(bytes(100))
        (path / "trainer_state.json").write_text('{"log_history": []}')
        folder.mark(step, {})
        folder.finish(step)
    for name in ("README.md", "rng_state.pth", "pytorch_model.bin", ".nfs0001"):
        (path / name).unlink()
    (path / "trainer_state.json").write_text("{}")
    assert folder.newest() == str(path)
    os.truncate(path / "optimizer.pt", 99)
    assert folder.newest() == str(tmp_path / "checkpoint-1")
    os.truncate(tmp_path / "checkpoint-1" / "trainer_state.json", 5)
    assert folder.newest() is None
    with pytest.raises(ValueError, match="checkpoint-2 is damaged .optimizer.pt has 99 of 100 bytes., .*checkpoint-1 is damaged .*: move them away to begin anew"):
        folder.check(None)
    capfd.readouterr()
    folder.check(None, "/copy/checkpoint-3")
    assert "optimizer.pt has 99 of 100 bytes): this start takes /copy/checkpoint-3" in capfd.readouterr().err


@apart
def test_a_damaged_checkpoint_of_Lightning_takes_the_place_of_no_whole_one(tmp_path, monkeypatch):
    elastic = LightningElastic(tmp_path, keep=1)
    first, newest = (str(tmp_path / f"step-{step:09d}.ckpt") for step in (100, 200))
    for path in (first, newest):
        torch.save({"step": torch.zeros(100)}, path)
    whole = os.path.getsize(newest)
    for size in (whole - 1, whole - 30, 2, 0):
        os.truncate(newest, size)
        assert elastic.newest() == first, size
    os.truncate(newest, whole)
    assert elastic.newest() == first, "zeros, as of a machine that went off"
    elastic._set_damaged_aside()
    assert elastic.paths() == [first] and os.path.exists(tmp_path / "damaged-step-000000200.ckpt")
    pathlib.Path(newest).write_bytes(b"what another CheckpointIO has written")
    assert elastic.newest() == newest

    def away(*_):
        raise OSError(errno.ESTALE, "Stale file handle")
    monkeypatch.setattr("builtins.open", away)
    with pytest.raises(OSError, match="Stale file handle"):
        elastic.newest()


def test_save_total_limit_holds_with_save_only_model_and_the_whole_one_stays(runs):
    run = runs(Run, "model-only", "hf", "model-only", steps=55).start(1).reach(14).ask().leave_well()
    whole = run.step()

    def there():
        return sorted(int(name.partition("-")[2]) for name in os.listdir(os.path.join(run.folder, "out")) if name.startswith("checkpoint-"))
    run.start(1).reach(42)
    assert there() == [whole, 30, 40], "two of the Trainer's, and the one that alone can be gone on with"
    run.kill(0).leave()
    run.fast().start(2).leave_well()
    assert there() == [50, 55]
    assert [line["step"] for line in run.lines() if line["generation"] == 2][0] == whole + 1 and sorted(run.curve()) == list(range(1, 56))


@pytest.mark.parametrize("job, names", [("hf", "note of the schedule or the optimizer is a Unknown"), ("ddp", "state['odd']['it'] is of type builtins.type"),
                                        ("pl_resnet", "hyperparameters[0]['x'] is of type ")])
def test_a_state_that_no_start_could_read_is_named_and_the_job_is_lent_nothing(job, names, runs):
    run = runs(Run, "unreadable", job, "unreadable", steps=14).start(1).reach(3)
    assert run.sizes() == [1] and names in run.why, run.why
    run.ask().reach(6).fast().leave_well()
    assert f"swell: the job is lent nothing: {run.why}" in run.said() and run.said().count("asked to leave, but training goes on: ") == 1
    assert [line["step"] for line in run.lines()] == list(range(1, 15))


def test_a_checkpoint_of_the_Trainer_that_no_start_could_read_is_not_gone_on_with(runs):
    run = runs(Run, "spoils", "hf", "spoils", steps=24).start(1).reach(17).ask().reach(22)
    assert "training goes on: the Trainer could not load its checkpoint: note of the schedule" in run.said()
    assert os.path.exists(os.path.join(run.folder, "out", "checkpoint-20"))
    assert run.sizes() == [1] and run.why.startswith("the Trainer could not load its checkpoint"), "no growth is offered that would be declined"
    run.kill(0).leave()
    run.fast().start(1).leave_well()
    assert [line["step"] for line in run.lines() if line["generation"]] == list(range(11, 25)), "it goes on from the newest that can be read"


@pytest.mark.parametrize("job, word, said", [("ddp", "undrawn", "(AlphaDropout)"), ("hf", "drops", "(Dropout)"), ("pl_resnet", "drops", "(Dropout)")])
def test_modules_that_depend_on_the_number_of_workers_are_named_once_in_a_job(job, word, said, runs):
    run = runs(Run, "drops", job, word, steps=2).fast().start(2).leave_well()
    assert [sum(line.startswith("swell: ") and said in line and "draws other masks" in line for line in run.said(rank).splitlines()) for rank in (0, 1)] == [1, 0]
    run.start(1).leave_well()
    assert "draws other masks" not in run.said()


def test_remains_of_workers_killed_in_a_save_are_removed(runs):
    run = runs(Run, "dies", "hf", "dies", steps=16).start(1).reach(12)
    out, step = os.path.join(run.folder, "out"), run.ask().leave() and run.step()
    assert step not in (10, 20) and sorted(os.listdir(out)) == ["checkpoint-10", f"checkpoint-{step}", "run.lock"]
    run.fast().start(1).leave_well()
    assert f"checkpoint-{step}" not in os.listdir(out) and [line["step"] for line in run.lines() if line["generation"]] == list(range(11, 17))
    assert not [name for each in os.listdir(out) for name in os.listdir(os.path.join(out, each)) if name == "swell.unfinished"]

    run = runs(Run, "left", "pl_resnet", steps=2).fast()
    folder = os.path.join(run.folder, "checkpoints")
    os.makedirs(os.path.join(folder, "step-000000017.ckpt.unfinished"))
    for name in ("step-000000018.ckpt.unfinished", "own.unfinished"):
        with open(os.path.join(folder, name), "w") as file:
            file.write("a part")
    run.start(1).leave_well()
    assert sorted(os.listdir(folder)) == ["own.unfinished", "step-000000002.ckpt"]


def test_the_first_process_alone_may_save_its_state_with_Accelerate(runs):
    run = runs(Run, "alone", "accelerated", "alone", steps=9).fast().start(2).leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 10))
    assert {"model.safetensors", "optimizer.bin"} <= set(os.listdir(os.path.join(run.folder, "last")))


@apart
def test_Accelerate_s_numbered_saves_go_on_from_checkpoints_of_the_name_before(tmp_path):
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration
    from swell.integrations import AccelerateElastic

    def goes_on(rename, **options):
        accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True))
        model = torch.nn.Linear(2, 1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        elastic = AccelerateElastic(accelerator, model, optimizer, directory=tmp_path / "c", global_batch=4, **options)
        rest = elastic._rest()
        rest["state"]["swell.saves"] = {"iteration": 3}
        rest["state"] = rename(rest["state"])
        elastic._restore(rest, reseed=False)
        return accelerator.save_iteration
    assert goes_on(lambda state: state) == 3
    assert goes_on(lambda state: {**{name: state[name] for name in state if name != "swell.saves"}, "saves": state["swell.saves"]}) == 3
    assert goes_on(lambda state: {**state, "saves": {"iteration": 7}}) == 3


@apart
def test_faults_that_more_workers_would_show_are_found_on_one_with_Accelerate(tmp_path, monkeypatch):
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from swell.integrations import AccelerateElastic

    def elastic(accelerator, prepares=True, **options):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer) if prepares else (model, accelerator.prepare(optimizer))
        return AccelerateElastic(accelerator, model, optimizer, directory=tmp_path, global_batch=4, **options)
    assert elastic(Accelerator(cpu=True))._bar == ""
    assert "nothing would average its gradients over more: give AccelerateElastic the model that accelerator.prepare()" in elastic(Accelerator(cpu=True), False)._bar
    with pytest.raises(ValueError, match="static_graph=True does not go with passes that share no gradients"):
        elastic(Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(static_graph=True)]), micro_batch=2)
    several = Accelerator(cpu=True)
    model, one, two = several.prepare(torch.nn.Linear(2, 1), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]))
    with pytest.raises(ValueError, match=r"has 1 other optimizer \(AdamW\), whose state no checkpoint would have"):
        AccelerateElastic(several, model, one, directory=tmp_path / "several", global_batch=4)
    AccelerateElastic(several, model, one, directory=tmp_path / "several", global_batch=4, state={"two": two})
    accelerator, model = Accelerator(cpu=True), torch.nn.Linear(2, 1)
    monkeypatch.setattr(type(accelerator.state), "deepspeed_plugin", property(lambda _: object()))
    with pytest.raises(ValueError, match="cannot resize a training with DeepSpeed"):
        AccelerateElastic(accelerator, model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path, global_batch=4)


def test_a_model_that_Lightning_shards_is_resized(runs):
    reference = runs(Run, "reference", "pl_resnet", "sharded", steps=12).fast().start(1)
    run = runs(Run, "sharded", "pl_resnet", "sharded", steps=12).start(2).reach(4).ask().leave_well()
    run.fast().start(3).leave_well()
    reference.leave_well()
    assert run.worlds() == [2, 3] and [line["step"] for line in run.lines()] == list(range(1, 13))
    assert deviation(run.curve(), reference.curve()) < SAME


def test_a_model_that_is_sharded_beside_the_Trainer_is_refused_before_it_is_trained(runs):
    run = runs(Run, "sharded", "hf", "sharded", steps=12).fast().start(2)
    assert run.leave() == [1, 1] and run.step() == 0
    assert "is sharded, but not by the Trainer" in run.said() and "fsdp_config of TrainingArguments" in run.said()


@apart
@pytest.mark.parametrize("kind, refused", [("FULL_STATE_DICT", True), ("SHARDED_STATE_DICT", False)])
def test_attach_takes_FSDP2_with_sharded_checkpoints_alone(kind, refused, tmp_path, monkeypatch):
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    trainer = Trainer(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args, train_dataset=[{"input_ids": [1]}] * 8)
    trainer.is_fsdp_enabled = True      # on GPUs alone
    state = type(trainer.accelerator.state)
    monkeypatch.setattr(type(trainer.accelerator), "is_fsdp2", property(lambda _: True))
    monkeypatch.setattr(state, "fsdp_plugin", argparse.Namespace(state_dict_type=f"StateDictType.{kind}"), raising=False)
    if refused:
        with pytest.raises(ValueError, match="cannot save under FSDP2 with FULL_STATE_DICT.*SHARDED_STATE_DICT"):
            SwellCallback.attach(trainer)
    else:
        SwellCallback.attach(trainer)


@pytest.mark.parametrize("job, other, says", [
    ("hf", "sgd", "the run so far had the optimizer AdamW, here it is SGD"), ("pl_resnet", "sgd", "the run so far had the optimizer AdamW, here it is SGD"),
    ("pl_resnet", "unscheduled", "the run so far had scheduler (StepLR), this start has none"),
    ("pl_resnet", "fewer", "the checkpoint's data has length 108, here it is 60")])
def test_another_training_is_refused_in_one_sentence(job, other, says, runs):
    run = runs(Run, "other", job, steps=3).fast().start(1).leave_well()
    run.arguments, run.steps = (other,), 5
    assert run.start(1).leave() != [0]
    assert says in run.said() and len(run.lines()) == 3


@pytest.mark.parametrize("job, option", [("hf", "freezes"), ("hf", "thaws"), ("pl_resnet", "unfreezes")])
def test_a_run_that_changes_what_it_trains_is_resized_as_one_that_does_not(job, option, runs):
    alone = runs(Run, "alone", job, option, steps=24).fast().start(1)
    run = runs(Run, "changes", job, option, steps=24).start(2).reach(12)
    assert run.sizes() == [1, 2, 3, 4, 6, 12], "it may be lent more"
    run.ask().leave_well()
    run.start(1).reach(17).ask().leave_well()
    assert option == "thaws" or "it trains what that run has come to train" in run.said()
    run.fast().start(3).leave_well()
    alone.leave_well()
    assert run.worlds() == [2, 1, 3] and [line["step"] for line in run.lines()] == list(range(1, 25))
    assert deviation(run.curve(), alone.curve()) < 1e-5


@needs_live_host
@pytest.mark.parametrize("switches", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("job, option", [("ddp", "unfreezes"), ("hf", "freezes"), ("pl_resnet", "unfreezes")])
def test_a_run_that_changes_what_it_trains_is_not_resized_live(job, option, switches, runs):
    run = runs(LiveRun, "live", job, option, steps=30).start(1).reach(12)
    assert run.sizes() == [1] and run.why.startswith("the script has changed what is trained since training began ("), run.why
    assert not switches or not run.switch(2, limit_s=3).get("committed"), "a switch that is under way is called off"
    run.ask().leave_well()
    run.start(1).fast().leave_well()
    assert "it trains what that run has come to train" in run.said() and run.why.endswith("the next workers of a live switch would not")
    assert run.worlds() == [1] and [line["step"] for line in run.lines()] == list(range(1, 31))


@pytest.mark.parametrize("job, options, folder", [("hf", ("evaluate",), "out"), ("pl_resnet", ("evaluate",), "checkpoints")])
def test_a_growth_that_cannot_be_saved_is_declined_and_training_goes_on(job, options, folder, tmp_path):
    reference = Run(tmp_path / "reference", job, *options, steps=24).fast().start(1)
    run = Run(tmp_path / "full", job, *options, steps=24)
    full = tmp_path / "full" / "full"
    try:
        run.start(2).reach(11)      # the first checkpoint is of step 10
        assert run.sizes() == [1, 2, 3, 4, 6, 12]
        full.touch()
        run.reach(13).ask().reach(16)
        assert run.sizes() == [2] and "could not be written to" in run.why and run.why.endswith("the one before, of step 10, is whole"), run.why
        assert f"swell: asked to leave, but training goes on: {run.why}" in run.said()
        full.unlink()
        run.reach(22)       # beyond the checkpoint of step 20
        assert run.sizes() == [1, 2, 3, 4, 6, 12] and not run.why, "it can save again"
        run.ask().leave_well()
        run.fast().start(3).leave_well()
        reference.leave_well()
    finally:
        reference.end()
        run.end()
    assert not [name for name in os.listdir(tmp_path / "full" / folder) if name.endswith((".unfinished", "-14"))]
    assert [line["step"] for line in run.lines()] == list(range(1, 25)) and deviation(run.curve(), reference.curve()) < SAME


@apart
def test_weights_that_checkpoints_leave_to_the_script_are_compared():
    from swell.integrations._unsaved import frozen_weights
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.Linear(300, 1))
    assert frozen_weights(model) == "", "a whole model is in its checkpoint"
    model.peft_config = {}
    model[0].requires_grad_(False)
    found = frozen_weights(model)
    with torch.no_grad():
        model[1].weight.add_(1)
        assert frozen_weights(model) == found, "adapters are in the checkpoint"
        model[0].weight.mul_(1.5)
    assert found and frozen_weights(model) not in ("", found)


@pytest.mark.parametrize("world", [1, 2])
def test_a_Trainer_whose_own_save_fails_trains_on_with_the_checkpoint_before(world, tmp_path):
    run = Run(tmp_path / "full", "hf", steps=34).start(world).reach(11)
    full = tmp_path / "full" / "full"
    try:
        full.touch()
        run.reach(22)       # past the one of step 20
        assert os.path.exists(tmp_path / "full" / "out" / "checkpoint-10" / "swell.json")
        assert not os.path.exists(tmp_path / "full" / "out" / "checkpoint-20")
        full.unlink()
        run.fast().leave_well()
    finally:
        run.end()
    said = [line for line in run.said().splitlines() if "could not be written" in line]
    assert len(said) == 1 and "the checkpoint of step 20 could not be written" in said[0] and said[0].endswith(
        "; the one before, of step 10, is whole; training goes on")
    assert [line["step"] for line in run.lines()] == list(range(1, 35))
    assert os.path.exists(tmp_path / "full" / "out" / "checkpoint-30" / "swell.json")


def test_a_finished_Trainer_is_extended_and_says_so(tmp_path):
    run = Run(tmp_path / "finished", "hf", steps=5).fast().start(1).leave_well()
    try:
        run.start(1).leave_well()
        assert "continues from step 5" in run.said() and "nothing is left to train of max_steps=5" in run.said()
        run.steps = 8
        run.start(1).leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 9))


def test_a_Trainer_that_is_to_begin_anew_does_so_and_goes_on_with_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SWELL_JOB_ID", "1")
    run = Run(tmp_path / "anew", "hf", "anew", steps=10).start(1).reach(8).ask().leave_well()
    monkeypatch.setenv("SWELL_JOB_ID", "2")
    try:
        run.start(1).until(lambda: run.lines()[-1]["generation"] == 1, "another run").ask().leave_well()
        again = [line["step"] for line in run.lines() if line["generation"] == 1]
        assert again[0] == 1, "another job's training was gone on with"
        run.fast().start(1).leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines() if line["generation"] == 2] == list(range(again[-1] + 1, 11))


def test_a_Trainer_refuses_the_checkpoint_of_another_data_set(tmp_path):
    run = Run(tmp_path / "other", "hf", steps=5).fast().start(1).leave_well()
    run.arguments, run.steps = ("fewer",), 8
    try:
        assert run.start(1).leave() != [0]
    finally:
        run.end()
    assert "the checkpoint's data has length 108, here it is 60" in run.said()


@pytest.mark.parametrize("job", ["hf", "pl_resnet"])
def test_two_runs_that_train_at_once_do_not_share_a_folder(job, tmp_path):
    first = Run(tmp_path / "shared", job).start(1).reach(2)
    second = Run(tmp_path / "shared", job)
    second.generation = 10       # its output stands beside the other's
    try:
        assert second.start(1).leave() != [0]
        said = second.said()
        first.ask().leave_well()
    finally:
        first.end()
        second.end()
    assert "is training with the checkpoints in" in said


@apart
@pytest.mark.parametrize("option, says", [({"ddp_static_graph": True, "gradient_accumulation_steps": 2}, "ddp_static_graph=True"), ({"auto_find_batch_size": True}, "auto_find_batch_size"), ({"ignore_data_skip": True}, "ignore_data_skip"),
                                          ({"average_tokens_across_devices": False}, "average_tokens_across_devices"),
                                          ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy=group_by_length")])
def test_attach_refuses_what_would_not_be_the_same_run(option, says, tmp_path):
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], **option)
    trainer = Trainer(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args, train_dataset=[{"input_ids": [1]}])
    with pytest.raises(ValueError, match=says):
        SwellCallback.attach(trainer)


@apart
def test_attach_leaves_what_other_Trainers_call_as_it_is(tmp_path):
    before = transformers.trainer.skip_first_batches
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], max_steps=1, disable_tqdm=True)
    trainer = Trainer(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args, train_dataset=[{"input_ids": [1, 2], "labels": [1, 2]}] * 16)
    SwellCallback.attach(trainer)
    seen, begins = [transformers.trainer.skip_first_batches], trainer.get_train_dataloader
    trainer.get_train_dataloader = lambda: seen.append(transformers.trainer.skip_first_batches) or begins()
    trainer.train()
    assert [*seen, transformers.trainer.skip_first_batches] == [before] * 3


@apart
def test_checkpoints_are_in_the_folder_that_a_start_looks_at_wherever_the_script_goes(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    args = transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to=[], max_steps=2, disable_tqdm=True)
    trainer = Trainer(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args,
                      train_dataset=[{"input_ids": [1, 2], "labels": [1, 2]}] * 16)
    SwellCallback.attach(trainer)
    elastic = LightningElastic("steps")
    monkeypatch.chdir(tmp_path)
    trainer.train()
    assert os.path.isdir(tmp_path / "home" / "out" / "checkpoint-2") and [each.name for each in tmp_path.iterdir()] == ["home"]
    assert elastic.directory == str(tmp_path / "home" / "steps")


@apart
@pytest.mark.parametrize("by", ["arguments", "configuration"])
def test_attach_refuses_DeepSpeed(by, tmp_path):
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    trainer = Trainer(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args, train_dataset=[{"input_ids": [1]}])
    if by == "arguments":
        args.deepspeed = {"zero_optimization": {"stage": 2}}
    else:
        trainer.is_deepspeed_enabled = True     # by an environment or a file of accelerate's
    with pytest.raises(ValueError, match="SwellCallback cannot resize a Trainer with DeepSpeed"):
        SwellCallback.attach(trainer)


@apart
def test_a_strategy_of_DeepSpeed_is_refused_by_name(tmp_path):
    from lightning.pytorch.strategies import DeepSpeedStrategy
    elastic = LightningElastic(str(tmp_path))
    trainer = types.SimpleNamespace(strategy=object.__new__(DeepSpeedStrategy))     # which cannot be made without the package
    with pytest.raises(TypeError, match=r"LightningElastic cannot resize a training with DeepSpeed \(DeepSpeedStrategy\): .*; use fully_shard"):
        elastic.setup(trainer, None, "fit")


@apart
@pytest.mark.parametrize("name", ["_get_train_sampler", "get_train_dataloader"])
def test_attach_refuses_a_Trainer_that_chooses_its_samples(name, tmp_path):
    class Chooses(Trainer):
        pass

    setattr(Chooses, name, lambda self, *_: None)
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    trainer = Chooses(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args, train_dataset=[{"input_ids": [1]}])
    with pytest.raises(TypeError, match=rf"Chooses.{name}\(\) chooses the samples"):
        SwellCallback.attach(trainer)


def streamed_or_short(small):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield torch.zeros(1)

    return [0.0] * 3 if small else Stream()


@pytest.mark.parametrize("small, error, says", [(False, TypeError, r"Stream has no length and no state_dict\(\).*ElasticIterable"),
                                                (True, ValueError, "the dataset has 3 samples, global_batch=12 needs as many")])
def test_Lightning_s_loader_refuses_data_before_sizes_are_offered(small, error, says, monkeypatch):
    from swell import _request
    from swell.integrations import LightningElastic
    monkeypatch.setattr(_request, "can_run_with", lambda *_: pytest.fail("sizes were offered"))
    with pytest.raises(error, match=says):
        LightningElastic("checkpoints").loader(streamed_or_short(small), global_batch=12)


@apart
def test_attach_refuses_a_stream_that_no_start_could_go_on_in(tmp_path, monkeypatch):
    from swell import _request
    from swell.data import ElasticIterable

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield {"input_ids": [1]}

    class Random(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([{"input_ids": [number]} for number in torch.randperm(50).tolist()])

    monkeypatch.setattr(_request, "can_run_with", lambda *_: pytest.fail("sizes were offered"))
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], max_steps=2)
    for stream, error, says in ((Stream(), TypeError, r"Stream has no length and no state_dict\(\)"),
                                (ElasticIterable(Random(), 8), ValueError, "Random gives other samples when it is read again.*give its shuffling a seed")):
        trainer = Trainer(GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1)), args, train_dataset=stream)
        with pytest.raises(error, match=says):
            SwellCallback.attach(trainer)


@pytest.mark.parametrize("before, after", [("streamed", ""), ("", "streamed")])
def test_a_Trainer_refuses_a_stream_in_place_of_data_with_a_length_and_the_other_way_round(before, after, tmp_path):
    run = Run(tmp_path / "other", "hf", before, steps=3).fast().start(1).leave_well()
    run.arguments, run.steps = (after,), 5
    try:
        assert run.start(1).leave() != [0]
    finally:
        run.end()
    assert ("names no position in a stream" if after else "the checkpoint's data has stream True, here it is False") in run.said()
