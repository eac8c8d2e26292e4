# SPDX-License-Identifier: GPL-2.0-or-later
"""Re-plans: bitwise the same where only the pipeline changes, close to it otherwise; and checkpoints that know no plan."""

import os
import shutil

import models
import pool
import pytest
import replans

STEPS = 2       # between re-plans; replans.py does more of them, and more seeds
SEEDS = int(os.environ.get("ENGINE_SEEDS", "1"))       # runs of five random re-plans, for each kind of change
ALL = STEPS * (replans.REPLANS + 1)


@pytest.mark.parametrize("family", ["llama_gqa_tied", "gpt2"])
def test_changes_of_stages_chunks_and_schedules_are_bitwise_invisible(family, tmp_path):
    models.model(models.CONFIGS[family]())
    reference, (alone,) = replans.trained(tmp_path, family, [(replans.WHOLE, None)], ALL)
    for seed in range(SEEDS):
        plans = replans.plans_of(seed, exact=True)
        losses, last = replans.trained(tmp_path, family, plans, STEPS)
        assert losses == reference and replans.same_weights(last, alone), f"seed {seed}: {replans.said(plans)}"


def test_any_change_keeps_the_loss_within_one_in_ten_thousand(tmp_path):
    family = "llama_gqa_tied"
    models.model(models.CONFIGS[family]())
    reference, _ = replans.trained(tmp_path, family, [(replans.WHOLE, None)], ALL)
    for seed in range(SEEDS):
        plans = replans.plans_of(seed, exact=False)
        losses, _ = replans.trained(tmp_path, family, plans, STEPS)
        error = replans.deviation(losses, reference)
        assert error < 1e-4, f"seed {seed}: {error} over {replans.said(plans)}"


def test_a_checkpoint_that_was_cut_short_is_passed_over(tmp_path):
    family, plan = "llama", models.plan(3, (2, 1, [4]), (2, 1, [4]))
    models.model(models.CONFIGS[family]())
    folder = str(tmp_path / "checkpoints")
    (first, _), = pool.run(tmp_path / "a", [(2, replans.segment, (family, plan, folder, 2))])
    # A worker that is killed while it saves leaves files, but not the one that is renamed into place last.
    for left in ("step-000000004", "step-000000009"):
        shutil.copytree(os.path.join(folder, "step-000000002"), os.path.join(folder, left))
        os.remove(os.path.join(folder, left, ".metadata"))
    os.mkdir(os.path.join(folder, "step-of-the-user"))
    (second, _), = pool.run(tmp_path / "b", [(2, replans.segment, (family, plan, folder, 2))])
    assert first[2] == 2 and second[2] == 4
    assert sorted(name for name in os.listdir(folder) if name.startswith("step")) == ["step-000000002", "step-000000004", "step-of-the-user"], "what is left of a save that was killed takes room"
    straight, _ = replans.trained(tmp_path, family, [(plan, None)], 4)
    assert first[0] + second[0] == straight
