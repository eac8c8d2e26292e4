# SPDX-License-Identifier: GPL-2.0-or-later
"""ZeRO-1: replicas divide what the optimizer keeps; training is the same, under every plan and from plan to plan."""

import random
from math import prod

import models
import pool
import pytest
import replans
import torch

from swell.engine import Engine, zero
from swell.engine.arena import Request

PLANS = {name: {**models.PLANS, **models.CHUNKS}[name] for name in (
    "one worker", "dp2", "dp3 uneven local batches", "pp2 dp2 tp2", "dp by stage: 3, 2", "tp and dp by stage: 2x1, 1x3", "two chunks, dp by stage: 2, 3")}


def by_dimensions(parameters):
    """As programs give norms and biases no decay."""
    parameters = list(parameters)
    return torch.optim.AdamW([{"params": [one for one in parameters if one.dim() > 1], "weight_decay": 0.1},
                              {"params": [one for one in parameters if one.dim() == 1], "weight_decay": 0.0}], lr=1e-2)


def trained(rank, family, plan, divides):
    engine = Engine(models.CONFIGS[family](), by_dimensions, global_batch=models.BATCH, plan=plan, max_grad_norm=0.5, zero=divides)
    losses = [engine.step(models.batch(seed=number)) for number in range(4)]
    held = {name: tensor.clone() for name, tensor in engine._generation.state.tensors.items() if "#" not in name}
    moments = sum(engine._generation.state.tensors[one.name].numel() for one in engine._generation.state.requests if one.kind == "moment")
    return losses, held, moments


@pytest.mark.parametrize("family", ["llama_gqa_tied", "gpt2", "mixtral"])
def test_losses_and_weights_are_those_without_and_moments_are_divided(family, tmp_path):
    models.model(models.CONFIGS[family]())
    results = pool.run(tmp_path, [(plan.world, trained, (family, plan, divides)) for plan in PLANS.values() for divides in (0, 1)])
    for (name, plan), without, divided in zip(PLANS.items(), results[::2], results[1::2], strict=True):
        for rank, ((losses, weights, moments), (also, found, fewer)) in enumerate(zip(without, divided, strict=True)):
            assert max(abs(a / b - 1) for a, b in zip(losses, also, strict=True)) < 1e-6, name
            assert all(torch.allclose(found[one], tensor, rtol=1e-5, atol=1e-6) for one, tensor in weights.items()), name
            assert all(torch.equal(tensor, divided[other][1][one]) for other in range(plan.world) for one, tensor in found.items()
                       if plan.places[other].stage == plan.places[rank].stage and plan.places[other].shard == plan.places[rank].shard), f"{name}: replicas differ"
            replicas = len(plan.stages[plan.places[rank].stage].groups)
            assert fewer < 1.1 * moments / replicas, f"{name}: rank {rank} keeps {fewer} of {moments} moments"


def sent_by_a_step(rank, plan):
    """Returns the bytes that a step's gathering brings this worker from others, and those of the parameters that the optimizer steps."""
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), by_dimensions, global_batch=models.BATCH, plan=plan, zero=1)
    engine.step(models.batch(seed=0))
    brought = []

    def counting(received, sent, group):
        brought.append((received.numel() - sent.numel()) * sent.element_size())
        return gathering(received, sent, group=group)
    gathering, zero.all_gather_single = zero.all_gather_single, counting
    try:
        engine.step(models.batch(seed=1))
    finally:
        zero.all_gather_single = gathering
    held = (engine._generation.state.tensors[name] for name in engine._generation.share.own)
    return sum(brought), engine._generation.state.parts.bytes, sum(one.numel() * one.element_size() for one in held)


def test_a_step_gathers_what_the_planner_counts(tmp_path):
    """PerformanceModel::gather_s(): (n - 1) / n of the parameters' bytes, of which norms and the padding of uneven parts are hundredths."""
    plans = [models.plan(3, (4, 1, [2, 2])), models.plan(3, (4, 1, [2, 1, 1]))]
    for plan, ranks in zip(plans, pool.run(tmp_path, [(plan.world, sent_by_a_step, (plan,)) for plan in plans]), strict=True):
        for brought, divided, held in ranks:
            count = plan.world
            assert abs(brought / (divided * (count - 1) / count) - 1) < 0.01
            assert 0.97 * held < divided < held


def test_checkpoints_load_under_any_plan_with_and_without(tmp_path):
    family = "llama_gqa_tied"
    models.model(models.CONFIGS[family]())
    reference, _ = replans.trained(tmp_path, family, [(replans.WHOLE, None)], 12)
    orders = [(plan, None) for plan in (PLANS["dp3 uneven local batches"], PLANS["pp2 dp2 tp2"], PLANS["tp and dp by stage: 2x1, 1x3"], replans.WHOLE, PLANS["two chunks, dp by stage: 2, 3"],
                                        PLANS["dp by stage: 3, 2"])]
    for zeros in ((1,), (1, 1, 0)):
        losses, _ = replans.trained(tmp_path, family, orders, 2, zeros)
        assert replans.deviation(losses, reference) < 1e-4, f"zero by turns {zeros}"


def test_changes_of_stages_alone_stay_bitwise(tmp_path):
    family = "gpt2"
    models.model(models.CONFIGS[family]())
    plans = [(models.plan(3, *stages), None) for stages in (((4, 1, [2, 2]),), ((1, 1, [2, 2]), (3, 1, [2, 2])), ((3, 1, [2, 2]), (1, 1, [2, 2])))]
    straight, _ = replans.trained(tmp_path, family, plans[:1], 6, (1,))
    changed, _ = replans.trained(tmp_path, family, plans, 2, (1,))
    assert changed == straight


def test_parts_of_replicas_are_the_whole():
    source = random.Random(1)
    for _ in range(200):
        elements, count = source.randint(1, 5000), source.randint(1, 7)
        parts = [zero.part(elements, replica, count) for replica in range(count)]
        if None in parts:
            assert set(parts) == {None} and (count == 1 or elements < 64 * count)
            continue
        assert parts[0][0] == 0 and parts[-1][1] == elements and all(a[1] == b[0] for a, b in zip(parts, parts[1:]))
        assert max(b - a for a, b in parts) - min(b - a for a, b in parts) <= 1


def test_blocks_of_a_range_are_the_range():
    source = random.Random(1)
    for _ in range(500):
        shape = tuple(source.randint(1, 5) for _ in range(source.randint(1, 4)))
        begin = tuple(source.randint(0, size - 1) for size in shape)
        end = tuple(source.randint(at + 1, size) for at, size in zip(begin, shape))
        first = source.randint(0, count := prod(b - a for a, b in zip(begin, end)))
        last = source.randint(first, count)
        whole = torch.arange(prod(shape)).view(shape)
        held = whole[tuple(slice(a, b) for a, b in zip(begin, end))].reshape(-1)[first:last]
        found = list(Request("one", "moment", torch.int64, shape, begin, end, flat=(first, last)).blocks(held))
        assert all(torch.equal(whole[tuple(slice(a, b) for a, b in zip(*at))], part) for *at, part in found)
        assert sum(part.numel() for _, _, part in found) == last - first and len(found) < 2 * len(shape)


@pytest.mark.parametrize("value", [2, -1, True, "1"])
def test_other_stages_are_refused_in_one_sentence(value):
    with pytest.raises(ValueError, match=f"zero={value!r}; give 1 where replicas divide what the optimizer keeps"):
        Engine(models.CONFIGS["gpt2"](), by_dimensions, global_batch=models.BATCH, zero=value)
