# SPDX-License-Identifier: GPL-2.0-or-later
"""Every family under every plan against transformers' own model in one process."""

import models
import pool
import pytest
import torch

from swell.engine import Engine

LIMIT = 1e-5


def reference(family):
    config = models.CONFIGS[family]()
    model, batch = models.model(config), models.batch()
    loss = model(input_ids=batch["input_ids"], labels=batch["labels"], use_cache=False).loss
    loss.backward()
    return float(loss), {name: parameter.grad for name, parameter in model.named_parameters()}


def under_plan(rank, family, plan):
    """Loss, and this worker's parts of the gradients."""
    config = models.CONFIGS[family]()
    engine = Engine(models.model(config), lambda p: torch.optim.SGD(p, lr=0.1), global_batch=models.BATCH, plan=plan)
    losses = engine.backward(models.batch())
    loss, _ = engine._totals.over(losses, None)
    held = sum(parameter.numel() for parameter in engine._stage.model.parameters())
    parts = {name: (engine._stage.own[name], engine.place.shard, engine._stage.tp, gradient)
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


@pytest.mark.parametrize("family", list(models.CONFIGS))
def test_loss_and_gradients_are_those_of_one_process(family, tmp_path):
    plans = models.PLANS
    models.model(models.CONFIGS[family]())      # imports the family once, for all workers
    results = pool.run(tmp_path, [(1, lambda rank: reference(family), ())]
                       + [(plan.world, under_plan, (family, plan)) for plan in plans.values()])
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
