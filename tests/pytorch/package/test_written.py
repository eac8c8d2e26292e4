# SPDX-License-Identifier: GPL-2.0-or-later
"""Tensors that were not written to their end: workers stay, and go on."""

import errno
import os
import time

import pytest
import torch
from torch.distributed.checkpoint import state_dict_saver

from forked import Run, deviation
from swell._written import CutOff, check_written
from swell.checkpoint import Checkpoints, complete_steps

SAME = 1e-5


def folder_of(kind, path):
    """A checkpoint of that kind; returns the file with its tensors."""
    os.makedirs(path, exist_ok=True)
    tensors = {f"layer{at}": torch.randn(50, 40) for at in range(5)}
    if kind == "distcp":
        state_dict_saver.save(tensors, checkpoint_id=path, no_dist=True)
        return os.path.join(path, "__0_0.distcp")
    file = os.path.join(path, f"model.{kind}")
    if kind == "safetensors":
        pytest.importorskip("safetensors.torch").save_file(tensors, file)
    else:
        torch.save(tensors, file)
    return file


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["distcp", "safetensors", "pt", "bin", "ckpt"])
@pytest.mark.parametrize("how", ["whole", "by a byte", "half", "empty", "without its beginning"])
def test_a_file_that_is_cut_off_is_named(kind, how, tmp_path):
    file = folder_of(kind, str(tmp_path / "step"))
    size = os.path.getsize(file)
    if how == "whole":
        check_written(str(tmp_path / "step"))
        return check_written(file)
    if how == "without its beginning":
        with open(file, "r+b") as opened:
            opened.write(bytes(64))
    else:
        os.truncate(file, {"by a byte": size - 1, "half": size // 2, "empty": 0}[how])
    with pytest.raises(CutOff, match=os.path.basename(file)):
        check_written(str(tmp_path / "step"))


@pytest.mark.filterwarnings("ignore")
def test_files_of_others_in_the_folder_are_left_alone(tmp_path):
    path = tmp_path / "step"
    folder_of("safetensors", str(path))
    for name, content in {"complete.bin": b"", "tokens.bin": bytes(64), "notes.safetensors": b"none", "state.pt": b"", ".metadata": b"of another tool"}.items():
        (path / name).write_bytes(content)
    os.symlink("nowhere", path / "latest.pt")
    os.symlink("nowhere", path / "model.bin")
    check_written(str(path))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["distcp", "safetensors", "pt"])
def test_files_that_cannot_be_read_now_may_be_whole(kind, tmp_path, monkeypatch):
    folder_of(kind, str(tmp_path / "step"))

    def fails(*arguments, **options):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    monkeypatch.setattr("builtins.open", fails)
    check_written(str(tmp_path / "step"))


def test_a_checkpoint_of_one_file_is_looked_at_under_any_name(tmp_path):
    file = tmp_path / "elastic.ckpt.unfinished"
    torch.save(torch.ones(100), file)
    check_written(str(file))
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(CutOff):
        check_written(str(file))


@pytest.mark.filterwarnings("ignore")
def test_a_whole_checkpoint_stays_where_it_cannot_be_looked_at(tmp_path, monkeypatch):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    kept = Checkpoints(str(tmp_path), model, optimizer, keep=1)
    kept.load()
    kept.save(20, {}, wait=False)
    kept.finish()

    def fails(*arguments, **options):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with monkeypatch.context() as patch:
        patch.setattr("swell._written.open", fails, raising=False)
        kept.save(20, {}, wait=True)
    assert list(complete_steps(str(tmp_path))) == [20]


@pytest.mark.filterwarnings("ignore")
def test_to_look_at_a_checkpoint_of_many_tensors_costs_far_less_than_to_write_it(tmp_path):
    path = str(tmp_path / "step")
    began = time.process_time()
    state_dict_saver.save({f"layer{at}": torch.zeros(64, 64) for at in range(1000)}, checkpoint_id=path, no_dist=True)
    wrote, began = time.process_time() - began, time.process_time()
    check_written(path)
    assert time.process_time() - began < wrote / 2


@pytest.mark.parametrize("job", ["ddp", "hf"])
def test_workers_stay_where_their_checkpoint_lost_its_end(job, runs):
    if job == "hf":
        pytest.importorskip("transformers")
    reference = runs(Run, "reference", job, steps=24).fast().start(1)
    run = runs(Run, "cut", job, "cuts", steps=24)
    cuts = os.path.join(run.folder, "cuts")
    run.start(2).reach(11)      # the first checkpoint is of step 10
    may = run.sizes()
    with open(cuts, "w"):
        run.reach(13).ask().reach(16)
    assert run.sizes() == [2] and run.why.startswith("the checkpoint of step ") and run.why.endswith("the one before, of step 10, is whole"), run.why
    assert ("distcp" if job == "ddp" else "model.safetensors") in run.why and f"swell: asked to leave, but training goes on: {run.why}" in run.said()
    os.remove(cuts)
    run.reach(22)       # past the checkpoint of step 20
    assert run.sizes() == may and not run.why
    run.ask().leave_well()
    run.fast().start(3).leave_well()
    reference.leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 25)) and deviation(run.curve(), reference.curve()) < SAME
