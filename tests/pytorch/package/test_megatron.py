# SPDX-License-Identifier: GPL-2.0-or-later
"""Megatron-Core: degrees and plans, and a run that goes from plan to plan by restarts."""

import json
import os

import pytest

if not os.environ.get("CI"):
    pytest.importorskip("megatron.core", reason="megatron-core is not installed; contrib/setup --frameworks does")

from forked import Run, deviation  # noqa: E402
from swell.engine.plan import Plan  # noqa: E402
from swell.integrations.megatron import Degrees  # noqa: E402

SAME = 1e-5
STEPS = 24
UNEVEN = Plan.from_json({"micro_batches": 12, "stages": [
    {"layers": layers, "tp": 1, "groups": [{"node": "a", "gpu_type": "any", "gpus": [at], "local_batch": 1}]} for at, layers in enumerate((3, 1))]})
# Arguments, workers and a plan, one after the other.
WAY = [([], 1, None), (["tp2"], 2, None), (["pp2"], 4, None), (["pp2", "vpp2"], 2, None), ([], 2, UNEVEN), (["tp2", "pp2"], 4, None), ([], 3, None)]


def stage(layers, tp=1, batches=(1,), **options):
    return {"layers": layers, "tp": tp, **options, "groups": [
        {"node": "a", "gpu_type": "any", "gpus": list(range(tp)), "local_batch": batch} for batch in batches]}


def plan(*stages, **options):
    return Plan.from_json({"micro_batches": 4, "stages": list(stages), **options})


@pytest.mark.parametrize("degrees", [Degrees(), Degrees(tp=2), Degrees(pp=2, dp=2), Degrees(tp=2, pp=2, dp=3, vpp=2), Degrees(pp=2, layers=(3, 1)),
                                     Degrees(pp=2, vpp=2, layers=(1, 2, 0, 1))], ids=lambda one: f"tp{one.tp}pp{one.pp}dp{one.dp}vpp{one.vpp}{one.layers}")
def test_degrees_become_a_plan_and_back(degrees):
    made = degrees.plan(4, 12, 2)
    assert made.world == degrees.world and made.global_batch == 12
    back = Degrees.of_plan(Plan.parse(json.dumps(made.to_json())))
    assert (back.tp, back.pp, back.dp, back.vpp, back.layers, back.micro_batch) == (degrees.tp, degrees.pp, degrees.dp, degrees.vpp, degrees.layers, 2)


@pytest.mark.parametrize("given, why", [
    (plan(stage(2, tp=2), stage(2)), "stage 1 of the plan has tp=1, the first one tp=2"),
    (plan(stage(2, batches=(1, 1)), stage(2, batches=(2,))), "stage 1 of the plan has dp=1, the first one dp=2"),
    (plan(stage(4, batches=(1, 2))), "passes of 1 and 2 samples"),
    (plan(stage(4), schedule="zbv"), "has the schedule 'zbv'"),
    (plan(stage(4, chunks=[2, 2])), "2 chunks on one stage"),
    (plan(stage(2, chunks=[0, 2]), stage(2, chunks=[2, 2])), "the embedding or the head elsewhere"),
], ids=["tp", "dp", "batches", "schedule", "chunks", "embedding"])
def test_a_plan_that_Megatron_Core_cannot_run_is_refused_in_one_sentence(given, why):
    with pytest.raises(ValueError) as error:
        Degrees.of_plan(given)
    assert why in str(error.value) and "\n" not in str(error.value)


def test_degrees_without_enough_workers_and_a_plan_beside_experts_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"tp=2 pp=1 cp=1 is for a multiple of 2 workers; there are 3: start a multiple"):
        Degrees.given(tp=2)
    with pytest.raises(ValueError, match=r"pp=0; give a whole number of at least 1"):
        Degrees.given(pp=0)
    monkeypatch.setenv("SWELL_PLAN", json.dumps(UNEVEN.to_json()))
    with pytest.raises(ValueError, match=r"the plan is for 2 workers, and there are 3; start as many, or unset SWELL_PLAN"):
        Degrees.given()
    with pytest.raises(ValueError, match=r"the program has cp=1 and ep=2"):
        Degrees.given(ep=2)


@pytest.fixture(scope="module", params=[pytest.param("", id="optimizer", marks=pytest.mark.slow), pytest.param("distributed", id="distributed-optimizer")])
def reference(request, tmp_path_factory):
    """The arguments, and the loss by step of one worker that nobody disturbs."""
    arguments = [request.param] * bool(request.param)
    run = Run(tmp_path_factory.mktemp("reference"), "megatron_gpt", *arguments, steps=STEPS).fast().start(1).leave_well()
    assert sorted(run.curve()) == list(range(1, STEPS + 1)) and run.curve()[STEPS] < run.curve()[1]
    return arguments, run.curve()


def test_a_run_goes_over_plans_with_the_loss_of_every_step_as_it_is(runs, reference, monkeypatch):
    arguments, curve = reference
    run = runs(Run, "resized", "megatron_gpt", *arguments, steps=STEPS)
    for at, (degrees, world, given) in enumerate(WAY):
        monkeypatch.delenv("SWELL_PLAN", raising=False)
        if given is not None:
            monkeypatch.setenv("SWELL_PLAN", json.dumps(given.to_json()))
        run.arguments = [*arguments, *degrees]
        before = run.step()
        if at == len(WAY) - 1:
            run.fast()
        run.start(world)
        if at < len(WAY) - 1:
            run.reach(before + 2).ask(world - 1)
        run.leave_well()
        if at:
            assert f"continues from step {before}" in run.said(0)
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)), "a step is missing or was trained twice"
    assert deviation(run.curve(), curve) < SAME
    print(f"largest deviation {deviation(run.curve(), curve):.1e}")


def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint(runs, reference):
    arguments, curve = reference
    run = runs(Run, "killed", "megatron_gpt", *arguments, "tp2", steps=STEPS).start(2).reach(8).kill(1)
    run.leave()
    run.fast().start(4).leave_well()
    assert "continues from step 5" in run.said(0) or "continues from step 10" in run.said(0)
    assert deviation(run.curve(), curve) < SAME


@pytest.mark.slow
def test_a_worker_killed_at_moments_of_a_save_goes_on_from_the_checkpoint_before(runs):
    run = runs(Run, "killed", "megatron_gpt", steps=11).fast()
    for at, touches in ((3, "open swell.pt"), (6, "open .metadata.tmp"), (9, "os.rename step-000000010.new")):
        assert run.killed_in_a_save(10, at) == touches
        assert run.generation == 0 or "continues from step 5, " in run.said()
    run.start(2).leave_well()
    assert "continues from step 5, " in run.said()
    reference = runs(Run, "reference", "megatron_gpt", steps=11).fast().start(1).leave_well()
    assert deviation(run.curve(), reference.curve()) < SAME


def test_workers_are_asked_for_in_multiples_that_divide_the_batch(runs):
    run = runs(Run, "sizes", "megatron_gpt", "pp2", "vpp2", steps=2).fast().start(2).leave_well()
    assert run.sizes() == [2, 4, 6, 12], "each replica has a multiple of pp passes"
    assert os.path.isdir(os.path.join(run.folder, "checkpoints", "step-000000002")), "the end is saved"


def test_another_runs_checkpoint_is_refused(runs):
    run = runs(Run, "other", "megatron_gpt", steps=5).fast().start(1).leave_well()
    for arguments, why in (["wide"], "had hidden_size=32, here it is 64"), (["batch8"], "had global_batch=12, here it is 8"), (
            ["distributed"], "had use_distributed_optimizer=False, here it is True"):
        run.arguments = arguments
        assert run.start(1).leave() == [1] and why in run.said(0)


@pytest.mark.parametrize("name", ["metadata.json", *(pytest.param(each, marks=pytest.mark.slow) for each in (".metadata", "common.pt", "swell.pt", "__0_0.distcp"))])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(name, runs):
    run = runs(Run, "damaged", "megatron_gpt", steps=7).fast().start(1).leave_well()       # checkpoints of steps 5 and 7
    folder = os.path.join(run.folder, "checkpoints")
    newest = os.path.join(folder, "step-000000007", name)
    how = os.unlink if name in (".metadata", "common.pt") else lambda path: os.truncate(path, os.path.getsize(path) // 2)
    how(newest)
    run.start(2).leave_well()
    assert f"the checkpoint of step 7 is damaged ({name} " in run.said(0) and "continues from step 5, " in run.said(0), run.said(0)
    for step in os.listdir(folder):
        if step.startswith("step-"):
            how(os.path.join(folder, step, name))
    assert run.start(1).leave() == [1] and "and there is no whole one before it: move them away to begin anew" in run.said(0)


def test_interleaving_over_two_stages_in_batches_is_refused(runs):
    run = runs(Run, "batched", "megatron_gpt", "pp2", "vpp2", "batched", steps=2).start(2)
    assert run.leave() == [1, 1] and "pp=2 with chunks and overlap_p2p_comm=False" in run.said(0)


def test_the_distributed_optimizer_over_torchs_Adam_is_refused(runs):
    run = runs(Run, "adam", "megatron_gpt", "distributed", "torch-adam", steps=2).start(1)
    assert run.leave() == [1] and "use_distributed_optimizer=True over torch's Adam" in run.said(0)
