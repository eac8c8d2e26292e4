# SPDX-License-Identifier: GPL-2.0-or-later
"""Live mode: the state goes from workers to workers without a checkpoint, through real keepers and switches."""

import ctypes
import json
import os
import re

import pytest
import torch

from forked import LiveRun, Run, deviation
import common
import ddp
import stand_in_gpu
from native import needs_live_host
from swell import _slots, live
from swell._native import NativeError, Session

pytestmark = needs_live_host
SAME = 1e-5


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Loss by step of one worker that nobody disturbs."""
    return Run(tmp_path_factory.mktemp("reference"), "ddp").fast().start(1).leave_well().curve()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_live_resizes_leave_the_loss_of_every_step_as_it_is(runs, reference, kind):
    run = runs(LiveRun, "live", "ddp", *(["fsdp"] if kind == "fsdp" else []), "no-checkpoints")
    run.start(1).reach(5)
    for world in (3, 5, 2):
        report = run.switch(world)
        assert report["committed"] and not any(report["codes"]), report
        run.reach(run.step() + 5)
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)), "a step is missing or was trained twice"
    assert run.worlds() == [1, 3, 5, 2]
    assert deviation(run.curve(), reference) < SAME
    assert not os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000010"))


def test_dropout_is_the_same_over_live_resizes(runs):
    alone = runs(Run, "alone", "ddp", "drops").fast().start(1).leave_well()
    run = runs(LiveRun, "live", "ddp", "drops", "no-checkpoints").start(1).reach(5)
    for world in (2, 4, 3):
        assert run.switch(world)["committed"]
        run.reach(run.step() + 5)
    run.fast().leave_well()
    assert run.worlds() == [1, 2, 4, 3] and deviation(run.curve(), alone.curve()) < SAME


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize(("memory", "path"), [("swell", "in place"), ("torch", "device to device, from own GPU memory, to own GPU memory")])
def test_state_on_a_gpu_is_handed_over_bitwise(runs, reference, kind, memory, path, monkeypatch):
    """The GPU is a stand-in's: what is copied how is the real runtime's, the memory the host's."""
    monkeypatch.setenv("SWELL_GPU_MEMORY", memory)
    alone = runs(Run, "alone", "ddp", *(["fsdp"] if kind == "fsdp" else []), "no-checkpoints").fast().start(2)
    run = runs(LiveRun, "gpu", "ddp", *(["fsdp"] if kind == "fsdp" else []), "no-checkpoints", "on-gpu").start(2).reach(5)
    report = run.switch(2)      # over as many workers: sums are made in the same order
    assert report["committed"] and report["bytes"][path] > 3 * 4 * 400, report      # the optimizer's state, too
    if memory == "swell":
        assert not any("GPU" in each or "device" in each for each, count in report["bytes"].items() if count), report
    run.reach(run.step() + 3)
    step = run.step()
    assert run.switch(3)["committed"]
    run.fast().leave_well()
    alone.leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and run.worlds() == [2, 3]
    assert all(run.curve()[at] == alone.curve()[at] for at in range(1, step + 1))
    assert deviation(run.curve(), reference) < SAME


def test_torchs_cache_of_a_gpu_is_given_back_once_if_other_workers_begin(runs):
    """These take their memory while the old ones train. One that begins beside others gives its own back, too, before it waits for its generation."""
    given_back = "stand-in: the cache is given back"
    run = runs(LiveRun, "cache", "ddp", "fsdp", "no-checkpoints", "on-gpu").start(2).reach(5)
    assert all(given_back not in run.said(rank) for rank in range(2))
    assert run.offer(0, 1) == [False, False], "they stay, and no other workers begin"
    run.reach(run.step() + 4)
    assert all(run.said(rank).count(given_back) == 1 for rank in range(2))
    said = [run._log(rank) for rank in range(2)]
    assert run.switch(2)["committed"]
    assert all(open(each).read().count(given_back) == 2 for each in said), "where it ends, too"
    run.reach(run.step() + 4)
    assert all(run.said(rank).count(given_back) == 1 for rank in range(2)), "no workers begin beside those that have taken over"


def test_a_growth_on_a_gpu_takes_no_memory_for_state_that_is_there(runs, reference):
    """The new worker's model fits beside the state of the old one, a second state does not."""
    run = runs(LiveRun, "tight", "ddp", "no-checkpoints", "on-gpu")
    gpus = os.path.join(run.folder, "gpus")
    stand_in_gpu.size_gpus(gpus, 1 << 40)
    run.start(1).reach(5)
    stand_in_gpu.size_gpus(gpus, stand_in_gpu.size_gpus(gpus, 1 << 40) * 7 // 5)
    report = run.switch(2)
    assert report.get("committed") and not any("own GPU memory" in path for path, count in report["bytes"].items() if count), report
    run.reach(run.step() + 3).fast().leave_well()
    assert run.worlds() == [1, 2] and deviation(run.curve(), reference) < SAME


def test_a_new_worker_s_first_step_waits_for_the_memory_of_the_old_one(runs, reference):
    """The old one has what its steps take of the GPU until its process has ended, a second after the new one has taken over."""
    run = runs(LiveRun, "late", "ddp", "no-checkpoints", "on-gpu", "activations")
    gpus = os.path.join(run.folder, "gpus")
    stand_in_gpu.size_gpus(gpus, 1 << 40)
    run.start(1).reach(5)
    stand_in_gpu.size_gpus(gpus, stand_in_gpu.size_gpus(gpus, 1 << 40) + ddp.ACTIVATIONS // 2)
    report = run.switch(1)
    assert report.get("committed") and not any(report["codes"]), report
    run.reach(run.step() + 3).fast().leave_well()
    assert deviation(run.curve(), reference) < SAME


def test_a_first_worker_needs_room_for_its_state_once(runs, reference):
    """Its model's memory of torch goes before the state's is taken."""
    run = runs(LiveRun, "first", "ddp", "no-checkpoints", "on-gpu")
    gpus = os.path.join(run.folder, "gpus")
    stand_in_gpu.size_gpus(gpus, 2 << 20)       # one piece of the least size, which has all of the state
    run.start(1).reach(5).fast().leave_well()
    assert "stand-in: the cache is given back" in run.said() and deviation(run.curve(), reference) < SAME


def test_a_growth_that_does_not_fit_a_gpu_says_so_in_bytes_and_the_old_worker_trains_on(runs, reference, monkeypatch):
    """Parameters of the new worker fit beside the state of the old one, what its optimizer keeps does not."""
    monkeypatch.setenv("SWELL_GPU_MEMORY", "torch")
    run = runs(LiveRun, "full", "ddp", "no-checkpoints", "on-gpu")
    gpus = os.path.join(run.folder, "gpus")
    stand_in_gpu.size_gpus(gpus, 1 << 40)
    run.start(1).reach(5)
    stand_in_gpu.size_gpus(gpus, stand_in_gpu.taken(gpus) * 3 // 2)
    report = run.switch(2)
    assert not report.get("committed") and re.search(r"no room on GPU 0: \d+ bytes are needed, \d+ are free$", report["why"]), report
    run.reach(run.step() + 3)
    stand_in_gpu.size_gpus(gpus, 1 << 40)
    assert run.switch(2)["committed"], "with room it grows"
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_worker_with_state_on_a_gpu_is_killed_before_the_switch(runs, reference):
    run = runs(LiveRun, "killed", "ddp", "no-checkpoints", "on-gpu").start(1).reach(5)
    run.switch(2, wait=False, limit_s=1)
    run.kill(1)
    report = run.switched()
    assert "why" in report and not report.get("committed"), report
    run.reach(run.step() + 3)
    assert run.switch(2)["committed"]
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_state_without_memory_or_on_other_devices_is_refused(monkeypatch):
    model = torch.nn.Linear(4, 2, device="meta")
    with pytest.raises(live.Unsupported, match="weight is on meta"):
        live.LiveState(None, model, torch.optim.AdamW(model.parameters()), {}, rank=0)
    with pytest.raises(live.Unsupported, match="state stands on xpu:0"):
        _slots.gpu_of(torch.device("xpu:0"))


def _model_and_optimizer(kind, options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    return model, kind(model.parameters(), **options)


def _step(model, optimizer, at):
    optimizer.zero_grad()
    torch.manual_seed(at)
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind, options, at_once", [
    (torch.optim.AdamW, {}, True), (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}, True), (torch.optim.RMSprop, {"momentum": 0.5}, True),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, True), (torch.optim.Adamax, {}, True), (torch.optim.SGD, {"lr": 0.1}, True),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, False), (torch.optim.NAdam, {}, False)])
def test_an_optimizer_steps_first_in_the_memory_of_the_live_state(kind, options, at_once):
    alone, plain_optimizer = _model_and_optimizer(kind, options)
    model, optimizer = _model_and_optimizer(kind, options)
    with Session() as session:
        state = live.LiveState(session, model, optimizer, {}, rank=0)
        state.adopt()

        def kept():
            return {(number, key): value for number, parameter in enumerate(model.parameters())
                    for key, value in optimizer.state.get(parameter, {}).items() if isinstance(value, torch.Tensor)}
        before = kept()
        for at in range(3):
            _step(alone, plain_optimizer, at)
            _step(model, optimizer, at)
            if at_once:
                assert all(value is before.get(key) for key, value in kept().items()), "the first step made moments beside those that are there"
            state.boundary({})
        assert bool(before) == (at_once and bool(kept()))
        for each in state._kept:
            assert each.value is optimizer.state[each.parameter][each.key]
            assert each.value.data_ptr() == session.address(each.name)[0]
        assert all(map(torch.equal, alone.parameters(), model.parameters()))
        ours, theirs = optimizer.state_dict()["state"], plain_optimizer.state_dict()["state"]
        assert all(torch.equal(value, ours[number][key]) for number, one in theirs.items() for key, value in one.items() if value is not None)


def _with_buffer():
    model, optimizer = _model_and_optimizer(torch.optim.AdamW, {})
    model[0].register_buffer("mean", torch.ones(3))
    return model, optimizer


def _assign(model):
    for parameter in model.parameters():
        parameter.data = parameter.data * 2
    model[0].mean = model[0].mean + 1


def _set(model):
    with torch.no_grad():
        model[0].weight.set_((model[0].weight * 3).clone())


@pytest.mark.parametrize("moves", [_assign, _set])
def test_tensors_that_a_script_moves_elsewhere_return_to_their_memory_with_their_values(moves):
    model, optimizer = _with_buffer()
    with Session() as session:
        state = live.LiveState(session, model, optimizer, {}, rank=0)
        state.adopt()
        moves(model)
        values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        state.boundary({})
        for name, tensor in model.state_dict().items():
            assert tensor.data_ptr() == session.address(f"buffer.{name}" if name == "0.mean" else f"parameter.{name}")[0]
            assert torch.equal(tensor, values[name])
        _step(model, optimizer, 0)
        state.boundary({})


def _swap(model):
    model.backup = model[2].weight.data
    model[2].weight.data = torch.zeros(2, 3)


def _tie(model):
    model[1].bias.data = model[0].bias.data


def _part(model):
    model[0].mean = model[0].bias.detach()


@pytest.mark.parametrize("moves, why", [
    (lambda model: model.half(), r"0.weight has become another tensor than it was: float16 \(3, 4\) on cpu"),
    (lambda model: setattr(model[0], "mean", None), "0.mean has become another tensor than it was: none instead of"),
    (_swap, "2.weight stands elsewhere by now, while a tensor of the script's"), (_tie, "shares memory with"), (_part, "shares memory with")])
def test_tensors_that_cannot_return_end_live_mode_and_are_named(moves, why):
    model, optimizer = _with_buffer()
    with Session() as session:
        state = live.LiveState(session, model, optimizer, {}, rank=0)
        state.adopt()
        moves(model)
        values = [tensor.clone() for tensor in model.state_dict().values()]
        with pytest.raises(NativeError, match=why):
            state.boundary({})
        assert all(map(torch.equal, values, model.state_dict().values()))


def test_optimizer_state_on_an_unexpected_device_ends_live_mode():
    model, optimizer = _model_and_optimizer(torch.optim.AdamW, {})
    with Session() as session:
        state = live.LiveState(session, model, optimizer, {}, rank=0)
        state.adopt()
        optimizer.state[model[0].weight]["exp_avg"] = torch.empty(3, 4, device="meta")
        with pytest.raises(NativeError, match="0.weight.exp_avg is on meta; it was expected on cpu"):
            state.boundary({})


@pytest.mark.parametrize("shares", [_tie, lambda model: model[0].register_buffer("view", model[0].weight.data[1:]),
                                    lambda model: model[0].register_buffer("view", model[0].weight.data[1:], persistent=False)])
def test_tensors_that_share_memory_without_being_one_are_refused(shares):
    model, optimizer = _with_buffer()
    shares(model)
    with Session() as session, pytest.raises(live.Unsupported, match="shares memory with .* and is another tensor"):
        live.LiveState(session, model, optimizer, {}, rank=0)


def test_tensors_side_by_side_in_one_memory_and_one_in_two_modules_are_handed_over():
    model, optimizer = _with_buffer()
    model[1].register_buffer("mean", model[0].mean)
    flat = torch.arange(6.)
    model[0].bias.data, model[1].bias.data = flat[:3], flat[3:]
    with Session() as session:
        state = live.LiveState(session, model, optimizer, {}, rank=0)
        state.adopt()
        model[0].mean.add_(1)
        state.boundary({})
        assert model[1].mean is model[0].mean and model[0].mean.tolist() == [2] * 3 and model[1].bias.tolist() == [3, 4, 5]


def test_what_workers_hand_over_in_pieces_of_several_is_alike_and_each_knows_its_own_peak():
    jobs, peaks = [], []
    for rank, peak in ((0, 7), (1, 1 << 40)):
        model, optimizer = _with_buffer()
        with Session() as session:
            state = live.LiveState(session, model, optimizer, {}, rank=rank)
            state.adopt()
            state._peak = peak      # of its GPU
            state.boundary({"steps": 3})
            at, size = session.address("swell.job")
            jobs.append(ctypes.string_at(at, size)), peaks.append(state._read(f"swell.worker.{rank}")["peak"])
    assert jobs[0] == jobs[1] and peaks == [7, 1 << 40]


@pytest.mark.parametrize("free, waits, says", [
    (lambda now: 100 if now > 2 else 50, 2, False),     # the old program ends
    (lambda now: 50, 3, True),      # what is taken is another's
    (lambda now: 50 + now, 10, True)])
def test_a_wait_for_room_ends_with_the_room_or_a_line(monkeypatch, capsys, free, waits, says):
    clock = [0.]
    monkeypatch.setattr(_slots.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_slots.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(_slots, "free_on", lambda device: int(free(clock[0])))
    monkeypatch.setattr(_slots, "used_on", lambda device: 20)
    _slots.wait_for_room(torch.device("cuda", 0), 120)
    assert clock[0] == pytest.approx(waits, abs=0.1)
    assert (f"GPU 0 has {int(free(clock[0]))} bytes free" in (said := capsys.readouterr().err) and "of 100" in said) == says


@pytest.mark.parametrize("options, on_device", [({}, False), ({"foreach": True}, False), ({"fused": True}, True), ({"capturable": True}, True)])
@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_the_number_of_a_step_stands_where_the_optimizer_reads_it(options, on_device, shape):
    parameter = torch.nn.Parameter(torch.zeros(shape, device="meta"))
    optimizer = torch.optim.AdamW([parameter])
    group = {**optimizer.param_groups[0], **options}
    kept = live.state_of_a_step(optimizer)[id(parameter)]
    placed = {key: live._is_on_device(value, group) for key, value in kept.items()}
    assert placed == {"step": on_device, "exp_avg": True, "exp_avg_sq": True}


def test_a_request_by_signal_in_live_mode_leaves_with_a_checkpoint(runs, reference):
    run = runs(LiveRun, "signal", "ddp").start(2).reach(5)
    run.ask(1).leave_well()
    assert "checkpoint at step" in run.said(0)
    run.fast().start(3).leave_well()        # new state, filled from the checkpoint
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_new_worker_killed_before_the_switch_costs_the_training_nothing(runs, reference):
    run = runs(LiveRun, "new", "ddp", "no-checkpoints").start(1).reach(5)
    run.switch(3, wait=False, limit_s=1)
    run.kill(2)         # while it still starts, or waits to take over
    report = run.switched()
    assert "why" in report and not report.get("committed") and run.generation == 0, report
    run.reach(run.step() + 3)
    assert run.switch(2)["committed"]
    run.fast().leave_well()
    assert run.worlds() == [1, 2]
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_an_old_worker_killed_while_the_next_start_leads_to_the_last_checkpoint(runs, reference):
    run = runs(LiveRun, "old", "ddp").start(2).reach(13)
    run.switch(3, wait=False)
    os.kill(run.old[1], 9)
    report = run.switched_badly()
    assert not report.get("committed"), report
    run.fast().start(2).leave_well()
    assert sorted(run.curve()) == list(range(1, 61)) and deviation(run.curve(), reference) < SAME
    begins = next(line["step"] for line in run.lines() if line["generation"])
    assert begins == 11, "it went on from another state than the last checkpoint's"


@pytest.mark.slow
def test_a_worker_killed_after_a_live_resize_leads_to_the_last_checkpoint(runs, reference):
    run = runs(LiveRun, "after", "ddp").start(1).reach(5)
    assert run.switch(2)["committed"]
    run.reach(22).kill(1)
    assert run.leave() != [0, 0]
    run.fast().start(2).leave_well()
    assert sorted(run.curve()) == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


def test_a_resize_in_an_evaluation_is_acted_on(runs, reference):
    run = runs(LiveRun, "evaluation", "ddp", "evaluate", "no-checkpoints").fast().start(2)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "evaluating")), "the evaluation")
    run.arguments = ("no-checkpoints",)
    assert run.switch(1)["committed"]
    run.leave_well()
    assert next(line["step"] for line in run.lines() if line["world"] == 1) == 14, "it trained on after the evaluation"
    assert [line["step"] for line in run.lines()] == list(range(1, 61)) and deviation(run.curve(), reference) < SAME


@pytest.mark.parametrize("job", ["pl_resnet", pytest.param("accelerated", marks=pytest.mark.slow)])
def test_lightning_and_accelerate_are_resized_live(runs, job):
    reference = runs(Run, "reference", job, steps=30).fast().start(1).leave_well().curve()
    run = runs(LiveRun, "live", job, "no-checkpoints", steps=30).start(1).reach(5)
    for world in (2, 1):
        report = run.switch(world)
        assert report.get("committed"), report
        run.reach(run.step() + 4)
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 31)) and run.worlds() == [1, 2, 1]
    assert deviation(run.curve(), reference) < SAME


def test_a_state_that_cannot_be_handed_over_ends_nothing_and_is_named(runs):
    run = runs(LiveRun, "heavy", "ddp", "heavy", "no-checkpoints", steps=6).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("the states given to Elastic(state=...) take"), run.why
    assert f"swell: {run.why}: this worker trains on, and cannot be resized live" in run.said() and len(run.lines()) == 6


def test_the_trainer_is_resized_live(runs):
    reference = runs(Run, "reference", "hf", steps=24).fast().start(1).leave_well().curve()
    run = runs(LiveRun, "trainer", "hf", "no-checkpoints", steps=24).start(1).reach(3)
    for world in (2, 1):
        report = run.switch(world)
        assert report.get("committed"), report
        run.reach(run.step() + 3)
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 25)) and len(run.worlds()) == 3
    assert run.begun() == list(range(1, 25)), "callbacks have begun a step twice"
    assert deviation(run.curve(), reference) < SAME


@pytest.mark.parametrize("job, passes", [
    (("ddp", "ddp"), 2), (("ddp", "fsdp"), 2),      # 12 samples over two workers, four at a time
    (("hf",), 1),
    (("pl_resnet",), 1), (("pl_resnet", "accumulates"), 2), pytest.param(("accelerated",), 2, marks=pytest.mark.slow)])
def test_regions_are_given_without_being_written(runs, job, passes):
    run = runs(LiveRun, "profile", *job, "profile", "no-checkpoints", steps=20).fast().start(2).leave_well()
    with open(os.path.join(run.folder, "profile")) as file:
        seen = json.load(file)
    assert seen["micro_batches"] == passes
    assert 0 < seen["forward_s"] and 0 < seen["backward_s"] and 0 < seen["dp_sync_s"] and 0 < seen["optimizer_s"]
    assert seen["micro_batches"] * (seen["forward_s"] + seen["backward_s"]) + seen["optimizer_s"] + seen["dp_sync_s"] < seen["step_s"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_profile_from_a_gpu_yields_the_second_model(runs, kind):
    run = runs(LiveRun, "profile", "ddp", *(["fsdp"] if kind == "fsdp" else []), "no-checkpoints", "on-gpu", steps=80).fast().start(2)
    run.leave_well()
    found = run.profile()
    assert found["launch_s"] > 0 and found["comp_s"] > 0, found
    assert found["profile"]["layer_launch_s"] == found["launch_s"]
    group = found["profile"]["groups"][0]
    assert group["layer_param_bytes"] + group["extra_param_bytes"] == 4 * sum(one.numel() for one in common.network().parameters()), "gradients of the whole model, of which fully_shard keeps a half"
    assert (found["profile"].get("sharded_state", 0) > 0.9) == (kind == "fsdp"), "parameters and moments, in whole, are divided by the workers"
