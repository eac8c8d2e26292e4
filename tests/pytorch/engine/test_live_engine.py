# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine is re-planned while it trains: state goes from process to process through real keepers and switches."""

import contextlib
import json
import os
import re
import sys
from unittest import mock

import pool  # noqa: F401  imports what workers need, once

import pytest
import torch

import models
from test_restart import drawn
from swell.engine import batches, live
from swell.engine.arena import Request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stand_in_gpu  # noqa: E402
from native import needs_live_host  # noqa: E402

pytestmark = needs_live_host
STEPS = 40


@pytest.fixture
def runs(tmp_path):
    from forked import LiveRun, Run
    made = []

    def run(live, name, *arguments, steps=STEPS, **options):
        made.append((LiveRun if live else Run)(tmp_path / name, "engine_job", *arguments, steps=steps, **options))
        return made[-1]
    yield run
    for each in made:
        each.end()


def state(run, world):
    """The whole state at the end, from all workers' parts."""
    whole = {}
    for rank in range(world):
        for name, (shape, blocks) in torch.load(os.path.join(run.folder, f"state.{rank}")).items():
            for begin, end, part in blocks:
                target = whole.setdefault(name, torch.full(shape, float("nan"), dtype=part.dtype))
                target[tuple(slice(a, b) for a, b in zip(begin, end, strict=True))] = part
    return whole


@pytest.mark.parametrize("family, kind, worlds", [("gpt2", ("pipeline", "mtp"), (3, 2, 4)), ("llama", ("any",), (4, 5, 3)), ("llama", ("any", "zero"), (4, 5, 3))])
def test_the_training_goes_on_under_the_next_plan(runs, family, kind, worlds):
    models.model(models.CONFIGS[{"llama": "llama_gqa_tied"}.get(family, family)]())
    reference = runs(False, "reference", family, *kind).fast().start(1).leave_well()
    run = runs(True, "live", family, *kind)
    run.start(1).reach(3)
    for world in worlds:
        report = run.switch(world)
        assert report["committed"] and not any(report["codes"]), report
        print(f"to {world} workers at step {report['step']}: stopped {report['stopped_s']:.3f} s, bytes {report['bytes']}")
        run.reach(report["step"] + 3)
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)), "a step is missing or was trained twice"
    assert run.worlds() == [1, *worlds]
    expected, found = reference.curve(), run.curve()
    if "pipeline" in kind:
        assert found == expected
        there, alone = state(run, worlds[-1]), state(reference, 1)
        assert set(there) == set(alone)
        assert all(torch.equal(there[name], alone[name]) for name in alone)
    else:
        assert max(abs(found[step] / loss - 1) for step, loss in expected.items()) < 1e-4
        there, alone = state(run, worlds[-1]), state(reference, 1)
        assert set(there) == set(alone) and all(tensor.isfinite().all() for tensor in there.values()), "a part of the state is with nobody"


@pytest.mark.parametrize("family, kind, first, rests", [("gpt2", "pipeline", 4, ((0, 1, 2), (2, 0), (0, 2), (2,))),
                                                        ("llama", "any", 5, ((4, 1, 0), (1, 4), (4, 1))), ("llama", "zero", 5, ((4, 1, 0, 2), (1, 4, 0), (4, 1)))])
def test_where_workers_are_left_they_train_on_in_their_processes_under_the_next_plan(runs, family, kind, first, rests):
    models.model(models.CONFIGS[{"llama": "llama_gqa_tied"}.get(family, family)]())
    reference = runs(False, "reference", family, kind, "dataset").fast().start(1).leave_well()
    run = runs(True, "stays", family, kind, "dataset", "ends-together").start(first).reach(3)
    of_keeper = dict(run.workers)
    assert all(run.offer(1, 0))     # a generation that does not come
    run.reach(run.step() + 3)
    for keeper in (0, 1):
        run.tell(f"withdraw {keeper}")
    for keepers in rests:       # the last but one: the same workers, each with what another had
        report = run.shrink(*keepers)
        assert report["committed"] and not any(report.get("codes", [])), report
        assert run.workers == {rank: of_keeper[keeper] for rank, keeper in enumerate(keepers)}
        print(f"to {len(keepers)} workers at step {report['step']}: stopped {report['stopped_s']:.3f} s until the commit, bytes {report['bytes']}")
        run.reach(report["step"] + 3)
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)), "a step is missing or was trained twice"
    expected, found = reference.curve(), run.curve()
    if kind == "pipeline":
        assert found == expected
        there, alone = state(run, len(rests[-1])), state(reference, 1)
        assert set(there) == set(alone) and all(torch.equal(there[name], alone[name]) for name in alone)
    else:
        assert max(abs(found[step] / loss - 1) for step, loss in expected.items()) < 1e-4


def test_draws_of_the_loop_go_on_under_the_next_plan(runs):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    reference = runs(False, "reference", "llama", "any", "dataset", "draws").fast().start(1)
    run = runs(True, "live", "llama", "any", "dataset", "draws").start(1).reach(3)
    for switch in (lambda: run.switch(3), lambda: run.shrink(2, 0), lambda: run.switch(4)):
        report = switch()
        assert report["committed"] and not any(report.get("codes", [])), report
        run.reach(report["step"] + 3)
    run.fast().leave_well()
    reference.leave_well()
    assert run.worlds() == [1, 3, 2, 4] and drawn(run) == drawn(reference) and len(drawn(run)) == STEPS
    for rank in range(1, 4):
        assert drawn(run, rank).items() <= drawn(run).items(), "a new worker works on the same batches"


def test_an_exact_job_without_a_told_plan_or_a_checkpoint_keeps_its_sums(runs, monkeypatch):
    monkeypatch.setenv("SWELL_CONSISTENCY", "exact")
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "own", basic=2).fast().start(2).leave_well()
    run = runs(True, "live", "gpt2", "own", basic=2).start(4).reach(3)      # two of them lent from the start
    assert run.sizes() == [2, 4, 6, 8] and not run.why
    for switch in (lambda: run.shrink(0, 1), lambda: run.switch(4), lambda: run.shrink(1, 3)):
        report = switch()
        assert report["committed"] and not any(report.get("codes", [])), report
        run.reach(report["step"] + 3)
    assert not run.shrink(1, limit_s=3).get("committed") and "which 1 worker cannot keep with 4 layers" in run.said()
    run.reach(run.step() + 3)
    run.fast().leave_well()
    assert run.worlds() == [4, 2, 4, 2] and run.curve() == reference.curve()


def test_a_new_worker_without_the_sums_of_an_exact_job_ends_before_the_switch(runs, monkeypatch):
    monkeypatch.setenv("SWELL_CONSISTENCY", "exact")
    models.model(models.CONFIGS["gpt2"]())
    run = runs(True, "live", "gpt2", "own", basic=2).start(2).reach(3)
    run.switch(3, wait=False, limit_s=5)
    report = run.switched()
    with open(os.path.join(run.folder, "said.1.0")) as file:
        assert not report.get("committed") and "which 3 workers cannot keep with 4 layers; start a multiple of 2, up to 8" in file.read()
    run.reach(run.step() + 3)


def test_an_exact_job_does_not_begin_on_lent_gpus_where_its_own_would_have_other_sums(runs, monkeypatch):
    monkeypatch.setenv("SWELL_CONSISTENCY", "exact")
    monkeypatch.setenv("SWELL_RUNTIME", "/unused")      # it says so before it needs that
    models.model(models.CONFIGS["gpt2"]())
    run = runs(False, "lent", "gpt2", "own", basic=2).start(3)
    assert set(run.leave()) == {1} and "dp2 tp1 with 2+2 samples in 3 micro-batches, which 3 workers cannot keep with 4 layers" in run.said()


def test_an_exact_job_whose_sums_new_workers_cannot_know_is_lent_nothing(runs, monkeypatch):
    monkeypatch.setenv("SWELL_CONSISTENCY", "exact")
    monkeypatch.setenv("SWELL_PLAN", json.dumps(models.PLANS["pp2"].to_json()))
    models.model(models.CONFIGS["gpt2"]())
    run = runs(True, "live", "gpt2", "own", basic=2).start(2).reach(2)
    assert run.sizes() == [2]
    assert run.why == ("the job is exact, trains with dp1 tp1 with 2 samples in 6 micro-batches and has no checkpoint that says so, and new workers would begin with "
                       "dp2 tp1 with 2+2 samples in 3 micro-batches; give directory= and go on from a checkpoint, or give initial_plan= with these degrees")


def test_an_exact_job_is_lent_gpus_once_a_checkpoint_says_its_sums(runs, monkeypatch):
    monkeypatch.setenv("SWELL_CONSISTENCY", "exact")
    monkeypatch.setenv("SWELL_PLAN", json.dumps(models.PLANS["pp2"].to_json()))
    models.model(models.CONFIGS["gpt2"]())
    run = runs(True, "live", "gpt2", "own", "checkpoints", basic=2, steps=14).start(2).reach(2)
    assert run.sizes() == [2] and run.why.endswith("; save one, or give initial_plan= with these degrees")
    run.reach(6)        # past the first one
    assert run.sizes() == [1, 2, 3, 4] and not run.why
    monkeypatch.delenv("SWELL_PLAN")        # as where swellrun knows none for these workers
    assert run.switch(3)["committed"]
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 15)) and run.worlds() == [2, 3]


def test_a_program_with_a_group_that_is_not_the_engine_s_does_not_prepare(runs):
    models.model(models.CONFIGS["gpt2"]())
    run = runs(True, "group", "gpt2", "pipeline", "other-group").start(2).reach(3)
    report = run.shrink(0, limit_s=3)
    assert not report.get("committed") and "process groups beside the engine's (1)" in run.said()
    run.reach(run.step() + 3)


@pytest.mark.parametrize("memory", ["swell", "torch"])
def test_state_on_a_gpu_goes_on_under_the_next_plan_bitwise(runs, memory, monkeypatch):
    """The GPU is a stand-in's: what is copied how is the real runtime's, the memory the host's."""
    monkeypatch.setenv("SWELL_GPU_MEMORY", memory)

    def is_handed_over(report, where):
        ways = {path for path, count in report["bytes"].items() if count}
        own = any(f"{where} own GPU memory" in path for path in ways)
        return report["committed"] and (own if memory == "torch" else not own and {"in place", "device to device"} <= ways)
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline").fast().start(1).leave_well()
    run = runs(True, "live", "gpt2", "pipeline", "on-gpu").start(2).reach(3)
    for world in (3, 2):
        report = run.switch(world)
        assert is_handed_over(report, "from"), report
        run.reach(report["step"] + 3)
    report = run.shrink(1)      # in its process
    assert is_handed_over(report, "to"), report
    run.reach(report["step"] + 3).fast().leave_well()
    assert run.worlds() == [2, 3, 2, 1] and run.curve() == reference.curve() and "keeps tensors" not in run.said()
    there, alone = state(run, 1), state(reference, 1)
    assert set(there) == set(alone) and all(torch.equal(there[name], alone[name]) for name in alone)


def test_a_switch_for_which_a_gpu_has_no_room_at_once_is_made_in_chunks_bitwise(runs, monkeypatch):
    """Two workers change all their layers; GPUs of a stand-in have 8 MiB beside the state."""
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "swaps", "wide", steps=12).fast().start(1).leave_well()
    monkeypatch.setenv("SWELL_SNAPSHOT_EVERY", "1")
    run = runs(True, "chunks", "gpt2", "swaps", "on-gpu", "wide", steps=12, slab_mib=4)
    gpus = os.path.join(run.folder, "gpus")
    stand_in_gpu.size_gpus(gpus, 1 << 40)
    run.start(2).reach(3)
    stand_in_gpu.size_gpus(gpus, stand_in_gpu.size_gpus(gpus, 1 << 40) + (8 << 20))
    report = run.switch(3)
    assert report.get("committed") and report["chunks"] >= 3, report
    run.reach(report["step"] + 1).fast().leave_well()
    assert run.worlds() == [2, 3] and run.curve() == reference.curve()
    there, alone = state(run, 3), state(reference, 1)
    assert set(there) == set(alone) and all(torch.equal(there[name], alone[name]) for name in alone)


def test_gpu_memory_that_the_script_s_tensors_are_over_is_not_unmapped(runs):
    models.model(models.CONFIGS["gpt2"]())
    run = runs(True, "keeps", "gpt2", "pipeline", "on-gpu", "keeps").start(2).reach(3)
    assert run.shrink(1)["committed"]
    run.reach(run.step() + 3).fast().leave_well()
    assert re.search(r"the script keeps tensors over Swell's memory of the GPU, .*: up to [1-9]\d* bytes", run.said()) and "kept: True" in run.said()


@pytest.mark.parametrize("trains", [False, True])
def test_a_new_process_waits_for_memory_of_the_one_before_and_one_that_stays_does_not(monkeypatch, trains):
    waited = []
    monkeypatch.setattr(live, "wait_for_room", lambda device, peak: waited.append(peak))
    monkeypatch.setattr(live, "adopt", lambda session: live.Generation(1, 10, False))
    monkeypatch.setattr(live.NativeArena, "generators", lambda self: {"peak": 7})
    arena, gpu = live.NativeArena(mock.MagicMock()), torch.device("cuda", 0)
    requests = [Request("weight", "parameter", torch.float32, (2,), (0,), (2,))]
    if trains:
        arena.register(requests, gpu)       # while its process trains under the plan before
    arena.take(requests, gpu)
    assert waited == ([] if trains else [7])


@pytest.fixture
def arenas(monkeypatch):
    """Workers' arenas by rank, and the bytes that each has of a region."""
    monkeypatch.setattr(live, "adopt", lambda session: live.Generation(1, 10, True))

    def make(rank):
        session, has = mock.MagicMock(), {}
        session.tensor = lambda name, dtype, shape, **_: has.setdefault(name, torch.zeros(shape, dtype=dtype))
        arena = live.NativeArena(session, rank)
        arena.take([], torch.device("cpu"))
        return arena, has
    return make


def test_state_that_several_workers_hand_over_is_equal_or_known_as_torn(arenas):
    (first, of_first), (second, of_second) = arenas(0), arenas(1)
    for arena, seed, peak in ((first, 1, 7), (second, 2, 1 << 40)):
        torch.manual_seed(seed)
        arena._peak = peak      # of its GPU
        arena.boundary(3, {"steps": 3})
    assert torch.equal(of_first["engine#rest"], of_second["engine#rest"])
    new, of_new = arenas(2)
    of_new["engine#drawn"][:] = of_first["engine#drawn"]
    assert torch.equal(new.generators()["torch"], first.generators()["torch"]) and [each.generators()["peak"] for each in (first, second, new)] == [7, 1 << 40, 7]
    of_new["engine#drawn"][4096:] = of_second["engine#drawn"][4096:]
    assert new.generators() is None


def test_random_numbers_that_do_not_fit_are_refused_in_a_sentence(arenas, monkeypatch):
    monkeypatch.setattr(live, "generators", lambda: {"torch": torch.zeros(live._DRAWN_BYTES, dtype=torch.uint8)})
    with pytest.raises(live.NativeError, match="the states of random number generators take 65[0-9]{3} bytes; at most 65524 can be handed over"):
        arenas(0)[0].boundary(3, {"steps": 3})


def test_it_leaves_by_a_checkpoint_where_it_is_asked_to_and_another_number_of_workers_goes_on(runs):
    """As swellrun has it where the state of a new worker finds no room beside that of an old one."""
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline").fast().start(1).leave_well()
    run = runs(True, "asked", "gpt2", "pipeline", "checkpoints").start(2).reach(3)
    report = run.shrink(1)      # the one that stays hears it, too
    assert report["committed"], report
    run.reach(report["step"] + 2).ask().leave_well()
    assert f"asked to leave: checkpoint at step {run.step()}" in run.said()
    run.start(3).reach(run.step() + 3)
    assert run.switch(4)["committed"]
    run.reach(run.step() + 2).ask(1).leave_well()       # one of them: the others hear of it
    run.fast().start(2).leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)), "a step is missing or was trained twice"
    assert run.worlds() == [2, 1, 3, 4, 2] and run.curve() == reference.curve()


def test_batches_that_are_skipped_count_as_steps_over_live_re_plans(runs):
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline", "dataset", "skips").fast().start(1).leave_well()
    run = runs(True, "skips", "gpt2", "pipeline", "dataset", "skips").start(1).reach(4)
    assert run.switch(3)["committed"]
    report = run.reach(run.step() + 4).shrink(1)
    assert report["committed"], report
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == [step for step in range(1, STEPS + 1) if step % 7 != 3] and run.worlds() == [1, 3, 1] and run.curve() == reference.curve()


def test_a_re_plan_between_skipped_batches_leaves_what_follows_as_it_is(runs):
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline", "dataset", "skips", "skips-long").fast().start(1).leave_well()
    run = runs(True, "skips", "gpt2", "pipeline", "dataset", "skips", "skips-long").start(1)
    run.until(lambda: os.path.exists(os.path.join(run.folder, "skipped")), "the first skipped batch")
    assert run.switch(3)["committed"]
    run.fast().leave_well()
    assert [(line["step"], line["world"]) for line in run.lines()] == [(1, 1), (2, 1), (4, 1), *((step, 3) for step in (35, 36, 37, 39, 40))] and run.curve() == reference.curve()


def test_a_profile_from_a_gpu_yields_the_second_model(runs):
    models.model(models.CONFIGS["gpt2"]())
    run = runs(True, "profile", "gpt2", "pipeline", "on-gpu", steps=80).fast().start(2).leave_well()
    found = run.profile()
    stages = [stage["layers"] for stage in found["profile"]["plan"]["stages"]]
    assert stages == [3, 1] and found["launch_s"] > 0 and found["comp_s"] > 0, found
    # A layer's, not a pass's: a stage of three is launched in more than two such times.
    assert found["launch_s"] < max(group["fwd_s"] for group in found["profile"]["groups"])


def test_a_new_worker_killed_in_a_re_plan_costs_the_training_nothing(runs):
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline").fast().start(1).leave_well()
    run = runs(True, "live", "gpt2", "pipeline").start(2).reach(3)
    run.switch(3, wait=False, limit_s=5)
    run.kill(2)         # while it builds its stage, or waits to take over
    report = run.switched()
    assert not report.get("committed") and run.generation == 0, report
    run.reach(run.step() + 3)
    assert run.switch(4)["committed"]
    run.fast().leave_well()
    assert run.worlds() == [2, 4]
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)) and run.curve() == reference.curve()


def test_an_old_worker_killed_in_a_re_plan_leads_to_the_last_checkpoint(runs):
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline").fast().start(1).leave_well()
    run = runs(True, "live", "gpt2", "pipeline", "checkpoints").start(2).reach(7)
    run.switch(3, wait=False, limit_s=5)
    os.kill(run.old[1], 9)
    report = run.switched_badly()
    assert not report.get("committed"), report
    run.fast().start(3).leave_well()
    assert run.curve() == reference.curve()
    begins = next(line["step"] for line in run.lines() if line["generation"])
    assert begins % 5 == 1 and begins > 5, f"it went on from step {begins}, which is not the last checkpoint's"


KILLS = [(phase, kills_old) for phase in ("quiesce", "move", "commit", "after") for kills_old in (False, True)]


def test_a_worker_killed_at_any_point_of_a_re_plan_does_not_end_the_training(runs):
    steps = 120
    models.model(models.CONFIGS["gpt2"]())
    reference = runs(False, "reference", "gpt2", "pipeline", steps=steps).fast().start(1).leave_well()
    run = runs(True, "live", "gpt2", "pipeline", "checkpoints", steps=steps).start(2).reach(6)
    for phase, kills_old in KILLS:
        report, is_anew = run.switch_killing(3 if len(run.workers) == 2 else 2, phase, kills_old)
        victim = "an old worker" if kills_old else "a new worker"
        print(f"{victim} killed, {phase}: {'committed' if report.get('committed') else 'called off'}"
              f"{', from the last checkpoint' if is_anew else ''} ({report.get('why', '')})")
        # Keepers move the state, not programs: where swellrun does not watch them, as here, a move may end with a program that is gone.
        if phase == "quiesce" and not kills_old:
            assert not report.get("committed") and not is_anew, "the old workers train on as if nothing had been"
        if phase == "after":
            assert report["committed"] and is_anew == (not kills_old)
        run.reach(run.step() + 2)
    run.fast().leave_well()
    assert run.curve() == reference.curve()


def test_only_what_a_dataset_gives_on_the_cpu_is_copied_beside_the_computations():
    class Copies(batches.Copies):
        is_beside = False

        @contextlib.contextmanager
        def beside(self):
            self.is_beside = True
            yield
            self.is_beside = False

        def copy(self, host):
            assert self.is_beside and host.device.type == "cpu"
            return host

        def brought(self, tensor):
            assert not self.is_beside and tensor.device.type == "meta"
            return tensor
    samples = [{"input_ids": torch.arange(4, device="meta"), "labels": torch.arange(4) + at} for at in range(2)]
    [one] = batches._batch([samples], Copies(torch.device("cpu")), True).micro_batches
    assert one.inputs["input_ids"].device.type == "meta" and one.inputs["input_ids"].shape == (2, 4) and one.labels.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
