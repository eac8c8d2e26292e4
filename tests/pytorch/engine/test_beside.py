# SPDX-License-Identifier: GPL-2.0-or-later
"""Sums of gradients over replicas that begin beside the last backward passes: bitwise those that come after them."""

import contextlib
import gc
import os
import random
import time
import weakref

import models
import pool
import pytest
import torch
import torch.distributed as dist

from swell.engine import Engine, Group, Plan, Stage, beside, comm

PLANS = {name: {**models.PLANS, **models.CHUNKS}[name] for name in (
    "dp2", "dp3 uneven local batches", "pp2 dp2 tp2", "dp by stage: 3, 2", "two chunks, dp by stage: 2, 3", "two chunks, tp and dp by stage: 2x1, 1x2, 1x1")}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def trained(rank, family, plan, order, is_beside, bucket_bytes, options):
    """Losses, weights, and for the last pass of each chunk whether sums had begun before it was over."""
    beside._LEAST_BYTES = beside._MOST_BYTES = bucket_bytes
    engine = Engine(models.CONFIGS[family](), adamw, global_batch=models.BATCH, plan=plan, schedule=order, max_grad_norm=0.5, **options)
    early = []
    if engine._generation.sums is not None:
        watching = engine._generation.sums._watching

        @contextlib.contextmanager
        def watched(one):
            with watching(one):
                yield
                early.append(engine._generation.sums._next > 0)
        engine._generation.sums._watching = watched
    if not is_beside:
        engine._generation.sums = None
    losses = [engine.step(models.batch(seed=number)) for number in range(3)]
    return losses, {name: tensor.clone() for name, tensor in engine._generation.state.tensors.items()}, early


@pytest.mark.parametrize("family, order", [("llama_gqa_tied", "interleaved"), ("llama_gqa_tied", "zero-bubble"), ("qwen3", "zero-bubble"), ("mixtral", "interleaved"),
                                           ("gpt2", "interleaved")])
def test_sums_beside_the_passes_are_bitwise_those_after_them(family, order, tmp_path):
    models.model(models.CONFIGS[family]())
    # Tied ends; norms that shards sum; experts without tokens; packed matrices, computed again.
    options = {"recompute": True} if family == "gpt2" else {}
    jobs = [(plan.world, trained, (family, plan, order, *how, options)) for plan in PLANS.values() for how in ((False, 1), (True, 1), (True, 4096))]
    results = pool.run(tmp_path, jobs)
    for (name, plan), after, *others in zip(PLANS.items(), results[::3], results[1::3], results[2::3], strict=True):
        for other in others:
            for rank, ((losses, tensors, _), (also, found, early)) in enumerate(zip(after, other, strict=True)):
                assert losses == also, name
                different = [one for one, tensor in tensors.items() if not torch.equal(tensor, found[one])]
                assert not different, f"{name}: {different}"
                has_replicas = len(plan.stages[plan.places[rank].stage].groups) > 1
                assert any(early) == has_replicas, f"{name}: rank {rank}: a sum began before its chunk's last pass was over: {early}"


def told_in_another_order(rank, plan):
    """Whether gradients have the sum of the replicas where each replica makes them in an order of its own."""
    beside._LEAST_BYTES = beside._MOST_BYTES = 1
    engine = Engine(models.CONFIGS["llama"](), adamw, global_batch=models.BATCH, plan=plan)
    sums = engine._generation.sums
    parameters = [parameter for its in sums._parameters.values() for parameter in its]
    for number, parameter in enumerate(parameters):
        parameter.grad.fill_((rank + 1) * (number + 1))
    sums.begin()
    for number in random.Random(rank).sample(range(len(parameters)), len(parameters)):
        sums.made(parameters[number])
    sums.wait()
    return [bool((parameter.grad == 3 * (number + 1)).all()) for number, parameter in enumerate(parameters)]


def test_replicas_that_make_gradients_in_other_orders_sum_them_in_one(tmp_path):
    models.model(models.CONFIGS["llama"]())
    for worker in pool.run(tmp_path, [(2, told_in_another_order, (models.PLANS["dp2"],))])[0]:
        assert all(worker) and len(worker) > 10, worker


def summed(rank, count):
    """Whether sums of each way are bitwise those in the order of ranks, by number of elements."""
    same = []
    for elements in (1, count + 1, 1000, (1 << 20) * 8 + 5):     # the last one in parts
        values = [torch.randn(elements, generator=torch.Generator().manual_seed(each)) for each in range(count)]
        expected = values[0].clone()
        for value in values[1:]:
            expected += value
        for add in (comm.add_in_order, comm._add_by_messages, comm._add_by_collectives):
            found = values[rank].clone()
            add(found, dist.group.WORLD, *([count] if add is not comm.add_in_order else []))
            same.append(torch.equal(found, expected))
    return same


@pytest.mark.parametrize("count", [3, 4])
def test_sums_are_in_the_order_of_ranks_wherever_an_element_stands(count, tmp_path):
    assert pool.run(tmp_path, [(count, summed, (count,))]) == [[[True] * 12] * count]


def failing(rank, plan):
    def add(gradients, group):
        raise RuntimeError("a sum failed")
    beside.add_gradients = add
    engine = Engine(models.CONFIGS["llama"](), adamw, global_batch=models.BATCH, plan=plan)
    with pytest.raises(RuntimeError, match="a sum failed"):
        engine.step(models.batch())
    return True


def test_a_sum_that_fails_beside_the_passes_is_raised_by_the_step(tmp_path):
    models.model(models.CONFIGS["llama"]())
    assert pool.run(tmp_path, [(2, failing, (models.PLANS["dp2"],))]) == [[True, True]]


def freed(rank, plan, zero):
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), adamw, global_batch=models.BATCH, plan=plan, zero=zero)
    engine.step(models.batch())
    gradients = [weakref.ref(one) for one in engine._generation.state.gradients]
    engine._generation.free_gradients()
    gc.collect()
    return [one() is None for one in gradients]


def test_a_worker_that_stays_keeps_no_gradients_of_the_plan_before(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    for workers in pool.run(tmp_path, [(2, freed, (models.PLANS["dp2"], zero)) for zero in (0, 1)]):
        assert all(all(worker) and worker for worker in workers)


SPEED, LINK = 0.00002, "0.5MB/s"        # the last backward pass, and the sum over replicas, each take some tenths of a second


def paced(rank, plan, is_beside):
    os.environ["SWELL_PACED"] = f"any:{SPEED}tflops:memory=1GB/s:link={LINK}:network={LINK}"
    beside._LEAST_BYTES = beside._MOST_BYTES = 4096
    engine = Engine(models.CONFIGS["llama"](), adamw, global_batch=models.BATCH, plan=plan)
    if not is_beside:
        engine._generation.sums = None
    took = []
    for number in range(3):
        began = time.monotonic()
        engine.step(models.batch(seed=number))
        took.append(time.monotonic() - began)
    return min(took)


def test_paced_sums_hide_behind_the_last_backward_pass(tmp_path):
    models.model(models.CONFIGS["llama"]())
    plan = Plan(3, (Stage(4, 1, tuple(Group("n1", "any", (gpu,), 2) for gpu in range(2))),))
    after, beside_them = pool.run(tmp_path, [(2, paced, (plan, False)), (2, paced, (plan, True))])
    assert after[0] - beside_them[0] > 0.15, f"{after} s with the sums after the passes, {beside_them} s beside them"
