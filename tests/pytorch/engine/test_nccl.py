# SPDX-License-Identifier: GPL-2.0-or-later
"""What NCCL does otherwise than gloo: the first message of two workers blocks both, and messages have no tags."""

import models
import nccl
import pool
import pytest
import replans
import torch

from swell.engine import Engine, schedule
from swell.engine.schedule import Pass

STEPS = 1


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def trained(rank, plan, order=None):
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), sgd, global_batch=models.BATCH, plan=plan, schedule=order)
    return [engine.step(models.batch(seed=number)) for number in range(STEPS)], engine.evaluate(models.batch())


def over_nccl(rank, plan, order=None):
    with nccl.messages() as messages:
        made = trained(rank, plan, order)
    return made, messages.order


def all_plans():
    several = [*models.PLANS.values(), *replans.plans_of(0, exact=True), *replans.plans_of(0, exact=False)]
    return list({plan.summary(): plan for plan in several if plan.world > 1}.values())


def test_no_plan_waits_for_ever_where_first_messages_block(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    (alone,), *results = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)),
                                             *((plan.world, over_nccl, (plan,)) for plan in all_plans())])
    for plan, result in zip(all_plans(), results, strict=True):
        for (losses, evaluated), met in result:
            assert all(abs(a / b - 1) < 1e-4 for a, b in zip([*losses, evaluated], [*alone[0], alone[1]], strict=True)), plan.summary()
            assert bool(met) == (plan.pp > 1), plan.summary()


def gpipe(stages, numbers):
    """All forward passes, in this order, before the first backward one."""
    return [[Pass(False, number) for number in numbers] + [Pass(True, number) for number in sorted(numbers)] for _ in range(stages)]


def test_messages_without_tags_reach_their_micro_batch_under_another_order(tmp_path):
    models.model(models.CONFIGS["llama_gqa_tied"]())
    plan = models.PLANS["pp4"]
    order = gpipe(4, [2, 0, 3, 1])
    (alone,), result = pool.run(tmp_path, [(1, trained, (models.PLANS["one worker"],)), (4, over_nccl, (plan, order))])
    for (losses, _), _ in result:
        assert all(abs(a / b - 1) < 1e-4 for a, b in zip(losses, alone[0], strict=True))


@pytest.mark.parametrize("stages, at", [(2, 1), (3, 1), (4, 3)])
def test_a_schedule_whose_two_ends_disagree_in_order_is_refused(stages, at):
    order = gpipe(stages, [0, 1, 2])
    schedule.check(order, stages, 3)
    order[at] = gpipe(1, [0, 2, 1])[0]
    with pytest.raises(ValueError, match=rf"stage {at - 1} sends .* order \[0, 1, 2\], stage {at} receives .* order \[0, 2, 1\]"):
        schedule.check(order, stages, 3)
