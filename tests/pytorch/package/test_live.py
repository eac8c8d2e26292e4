# SPDX-License-Identifier: GPL-2.0-or-later
"""Live mode: the state goes from workers to workers without a checkpoint, through real keepers and switches."""

import os

import pytest

from forked import LiveRun, Run, deviation
from native import needs_live_host

pytestmark = needs_live_host
SAME = 1e-5


@pytest.fixture
def runs(tmp_path):
    made = []

    def run(kind, name, *arguments, **options):
        made.append(kind(tmp_path / name, *arguments, **options))
        return made[-1]
    yield run
    for each in made:
        each.end()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Loss by step of one worker that nobody disturbs."""
    return Run(tmp_path_factory.mktemp("reference"), "ddp").fast().start(1).leave_well().curve()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_live_resizes_leave_the_loss_of_every_step_as_it_is(runs, reference, kind):
    run = runs(LiveRun, "live", "ddp", *(["fsdp"] if kind == "fsdp" else []), "no-checkpoints")
    run.start(1).reach(5)
    for world in (3, 5, 2):
        report = run.switch(world)
        assert report["committed"] and not any(report["codes"]), report
        run.reach(run.step() + 5)
    run.fast().leave_well()
    assert [line["step"] for line in run.lines()] == list(range(1, 61)), "a step is missing or was trained twice"
    assert run.worlds() == [1, 3, 5, 2]
    assert deviation(run.curve(), reference) < SAME
    assert not os.path.exists(os.path.join(run.folder, "checkpoints", "step-000000010"))
