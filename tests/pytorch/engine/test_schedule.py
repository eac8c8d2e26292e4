# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules as data: the rules and the text of the core (docs/schedules.md)."""

import models
import pytest
import torch

from swell.engine import Engine, schedule
from swell.engine.schedule import Pass, check, one_forward_one_backward, parse, to_text

# As the core writes them: tests/unit/core/schedule/text_test.cc.
TEXTS = {
    "F*4(BF)*4B*4\nFF(FB)*6BB\nF(FB)*7B\n(FB)*8\n": (4, 8, 1),
    "F*4(BWF)*4(BW)*4\nFFFB(FBW)*5BWBWW\nFFBFB(FBW)*5BWWW\n(FB)*4(WFB)*4W*4\n": (4, 8, 1),
    "F*6F1*6B1*6B*6\nF*6F1*5B1F1B1*5B*6\nF*6F1*3(B1F1)*3B1*3B*6\nF*6(F1B1)*6B*6\n": (4, 6, 2),
    "(FF1B1B)*6\n(FF1B1B)*6\n": (2, 6, 2),
    "FF1F2F3F4F5F6F7F8F9F10B10B9B8B7B6B5B4B3B2B1B\n": (1, 1, 11),
}


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_reads_and_writes_as_the_core_does(text):
    read = parse(text)
    check(read, *TEXTS[text])
    assert to_text(read) == text


def test_1f1b_as_text():
    assert to_text(one_forward_one_backward(4, 8)) == next(iter(TEXTS))
    assert parse("# four stages\n F *4 (B F)*4 B*4; FF(FB)*6BB\n\nF(FB)*7B # third\n(FB)*8") == one_forward_one_backward(4, 8)


@pytest.mark.parametrize("text, words", [
    ("", "the schedule is empty"),
    ("FB\nFXB", r"line 2 of the schedule: column 2: 'X' is not F, B, W"),
    ("F*0B", r"behind \* a number"),
    ("F*", r"behind \* a number"),
    ("*3FB", "stands behind nothing"),
    ("(FB", r"a \( without its \)"),
    ("FB)", r"a \) without its \("),
    ("F1024B1024", "a chunk is not 0 to 1023"),
    ("(" * 40 + "FB" + ")" * 40, "more brackets"),
    ("(((F*60000)*60000)*60000)B", "more than 2097152 operations"),
])
def test_wrong_text_is_refused_by_line_and_column(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


@pytest.mark.parametrize("text, shape, words", [
    ("FB", (2, 1), "is for 1 stages, the plan has 2"),
    ("FB;FF", (2, 2), "stage 0: the order lacks F of chunk 0, micro-batch 1"),
    ("FB;FFBB", (2, 1), "stage 1: F of chunk 0, micro-batch 1 is not a pass of 1 chunks and 1 micro-batches"),
    ("FBW;FB", (2, 1), "stage 1: the order lacks W .* and W by all stages or by none"),
    ("FB1;FB", (2, 1), "stage 0: B of chunk 1, micro-batch 0 is not a pass of 1 chunks"),
    ("FWB", (1, 1), "stage 0: W of chunk 0, micro-batch 0 stands before its B"),
    ("FBFB;FFBB", (2, 2), "the schedule deadlocks: stage 0 waits at its operation 1, B of chunk 0, micro-batch 0, for B of chunk 0, "
                          "micro-batch 0 on stage 1"),
    ("FF1B1B;F1FB1B", (2, 1, 2), "stage 0 waits at its operation 1, F of chunk 1, micro-batch 0, for F of chunk 0, micro-batch 0 on stage 1"),
])
def test_an_invalid_schedule_is_refused_by_stage_and_operation(text, shape, words):
    with pytest.raises(ValueError, match=words):
        check(parse(text), *shape)


def test_micro_batches_rise_within_a_chunk_and_no_pass_is_made_twice():
    with pytest.raises(ValueError, match="stage 0: F of chunk 0, micro-batch 1 stands before micro-batch 0"):
        check([[Pass(False, 1), Pass(False, 0), Pass(True, 0), Pass(True, 1)]], 1, 2)
    with pytest.raises(ValueError, match="stage 0: the order repeats B of chunk 0, micro-batch 0"):
        check([[Pass(False, 0), Pass(True, 0), Pass(True, 0)]], 1, 1)


def test_the_engine_refuses_what_it_cannot_run():
    def engine(text, micro_batches):
        plan = models.plan(micro_batches, (models.LAYERS, 1, [models.BATCH // micro_batches]))
        return Engine(models.CONFIGS["llama"](), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), global_batch=models.BATCH, plan=plan,
                      schedule=text)

    with pytest.raises(ValueError, match="weight gradients; the engine makes whole backward passes, so leave W out"):
        engine("FBWFBW", 2)
    with pytest.raises(ValueError, match="line 1 of the schedule: column 1"):
        engine("interleaved", 2)
    with pytest.raises(ValueError, match="is not a pass of 1 chunks"):
        engine("FF1B1B", 1)
    losses = {engine(text, 2).step(models.batch()) for text in ("FFBB", "FBFB")}
    assert len(losses) == 1, "both sum gradients in the order of the micro-batches"
