# SPDX-License-Identifier: GPL-2.0-or-later
"""Re-plans: bitwise the same where only the pipeline changes, close to it otherwise; and checkpoints that know no plan."""

import os
import random
import shutil

import models
import pool
import pytest
import torch

from swell.engine import Engine

STEPS = 2       # between re-plans
SEEDS = int(os.environ.get("ENGINE_SEEDS", "1"))       # runs of eight random re-plans, for each kind of change


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 6))


def segment(rank, family, plan, folder, steps):
    """Goes on for some steps under a plan, and leaves a checkpoint. Losses, and what this worker holds of the state."""
    engine = Engine(models.CONFIGS[family](), optimizer, global_batch=models.BATCH, plan=plan, scheduler=scheduler, max_grad_norm=0.5,
                    directory=folder, seed=3)
    losses = [engine.step(models.batch(seed=engine.steps)) for _ in range(steps)]
    engine.save()
    return losses, {name: tensor.clone() for name, tensor in engine._state.tensors.items()}, engine.steps


def random_plan(source, exact):
    """exact: one replica, one shard; else anything over at most six workers."""
    while True:
        cuts = sorted(source.sample(range(1, models.LAYERS), source.randint(0, 3)))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, models.LAYERS])]
        stages = []
        for layers in sizes:
            batches, left = [], 4
            while left:
                batches.append(4 if exact else source.randint(1, left))
                left -= batches[-1]
            stages.append((layers, 1 if exact else source.choice([1, 1, 2]), batches))
        plan = models.plan(3, *stages)
        if plan.world <= 6:
            return plan


def trained(tmp_path, family, plans, steps):
    """Losses of a run over these plans, one after the other; and the last one's state by worker."""
    folder = os.path.join(tmp_path, "checkpoints")
    shutil.rmtree(folder, ignore_errors=True)
    results = pool.run(os.path.join(tmp_path, "pool"), [(plan.world, segment, (family, plan, folder, steps)) for plan in plans])
    for result in results:
        assert all(one[0] == result[0][0] for one in result), "workers disagree on the loss"
    return [loss for result in results for loss in result[0][0]], results[-1]


@pytest.mark.parametrize("family", ["llama_gqa_tied", "gpt2"])
def test_pipeline_changes_are_bitwise_invisible(family, tmp_path):
    models.model(models.CONFIGS[family]())
    whole = models.plan(3, (4, 1, [4]))
    reference, (alone,) = trained(tmp_path, family, [whole], 9 * STEPS)
    for seed in range(SEEDS):
        source = random.Random(seed)
        plans = [whole] + [random_plan(source, exact=True) for _ in range(8)]
        losses, last = trained(tmp_path, family, plans, STEPS)
        assert losses == reference, f"seed {seed}: {[plan.summary() for plan in plans]}"
        for _, tensors, _ in last:
            for name, tensor in tensors.items():
                assert torch.equal(tensor, alone[1][name]), f"seed {seed}: {name}"


def test_any_change_keeps_the_loss_within_one_in_ten_thousand(tmp_path):
    family = "llama_gqa_tied"
    models.model(models.CONFIGS[family]())
    whole = models.plan(3, (4, 1, [4]))
    reference, _ = trained(tmp_path, family, [whole], 9 * STEPS)
    for seed in range(SEEDS):
        source = random.Random(seed)
        plans = [whole] + [random_plan(source, exact=False) for _ in range(8)]
        losses, _ = trained(tmp_path, family, plans, STEPS)
        error = max(abs(a / b - 1) for a, b in zip(losses, reference, strict=True))
        assert error < 1e-4, f"seed {seed}: {error} over {[plan.summary() for plan in plans]}"


def test_a_checkpoint_that_was_cut_short_is_passed_over(tmp_path):
    family, plan = "llama", models.plan(3, (2, 1, [4]), (2, 1, [4]))
    models.model(models.CONFIGS[family]())
    folder = str(tmp_path / "checkpoints")
    (first, _), = pool.run(tmp_path / "a", [(2, segment, (family, plan, folder, 2))])
    # What a worker leaves that is killed while it saves: files, but not the one that is renamed into place last.
    shutil.copytree(os.path.join(folder, "step-000000002"), os.path.join(folder, "step-000000004"))
    os.remove(os.path.join(folder, "step-000000004", ".metadata"))
    (second, _), = pool.run(tmp_path / "b", [(2, segment, (family, plan, folder, 2))])
    assert first[2] == 2 and second[2] == 4
    straight, _ = trained(tmp_path, family, [plan], 4)
    assert first[0] + second[0] == straight
