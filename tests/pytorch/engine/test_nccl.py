# SPDX-License-Identifier: GPL-2.0-or-later
"""Differences of NCCL from gloo: the first message of two workers blocks both, and messages have no tags."""

import models
import nccl
import pool
import replans
import torch

from swell.engine import Engine

STEPS = 1


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def trained(rank, plan, order=None):
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), sgd, global_batch=models.BATCH, plan=plan, schedule=order)
    return [engine.step(models.batch(seed=number)) for number in range(STEPS)], engine.evaluate(models.batch())


def over_nccl(rank, plan, order=None):
    with nccl.messages() as messages:
        made = trained(rank, plan, order)
    return made, messages.order, messages.senders


def agree(result):
    """Whether both ends of each pair have the same messages in the same order."""
    found = {}
    return all(found.setdefault(pair, senders) == senders for _, _, by_pair in result for pair, senders in by_pair.items())


def all_plans():
    several = [(plan, None) for plan in models.PLANS.values()]
    several += [(plan, ("zero-bubble", None, "gpipe")[number % 3]) for number, plan in enumerate(models.CHUNKS.values())]
    several += [(models.PLANS["pp4"], ";".join(["F*4B*4"] * 4))]
    several += [*replans.plans_of(0, exact=True), *replans.plans_of(0, exact=False)]
    # By their own order, stages send what another one takes later: F of chunk 1 before F of chunk 0, of other micro-batches.
    several += [(models.plan(3, (2, 1, [4], 1, 1), (2, 1, [4], 1, 1)), "FFF1FF1F1B1B1B1BBB;FF1FFF1B1F1B1B1BBB")]
    return list({(plan.summary(), order): (plan, order) for plan, order in several if plan.world > 1}.values())


def test_messages_that_block_at_first_and_have_no_tags_reach_their_pass_under_every_plan_and_schedule(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    (alone,), *results = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)),
                                             *((plan.world, over_nccl, (plan, order)) for plan, order in all_plans())])
    for (plan, order), result in zip(all_plans(), results, strict=True):
        assert agree(result), f"{plan.summary()} by {order}"
        for (losses, evaluated), met, _ in result:
            assert all(abs(a / b - 1) < 1e-4 for a, b in zip([*losses, evaluated], [*alone[0], alone[1]], strict=True)), plan.summary()
            assert bool(met) == (plan.pp > 1), plan.summary()
