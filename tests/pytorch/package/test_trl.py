# SPDX-License-Identifier: GPL-2.0-or-later
"""TRL's SFTTrainer, which is derived from transformers' Trainer: resized, the loss of every step stays what it was."""

import pytest

pytest.importorskip("trl", reason="trl is not installed; contrib/setup --frameworks does")

from forked import LiveRun, Run, deviation  # noqa: E402
from native import needs_live_host  # noqa: E402

SAME = 1e-5
STEPS = 100     # SFTTrainer takes long to start, beside which each of the others lasts a second at most


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Loss by step of one worker that nobody disturbs."""
    return Run(tmp_path_factory.mktemp("reference"), "trl_sft", steps=STEPS).fast().start(1).leave_well().curve()


@pytest.mark.slow       # a row of test_matrix.py does that quicker
def test_SFTTrainer_is_resized_by_restarts(tmp_path, reference):
    run = Run(tmp_path / "resized", "trl_sft", steps=STEPS)
    try:
        for world in (1, 3):
            run.start(world).reach(run.step() + 4).ask().leave_well()
        run.fast().start(2).leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)), "a step is missing or was trained twice"
    assert run.worlds() == [1, 3, 2] and run.sizes() == [1, 2, 3, 4, 6, 12]
    worst = deviation(run.curve(), reference)
    assert worst < SAME
    print(f"largest deviation {worst:.1e}")


@needs_live_host
def test_SFTTrainer_is_resized_live(tmp_path, reference):
    run = LiveRun(tmp_path / "live", "trl_sft", "no-checkpoints", steps=STEPS)
    try:
        run.start(1).reach(3)
        for world in (2, 1):
            report = run.switch(world)
            assert report.get("committed"), report
            run.reach(run.step() + 4)
        run.fast().leave_well()
    finally:
        run.end()
    assert [line["step"] for line in run.lines()] == list(range(1, STEPS + 1)) and run.worlds() == [1, 2, 1]
    assert deviation(run.curve(), reference) < SAME
