# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules as data: the rules and the text of the core (docs/schedules.md)."""

import json
import os
import re
from dataclasses import replace

import models
import pool
import pytest
import torch

from swell.engine import Engine, memory
from swell.engine.given_schedule import read_schedule
from swell.engine.named_schedules import named
from swell.engine.plan import Plan
from swell.engine.schedule import Pass, check, parse, to_text

# Cases that the core's tests read too.
with open(os.path.join(pool.HERE, "..", "..", "unit", "core", "schedule", "cases.inc")) as file:
    CASES = [(kind, text, tuple(map(int, shape.split(", "))), words)
             for kind, text, shape, words in re.findall(r'^(NAMED|REFUSED)\("(.*)", (\d+, \d+, \d+), "(.*)"\)$', file.read(), re.MULTILINE)]
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


def test_schedules_by_name_are_those_of_the_core():
    cases = [(name, shape, text) for kind, name, shape, text in CASES if kind == "NAMED"]
    assert len(cases) > 40
    for name, (stages, chunks, micro_batches), text in cases:
        made = named(name, stages, micro_batches, chunks)
        assert to_text(made).replace("\n", ";") == text, f"{name} of {stages}, {chunks}, {micro_batches}"
        check(made, stages, micro_batches, chunks)


@pytest.mark.parametrize("text, shape, words", [case[1:] for case in CASES if case[0] == "REFUSED"])
def test_refusals_of_the_core_have_its_words(text, shape, words):
    stages, chunks, micro_batches = shape
    with pytest.raises(ValueError, match=re.escape(words)):
        check(parse(text), stages, micro_batches, chunks)


def test_blanks_and_comments_are_skipped():
    assert to_text(named("1f1b", 4, 8)) == next(iter(TEXTS))
    assert parse("# four stages\n F *4 (B F)*4 B*4; FF(FB)*6BB\n\nF(FB)*7B # third\n(FB)*8") == named("1f1b", 4, 8)


@pytest.mark.parametrize("text, words", [
    ("F*0B", r"behind \* a number"),
    ("F*", r"behind \* a number"),
    ("*3FB", "stands behind nothing"),
    ("(FB", r"a \( without its \)"),
    ("FB)", r"a \) without its \("),
    ("(" * 40 + "FB" + ")" * 40, "more brackets"),
    ("(((F*60000)*60000)*60000)B", "more than 2097152 operations"),
])
def test_wrong_text_is_refused_by_line_and_column(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_micro_batches_rise_within_a_chunk_and_no_pass_is_made_twice():
    with pytest.raises(ValueError, match="stage 0: F of chunk 0, micro-batch 1 stands before micro-batch 0"):
        check([[Pass(False, 1), Pass(False, 0), Pass(True, 0), Pass(True, 1)]], 1, 2)
    with pytest.raises(ValueError, match="stage 0: the order repeats B of chunk 0, micro-batch 0"):
        check([[Pass(False, 0), Pass(True, 0), Pass(True, 0)]], 1, 1)
    with pytest.raises(ValueError, match="at most 2097152 are possible, so use fewer chunks or micro-batches"):
        named("gpipe", 1024, 1024, 2)


def engine(order, plan):
    return Engine(models.CONFIGS["llama"](), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), global_batch=models.BATCH, plan=plan,
                  schedule=order)


def test_the_engine_says_what_is_wrong_with_a_schedule(tmp_path):
    whole = models.plan(2, (models.LAYERS, 1, [6]))
    chunks = models.plan(2, (models.LAYERS, 1, [6], 2, 2))
    (tmp_path / "orders").write_text("FB\nFQ\n")
    for order, plan, words in [
            ("fastest", whole, 'no schedule is called "fastest", and no file; use 1f1b, gpipe, interleaved'),
            ("1f1b", chunks, "1f1b runs one chunk on each stage, the plan has 2; use interleaved"),
            ("FBFB", chunks, "1 stage of 1 chunk and 2 micro-batches, the plan has 1 of 2 and 2; use a schedule of this plan"),
            (str(tmp_path / "orders"), whole, "orders: line 2 of the schedule: column 2: 'Q' is not F, B, W")]:
        with pytest.raises(ValueError, match=re.escape(words)):
            engine(order, plan)


class Passes(list):
    """Counts how often it is walked through."""

    walks = 0

    def __iter__(self):
        Passes.walks += 1
        return super().__iter__()


def test_a_schedule_of_many_passes_is_not_read_for_each_number_of_workers(monkeypatch):
    walks = []
    for sizes in (1, 48):
        monkeypatch.setattr("swell._request.is_heard", lambda: True)
        monkeypatch.setattr("swell.engine.choosing._MAX_SIZES", sizes)
        Passes.walks = 0
        made = Engine(models.CONFIGS["llama"](), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), global_batch=models.BATCH, schedule=[Passes(*parse("F*12B*12"))])
        assert made._chooser.sizes == [1]
        walks.append(Passes.walks)
    assert walks[0] == walks[1]


def scheduled_by_plan(rank):
    kept = engine("gpipe", models.plan(2, (models.LAYERS, 1, [6])))
    plan = models.plan(2, (models.LAYERS, 1, [6], 2, 2))
    for number, order in enumerate(("zero-bubble", "FF1B1W1BWFF1B1BW1W", "FFF1F1B1B1BB")):
        told = Plan.parse(json.dumps({**plan.to_json(), "schedule": order}))
        assert told.schedule == order and Plan.from_json(told.to_json()) == told
        made = engine("memory-minimised", told)
        assert to_text(made._chooser.schedule.passes(made.plan)) == to_text(parse(order) if order.startswith("F") else named(order, 1, 2, 2))
        for step in range(number):
            made.step(models.batch(seed=step))
        assert made.step(models.batch(seed=number)) == kept.step(models.batch(seed=number)), order
    made.reschedule("gpipe")
    assert made._chooser.schedule.passes(made.plan) == named("gpipe", 1, 2, 2)


def test_a_plan_s_schedule_is_run_in_place_of_the_program_s(tmp_path):
    models.model(models.CONFIGS["llama"]())
    pool.run(tmp_path / "pool", [(1, scheduled_by_plan, ())])


def test_a_plan_s_schedule_of_another_plan_is_refused():
    plan = models.plan(2, (models.LAYERS, 1, [6], 2, 2))
    for order, words in (("1f1b", "1f1b runs one chunk on each stage"), ("FB", "use a schedule of this plan"), ("FX", "'X' is not F, B, W")):
        with pytest.raises(ValueError, match=words):
            engine(None, replace(plan, schedule=order))
    with pytest.raises(ValueError, match="schedule"):
        Plan.from_json({**plan.to_json(), "schedule": 7})


def rescheduled(rank, file):
    made = engine(None, models.plan(2, (models.LAYERS, 1, [6], 2, 2)))
    kept = engine("gpipe", models.plan(2, (models.LAYERS, 1, [6])))
    for number, order in enumerate(("zero-bubble", "FF1B1W1BWFF1B1BW1W", file, "FF1B1W1BWFF1B1BW1W", "memory-minimised", None)):
        made.reschedule(order)
        with pytest.raises(ValueError, match="use a schedule of this plan"):
            made.reschedule("FB")
        assert made.step(models.batch(seed=number)) == kept.step(models.batch(seed=number)), order
    assert all(torch.equal(tensor, made._generation.state.tensors[name]) for name, tensor in kept._generation.state.tensors.items())


def test_a_training_goes_from_one_schedule_to_another_between_two_steps(tmp_path):
    (tmp_path / "orders").write_text("# all forward\nF*2F1*2B1*2B*2\n")
    models.model(models.CONFIGS["llama"]())
    pool.run(tmp_path / "pool", [(1, rescheduled, (str(tmp_path / "orders"),))])


def kept(rank, family, plan, order, recompute):
    """Bytes of a pass's activations that shards do not divide."""
    made = Engine(models.CONFIGS[family](), lambda parameters: torch.optim.SGD(parameters, lr=1e-2), global_batch=models.BATCH, plan=plan, schedule=order,
                  recompute=recompute)
    made._observer._whole = memory.WholeActivations(next(made._generation.share.models()), recompute)
    made.backward(models.batch())
    return made._observer._whole.kept_bytes


def test_weight_gradients_that_are_put_off_keep_what_whole_passes_keep(tmp_path):
    jobs = [(family, models.PLANS[plan], recompute) for family, plan, recompute in (
        ("llama", "one worker", False), ("gpt2", "one worker", False), ("llama", "tp2", False), ("gpt2", "tp2", False), ("llama", "one worker", True))]
    for family in ("llama", "gpt2"):
        models.model(models.CONFIGS[family]())
    results = pool.run(tmp_path, [(plan.world, kept, (family, plan, order, recompute)) for family, plan, recompute in jobs for order in ("interleaved", "zero-bubble")])
    for (family, plan, recompute), whole, split in zip(jobs, results[::2], results[1::2], strict=True):
        for expected, found in zip(whole, split, strict=True):
            assert expected > 0 and abs(found / expected - 1) < 0.03, f"{family}, {plan.summary()}, recompute={recompute}: {found} bytes, by whole passes {expected}"


def test_a_searched_schedule_comes_with_the_plans_of_an_exact_live_job(monkeypatch):
    def engine():
        return Engine(models.model(models.CONFIGS["llama"]()), lambda parameters: torch.optim.SGD(parameters, lr=0.1), global_batch=models.BATCH,
                      plan=None, schedule="search")
    missing = re.escape("schedule=\"search\" needs Swell's planner, which searches for jobs of swellrun with --elastic=mode=live,consistency=exact: submit so, or give the "
                        "text that swell plan --schedule search --json prints")
    with pytest.raises(ValueError, match=missing):
        engine()        # outside a job
    monkeypatch.setenv("SWELL_CONSISTENCY", "exact")
    with pytest.raises(ValueError, match=missing):
        engine()
    monkeypatch.setattr("swell._native.is_live", lambda: True)
    assert read_schedule("search") == "interleaved", "until a plan says the one that was found"
    with pytest.raises(ValueError, match=re.escape("plan='pp1' is for the whole run, and schedule=\"search\" takes plans that Swell decides; give initial_plan='pp1'")):
        Engine(models.CONFIGS["llama"](), torch.optim.SGD, global_batch=models.BATCH, plan="pp1", schedule="search")
