# SPDX-License-Identifier: GPL-2.0-or-later
"""The plans that a program makes by itself, and the numbers of workers that swellrun hears of."""

import socket
import tempfile

import models
import pool
import pytest
import torch

from swell.engine import Engine, Plan, given
from swell.engine.own_plans import own_plan

OWN_FOR = (3, 5, 7)     # with twelve samples, one or two a pass: uneven groups, and stages


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def loss(rank, world):
    engine = Engine(models.CONFIGS["gpt2"](), sgd, global_batch=models.BATCH, micro_batch=2)
    assert engine.plan == own_plan(models.LAYERS, models.BATCH, 2, world)
    return [engine.step(models.batch(seed=number)) for number in range(2)]


@pytest.mark.parametrize("world", range(1, 24))
def test_a_program_s_own_plan_fits_or_is_refused_with_what_to_change(world):
    for micro_batch in (1, 2, 12):
        try:
            plan = own_plan(models.LAYERS, models.BATCH, micro_batch, world)
        except ValueError as error:
            assert "give another micro_batch or number of workers" in str(error)
            continue
        plan.check(models.LAYERS, models.BATCH, world)
        assert all(group.local_batch <= micro_batch for stage in plan.stages for group in stage.groups)


def test_equal_shares_stay_what_they_were():
    assert own_plan(4, 12, 2, 3) == Plan.symmetric(4, 12, 2, dp=3) and own_plan(4, 16, 4, 2) == Plan.symmetric(4, 16, 4, dp=2)


def test_workers_that_do_not_divide_the_samples_train_too(tmp_path):
    models.model(models.CONFIGS["gpt2"]())
    (expected,), *results = pool.run(tmp_path, [(world, loss, (world,)) for world in (1, *OWN_FOR)])
    for result in results:
        assert all(abs(a / b - 1) < 1e-4 for found in result for a, b in zip(found, expected, strict=True))


def heard(rank, name, plan, order=None):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as shim:
        shim.bind("\0" + name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SWELL_SHIM", "@" + name)
            Engine(models.CONFIGS["gpt2"](), sgd, global_batch=models.BATCH, micro_batch=1, plan=plan, directory=tempfile.mkdtemp(), schedule=order)
        return shim.recv(65536).decode()


def test_swellrun_hears_for_which_numbers_of_workers_there_is_a_plan(tmp_path):
    models.model(models.CONFIGS["gpt2"]())
    one = models.plan(3, (4, 1, [4]))
    found = pool.run(tmp_path, [(1, heard, (f"swell-heard-{tmp_path}-{at}", plan)) for at, plan in enumerate((None, one))])
    assert found == [["sizes 1 2 3 4 6 8 9 12 16 18 24 36 48"], ["sizes 1"]]
    # A text is of one number of stages and micro-batches; a name is made for each plan.
    found = pool.run(tmp_path / "text", [(1, heard, (f"swell-heard-{tmp_path}-{order}", None, order)) for order in ("gpipe", "F*12B*12")])
    assert found == [["sizes 1 2 3 4 6 8 9 12 16 18 24 36 48"], ["sizes 1"]]
    several = {1: models.plan(3, (4, 1, [4], 2, 2)), 2: models.plan(3, (4, 1, [2, 2])), 3: models.plan(3, (4, 1, [2, 1, 1], 2, 2))}
    assert given.sizes(several.__getitem__, 4, 12, 1, 9, lambda *shape: shape == (1, 2, 3)) == [1, 3]
    assert given.sizes({1: one, 3: one}.__getitem__, 4, 12, 1, 4096) == [1], "the plan for three workers is of one"


def test_a_run_of_equal_groups_reads_as_its_groups() -> None:
    """As the core writes stages of more than 64 groups."""
    value = {"micro_batches": 2, "stages": [{"layers": 4, "tp": 2, "groups": [
        {"nodes": ["a", "b"], "gpu_type": "h100", "gpus": [0, 1, 4, 5], "local_batch": 3},
        {"node": "c", "gpu_type": "h100", "gpus": [2, 3], "local_batch": 1}]}]}
    groups = Plan.from_json(value).stages[0].groups
    assert [(group.node, group.gpus, group.local_batch) for group in groups] == [
        ("a", (0, 1), 3), ("a", (4, 5), 3), ("b", (0, 1), 3), ("b", (4, 5), 3), ("c", (2, 3), 1)]
    value["stages"][0]["groups"][0]["gpus"] = [0, 1, 4]  # type: ignore[index]
    with pytest.raises(ValueError, match="3 GPUs of each node.*a multiple of tp=2 is needed"):
        Plan.from_json(value)


def test_a_table_of_groups_reads_as_its_groups() -> None:
    """As the core writes large plans whose groups differ."""
    table = {"names": ["node1.org", [4, "2", 4]], "types": ["h100"], "node": [0, [1, 2]], "gpu_type": [[0, 3]], "local_batch": [1, 2, 3], "gpus": [0, 1, 4, 5, 6, 7]}
    value = {"micro_batches": 2, "stages": [{"layers": 4, "tp": 2, "groups": [table]}]}
    groups = Plan.from_json(value).stages[0].groups
    assert [(group.node, group.gpu_type, group.gpus, group.local_batch) for group in groups] == [
        ("node1.org", "h100", (0, 1), 1), ("node2.org", "h100", (4, 5), 2), ("node2.org", "h100", (6, 7), 3)]
    for name, wrong in {"gpus": [0, 1, 4], "node": [0, 1, 2], "types": [], "names": [[1, "a", 0]], "local_batch": [[1, 1 << 40]]}.items():
        with pytest.raises(ValueError, match="stage 0, group 0"):
            Plan.from_json({"micro_batches": 2, "stages": [{"layers": 4, "tp": 2, "groups": [{**table, name: wrong}]}]})


def test_a_plan_with_context_or_expert_parallelism_is_refused() -> None:
    value = {"micro_batches": 2, "stages": [{"layers": 4, "tp": 1, "groups": [{"node": "a", "gpu_type": "h100", "gpus": [0], "local_batch": 3}]}]}
    assert Plan.from_json({**value, "cp": 1, "ep": 1}) == Plan.from_json(value), "the core need not leave them out"
    for name, kind in {"cp": "context", "ep": "expert"}.items():
        with pytest.raises(ValueError) as refused:
            Plan.from_json({**value, name: 2})
        assert str(refused.value) == f'the plan has "{name}": 2, and the engine has no {kind} parallelism; give a plan without it'
        for wrong in (0, "2", None):
            with pytest.raises(ValueError, match=f'the plan has "{name}": .*; give a whole number of at least 1'):
                Plan.from_json({**value, name: wrong})


def test_chunks_are_units_or_layers_alone() -> None:
    plan = models.plan(3, (1, 1, [4], 1, 0), (3, 1, [4], 1, 2))
    assert [stage.chunks for stage in plan.stages] == [(2, 0), (1, 3)], "the embedding is with the first chunk, the head with the last one"
    assert [[(part.embedding, list(part.layers), part.head) for part in parts] for parts in plan.contents.parts] == [
        [(True, [0], False), (False, [], False)], [(False, [1], False), (False, [2, 3], True)]]
    assert plan.contents.layers(1) == [1, 2, 3] and plan.summary() == "1L in 2+0 dp1 tp1 | 3L in 1+3 dp1 tp1"
    for one in (plan, *models.CHUNKS.values(), *models.PLANS.values()):
        one.check(models.LAYERS, models.BATCH, one.world)
        assert Plan.from_json(one.to_json()) == one
        assert sorted(layer for stage in range(one.pp) for layer in one.contents.layers(stage)) == list(range(models.LAYERS))
    assert "chunks" not in models.PLANS["pp2"].to_json()["stages"][0]
