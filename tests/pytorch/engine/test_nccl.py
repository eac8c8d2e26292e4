# SPDX-License-Identifier: GPL-2.0-or-later
"""Differences of NCCL from gloo: the first message of two workers blocks both, messages have no tags, and no kernel is loaded while
one is under way."""

import os
import random

import models
import nccl
import pool
import replans
import torch

from swell.engine import Engine
from swell.engine.schedule import Pass, check, to_text

STEPS = 2       # messages of the first one go through the host


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def trained(rank, plan, order=None):
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), sgd, global_batch=models.BATCH, plan=plan, schedule=order)
    return [engine.step(models.batch(seed=number)) for number in range(STEPS)], [engine.evaluate(models.batch()) for _ in range(2)]


def over_nccl(rank, plan, order=None):
    with nccl.messages() as messages:
        made = trained(rank, plan, order)
    return made, messages.order, messages.senders


def blocking(rank, plan, order=None):
    if rank == 0:       # said on one worker, as to find an error there
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    try:
        with nccl.messages(blocks=True):
            return trained(rank, plan, order)
    finally:
        os.environ.pop("CUDA_LAUNCH_BLOCKING", None)


def agree(result):
    """Whether both ends of each pair have the same messages in the same order."""
    found = {}
    return all(found.setdefault(pair, senders) == senders for _, _, by_pair in result for pair, senders in by_pair.items())


def crossed(numbers, stages, chunks, micro_batches):
    """A valid schedule, as text, whose stages take their passes in orders of their own: one that can be made is drawn at a time.

    At least one pair has another order of messages forward than the passes that take them, and one of gradients.
    """
    while True:
        orders, done = [[] for _ in range(stages)], set()

        def ready(stage, one):
            before = [Pass(one.backward, one.micro_batch - 1, one.chunk)] if one.micro_batch else []
            at, there = one.chunk * stages + stage, []
            if one.backward:
                there = [(stage, Pass(False, one.micro_batch, one.chunk))]
            step = 1 if one.backward else -1
            if 0 <= at + step < stages * chunks:
                there.append(((at + step) % stages, Pass(one.backward, one.micro_batch, (at + step) // stages)))
            return all(needed in done for needed in there + [(stage, its) for its in before])
        left = {(stage, Pass(backward, number, chunk)) for stage in range(stages) for backward in (False, True)
                for number in range(micro_batches) for chunk in range(chunks)}
        while left:
            stage, one = numbers.choice(sorted((each for each in left if ready(*each)), key=str))
            left.remove((stage, one))
            done.add((stage, one))
            orders[stage].append(one)
        if all(disagree(orders, backward) for backward in (False, True)):
            check(orders, stages, micro_batches, chunks)
            return to_text(orders)


def disagree(orders, backward):
    """Whether two neighbouring stages make their passes of a direction in different orders."""
    its = [[one for one in order if one.backward == backward] for order in orders]
    return any(a != b for a, b in zip(its, its[1:], strict=False))


def all_plans():
    several = [(plan, None) for plan in models.PLANS.values()]
    several += [(plan, ("zero-bubble", None, "gpipe")[number % 3]) for number, plan in enumerate(models.CHUNKS.values())]
    several += [(models.PLANS["pp4"], ";".join(["F*4B*4"] * 4))]
    several += [*replans.plans_of(0, exact=True), *replans.plans_of(0, exact=False)]
    # By their own order, stages send what another one takes later: F of chunk 1 before F of chunk 0, of other micro-batches.
    several += [(models.plan(3, (2, 1, [4], 1, 1), (2, 1, [4], 1, 1)), "FFF1FF1F1B1B1B1BBB;FF1FFF1B1F1B1B1BBB")]
    for seed, plan in enumerate((*[models.plan(3, (2, 1, [4], 1, 1), (2, 1, [4], 1, 1))] * 2, models.plan(3, (3, 1, [4], 1, 1, 1), (1, 1, [4], 1, 0, 0)),
                                 models.CHUNKS["pp3, two chunks"], models.CHUNKS["pp2 tp2, two chunks"])):
        several.append((plan, crossed(random.Random(seed), plan.pp, plan.chunks, plan.micro_batches)))
    return list({(plan.summary(), order): (plan, order) for plan, order in several if plan.world > 1}.values())


def test_messages_that_block_at_first_and_have_no_tags_reach_their_pass_under_every_plan_and_schedule(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    (alone,), *results = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)),
                                             *((plan.world, over_nccl, (plan, order)) for plan, order in all_plans())])
    for (plan, order), result in zip(all_plans(), results, strict=True):
        assert agree(result), f"{plan.summary()} by {order}"
        for (losses, evaluated), met, senders in result:
            assert all(abs(a / b - 1) < 1e-4 for a, b in zip([*losses, *evaluated], [*alone[0], *alone[1]], strict=True)), plan.summary()
            assert bool(met) == (plan.pp > 1), plan.summary()
            assert any(len(one) > plan.micro_batches for one in senders.values()) == (plan.pp > 1), "no messages but the first ones, which connect"


def test_launches_that_wait_for_their_end_reach_it(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    plans = [models.PLANS["pp2"], models.PLANS["pp4"], models.PLANS["dp by stage: 1, 2"], models.CHUNKS["pp2, two chunks, embedding apart"]]
    (alone,), *results = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)), *((plan.world, blocking, (plan,)) for plan in plans)])
    for plan, result in zip(plans, results, strict=True):
        for losses, evaluated in result:
            assert all(abs(a / b - 1) < 1e-4 for a, b in zip([*losses, *evaluated], [*alone[0], *alone[1]], strict=True)), plan.summary()
