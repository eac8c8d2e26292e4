# SPDX-License-Identifier: GPL-2.0-or-later
"""Every family under every plan against transformers' own model in one process."""

import models
import pool
import pytest
import torch

from swell.engine import Engine

LIMIT = 1e-5
# Plans in whose place ones of several chunks run here, with weight gradients put off.
OTHERWISE = {"pp2 uneven layers": "pp2, two chunks, embedding apart", "tp by stage: 2, 1": "two chunks, tp and dp by stage: 2x1, 1x2, 1x1"}


def reference(family):
    config = models.ALL[family]()
    model, batch = models.model(config), models.batch()
    loss = model(input_ids=batch["input_ids"], labels=batch["labels"], use_cache=False).loss
    loss.backward()
    return float(loss), {name: parameter.grad for name, parameter in model.named_parameters()}


def under_plan(rank, family, plan, schedule=None):
    """Loss, and this worker's parts of the gradients."""
    config = models.ALL[family]()
    engine = Engine(models.model(config), lambda p: torch.optim.SGD(p, lr=0.1), global_batch=models.BATCH, plan=plan, schedule=schedule)
    losses = engine.backward(models.batch())
    loss, _ = engine._generation.totals.over(losses, None)
    held = sum(parameter.numel() for parameter in engine._generation.share.parameters.values())
    parts = {name: (engine._generation.share.own[name], engine.place.shard, engine._generation.share.tp, gradient)
             for name, gradient in engine.gradients().items()}
    return loss, parts, held


def whole(results):
    """Gradients of the whole model from all workers' parts; replicas must be bitwise equal."""
    found, seen = {}, {}
    for _, parts, _ in results:
        for name, (parameter, shard, shards, gradient) in parts.items():
            key = name, shard if parameter.dim is not None else 0
            if key in seen:
                assert torch.equal(seen[key], gradient), f"{name}: replicas differ"
            seen[key] = gradient
            target = found.setdefault(name, torch.full(parameter.shape, float("nan")))
            parameter.put(target, gradient, shard, shards)
    return found


@pytest.mark.parametrize("family", list(models.ALL))
def test_loss_and_gradients_are_those_of_one_process(family, tmp_path):
    plans = {name: (plan, None) for name, plan in models.PLANS.items() if name not in OTHERWISE and (family in models.CONFIGS or name in models.FEW)}
    plans.update((name, (models.CHUNKS[name], "zero-bubble")) for name in OTHERWISE.values())
    models.model(models.ALL[family]())      # imports the family once, for all workers
    results = pool.run(tmp_path, [(1, lambda rank: reference(family), ())]
                       + [(plan.world, under_plan, (family, plan, order)) for plan, order in plans.values()])
    (loss, gradients), = results[0]
    for name, found in zip(plans, results[1:], strict=True):
        for there, _, _ in found:
            assert abs(there / loss - 1) < LIMIT, f"{name}: loss {there}, in one process {loss}"
        assembled = whole(found)
        assert set(assembled) == set(gradients), f"{name}: {set(assembled) ^ set(gradients)}"
        for parameter, expected in gradients.items():
            scale = max(float(expected.abs().max()), 1e-3)
            error = float((assembled[parameter] - expected).abs().max()) / scale
            assert error < LIMIT, f"{name}: gradient of {parameter} is off by {error}"


def gradients(rank, family, plan, schedule, options):
    engine = Engine(models.model(models.CONFIGS[family]()), lambda p: torch.optim.SGD(p, lr=0.1), global_batch=models.BATCH, plan=plan, schedule=schedule,
                    **options)
    losses = engine.backward(models.batch())
    return losses, engine.gradients()


def test_gradients_of_weights_that_are_put_off_are_bitwise_those_of_whole_passes(tmp_path):
    jobs = []
    for family in models.CONFIGS:
        models.model(models.CONFIGS[family]())
        jobs.append((family, models.PLANS["one worker"], {}))
    for options in ({"autocast": torch.bfloat16}, {"recompute": True}, {"dtype": torch.bfloat16}):
        jobs += [(family, models.PLANS["one worker"], options) for family in ("llama", "gpt2")]
    jobs += [(family, models.PLANS["tp2"], {}) for family in ("gpt2", "phi3", "qwen3")]
    results = pool.run(tmp_path, [(plan.world, gradients, (family, plan, order, options)) for family, plan, options in jobs
                                  for order in ("memory-minimised", "FBFFBWWBW" if plan.micro_batches == 3 else "FFBBWW")])
    for (family, _, options), whole, put_off in zip(jobs, results[::2], results[1::2], strict=True):
        for (losses, expected), (also, found) in zip(whole, put_off, strict=True):
            assert torch.equal(torch.stack(losses), torch.stack(also)) and set(found) == set(expected)
            different = [name for name, gradient in expected.items() if not torch.equal(gradient, found[name])]
            assert not different, f"{family} {options}: {different}"
