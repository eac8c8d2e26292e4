#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of random re-plans against one that keeps its plan: losses and weights.

  replans.py [--seeds N] [--steps N] [--family NAME]

Each seed is a run of five re-plans that differ in the pipeline alone (stages, chunks, schedules, weight gradients put off), and one of five
re-plans of any kind; the state goes from plan to plan through checkpoints. The last line is JSON: {"seeds","steps","exact","relaxed_error"}; exact: how many runs of the first kind had
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

from swell.engine import Engine, named_schedules, schedule
from swell.engine.schedule import to_text

REPLANS = 5
WHOLE = models.plan(3, (4, 1, [4]))


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 6))


def segment(rank, family, plan, folder, steps, order=None, zero=0):
    """Goes on for some steps under a plan, and leaves a checkpoint. Losses, and what this worker holds of the state."""
    engine = Engine(models.CONFIGS[family](), optimizer, global_batch=models.BATCH, plan=plan, scheduler=scheduler, max_grad_norm=0.5,
                    directory=folder, seed=3, schedule=order, zero=zero)
    losses = [engine.step(models.batch(seed=engine.steps)) for _ in range(steps)]
    engine.save()
    return losses, {name: tensor.clone() for name, tensor in engine._generation.state.tensors.items()}, engine.steps


def random_plan(source, exact):
    """exact: one replica, one shard; else anything over at most six workers. Half of them have chunks."""
    while True:
        cuts = sorted(source.sample(range(1, models.LAYERS), source.randint(0, 3)))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, models.LAYERS])]
        chunks = random_chunks(source, len(sizes)) if source.random() < 0.5 else None
        stages = []
        for stage, layers in enumerate(sizes):
            batches, left = [], 4
            while left:
                batches.append(4 if exact else source.randint(1, left))
                left -= batches[-1]
            tp = 1 if exact else source.choice([1, 1, 2])
            stages.append((layers, tp, batches) if chunks is None else (chunks[0][stage], tp, batches, *chunks[1][stage]))
        plan = models.plan(3, *stages)
        if plan.world <= 6:
            return plan


def random_chunks(source, stages):
    """Layers by stage, and units of its chunks: the model's in any cut, some chunks empty."""
    units = models.LAYERS + 2
    while True:
        count = source.randint(2, 3)
        ends = sorted(source.randint(0, units) for _ in range(stages * count - 1))
        flat = [b - a for a, b in zip([0, *ends], [*ends, units])]
        chunks = [flat[stage::stages] for stage in range(stages)]
        at = [sum(flat[:number]) for number in range(len(flat) + 1)]
        layers = [sum(min(at[number + 1], units - 1) - max(at[number], 1) for number in range(stage, len(flat), stages)
                      if min(at[number + 1], units - 1) > max(at[number], 1)) for stage in range(stages)]
        if all(map(any, chunks)):
            return layers, chunks


def random_schedule(source, plan):
    """One by name, or another order of its passes, as text."""
    name = source.choice([one for one in named_schedules.NAMES if one != "1f1b" or plan.chunks == 1])
    if source.random() < 0.5:
        return name
    orders = [list(order) for order in named_schedules.named(name, plan.pp, plan.micro_batches, plan.chunks)]
    for _ in range(30):
        order = source.choice(orders)
        at = source.randrange(len(order) - 1)
        order[at:at + 2] = order[at + 1], order[at]
        try:
            schedule.check(orders, plan.pp, plan.micro_batches, plan.chunks)
        except ValueError:
            order[at:at + 2] = order[at + 1], order[at]
    return to_text(orders)


def plans_of(seed, exact):
    """Six plans, the first one of one worker, each with a schedule."""
    source = random.Random(seed)
    plans = [random_plan(source, exact) for _ in range(REPLANS)]
    return [(WHOLE, None), *((plan, random_schedule(source, plan)) for plan in plans)]


def trained(folder, family, plans, steps, zeros=(0,)):
    """Losses of a run over these plans and schedules, one after the other; and the last one's state by worker. zeros: Engine(zero=) by turns."""
    checkpoints = os.path.join(folder, "checkpoints")
    shutil.rmtree(checkpoints, ignore_errors=True)
    results = pool.run(os.path.join(folder, "pool"), [(plan.world, segment, (family, plan, checkpoints, steps, order, zeros[number % len(zeros)]))
                                                           for number, (plan, order) in enumerate(plans)])
    for result in results:
        assert all(one[0] == result[0][0] for one in result), "workers disagree on the loss"
    return [loss for result in results for loss in result[0][0]], results[-1]


def said(plans):
    """Plans and schedules, for errors."""
    return "; ".join(f"{plan.summary()} by {order!r}" for plan, order in plans)


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
        reference, (alone,) = trained(folder, options.family, [(WHOLE, None)], each * (REPLANS + 1))
        for seed in range(options.seeds):
            exactly = plans_of(seed, True)
            losses, last = trained(folder, options.family, exactly, each)
            is_exact = losses == reference and same_weights(last, alone)
            plans = plans_of(seed, False)
            error = deviation(trained(folder, options.family, plans, each)[0], reference)
            exact, worst = exact + is_exact, max(worst, error)
            print(f"seed {seed}: pipeline-only {'bitwise' if is_exact else 'DIFFERS'} over {said(exactly)}; any {error:.1e} over {said(plans)}", flush=True)
    print(json.dumps({"seeds": options.seeds, "steps": each * (REPLANS + 1), "exact": exact, "relaxed_error": float(f"{worst:.2g}")}))
    return 0 if exact == options.seeds and worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
