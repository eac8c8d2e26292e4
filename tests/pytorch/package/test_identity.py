# SPDX-License-Identifier: GPL-2.0-or-later
"""A checkpoint can be read back, is of the run that goes on with it, and one run alone writes to its folder."""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy
import pytest
import torch

from forked import Run, apart
from swell import _lock, _plain
from swell._identity import Trained, record
from swell.checkpoint import Checkpoints
from swell.torch import Elastic

DATA = torch.utils.data.TensorDataset(torch.randn(48, 4, generator=torch.Generator().manual_seed(0)), torch.ones(48, 1))


class Box:
    """Keeps any value."""

    def __init__(self, value=None):
        self.value = value

    def state_dict(self):
        return {"it": self.value}

    def load_state_dict(self, state):
        self.value = state["it"]


def loop(folder, steps, *, model=None, optimizer=None, shuffle=True, length=48, drop_last=False, **options):
    """Trains a small model to so many steps."""
    torch.manual_seed(0)
    model = model or torch.nn.Linear(4, 1)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=options.pop("lr", 0.01))
    if options.pop("schedule", False):
        options["scheduler"] = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    elastic = Elastic(model, optimizer, directory=folder, **{"global_batch": 10, **options})
    for x, y in elastic.batches(torch.utils.data.Subset(DATA, range(length)), steps=steps, shuffle=shuffle, drop_last=drop_last):
        elastic.step(torch.nn.functional.mse_loss(model(x), y))
    return elastic


class Unknown:
    def __init__(self):
        self.x = 1


VALUES = [numpy.float64(3e-3), numpy.float32(0.1), numpy.int64(7), numpy.bool_(True), numpy.str_("a"), numpy.arange(6).reshape(2, 3),
          numpy.array(2.5), pathlib.Path("/a/b"), pathlib.PurePosixPath("c"), collections.deque([1, numpy.float64(2)], maxlen=3),
          collections.defaultdict(int, {"a": 1}), collections.defaultdict(list), {"deep": [(pathlib.Path("x"), {"y": numpy.float64(1)})]},
          {pathlib.Path("key"): 1}, {"swell.encoded": 1}, numpy.random.RandomState(3).get_state(), collections.OrderedDict(a=numpy.int8(1)),
          numpy.datetime64("2026-01-02"), {1: "one", (2, 3): None}, {"a", "b"}, 1 + 2j, b"x"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_numpy_or_the_library_comes_back_as_it_was(tmp_path, value):
    torch.save(_plain.encoded({"it": value}), tmp_path / "x")
    back = _plain.decoded(torch.load(tmp_path / "x", weights_only=True))["it"]
    assert type(back) is type(value)
    if isinstance(value, (tuple, numpy.ndarray)):
        numpy.testing.assert_equal(back, value)
    else:
        assert back == value
    if isinstance(value, collections.deque):
        assert back.maxlen == value.maxlen
    if isinstance(value, collections.defaultdict):
        assert back.default_factory is value.default_factory
    assert not _plain.unreadable(value, "it")


@apart
def test_a_learning_rate_of_numpy_and_odd_states_resume(tmp_path):
    loop(tmp_path / "c", 4, lr=numpy.float64(3e-3), schedule=True, state={"box": Box(collections.deque([pathlib.Path("p")], 4))})
    box = Box(1)
    elastic = loop(tmp_path / "c", 6, lr=numpy.float64(3e-3), schedule=True, state={"box": box})
    assert elastic.steps == 6 and box.value == collections.deque([pathlib.Path("p")], 4)


CIRCLE: list = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value, where", [
    (CIRCLE, r"state\['box'\] contains itself, or is nested too deeply"),
    ({"a": [1, Unknown()]}, r"state\['box'\]\['it'\]\['a'\]\[1\] is of type \S*Unknown"),
    (collections.defaultdict(lambda: 1), r"state\['box'\]\['it'\] is of type collections.defaultdict"),
    (Unknown, r"state\['box'\]\['it'\] is of type builtins.type"),
], ids=["circle", "deep", "factory", "type"])
@apart
def test_what_no_start_could_read_is_named_and_nothing_is_saved(tmp_path, value, where, capfd):
    capfd.readouterr()
    elastic = loop(tmp_path / "c", 3, state={"box": Box(value)}, checkpoint_every=1)
    said = capfd.readouterr().err
    assert elastic.steps == 3, "training goes on"
    assert len(re.findall(where, said)) == 1, said
    assert not list((tmp_path / "c").glob("step-*"))


@apart
def test_other_groups_of_the_optimizer_are_refused(tmp_path):
    def groups(*names):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        found = dict(model.named_parameters())
        decayed = [found.pop(name) for name in names]
        return {"model": model, "optimizer": torch.optim.AdamW([{"params": decayed}, {"params": list(found.values()), "weight_decay": 0.0}], lr=0.01)}
    loop(tmp_path / "c", 3, **groups("0.weight", "1.weight"))
    assert "optimizer has 1.weight in its group 1, the run so far had not" in refused(tmp_path / "c", **groups("0.weight"))
    assert "optimizer has 1.bias in its group 0, the run so far had not" in refused(tmp_path / "c", **groups("0.weight", "1.weight", "1.bias"))
    assert loop(tmp_path / "c", 4, **groups("1.weight", "0.weight")).steps == 4, "the order within a group says nothing"


def refused(folder, steps=6, **other):
    with pytest.raises(ValueError) as error:
        loop(folder, steps, **other)
    assert "\n" not in str(error.value)
    return str(error.value)


@apart
def test_another_training_is_refused_in_one_sentence(tmp_path):
    loop(tmp_path / "c", 3)
    (folder,) = (tmp_path / "c").glob("step-*")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "shuffle True, here it is False" in refused(tmp_path / "c", shuffle=False)
    assert "drop_last False, here it is True" in refused(tmp_path / "c", drop_last=True)
    assert "length 48, here it is 40" in refused(tmp_path / "c", length=40)
    assert "seed 0, here it is 1" in refused(tmp_path / "c", seed=1)
    assert "global_batch=10, here it is 12" in refused(tmp_path / "c", global_batch=12)
    frozen = torch.nn.Linear(4, 1)
    frozen.bias.requires_grad = False
    assert "trains bias too, this start does not: 1 parameters in place of 2" in refused(tmp_path / "c", model=frozen)
    model = torch.nn.Linear(4, 1)
    groups = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.01)
    assert "has 1 groups of parameters, this start's optimizer has 2" in refused(tmp_path / "c", model=model, optimizer=groups)
    doubled = torch.nn.Linear(4, 1, dtype=torch.bfloat16)
    assert "trains parameters in float32, here they are in bfloat16" in refused(tmp_path / "c", model=doubled)
    model = torch.nn.Linear(4, 1)
    assert "had the optimizer AdamW, here it is SGD" in refused(tmp_path / "c", model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    assert "this start has scheduler (LambdaLR), the run so far had none: leave it out as before" in refused(tmp_path / "c", schedule=True)
    assert "this start has state['box'] (Box), the run so far had none" in refused(tmp_path / "c", state={"box": Box(1)})
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert loop(tmp_path / "c", 5).steps == 5, "the same one goes on"


@apart
def test_what_a_start_leaves_out_or_changes_is_refused_in_one_sentence(tmp_path):
    parts = {"schedule": True, "scaler": torch.amp.GradScaler("cpu"), "state": {"box": Box(1)}}
    loop(tmp_path / "c", 3, **parts)
    for name, says in (("schedule", "had scheduler (LambdaLR), this start has none: give it as before, or another directory"),
                       ("scaler", "had scaler (GradScaler), this start has none"), ("state", "had state['box'] (Box), this start has none")):
        assert says in refused(tmp_path / "c", **{**parts, name: None})
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    assert "had the scheduler LambdaLR, here it is StepLR" in refused(
        tmp_path / "c", model=model, optimizer=optimizer, **{**parts, "schedule": False, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)})
    assert loop(tmp_path / "c", 5, **parts).steps == 5


@apart
def test_a_program_that_began_otherwise_is_refused_what_a_run_has_come_to_train(tmp_path):
    def model(*frozen):
        made = torch.nn.Linear(4, 1)
        for name in frozen:
            getattr(made, name).requires_grad_(False)
        return made
    trained = model("bias")
    elastic = Elastic(trained, torch.optim.AdamW(trained.parameters(), lr=0.01), directory=tmp_path / "c", global_batch=10)
    for x, y in elastic.batches(DATA, steps=4):
        elastic.step(torch.nn.functional.mse_loss(trained(x), y))
        trained.bias.requires_grad_(elastic.steps >= 2)
    assert "the run so far trains weight too, this start does not" in refused(tmp_path / "c", model=model("weight"))
    again = loop(tmp_path / "c", 5, model=model("bias"))
    assert again.steps == 5 and again.model.bias.requires_grad, "it began so, too"
    assert loop(tmp_path / "c", 6).steps == 6, "it trains all that is trained by now"


@apart
def test_a_parameter_that_no_loss_has_needed_so_far_is_gone_on_without(tmp_path):
    def spare():
        made = torch.nn.Linear(4, 1)
        made.spare = torch.nn.Parameter(torch.ones(2))
        return made
    loop(tmp_path / "c", 3, model=spare())
    elastic = loop(tmp_path / "c", 5, model=spare())
    assert elastic.steps == 5 and elastic.model.spare.requires_grad


def test_an_optimizer_of_more_than_the_model_has_a_record():
    model, temperature = torch.nn.Linear(4, 1), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([*model.parameters(), temperature])
    trained = Trained(model, [optimizer])
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    assert not trained.why_not() and record(1, trained=trained)["trained"] == [["weight", "bias", ""]]


@apart
def test_each_start_says_from_which_checkpoint_it_continues_and_whose_it_is(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SWELL_JOB_ID", "123")
    loop(tmp_path / "c", 3)
    assert "continues" not in capfd.readouterr().err
    loop(tmp_path / "c", 4)
    said = capfd.readouterr().err
    assert f"swell: continues from step 3, {tmp_path}/c/step-000000003, written by job 123 on " in said and "this is job" not in said
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "130")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    loop(tmp_path / "c", 5)
    assert "written by job 123 on " in (said := capfd.readouterr().err) and "; this is job 130_2, which continues that run" in said
    loop(tmp_path / "c", 6)
    assert "written by job 130_2 on " in capfd.readouterr().err


@apart
def test_a_checkpoint_without_a_record_is_gone_on_with_in_its_own_order(tmp_path, capfd):
    elastic = loop(tmp_path / "c", 3)
    rest = elastic._rest()
    rest["data"] = {name: rest["data"][name] for name in ("samples", "seed", "length")}
    (folder,) = (tmp_path / "c").glob("step-*")
    torch.save(rest, folder / "rest.pt")
    elastic = loop(tmp_path / "c", 5)
    assert elastic.steps == 5 and elastic._data["order"] == 1
    assert "continues from step 3" in capfd.readouterr().err


def test_two_live_runs_cannot_share_a_folder_and_a_killed_one_does_not_block(runs, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    a = runs(Run, "a", "ddp")
    b = runs(Run, "b", "ddp")
    os.makedirs(shared)
    for run in (a, b):
        os.symlink(shared, os.path.join(run.folder, "checkpoints"))
    monkeypatch.setenv("SWELL_JOB_ID", "7")
    a.start(2).reach(11)
    monkeypatch.setenv("SWELL_JOB_ID", "8")
    assert b.start(2).leave() == [1, 1]
    for rank in (0, 1):
        said = b.said(rank).strip().splitlines()[-1]
        assert "job 7 (process" in said and "job 8 would continue its training" in said and "a directory of its own" in said, said
    assert a.reach(21).step() >= 21, "the first one trains on"
    a.kill(0).kill(1).leave()
    b.start(1).fast().leave_well()
    assert "written by job 7 on" in b.said() and "this is job 8, which continues that run" in b.said()
    assert b.lines()[0]["step"] in (11, 21)


def test_a_lock_of_another_machine_is_kept_while_its_holder_touches_it(tmp_path, monkeypatch):
    monkeypatch.setattr(_lock, "_SILENT_S", 1.0)
    lock = _lock.FolderLock(tmp_path)
    lock.acquire()
    holder = json.loads((tmp_path / "run.lock").read_text())
    holder.update(run="55", host="elsewhere", boot="other", token="t", shim="")
    lock.release()
    assert not list(tmp_path.iterdir())
    (tmp_path / "run.lock").write_text(json.dumps(holder))
    touching = subprocess.Popen([sys.executable, "-c", f"import os, time\nwhile True: os.utime({str(tmp_path / 'run.lock')!r}); time.sleep(0.05)"])
    try:
        time.sleep(0.5)
        with pytest.raises(_lock.InUse, match=r"job 55 \(process \d+ on elsewhere\)"):
            _lock.FolderLock(tmp_path).acquire()
    finally:
        touching.kill()
        touching.wait()
    again = _lock.FolderLock(tmp_path)
    again.acquire()     # nobody touches it any more
    assert again.is_held
    again.release()


@pytest.mark.parametrize("of_run", [{"SWELL_RUN": "a1"}, {"SWELL_SHIM": "@9"}, {"SWELL_JOB_ID": "9"}], ids=["swellrun", "shim", "requeue"])
def test_a_later_start_of_the_same_swellrun_takes_the_folder_at_once(tmp_path, monkeypatch, of_run):
    number = "SLURM_RESTART_COUNT" if "SWELL_JOB_ID" in of_run else "SWELL_EPOCH"
    for variable, value in {**of_run, number: "1"}.items():
        monkeypatch.setenv(variable, value)
    first, second = _lock.FolderLock(tmp_path), _lock.FolderLock(tmp_path)
    first.acquire()
    take = [sys.executable, "-c", f"from swell._lock import FolderLock; FolderLock({str(tmp_path)!r}).acquire()"]
    same = subprocess.run(take, capture_output=True, text=True, check=False)
    assert same.returncode == 1 and "InUse" in same.stderr, "another run of the same job is not a later start of this one"
    monkeypatch.setenv(number, "2")
    second.acquire()
    first.release()
    assert "2" in json.loads((tmp_path / "run.lock").read_text())["start_number"], "the first one does not take the second's away"
    second.release()


@pytest.mark.parametrize("mine, its", [(1, 2), (2, 1), (0, 0)])
def test_two_swellruns_of_one_job_do_not_take_each_others_folder(tmp_path, monkeypatch, mine, its):
    for variable, value in {"SWELL_JOB_ID": "9", "SWELL_RUN": "a1", "SWELL_SHIM": "@1", "SWELL_EPOCH": str(mine)}.items():
        monkeypatch.setenv(variable, value)
    first = _lock.FolderLock(tmp_path)
    first.acquire()
    take = [sys.executable, "-c", f"from swell._lock import FolderLock; FolderLock({str(tmp_path)!r}).acquire()"]
    other = {**os.environ, "SWELL_RUN": "b2", "SWELL_SHIM": "@2", "SWELL_EPOCH": str(its)}
    refused = subprocess.run(take, env=other, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "give each run a directory of its own" in refused.stderr, refused.stderr
    first.release()
    assert subprocess.run(take, env=other, check=False).returncode == 0, "it may go on from what the first has left"


def test_a_later_start_takes_the_folder_under_a_swellrun_that_has_no_name(tmp_path, monkeypatch):
    monkeypatch.delenv("SWELL_RUN", raising=False)
    for variable, value in {"SWELL_JOB_ID": "9", "SWELL_SHIM": "@1", "SWELL_EPOCH": "1"}.items():
        monkeypatch.setenv(variable, value)
    first = _lock.FolderLock(tmp_path)
    first.acquire()
    take = [sys.executable, "-c", f"from swell._lock import FolderLock; FolderLock({str(tmp_path)!r}).acquire()"]
    assert subprocess.run(take, env={**os.environ, "SWELL_SHIM": "@2", "SWELL_EPOCH": "1"}, capture_output=True, check=False).returncode == 1
    assert subprocess.run(take, env={**os.environ, "SWELL_SHIM": "@2", "SWELL_EPOCH": "2"}, check=False).returncode == 0


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b'{"start_number": 7}', b'{"start_number": ["x", null, "1"], "pid": "me"}'])
def test_a_damaged_file_of_a_holder_does_not_block(tmp_path, monkeypatch, content):
    monkeypatch.setattr(_lock, "_SILENT_S", 0.2)
    monkeypatch.setenv("SWELL_JOB_ID", "9")
    (tmp_path / "run.lock").write_bytes(content)
    lock = _lock.FolderLock(tmp_path)
    lock.acquire()
    assert lock.is_held
    lock.release()


@apart
def test_the_folder_is_let_go_at_the_end_of_training(tmp_path):
    elastic = loop(tmp_path / "c", 3)
    assert not (tmp_path / "c" / "run.lock").exists() and isinstance(elastic._checkpoints, Checkpoints)


@apart
def test_a_scaler_trains_as_none_does_is_saved_and_skips_what_overflows(tmp_path):
    def scaler():
        return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    plain = loop(tmp_path / "plain", 8, max_grad_norm=0.1)
    scaled = loop(tmp_path / "scaled", 4, max_grad_norm=0.1, scaler=scaler())
    assert scaled.scaler.get_scale() == 2048.0
    scaled = loop(tmp_path / "scaled", 8, max_grad_norm=0.1, scaler=scaler())
    assert scaled.scaler.get_scale() == 4096.0, "it goes on from the saved one"
    for a, b in zip(plain.model.parameters(), scaled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    model = torch.nn.Linear(4, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path / "overflow", global_batch=10, scaler=scaler())
    before = model.weight.clone()
    for x, _ in elastic.batches(DATA, steps=1):
        elastic.step(model(x).mean() * float("inf"))
    assert torch.equal(model.weight, before) and elastic.scaler.get_scale() == 512.0


@apart
def test_two_elastic_in_one_loop_are_refused_by_name_and_one_after_the_other_are_not(tmp_path):
    class Generator(torch.nn.Linear):
        pass
    generator, discriminator = Generator(4, 1), torch.nn.Linear(4, 1)
    g = Elastic(generator, torch.optim.SGD(generator.parameters(), lr=0.1), directory=tmp_path / "a", global_batch=10)
    d = Elastic(discriminator, torch.optim.SGD(discriminator.parameters(), lr=0.1), directory=tmp_path / "b", global_batch=10)
    refused = r"one loop has one Elastic.*with one optimizer of several"
    before = discriminator.weight.clone()

    for x, _ in g.batches(DATA, steps=3):       # as of a GAN
        g.step(generator(x).mean())
        with pytest.raises(RuntimeError, match=r"the Elastic of Linear and that of Generator train in one loop.*" + refused):
            d.step(discriminator(x).mean())
        break
    with pytest.raises(RuntimeError, match=refused):
        for (x, _), (y, _) in zip(g.batches(DATA, steps=3), d.batches(DATA, steps=3), strict=True):
            g.step(generator(x).mean())
            d.step(discriminator(y).mean())
    with pytest.raises(RuntimeError, match=r"the Elastic of Generator and that of Linear"):
        for x, _ in g.batches(DATA, steps=3):
            for y, _ in d.batches(DATA, steps=0):       # it has ended its loop within the other's
                d.step(discriminator(y).mean())
            g.step(generator(x).mean())
    assert torch.equal(discriminator.weight, before), "nothing was trained before the error"

    held = g.batches(DATA, steps=3)
    for x, _ in held:
        g.step(generator(x).mean())
        break       # the loop of a script that stops early, and keeps what it read from
    for x, _ in d.batches(DATA, steps=2):
        d.step(discriminator(x).mean())
    for x, _ in g.batches(DATA, steps=3):
        g.step(generator(x).mean())
    assert (g.steps, d.steps) == (3, 2)


@apart
def test_a_loss_that_is_scaled_already_is_an_error(tmp_path):
    model, scaler = torch.nn.Linear(4, 1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path, global_batch=10)
    with pytest.raises(RuntimeError, match=r"scaled by a GradScaler already; give the loss itself, and Elastic\(scaler="):
        for x, _ in elastic.batches(DATA, steps=1):
            elastic.step(scaler.scale(model(x).mean()))
    for x, _ in elastic.batches(DATA, steps=1):
        elastic.step(model(x).mean() * torch.tensor(2.0))       # another factor
