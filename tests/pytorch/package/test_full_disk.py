# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints on a file system of their own that is full, over its quota or broken: what Swell does itself ends no training."""

import contextlib
import errno
import os
import subprocess
import time

import pytest

pytest.importorskip("transformers")
pytest.importorskip("lightning")

import accelerate  # noqa: E402,F401  once, for all workers
import lightning.pytorch  # noqa: E402,F401
import transformers  # noqa: E402,F401
from transformers import Trainer  # noqa: E402,F401

import torch  # noqa: E402
from torch.distributed.checkpoint import FileSystemWriter  # noqa: E402

from forked import Run, apart, deviation  # noqa: E402
from swell import _request, _room  # noqa: E402
from swell.torch import Elastic  # noqa: E402

SAME = 1e-5
FOLDERS = {"hf": "out"}
MIB = 1 << 20


class Disk:
    """A small file system of its own."""

    def __init__(self, path):
        self.path = str(path)
        os.mkdir(self.path)

    def mount(self, size):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "swell-test", self.path], check=True)
        return self

    def free(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave=0):
        """Leave so many bytes."""
        with contextlib.suppress(OSError), open(os.path.join(self.path, "ballast"), "wb", buffering=0) as file:       # a job may write meanwhile
            while (there := self.free() - leave) > 0:
                file.write(bytes(min(there, MIB)))

    def empty(self):
        os.unlink(os.path.join(self.path, "ballast"))

    def unmount(self):
        subprocess.run(["umount", "--lazy", self.path], check=False, stderr=subprocess.DEVNULL)


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "swell-test", made.path], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here: run as root")
    made.unmount()
    yield made
    made.unmount()


def job_on(disk, tmp_path, job, *arguments, **options):
    run = Run(tmp_path / "run", job, *arguments, **options)
    os.symlink(disk.path, os.path.join(run.folder, FOLDERS.get(job, "checkpoints")))
    return run


CASES = [("accelerated", "full"), *(pytest.param(job, how, marks=pytest.mark.slow) for job, how in [("ddp", "EDQUOT"), ("hf", "EIO"), ("pl_resnet", "full"), ("ddp", "full"), ("ddp", "EIO"), ("hf", "full"), ("hf", "EDQUOT"), ("pl_resnet", "EIO"),
                                                                            ("pl_resnet", "EDQUOT"), ("accelerated", "EIO"), ("accelerated", "EDQUOT")])]


@pytest.mark.parametrize("job, how", CASES)
def test_a_failed_save_does_not_end_training(job, how, disk, tmp_path):
    """A growth is declined, checkpoints that are due are left out, and once they succeed again the job can leave."""
    disk.mount("32m")
    options = () if how == "full" else (how,)
    reference = Run(tmp_path / "reference", job, steps=40).fast().start(1)
    run = job_on(disk, tmp_path, job, *options, steps=40)
    broken = os.path.join(run.folder, "broken")
    try:
        run.start(2).reach(12)      # the first checkpoint is of step 10
        may = run.sizes()
        disk.fill() if how == "full" else open(broken, "w").close()
        run.ask().reach(22)         # past the checkpoint of step 20
        assert run.sizes() == [2] and "could not be written to" in run.why and run.why.endswith("the one before, of step 10, is whole"), run.why
        reasons = ["No space left on device", "PytorchStreamWriter failed writing file"] if how == "full" else [os.strerror(getattr(errno, how))]
        assert any(reason in run.why for reason in reasons), run.why
        disk.empty() if how == "full" else os.unlink(broken)
        run.reach(32)               # past that of step 30
        assert run.sizes() == may and not run.why, "it can save again"
        run.ask().leave_well()
        run.fast().start(3).leave_well()
        reference.leave_well()
    finally:
        reference.end()
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 41)) and run.worlds() == [2, 3]
    assert deviation(run.curve(), reference.curve()) < SAME


def test_workers_of_Lightning_leave_without_an_exception_for_callbacks_and_loggers(disk, tmp_path):
    """ModelCheckpoint(save_on_exception=True) would save, and fail where the disk is full; a logger would tell its server of a failed run."""
    disk.mount("32m")
    run = job_on(disk, tmp_path, "pl_resnet", "best", "aside", steps=12)
    own = os.path.join(disk.path, "own")
    try:
        run.start(2).reach(4).ask().leave_well()
        left = sorted(os.listdir(own))
        assert left == ["step=3.ckpt"], "no checkpoint for an exception"
        run.fast().start(1).leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, 13))
    assert run.begun() == list(range(1, 13)), "callbacks have begun a step twice"
    with open(os.path.join(run.folder, "ended")) as file:
        assert file.read().split() == ["RUNNING", "success"]


@pytest.mark.parametrize("words", [("best",), ("best", "aside")])
def test_a_ModelCheckpoint_that_has_no_room_beside_swells_ends_no_training(words, disk, tmp_path):
    disk.mount("32m")
    run = job_on(disk, tmp_path, "pl_resnet", *words, steps=24)
    try:
        run.start(2).reach(11)
        saved = [os.path.join(disk.path, "own", f"step={step}.ckpt") for step in (3, 9)]
        run.until(lambda: os.path.exists(saved[1]) and os.path.getsize(saved[0]) == os.path.getsize(saved[1]), "the save of step 9, which is made aside")
        disk.fill()
        run.fast().leave_well()
    finally:
        run.end()
    said = run.said()
    assert "step=12.ckpt could not be written, as there is no room beside the checkpoint" in said and "training goes on without it" in said, said
    assert [line["step"] for line in run.lines()] == list(range(1, 25))
    assert sorted(os.listdir(os.path.join(disk.path, "own"))) == ["step=3.ckpt", "step=6.ckpt", "step=9.ckpt"], "no part of one is left"


def test_accelerators_own_saves_are_numbered_on_and_end_no_training_for_want_of_room(disk, tmp_path):
    disk.mount("32m")
    run = job_on(disk, tmp_path, "accelerated", "saves", steps=40)
    own = os.path.join(disk.path, "own", "checkpoints")
    try:
        run.start(1).reach(9).ask().leave_well()
        assert sorted(os.listdir(own)) == ["checkpoint_0", "checkpoint_1"]
        run.start(2).reach(18).kill(0).kill(1).leave()       # from step 10 on again: that of step 12 is written twice
        run.start(2).until(lambda: os.path.exists(os.path.join(disk.path, "step-000000020", ".metadata")), "the checkpoint of step 20")
        disk.fill()
        run.reach(25)
        disk.empty()
        run.fast().leave_well()
    finally:
        run.end()
    said = run.said() + run.said(1)     # by the worker that found no room for its part
    assert "there is no room for" in said and "step-000000010 is removed" in said
    assert sorted(run.curve()) == list(range(1, 41))
    whole = {name: sorted(os.listdir(os.path.join(own, name))) for name in os.listdir(own)}
    left_out = [5] if "training goes on without it" in said else []
    assert sorted(whole) == sorted(f"checkpoint_{at}" for at in range(10) if at not in left_out)
    assert {"model.safetensors", "optimizer.bin", "random_states_0.pkl"} <= set.intersection(*map(set, whole.values())), whole


def test_checkpoints_of_which_three_do_not_fit_are_saved_all_the_same(disk, tmp_path):
    disk.mount("32m")
    run = job_on(disk, tmp_path, "ddp", steps=45).start(1)
    try:
        run.until(lambda: os.path.exists(os.path.join(disk.path, "step-000000010", ".metadata")), "the first checkpoint")
        one = (32 * MIB - disk.free()) // 1024
        subprocess.run(["mount", "-o", f"remount,size={one * 26 // 10}k", disk.path], check=True)       # two are kept
        run.fast().leave_well()
    finally:
        run.end()
    assert "could not be written" not in run.said() and "there is no room for another checkpoint: the older checkpoint" in run.said()
    assert [name for name in sorted(os.listdir(disk.path)) if name.startswith("step")][-1] == "step-000000045"


@apart
@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("where", ["rest", "shards"])
def test_a_checkpoint_that_a_broken_file_system_or_a_quota_refuses_is_left_out(where, number, tmp_path, monkeypatch, capfd):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))
    data = torch.utils.data.TensorDataset(torch.ones(24, 2), torch.ones(24, 1))
    model = torch.nn.Linear(2, 1)
    elastic = Elastic(model, torch.optim.AdamW(model.parameters()), directory=tmp_path / "c", global_batch=4, checkpoint_every=2)
    for step, (x, y) in enumerate(elastic.batches(data, steps=6), 1):
        if step == 2:
            monkeypatch.setattr(*((torch, "save") if where == "rest" else (FileSystemWriter, "write_data")), refuse)
        if step == 4:
            while (saving := elastic._checkpoints._saving) is not None and not saving.done():      # that of step 2 has failed before it is asked
                time.sleep(0.01)
            _request.ask()
        if step == 6:
            monkeypatch.undo()
        elastic.step(torch.nn.functional.mse_loss(model(x), y))
    said = capfd.readouterr().err
    lines = [line for line in said.splitlines() if "could not be written to" in line]
    assert len(lines) == 2 and all(f": {os.strerror(number)}, and there is none before it" in line for line in lines), said
    assert "of step 2 " in lines[0] and lines[0].endswith("training goes on") and lines[1].startswith("swell: asked to leave, but training goes on: "), said
    assert sorted(os.listdir(tmp_path / "c")) == ["step-000000006"], "what is not whole takes space"


# ---- saves of the script's


class Saves:
    """Fails as often as errors are given, then writes."""

    def __init__(self, path, *errors):
        self.path, self.errors = str(path), list(errors)

    def __call__(self):
        with open(self.path, "w") as file:
            file.write("a part")
            if self.errors:
                raise self.errors.pop(0)
        return "saved"


def checkpoints(tmp_path, count):
    for at in range(count):
        (tmp_path / f"step-{at}").mkdir()
    return lambda: [str(each) for each in sorted(tmp_path.glob("step-*"), reverse=True)]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "Disk quota exceeded"),
                                   Exception("Error while serializing: I/O error: No space left on device (os error 28)")])
def test_older_checkpoints_give_way_to_a_save_of_the_script(error, tmp_path, capfd):
    whole = checkpoints(tmp_path, 3)
    assert _room.save_beside(Saves(tmp_path / "own", error), str(tmp_path / "own"), whole) == "saved"
    assert [os.path.basename(path) for path in whole()] == ["step-2"]
    assert capfd.readouterr().err.count("is removed") == 2


def test_the_newest_checkpoint_stays_and_the_script_trains_on(tmp_path, capfd):
    whole = checkpoints(tmp_path, 2)
    full, left_out = [OSError(errno.ENOSPC, "No space left on device") for _ in range(2)], []
    assert _room.save_beside(Saves(tmp_path / "own", *full), str(tmp_path / "own"), whole, lambda: left_out.append(True)) is None
    assert left_out == [True]
    assert [os.path.basename(path) for path in whole()] == ["step-1"] and not (tmp_path / "own").exists()
    assert "training goes on without it" in capfd.readouterr().err


@apart
def test_a_new_folder_of_Accelerate_s_that_lacks_a_part_is_removed(tmp_path, monkeypatch):
    from accelerate import Accelerator, accelerator as home
    from accelerate.utils import ProjectConfiguration
    from swell.integrations import AccelerateElastic

    def write(folder, *_, **__):
        with open(os.path.join(folder, "model.safetensors"), "w") as file:
            file.write("a part")
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(home, "save_accelerator_state", write)
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True))
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    AccelerateElastic(accelerator, model, optimizer, directory=tmp_path / "c", global_batch=4)
    whole = tmp_path / "c" / "step-000000001"
    whole.mkdir()
    (whole / ".metadata").touch()
    accelerator.save_state()
    assert not list((tmp_path / "checkpoints").iterdir()), "load_state() would take it for whole"
    accelerator.project_configuration.automatic_checkpoint_naming = False
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "of the script").touch()
    accelerator.save_state(str(kept))
    accelerator.save_state(str(tmp_path / "new"))
    assert (kept / "of the script").exists() and not (tmp_path / "new").exists()


@pytest.mark.parametrize("error, there", [(OSError(errno.EIO, "Input/output error"), 2), (OSError(errno.EACCES, "Permission denied"), 2),
                                          (RuntimeError("a failure of the script's"), 2), (OSError(errno.ENOSPC, "No space left on device"), 0)])
def test_a_save_of_the_script_that_swell_has_not_spoiled_fails_as_without_swell(error, there, tmp_path):
    whole = checkpoints(tmp_path, there)
    with pytest.raises(type(error), match=str(error).split("]")[-1].strip()):
        _room.save_beside(Saves(tmp_path / "own", error), str(tmp_path / "own"), whole)
    assert len(whole()) == there


@apart
def test_torchs_own_writer_is_seen_to_have_no_room(disk):
    disk.mount("256k")
    path = os.path.join(disk.path, "weights")
    with pytest.raises(RuntimeError) as failed:
        torch.save(torch.zeros(MIB), path)
    assert _room.is_out_of_room(failed.value, disk.path)
    os.unlink(path)
    disk.unmount()
    disk.mount("4m")
    assert not _room.is_out_of_room(RuntimeError("another"), disk.path), "there is room"
