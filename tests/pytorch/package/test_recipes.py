# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts with recipes that research code shares: the same training however they are resized, or one line says what is not."""

import os

import pytest

from forked import Run, deviation
from test_odd import SAME, end, is_same

for framework in ("transformers", "lightning", "accelerate"):      # once, for all workers
    pytest.importorskip(f"swell.integrations.{framework}")


@pytest.mark.parametrize("name", ["lightning_logs_by_hand", "lightning_steps_twice"])
def test_rows_of_a_module_that_optimizes_by_hand_stand_once_in_its_log(name, runs):
    alone = runs(Run, "alone", "recipes", name, steps=27).fast().start(1).leave_well()
    run = runs(Run, "resized", "recipes", name, "step@3", "step@9", steps=27)
    for world in (1, 2):
        run.start(world).leave_well()
    run.start(1).reach(16).kill(0).leave()
    run.fast().start(2).leave_well()
    assert is_same(end(run), end(alone)), (end(run), end(alone))


@pytest.mark.parametrize("place", ["before.0", "after.0", "before.2", "after.2", "before.3", "after.3"])
@pytest.mark.parametrize("world", [1, 2])
def test_actions_behind_an_epoch_are_done_once_over_a_kill(place, world, runs):
    alone = runs(Run, "alone", "recipes", "acts_behind_epochs", steps=16).fast().start(1).leave_well()
    run = runs(Run, "killed", "recipes", "acts_behind_epochs", "step@6", steps=16).fast()
    with open(os.path.join(run.folder, f"dies.{place}"), "w"):
        pass
    starts = 0
    while run.start(world).leave()[0] != 0 or "asked to leave" in run.said():
        starts += 1
        assert starts < 4, run.said()
    assert starts == 2 and not os.path.exists(os.path.join(run.folder, f"dies.{place}")) and deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))


def test_state_of_an_optimizer_keeps_its_precision(runs):
    alone = runs(Run, "alone", "recipes", "keeps_masters", steps=14).fast().start(1).leave_well()
    run = runs(Run, "resized", "recipes", "keeps_masters", "step@1", "step@5", "step@9", steps=14).fast()
    for _ in range(4):
        run.start(1).leave_well()
    assert deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))
