# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts of researchers, written from the documents alone: the same training however they are resized, or one line says what is not."""

import pytest

from forked import Run



@pytest.mark.parametrize("name", ["averages_in_half", "averages_in_float16", "averages_a_copy_in_half"])
def test_an_average_in_half_precision_is_lent_nothing(name, runs):
    run = runs(Run, "half", "research", name, steps=24).fast().start(1).leave_well()
    assert run.sizes() == [1] and "keeps an average of the weights of its own" in run.why and run.step() == 24
