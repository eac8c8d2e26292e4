# SPDX-License-Identifier: GPL-2.0-or-later
"""What NCCL does otherwise than gloo: the first message of two workers blocks both, and messages have no tags."""

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
    several += [(plan, order) for plan in models.CHUNKS.values() for order in (None, "zero-bubble")]
    several += [*replans.plans_of(0, exact=True), *replans.plans_of(0, exact=False)]
    # By their own order, stages send what another one takes later: F of chunk 1 before F of chunk 0, of other micro-batches.
    several += [(models.plan(3, (2, 1, [4], 1, 1), (2, 1, [4], 1, 1)), "FFF1FF1F1B1B1B1BBB;FF1FFF1B1F1B1B1BBB")]
    return list({(plan.summary(), order): (plan, order) for plan, order in several if plan.world > 1}.values())


def test_no_plan_or_schedule_waits_for_ever_where_messages_are_nccl_s(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    (alone,), *results = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)),
                                             *((plan.world, over_nccl, (plan, order)) for plan, order in all_plans())])
    for (plan, order), result in zip(all_plans(), results, strict=True):
        assert agree(result), f"{plan.summary()} by {order}"
        for (losses, evaluated), met, _ in result:
            assert all(abs(a / b - 1) < 1e-4 for a, b in zip([*losses, evaluated], [*alone[0], alone[1]], strict=True)), plan.summary()
            assert bool(met) == (plan.pp > 1), plan.summary()


def test_messages_without_tags_reach_their_micro_batch_under_another_order(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    plan = models.PLANS["pp4"]
    order = ";".join(["F*4B*4"] * 4)
    (alone,), result = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)), (4, over_nccl, (plan, order))])
    for (losses, _), *_ in result:
        assert all(abs(a / b - 1) < 1e-4 for a, b in zip(losses, alone[0], strict=True))
