# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts that keep, print and log values which change no training: no warning names one."""

import pytest

from forked import Run

PLAIN = ["plots_losses", "times_its_passes", "prints_a_running_average", "names_a_running_average", "shows_a_bar", "writes_lines_of_json", "prints_its_best_in_the_loss", "prints_a_mean_now_and_then",
         "prints_a_meter"]
LIGHTNING = ["lightning_logs_numbers", "lightning_keeps_losses", "lightning_logs_gradients"]
WARNS = ("carries", "changed as it trains", "begins it anew", "logged without", "reduced over", "lent nothing", "number of workers", "changes the training")


@pytest.mark.parametrize("name", PLAIN + LIGHTNING)
def test_values_that_are_only_shown_are_not_warned_of(name, runs):
    run = runs(Run, "harmless", "harmless", name, steps=27 if name.startswith("lightning") else 9).fast().start(1).leave_well()
    assert run.step() == (27 if name.startswith("lightning") else 9) and len(run.sizes()) > 1
    assert not [line for line in run.said().splitlines() if line.startswith("swell: ") and any(each in line for each in WARNS)], run.said()
