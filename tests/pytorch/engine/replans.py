#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of random re-plans against one that keeps its plan: losses and weights.

  replans.py [--seeds N] [--steps N] [--family NAME]

Each seed is a run of eight re-plans whose plans differ in the pipeline alone, and one of eight re-plans of any kind; the state goes from plan
to plan through checkpoints. The last line is JSON: {"seeds","steps","exact","relaxed_error"}; exact: how many runs of the first kind had
bitwise the losses and the weights of the run that keeps its plan; relaxed_error: the largest relative deviation of a loss in the others.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

import models
import pool
import torch

from swell.engine import Engine

REPLANS = 8
WHOLE = models.plan(3, (4, 1, [4]))


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


def plans_of(seed, exact):
    """Nine plans, the first one of one worker."""
    source = random.Random(seed)
    return [WHOLE] + [random_plan(source, exact) for _ in range(REPLANS)]


def trained(folder, family, plans, steps):
    """Losses of a run over these plans, one after the other; and the last one's state by worker."""
    checkpoints = os.path.join(folder, "checkpoints")
    shutil.rmtree(checkpoints, ignore_errors=True)
    results = pool.run(os.path.join(folder, "pool"), [(plan.world, segment, (family, plan, checkpoints, steps)) for plan in plans])
    for result in results:
        assert all(one[0] == result[0][0] for one in result), "workers disagree on the loss"
    return [loss for result in results for loss in result[0][0]], results[-1]


def same_weights(last, alone):
    """Whether what the workers hold of a pipeline is what one worker holds of the whole model."""
    return all(torch.equal(tensor, alone[1][name]) for _, tensors, _ in last for name, tensor in tensors.items())


def deviation(losses, reference):
    return max(abs(a / b - 1) for a, b in zip(losses, reference, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200, help="of each run")
    parser.add_argument("--family", default="llama_gqa_tied", choices=list(models.CONFIGS))
    options = parser.parse_args()
    models.model(models.CONFIGS[options.family]())
    each = -(-options.steps // (REPLANS + 1))
    exact, worst = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="replans-") as folder:
        reference, (alone,) = trained(folder, options.family, [WHOLE], each * (REPLANS + 1))
        for seed in range(options.seeds):
            losses, last = trained(folder, options.family, plans_of(seed, True), each)
            is_exact = losses == reference and same_weights(last, alone)
            plans = plans_of(seed, False)
            error = deviation(trained(folder, options.family, plans, each)[0], reference)
            exact, worst = exact + is_exact, max(worst, error)
            print(f"seed {seed}: pipeline-only {'bitwise' if is_exact else 'DIFFERS'}; any {error:.1e} over "
                  f"{'; '.join(plan.summary() for plan in plans)}", flush=True)
    print(json.dumps({"seeds": options.seeds, "steps": each * (REPLANS + 1), "exact": exact, "relaxed_error": float(f"{worst:.2g}")}))
    return 0 if exact == options.seeds and worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
