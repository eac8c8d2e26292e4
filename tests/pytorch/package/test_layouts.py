# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic over each layout of a model and each optimizer of torch: resized without a change of the losses, or refused by name."""

import pytest

from forked import LiveRun, Run, deviation
from native import needs_live_host

SAME = 1e-5
STEPS, LONGEST = 16, 40
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Losses of one worker under DistributedDataParallel that nobody resizes, by optimizer and options."""
    known = {}

    def losses(*given):
        if given not in known:
            run = Run(tmp_path_factory.mktemp("alone"), "layouts", "ddp", *given, steps=LONGEST).fast().start(1).leave_well()
            known[given] = run.curve()
        return known[given]
    return losses


def is_same(run, reference):
    curve = run.curve()
    return deviation(curve, {step: reference[step] for step in curve}) < SAME


def resized(runs, worlds, layout, *given):
    run = runs(Run, "resized", "layouts", layout, *given, steps=STEPS)
    for number, world in enumerate(worlds[:-1], 1):
        run.start(world).reach(number * STEPS // (len(worlds) + 1)).ask().leave_well()
    run.fast().start(worlds[-1]).leave_well()
    assert run.worlds() == worlds and sorted(run.curve()) == list(range(1, STEPS + 1)), run.worlds()
    return run


def switched(runs, worlds, layout, *given):
    """Without a checkpoint: what is not handed over begins anew, and shows."""
    run = runs(LiveRun, "live", "layouts", layout, *given, steps=LONGEST, keepers=4).start(worlds[0])
    for number, world in enumerate(worlds[1:], 1):
        run.reach(number * 5)
        report = run.switch(world)
        assert report.get("committed"), (report, run.said())
    run.fast().leave_well()
    assert run.worlds() == worlds
    return run


def restarts(runs, layout, kind, world, says):
    """In live mode: the job is said to be resized by restarts, once, and trains."""
    run = runs(LiveRun, "named", "layouts", layout, kind, steps=3).fast()
    Run.start(run, world).leave_well()      # whose shims wait for nobody
    assert run.said().count(f"{says}: this job is resized by restarts") == 1 and run.step() == 3, run.said()


LAYOUTS = [("hsdp", [4, 2, 4], [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]), ("fsdp-tp", [2, 4, 2], list(range(2, 25, 2))), ("columns", [1, 2, 4], range(1, 13)),
           ("fsdp", [2, 3, 1], range(1, 13)), ("checkpointed", [1, 2, 1], range(1, 13)), ("compiled", [1, 2, 1], range(1, 13)), ("compiled-parts", [2, 1], range(1, 13))]


@pytest.mark.parametrize("layout, worlds, sizes", LAYOUTS, ids=[each[0] for each in LAYOUTS])
def test_a_model_of_each_layout_is_resized_by_restarts(runs, alone, layout, worlds, sizes):
    run = resized(runs, worlds, layout, "AdamW", "clip")
    assert is_same(run, alone("AdamW", "clip"))
    assert run.sizes() == [size for size in sizes if size <= 12 or layout == "fsdp-tp"]


def test_a_gradient_counts_once_for_workers_of_the_same_samples(runs, alone):
    """SGD without clipping: steps of other optimizers, and clipped ones, do not depend on a gradient's scale."""
    assert is_same(resized(runs, [2, 4], "fsdp-tp", "SGD"), alone("SGD"))


@needs_live_host
@pytest.mark.parametrize("layout, worlds", [("hsdp", [2, 4, 2]), ("checkpointed", [1, 2]), ("compiled", [1, 2])])
def test_a_model_of_each_layout_is_resized_live(runs, alone, layout, worlds):
    assert is_same(switched(runs, worlds, layout, "AdamW"), alone("AdamW"))


@needs_live_host
@pytest.mark.parametrize("layout, world, says", [("columns", 2, "live mode knows tensors that are whole, or sharded in dimension 0"),
                                                 ("fsdp-tp", 2, "2 workers train on the same samples (tensor parallelism)")])
def test_a_layout_that_is_not_handed_over_is_named_and_restarts(runs, layout, world, says):
    restarts(runs, layout, "AdamW", world, says)


@pytest.mark.parametrize("layout, kind, world, says", [
    ("ddp-tp", "AdamW", 4, "DistributedDataParallel averages gradients over 2 of 4 workers (by a process group or a mesh, as beside tensor parallelism)"),
    ("tp", "AdamW", 2, "0.weight is laid out over a mesh of 2 workers, and fully_shard does not shard it"),
    ("ignored", "AdamW", 1, "4.weight is trained, and fully_shard leaves it out (ignored_params"),
    ("two-meshes", "AdamW", 4, "fully_shard divides samples in several ways (0.weight over 2 workers, 2.weight over 4 workers; expert parallelism)"),
    ("lazy", "AdamW", 1, "0.weight has no shape yet (a lazy module makes it in its first pass)"),
    ("ddp", "SparseAdam", 1, "optimizer= is a SparseAdam, whose state torch.distributed.checkpoint cannot load"),
    ("fsdp", "Adafactor", 1, "optimizer= is an Adafactor, which cannot step over parameters that fully_shard has sharded"),
    ("ddp", "LBFGS", 1, "optimizer= is a LBFGS, whose step() wants closure, and Elastic calls it without")])
def test_what_cannot_be_resized_is_refused_by_name_before_anything_is_lent(runs, layout, kind, world, says):
    run = runs(Run, "refused", "layouts", layout, kind, steps=2).fast().start(world)
    assert set(run.leave()) == {1} and f"TypeError: {says}" in run.said() and run.sizes() is None, run.said()


USUAL = ["Adafactor", "fused"]
KINDS = ["AdamW", "AMSGrad", "fused", "foreach", "tensor-rate", "SGD", "Adafactor", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"]


def of(kinds):
    return [pytest.param(kind, marks=() if kind in USUAL else slow) for kind in kinds]


@pytest.mark.parametrize("kind", of([*KINDS, "Muon"]))
def test_each_optimizer_is_resized_by_restarts(runs, alone, kind):
    assert is_same(resized(runs, [1, 2, 1], "ddp", kind), alone(kind))


@pytest.mark.parametrize("kind", of([kind for kind in [*KINDS, "Muon"] if kind != "Adafactor"]))
def test_each_optimizer_is_resized_by_restarts_over_shards(runs, alone, kind):
    assert is_same(resized(runs, [1, 2, 1], "fsdp", kind), alone(kind))


UNTOLD = ["Adafactor", "ASGD"]      # of which a step over tensors without memory cannot be made


@needs_live_host
@pytest.mark.parametrize("layout", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", of([*KINDS, "Muon"]))
def test_each_optimizer_is_resized_live_or_named(runs, alone, kind, layout):
    if layout == "fsdp" and kind == "Adafactor":
        pytest.skip("refused, as a test above sees")
    if kind in UNTOLD:
        run = runs(LiveRun, "named", "layouts", layout, kind, steps=3).fast()
        Run.start(run, 1).leave_well()
        assert f"what {kind} keeps of a parameter cannot be told before it steps" in run.said() and run.said().count("this job is resized by restarts") == 1, run.said()
        return
    assert is_same(switched(runs, [1, 2], layout, kind), alone(kind))
