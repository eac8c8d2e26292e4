# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts with recipes that research code shares: the same training however they are resized, or one line says what is not."""

import asyncio
import os
import textwrap

import pytest

from forked import LiveRun, Run, deviation
from native import needs_live_host
from swell import _carried, _loaded
from test_odd import SAME, end, is_same, is_the_same_training

for framework in ("transformers", "lightning", "accelerate"):      # once, for all workers
    pytest.importorskip(f"swell.integrations.{framework}")

THE_SAME = ["one_cycle_by_loader", "prints_by_number", "ends_by_the_clock", "centers_and_keeps", "shows_means", "plays_two", "loads_its_own_before", "trains_in_phases", "seeds_readers", "prefers", "adapts_by_hand", "writes_the_same",
            "shards_in_half", "shards_and_offloads"]
AGAIN = "swell: the script has put other weights, or other values of the optimizer, in the place of those of step 2 since Elastic() has loaded them"
BESIDE = "changed as it trains, and no checkpoint holds it, so that each start begins it anew: give Elastic state="


@pytest.mark.parametrize("name", THE_SAME)
def test_a_recipe_is_resized_as_any_other(name, runs):
    run = is_the_same_training(runs, name, 14, [6, 9], [1, 3, 1], job="recipes")
    said = "".join(run.said_by(start) for start in range(3))
    assert run.sizes() == list(range(1, 13)) and not any(each in said for each in ("lent nothing", "changed as it trains", "carries", "enumerate()", "the loop changes", "taken a copy", "by the number of workers", "other hyperparameters", "loaded again")), said


def test_a_callback_whose_state_is_saved_is_not_said(runs):
    run = is_the_same_training(runs, "trainer_keeps_the_state_of_a_callback", 12, [6, 9], [1, 3, 1], job="recipes")
    assert "changed as it trains" not in run.said_by(0)


@pytest.mark.parametrize("name", ["loads_its_own", "initializes_late", "initializes_late_by_data", "loads_its_optimizer"])
def test_values_that_a_script_puts_in_the_place_of_loaded_ones_are_loaded_again(name, runs):
    run = is_the_same_training(runs, name, 14, [1, 9], [1, 3, 1], job="recipes")
    assert "loaded again" not in run.said_by(0) and run.said_by(1).count(AGAIN) == 1


@needs_live_host
@pytest.mark.parametrize("name, says", [("initializes_late", 2), ("initializes_late_by_data", 2), ("loads_its_own", 2), ("loads_its_optimizer", 2), ("writes_the_same", 0)])
def test_values_that_a_script_puts_in_the_place_of_those_taken_over_live_are_put_back(name, says, runs, monkeypatch):
    monkeypatch.setattr(_loaded, "_SMALL", 0 if name.startswith("initializes") else 1 << 20)        # where each start does so, they are copied whatever their size
    alone = runs(Run, "alone", "recipes", name, steps=24).fast().start(1).leave_well()
    run = runs(LiveRun, "live", "recipes", name, steps=24).start(1).reach(3)
    said = []
    for world in (2, 1):
        assert run.switch(world)["committed"]
        run.reach(run.step() + 3)
        said.append(run.said())
    run.fast().leave_well()
    assert sum(each.count("those of step") == 2 and "are loaded again" in each for each in said) == says and "lent nothing" not in "".join(said), said
    assert run.worlds() == [1, 2, 1] and deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))


@needs_live_host
def test_values_that_cannot_be_put_back_end_a_live_training_with_a_sentence(runs, monkeypatch):
    monkeypatch.setattr(_loaded, "_SMALL", 0)
    run = runs(LiveRun, "live", "recipes", "loads_its_own", steps=24).start(1).reach(3)
    run.switch(2, wait=False)
    run.until(lambda: "since Elastic() has loaded them: load and initialize before Elastic()" in run.said(), "the sentence")


@pytest.mark.parametrize("name, says", [
    ("penalizes_lazily", "i of enumerate() counts the passes that this worker has made since this start, and changes the training (line "), ("raises_a_weight_once", "the loop carries weight from one step to the next"),
    ("resizes_once", "the loop changes the dataset by data.level (line "), ("resizes_by_steps_in_readers", "the loop changes the dataset by data.level (line "),
    ("centers", "center of loss (Center): " + BESIDE), ("distils_a_teacher_that_trains", "1.num_batches_tracked of teacher (Sequential): " + BESIDE), ("remembers_samples", "target of criterion (Regularizes): " + BESIDE),
    ("adapts_its_loss", "scale of criterion (Adaptive): " + BESIDE), ("lightning_warms_up_by_a_callback", "seen of callback 1 (Warms): changed as it trains, and no state_dict() has it"),
    ("trainer_warms_up_by_a_callback", "seen of callback 1 (Warms): changed as it trains, and no state_dict() has it")])
def test_values_that_each_start_begins_anew_are_said(name, says, runs):
    run = runs(Run, "anew", "recipes", name, "step@6", steps=8).fast()
    for _ in range(2):
        run.start(1).leave_well()
    assert run.said_by(0).count("swell: " + says) == 1 and says not in run.said_by(1), run.said_by(0)


# Statements by which the number of a batch changes the training, or is only shown: a body of each kind of statement, and its line that is named (0: none).
COUNTED = [
    ("if i > 9:\n    weight = 0\nloss = f(x) * weight", 1), ("if i > 9:\n    weight = 0\n    print(weight)", 0), ("if i > 9:\n    for p in ps:\n        break", 0), ("if i > 9:\n    break", 1),
    ("while i > n:\n    n += 1\n    model.grow()", 1), ("while i > n:\n    print(i)", 0),
    ("for _ in range(i):\n    model.grow()", 1), ("for at in range(i):\n    print(at)", 0), ("for at in range(i):\n    print(at)\nloss = f(x) * at\nelastic.step(loss)", 4),
    ("try:\n    y = f(x)\nexcept ValueError:\n    model.skip(i)", 4), ("try:\n    y = f(x)\nexcept ValueError as error:\n    print(i, error)", 0), ("try:\n    y = f(x)\nexcept* ValueError:\n    model.skip(i)", 4),
    ("try:\n    y = f(x)\nfinally:\n    model.rate = i", 4), ("try:\n    y = f(x)\nexcept KeyError:\n    pass\nelse:\n    model.rate = i", 6), ("if i > 9:\n    try:\n        pass\n    except KeyError:\n        model.grow()", 1),
    ("with autocast(enabled=i > 9):\n    model.grow()", 1), ("with record_function(f'step {i}'):\n    model.grow()", 0), ("with open(name) as file:\n    file.write(i)", 0), ("with scope(i) as rate:\n    y = x\nelastic.step(rate)", 3),
    ("with scope(y):\n    model.rate = i", 2), ("match i % 4:\n    case 0:\n        model.grow()\n    case _:\n        pass", 1), ("match i % 4:\n    case 0:\n        print(i)", 0),
    ("match x:\n    case [] if i > 9:\n        model.grow()", 1), ("match i:\n    case 1 | 2 as at:\n        print(at)\nelastic.step(at)", 4), ("match x:\n    case []:\n        model.rate = i", 3),
    ("if (n := i % 7) > 8:\n    print(n)\nelastic.step(n)", 3), ("print(n := i)\nmodel.rate = n", 2), ("if (n := i % 7):\n    print(n)", 0), ("if i > 9:\n    print(n := 2)\nloss = f(n)", 1),
    ("weights = [j for j in w if j < i]\nelastic.step(weights)", 2), ("model.rates = [i for i in w]", 0), ("model.rates = {j: i for j in w}", 1), ("model.rates = sum(j * i for j in w)", 1),
    ("def closure():\n    return f(x) * i\nelastic.step(closure())", 3), ("def closure():\n    model.rate = i", 2), ("def show():\n    print(i)\nshow()", 0), ("def at(i):\n    model.rate = i", 0), ("def at(n=i):\n    model.rate = n", 2),
    ("def show():\n    if i > 9:\n        return 'late'\n    return ''\nprint(show())", 0), ("def set_():\n    nonlocal rate\n    rate = i\nset_()\nelastic.step(rate)", 5), ("rate = lambda i: i\nelastic.step(rate)", 0),
    ("rate = lambda n=i: n\nelastic.step(rate())", 2), ("async def closure():\n    model.rate = i", 2), ("class Rates:\n    rate = i\nelastic.step(Rates.rate)", 3), ("if i > 9:\n    def closure():\n        return 1\nelastic.step(closure())", 1),
    ("assert i < 9", 1), ("if i > 9:\n    raise ValueError(x)", 1), ("del ps[i]", 1), ("del i", 0), ("n: int = i\nelastic.step(n)", 2), ("n += i\nelastic.step(n)", 2), ("a, model.rate = x, i", 1), ("rates[0] = i", 1), ("if i > 9:\n    a, model.rate = x, y", 1),
    ("if i > 9:\n    del ps[0]\nloss = f(ps)", 1), ("yield i", 1), ("global n\nn = i\nelastic.step(n)", 3), ("import sys\npass\nprint(i)", 0), ("elastic.step(loss=i)", 1), ("y = elastic.step(i)", 1), ("return elastic.step(i)", 1)]
IN_A_COROUTINE = [("await model.grow(i)", 1), ("await log(i)", 0), ("async for _ in stream(i):\n    model.grow()", 1), ("async for y in stream(x):\n    model.rate = i", 2), ("async with scope(i):\n    model.grow()", 1),
                  ("async with scope(x):\n    model.rate = i", 2), ("if i > 9:\n    await log(x)", 0), ("if i > 9:\n    await model.grow()", 1)]


@pytest.mark.parametrize("body, named", COUNTED + IN_A_COROUTINE)
def test_a_number_of_batches_is_followed_through_each_kind_of_statement(body, named, tmp_path, monkeypatch, capfd):
    def batches():
        _carried.say_what_counts()
        yield from ()
    monkeypatch.setattr(_carried, "_HERE", os.path.dirname(__file__) + os.sep)       # batches() is not the script
    is_async = (body, named) in IN_A_COROUTINE
    text = f"{'async ' if is_async else ''}def run(batches):\n    rate = 0\n    for i, (x, y) in enumerate(batches):\n{textwrap.indent(body, ' ' * 8)}\n"
    (tmp_path / "script.py").write_text(text)
    found = {}
    exec(compile(text, tmp_path / "script.py", "exec"), found)
    run = found["run"](batches())
    if is_async:
        asyncio.run(run)
    else:
        list(run or ())
    said = capfd.readouterr().err
    assert said.count(f"and changes the training (line {named + 3} of script.py)") == bool(named) and (named or not said), said


@pytest.mark.parametrize("body, carried", [
    ("n = n + 1", ["n"]), ("n = i\nm = n", []), ("print(n := n + 1)", ["n"]), ("print(n := i)\nm = n", []), ("try:\n    n = i\nexcept KeyError:\n    n = 2\nm = n", []), ("try:\n    m = i\nexcept KeyError:\n    n = n + 1", ["n"]),
    ("try:\n    m = i\nfinally:\n    n = n + 1", ["n"]), ("match i:\n    case 0:\n        n = 1\n    case _:\n        n = 2\nm = n", []), ("match i:\n    case 0:\n        n = 1\nm = n", ["n"]), ("match i:\n    case n:\n        m = n", []),
    ("with scope(i) as n:\n    m = n", []), ("with scope(n):\n    n = i", ["n"]), ("def step():\n    nonlocal n\n    n += 1\nstep()", ["n"]), ("def step():\n    n = 1\n    n += 1\nstep()", []), ("def step():\n    held.append(i)\nstep()", ["held"]),
    ("m = [n for n in held]\nn = 2", []), ("m = lambda n: n\nn = 2", []), ("m = lambda: n\nn = 2", ["n"]), ("del n\nn = i", []), ("while n < i:\n    n += 1", ["n"]), ("for m in held:\n    n = n + m", ["n"])])
def test_what_a_loop_carries_is_followed_through_each_kind_of_statement(body, carried, tmp_path, monkeypatch):
    names = []

    def batches():
        yield from range(0)
        names.extend(_carried.carried_names(()))
    monkeypatch.setattr(_carried, "_HERE", os.path.dirname(__file__) + os.sep)
    text = f"def run(batches):\n    n, m, held = 0, 0, []\n    for i in batches:\n{textwrap.indent(body, ' ' * 8)}\n"
    (tmp_path / "script.py").write_text(text)
    found = {}
    exec(compile(text, tmp_path / "script.py", "exec"), found)
    found["run"](batches())
    assert names == carried


@pytest.mark.parametrize("name, of", [("warms_up_by_workers", "[0.833333, 0.5, 0.1,"), ("decays_by_workers", "[0.5, 0.933013, 0.25,"), ("lightning_decays_by_workers", "[0.875, 0.625, 0.1,")])
def test_a_schedule_that_another_start_makes_otherwise_is_said(name, of, runs):
    run = runs(Run, "rates", "recipes", name, "step@2", steps=6).fast()
    for world in (1, 3):
        run.start(world).leave_well()
    assert "other hyperparameters" not in run.said_by(0) and f"other hyperparameters than the run so far: factors of LambdaLR at steps 1 to 100000={of}" in run.said_by(1), run.said_by(1)


def test_rates_by_the_number_of_workers_are_said(runs):
    run = runs(Run, "rates", "recipes", "scales_its_rate", "step@8", "step@11", steps=14).fast()
    for world in (1, 3, 3):
        run.start(world).leave_well()
    said = "swell: the script sets the learning rate by the number of workers: 0.005 with 1, 0.015 with 3"
    assert [run.said_by(start).count(said) for start in range(3)] == [0, 1, 0]
    assert [run.said_by(start).count("swell: the script sets the learning rate by the number of workers as it trains (line ") for start in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("name, kind", [("prefers_its_first_weights", "a Acts"), ("keeps_its_best", "a dict")])
def test_a_copy_of_weights_that_each_start_takes_anew_is_said(name, kind, runs):
    run = runs(Run, "copies", "recipes", name, "step@3", steps=5).fast()
    for _ in range(2):
        run.start(1).leave_well()
    said = f"swell: the script has taken a copy of the weights, {kind}, since Elastic()"
    assert [run.said_by(start).count(said) for start in range(2)] == [1, 0]


def test_another_optimizer_that_steps_in_each_pass_is_lent_nothing(runs):
    run = runs(Run, "passes", "recipes", "plays_two_in_passes", steps=4).fast().start(1).leave_well()
    assert run.sizes() == [1] and run.why.startswith("Adam of state= steps in each pass, and the number of passes changes with the number of workers: leave micro_batch out")


def test_another_optimizer_is_lent_workers_that_make_one_pass(runs):
    run = runs(Run, "passes", "recipes", "plays_two", steps=4, basic=2).fast().start(2).leave_well()
    assert run.sizes() == list(range(2, 13)) and "lent nothing" not in run.said()


def test_state_of_an_optimizer_keeps_its_precision(runs):
    alone = runs(Run, "alone", "recipes", "keeps_masters", steps=14).fast().start(1).leave_well()
    run = runs(Run, "resized", "recipes", "keeps_masters", "step@1", "step@5", "step@9", steps=14).fast()
    for _ in range(4):
        run.start(1).leave_well()
    assert deviation(run.curve(), alone.curve()) < SAME and is_same(end(run), end(alone)), (end(run), end(alone))


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
