# SPDX-License-Identifier: GPL-2.0-or-later
"""Live mode where GPUs go back: the workers that are left keep their processes, through real keepers and switches."""

import json
import os
import re

import pytest
import torch
import torch.distributed as dist

from forked import LiveRun, Run, deviation
from native import needs_live_host
from swell import _staying

pytestmark = needs_live_host
SAME = 1e-5


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Loss by step of one worker that nobody disturbs."""
    return Run(tmp_path_factory.mktemp("reference"), "ddp").fast().start(1).leave_well().curve()


def is_whole(run, reference):
    """Each step was trained once, with the loss of the run that nobody disturbs."""
    assert [line["step"] for line in run.lines()] == list(range(1, 61)), "a step is missing or was trained twice"
    assert deviation(run.curve(), reference) < SAME
    return True


def pids(run):
    """Returns the processes of rank 0, one after the other."""
    found = [line["pid"] for line in run.lines()]
    return [pid for at, pid in enumerate(found) if at == 0 or found[at - 1] != pid]


def mapped(run, name="memfd:swell"):
    """How many times rank 0 has the shim's memory."""
    with open(f"/proc/{run.workers[0]}/maps") as maps:
        return sum(name in line for line in maps)


def test_remaining_workers_keep_their_process_and_the_loss_of_every_step(runs, reference):
    run = runs(LiveRun, "shrunk", "ddp", "no-checkpoints").start(4).reach(4)
    first = dict(run.workers)
    report = run.shrink(0, 1, 2)
    assert report["committed"] and report["codes"] == [0], report
    assert run.workers == {rank: first[rank] for rank in range(3)}
    assert run.reach(run.step() + 4).shrink(2, 1)["committed"]      # the first one leaves: another becomes rank 0
    assert run.workers == {0: first[2], 1: first[1]}
    assert run.reach(run.step() + 4).switch(3)["committed"]         # new workers: all start anew
    assert not set(run.workers.values()) & set(first.values())
    grown = dict(run.workers)
    assert run.reach(run.step() + 4).shrink(1)["committed"]
    run.fast().leave_well()
    assert run.worlds() == [4, 3, 2, 3, 1] and pids(run) == [first[0], first[2], grown[0], grown[1]]
    assert is_whole(run, reference)


def test_a_live_run_that_skips_batches_is_resized_as_any_other(runs):
    alone = runs(Run, "alone", "ddp", "skips").fast().start(1).leave_well()
    run = runs(LiveRun, "skips", "ddp", "skips", "no-checkpoints").start(1).reach(4)
    assert run.switch(3)["committed"]
    assert run.reach(run.step() + 4).shrink(2, 1)["committed"]
    assert run.reach(run.step() + 4).shrink(1)["committed"]
    run.fast().leave_well()
    assert run.worlds() == [1, 3, 2, 1] and [line["step"] for line in run.lines()] == sorted(alone.curve())
    assert deviation(run.curve(), alone.curve()) < SAME


def test_a_live_run_is_resized_between_batches_that_it_skips(runs):
    alone = runs(Run, "alone", "ddp", "skips", "skips-long").fast().start(1).leave_well()
    run = runs(LiveRun, "skips", "ddp", "skips", "skips-long", "no-checkpoints").start(1)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "skipped")), "the first skipped batch")
    assert run.switch(3)["committed"]
    assert run.shrink(2, 1)["committed"]
    run.fast().leave_well()
    assert run.worlds() == [1, 2], "a batch was trained on between the two switches"
    assert [line["step"] for line in run.lines()] == sorted(alone.curve()) and deviation(run.curve(), alone.curve()) < SAME


def test_the_mean_loss_before_the_first_step_in_a_world_is_not_the_share_of_who_is_left(runs):
    run = runs(LiveRun, "looks", "ddp", "looks", "no-checkpoints", steps=20).start(3).reach(4)
    assert run.shrink(2, 1)["committed"]
    run.fast().leave_well()
    with open(os.path.join(run.folder, "looked")) as file:
        assert file.read().split() == ["3", "nan", "2", "nan"]


def test_other_things_with_a_state_and_a_loader_that_reads_ahead_go_on(runs, reference):
    alone = runs(Run, "alone", "ddp", "average").fast().start(1)
    run = runs(LiveRun, "average", "ddp", "average", "no-checkpoints").start(3).reach(4)
    assert run.shrink(2, 1)["committed"]
    assert run.reach(run.step() + 3).shrink(1)["committed"]
    run.fast().leave_well()
    alone.leave_well()
    assert is_whole(run, reference)
    averages = [json.load(open(os.path.join(each.folder, "average"))) for each in (run, alone)]
    assert averages[0] == pytest.approx(averages[1], rel=SAME)


def test_state_on_a_device_and_the_memory_before_are_left_as_they_are(runs, reference):
    for kind in ((), ("on-device",)):
        run = runs(LiveRun, f"memory{len(kind)}", "ddp", "no-checkpoints", *kind).start(3).reach(4)
        before = mapped(run)
        assert run.shrink(2, 1)["committed"]
        assert run.reach(run.step() + 3).shrink(1)["committed"]
        assert mapped(run.reach(run.step() + 3)) <= before, "memory of an earlier generation is mapped still"
        run.fast().leave_well()
        assert is_whole(run, reference)


def test_state_on_a_gpu_stays_where_it_is_and_the_mapping_before_ends(runs, reference):
    """The GPU is a stand-in's."""
    run = runs(LiveRun, "gpu", "ddp", "no-checkpoints", "on-gpu").start(3).reach(4)
    process, before = run.workers[1], mapped(run, "memfd:stand-in-gpu")
    report = run.shrink(2, 1)
    assert report["committed"] and report["bytes"]["in place"] > 0 and not any("device" in path or "GPU" in path for path in report["bytes"]), report
    assert run.reach(run.step() + 3).shrink(1)["committed"]
    run.reach(run.step() + 3)
    assert run.workers == {0: process} and mapped(run, "memfd:stand-in-gpu") <= before
    run.fast().leave_well()
    assert run.worlds() == [3, 2, 1] and is_whole(run, reference)


def test_a_process_with_a_captured_graph_does_not_stay(tmp_path, monkeypatch):
    """A replay would read parameters at the addresses that are unmapped after the switch."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        graph = torch.cuda.CUDAGraph() if torch.cuda.is_available() else object.__new__(torch.cuda.CUDAGraph)
        assert _staying.why_not(model, optimizer, groups=1) == "", "on the host nothing is captured"
        monkeypatch.setattr(_staying, "gpu_of", lambda device: 0)
        monkeypatch.setattr(_staying, "shares_gpu_memory", lambda gpu: True)
        assert _staying.why_not(model, optimizer, groups=1).startswith("a CUDA graph was captured")
        del graph
        assert _staying.why_not(model, optimizer, groups=1) == ""
    finally:
        dist.destroy_process_group()


class WorkingGpu:
    """A GPU with launched work that reads a session's memory, and that session: as with NVIDIA's driver, unmapping does not wait for work."""

    def __init__(self, tensors):
        self.gpu_bytes, self.works, self.tensors, self.is_mapped = 4096, True, tensors, True

    def has_gpu_tensors(self):
        self.tensors -= 1       # one that a cycle keeps
        return self.tensors >= 0

    def settle(self, device):
        assert device == torch.device("cuda", 3)
        self.works = False

    def close(self):
        assert not self.works, "memory is unmapped that the GPU reads"
        self.is_mapped = False


@pytest.mark.parametrize("tensors, is_mapped", [(0, False), (1, False), (2, True)])
def test_gpu_memory_is_unmapped_once_the_gpu_reads_it_no_more(tensors, is_mapped, monkeypatch):
    gpu = WorkingGpu(tensors)
    monkeypatch.setattr(_staying, "settle", gpu.settle)
    _staying.let_go(gpu, 0, torch.device("cuda", 3))
    assert gpu.is_mapped == is_mapped and gpu.works == is_mapped


def test_gpu_memory_that_the_script_s_tensors_are_over_stays_and_its_bytes_are_said(runs, reference):
    run = runs(LiveRun, "kept", "ddp", "no-checkpoints", "on-gpu", "keeps").start(2).reach(4)
    log = run._log(1)
    assert run.shrink(1)["committed"]
    run.reach(run.step() + 3).fast().leave_well()
    told = open(log).read()
    assert re.search(r"the script keeps tensors over Swell's memory of the GPU, .*: up to [1-9]\d* bytes", told) and "kept: True" in told, told
    assert is_whole(run, reference)


@pytest.mark.parametrize("variable", ["SWELL_GPU_MEMORY", "STAND_IN_NO_SHARING", "STAND_IN_NO_EXPORT"])
def test_state_in_torch_s_memory_of_a_gpu_goes_to_new_workers(runs, reference, variable, monkeypatch):
    """It is asked for, or the driver cannot share memory, or says that it can and does not."""
    monkeypatch.setenv(variable, "torch")
    run = runs(LiveRun, "own", "ddp", "no-checkpoints", "on-gpu").start(2).reach(4)
    assert run.offer(0) == [False]
    assert "where it would be overwritten before the switch is certain: where GPUs go back, all workers start anew" in run.said()
    run.fast().leave_well()
    assert is_whole(run, reference)


def test_checkpoints_and_requests_go_on_in_the_process_that_stays(runs, reference):
    run = runs(LiveRun, "checkpoints", "ddp").start(3).reach(8)
    assert run.shrink(0, 2)["committed"]
    run.reach(24).ask(1).leave_well()
    assert "checkpoint at step" in run.said(0)
    run.fast().start(3).leave_well()
    assert is_whole(run, reference)


def test_a_switch_that_is_called_off_is_forgotten_and_another_one_goes(runs, reference):
    run = runs(LiveRun, "off", "ddp", "no-checkpoints").start(2).reach(4)
    first = dict(run.workers)
    for _ in range(2):
        assert run.offer(0) == [True]
        run.reach(run.step() + 3)
        run.tell("withdraw 0")
    assert run.shrink(0)["committed"] and run.workers == {0: first[0]}
    run.fast().leave_well()
    assert is_whole(run, reference)


@pytest.mark.parametrize("phase, leaves", [("quiesce", False), ("quiesce", True), ("move", True)])
def test_a_worker_killed_during_a_switch_is_one_that_was_lost_or_that_had_left(runs, reference, phase, leaves):
    run, held = runs(LiveRun, "killed", "ddp").start(3).reach(13), ""
    held = os.path.join(run.folder, "held")
    with open(held, "w"):
        run.tell(f"hold {phase} {held}")
    run.shrink(0, 1, wait=False)
    run.until(lambda: os.path.exists(held + ".reached"), phase)
    os.kill(run.old[0] if leaves else run.workers[1], 9)
    os.remove(held)
    if phase == "move":     # it stood at the boundary: nothing is lost
        assert run.switched()["committed"]
        run.fast().leave_well()
        assert is_whole(run, reference)
        return
    report = run.switched_badly()
    assert not report.get("committed"), report
    run.fast().start(2).leave_well()
    assert sorted(run.curve()) == list(range(1, 61)) and deviation(run.curve(), reference) < SAME
    assert next(line["step"] for line in run.lines() if line["generation"]) == 11, "it went on from another state than the last checkpoint's"


def test_a_save_that_a_leaving_worker_does_not_finish_is_given_up(runs, reference):
    run = runs(LiveRun, "saving", "ddp", "held-saves")
    hold, held = os.path.join(run.folder, "hold"), os.path.join(run.folder, "held")
    for path in (hold, held):
        with open(path, "w"):
            pass
    run.start(3).until(lambda: os.path.exists(os.path.join(run.folder, "writing.2")), "the second checkpoint, under way")
    run.tell(f"hold move {held}")
    run.shrink(0, 1, wait=False)
    run.until(lambda: os.path.exists(held + ".reached"), "move")
    os.kill(run.old[0], 9)
    os.remove(held)
    os.remove(hold)
    assert run.switched()["committed"]
    run.fast().leave_well()
    assert "the checkpoint of step 20 could not be written" in run.said() and is_whole(run, reference)
    assert os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000060", ".metadata"))


def test_a_shrink_in_an_evaluation_is_acted_on(runs, reference):
    run = runs(LiveRun, "evaluation", "ddp", "evaluate", "no-checkpoints").fast().start(3)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "evaluating")), "the evaluation")
    assert run.shrink(0, 1)["committed"]
    run.leave_well()
    assert next(line["step"] for line in run.lines() if line["world"] == 2) == 14
    assert is_whole(run, reference)


def test_a_global_batch_in_which_the_program_polls_is_begun_anew(runs, reference):
    run = runs(LiveRun, "polls", "ddp", "polls", "no-checkpoints").start(2)
    for keepers in ((1, 0), (0, 1), (1,)):
        assert run.reach(run.step() + 3).shrink(*keepers)["committed"]
    run.fast().leave_well()
    assert run.worlds() == [2, 1] and is_whole(run, reference)


def test_the_profile_of_the_smaller_world_is_reported(runs):
    run = runs(LiveRun, "profile", "ddp", "profile", "no-checkpoints", steps=30).start(3).reach(4)
    assert run.shrink(0, 1)["committed"]
    run.fast().leave_well()
    with open(os.path.join(run.folder, "profile")) as file:
        seen = json.load(file)
    assert seen["micro_batches"] == 2 and 0 < seen["forward_s"] and 0 < seen["dp_sync_s"] and 0 < seen["optimizer_s"]


@pytest.mark.parametrize("job, arguments, why", [
    ("ddp", ("fsdp",), ""), ("ddp", ("hooked",), "has a communication hook"), ("ddp", ("second",), "there is another DistributedDataParallel"),
    ("ddp", ("other-group",), "process groups beside the default one (1)"), ("accelerated", (), "Accelerate keeps the number of workers")])
def test_a_program_that_cannot_stay_does_not_say_so(runs, job, arguments, why):
    run = runs(LiveRun, "swapped", job, *arguments, "no-checkpoints", steps=20).start(2).reach(2)
    assert run.offer(0) == [False] and why in run.said()
    first = dict(run.workers)
    assert run.switch(1)["committed"] and run.workers[0] not in first.values()
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 21))


def test_a_group_that_was_made_later_keeps_it_from_preparing(runs, reference):
    run = runs(LiveRun, "late", "ddp", "late-group").start(2).reach(10)
    why = "process groups beside the default one (1)"
    report = run.shrink(0, limit_s=100)
    assert not report.get("committed") and why in report["why"] and why in run.said()       # it has not waited until the time was over
    run.reach(run.step() + 3).ask().leave_well()
    run.fast().start(1).leave_well()
    assert is_whole(run, reference)
