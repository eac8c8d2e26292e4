# SPDX-License-Identifier: GPL-2.0-or-later
"""A training that is resized at awkward moments is the same training, in every framework: its weights, and all that stands beside them.

Each cell is what one run of jobs/matrix.py ends with, compared with a run on one worker that nobody resizes. The table is printed, and
written to the file that SWELL_MATRIX names. package_test.sh runs a cut of it, package_test.sh --all all of it."""

import importlib.util
import json
import os

import pytest

pytest.importorskip("transformers")
pytest.importorskip("lightning")

import accelerate  # noqa: E402,F401  once, for all workers
import lightning.pytorch  # noqa: E402,F401
import transformers  # noqa: E402,F401
from transformers import Trainer  # noqa: E402,F401

from forked import LiveRun, Run, deviation  # noqa: E402
from native import needs_live_host  # noqa: E402

SAME = 1e-5
STEPS = 10      # three an epoch, of which the last has 5 of 12 samples
# Lightning leaves that rest out, and has two steps an epoch.
# Each is in another start than the one before, which may leave a step after it was asked; one worker alone accumulates in all frameworks.
MOMENTS = {"first": 1, "accumulation": 4, "smaller": 6, "evaluation": 8, "last": STEPS}
WORLDS = [1, 1, 2, 3, 2, 1]
FRAMEWORKS = ["Elastic DDP", "Elastic FSDP2", "Engine", "Trainer", "Trainer best", "Trainer LoRA", "TRL SFT", "Accelerate", "Lightning"]
STREAMED = [f"{each}, streamed" for each in FRAMEWORKS if each != "Trainer best"]     # two steps an epoch, each of which has another order
DROPPING = [f"{each}, dropout" for each in ("Elastic DDP", "Elastic FSDP2", "Accelerate")]
# Asked a step before an evaluation, that is put off, and asked again within it; the one that ends the training is within an epoch, or at the end of one.
STOPPING = {"stops at once": [("first", 1), ("first", 3), ("evaluation", 4)], "stops": [("evaluation", 4), ("first", 5), ("evaluation", 6)]}
COLUMNS = ["loss of each step", "weights", "buffers", "moments", "schedule", "scaler", "RNG", "callback state", "best model", "counters", "early stopping", "loggers"]
NEEDS = {"Trainer LoRA": "peft", "TRL SFT": "trl"}
EVALUATES = ("Engine", "Trainer", "TRL", "Lightning")
_table = {}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Returns the end of a framework's run that nobody resizes, and its loss by step."""
    made = {}

    def of(framework):
        needed = NEEDS.get(framework.partition(",")[0])
        if needed and importlib.util.find_spec(needed) is None:
            assert os.environ.get("CI") != "true", f"contrib/setup --frameworks installs {needed}"
            pytest.skip(f"{needed} is not installed; contrib/setup --frameworks does")
        for name in (needed, "trl_sft" if needed == "trl" else None):
            if name:
                importlib.import_module(name)       # once, for all workers
        if framework not in made:
            run = Run(tmp_path_factory.mktemp("reference"), "matrix", *words(framework), steps=STEPS).fast().start(1).leave_well()
            made[framework] = end(run), run.curve()
        return made[framework]
    yield of
    lines = ["| framework | asked | mode | " + " | ".join(COLUMNS) + " |", "| --- " * (len(COLUMNS) + 3) + "|"]
    lines += [f"| {' | '.join(row)} | {' | '.join(cells)} |" for row, cells in _table.items()]
    print("\n" + "\n".join(lines))
    if os.environ.get("SWELL_MATRIX"):
        with open(os.environ["SWELL_MATRIX"], "w") as file:
            file.write("\n".join(lines) + "\n")


def words(framework):
    """Returns the arguments by which jobs/matrix.py knows a framework."""
    return framework.split(", ")


def end(run):
    with open(os.path.join(run.folder, "end")) as file:
        return json.load(file)


def apart(found, expected):
    """How far two values of the same form are from each other: 0 for what is equal, None for what is another."""
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        each = [apart(*pair) for pair in zip(found, expected)]
        return None if None in each else max(each, default=0.0)
    if isinstance(expected, float) and isinstance(found, float):
        return abs(found - expected) / max(abs(expected), 1e-3)
    return 0.0 if found == expected else None


def compare(row, run, reference):
    """Fill in the row of a table, and say what is another."""
    expected, losses = reference
    found, wrong = end(run), []
    cells = [deviation(run.curve(), losses)]
    for column in COLUMNS[1:]:
        cells.append("" if column not in expected else apart(found[column], expected[column]))
    for column, cell in zip(COLUMNS, cells):
        if cell is None or (cell != "" and cell >= SAME):
            wrong.append(f"{column}: {found.get(column, sorted(run.curve().items()))} in place of {expected.get(column, sorted(losses.items()))}")
    _table[row] = ["another" if cell is None else cell if cell == "" else "=" if cell == 0 else f"{cell:.0e}" for cell in cells]
    assert not wrong, "\n".join(wrong)


def moments_of(framework):
    """Returns the moments to test, of a stream too: the rest of an epoch is dropped, so that step 6 is the last of an epoch, and not a smaller one."""
    return {kind: step for kind, step in MOMENTS.items() if kind != "evaluation" or framework.startswith(EVALUATES)}


def resized_by_restarts(run, worlds, moments):
    """Starts of one run; each moment is to be in a start of its own."""
    for world in worlds:
        run.start(world).leave_well()
    fired = {}
    for kind, step in moments:
        marker = os.path.join(run.folder, f"moment.{kind}.{step}")
        assert os.path.exists(marker), f"{kind}@{step} was not in any start"
        with open(marker) as file:
            fired[kind, step] = int(file.read())
    assert list(fired.values()) == list(range(len(moments))), f"starts in which these moments were: {fired}"


CUT = ("Engine", "Trainer", "Trainer best", "Trainer LoRA", "TRL SFT", "Accelerate", "Lightning", "Trainer, streamed", "TRL SFT, streamed", "Lightning, streamed", "Accelerate, dropout")


@pytest.mark.parametrize("framework", [pytest.param(each, marks=() if each in CUT else pytest.mark.slow) for each in FRAMEWORKS + STREAMED + DROPPING])
def test_a_run_that_is_resized_at_every_awkward_moment_is_the_same(framework, tmp_path, reference):
    expected, moments = reference(framework), moments_of(framework)
    run = Run(tmp_path / "run", "matrix", *words(framework), *(f"{kind}@{step}" for kind, step in moments.items()), steps=STEPS).fast()
    try:
        resized_by_restarts(run, WORLDS[:len(moments) + 1], moments.items())
    finally:
        run.end()
    assert len(set(run.worlds())) > 1, "it was not resized"
    assert framework != "Lightning" or run.said().count("do not divide over every number of workers: it is left out") == 1
    compare((framework, "at all of them", "restart"), run, expected)


@pytest.mark.parametrize("stops", STOPPING)
@pytest.mark.parametrize("framework", ["Trainer", "Lightning"])
def test_an_evaluation_ends_a_resized_training_where_it_ends_the_other_one(framework, stops, tmp_path, reference):
    name, moments = f"{framework}, {stops}", STOPPING[stops]
    expected = reference(name)
    assert expected[0]["counters"][0] == moments[-1][1]
    run = Run(tmp_path / "run", "matrix", *words(name), *(f"{kind}@{step}" for kind, step in moments), steps=STEPS).fast()
    try:
        resized_by_restarts(run, [1, 2, 1, 2], moments)
        compare((name, "at all of them", "restart"), run, expected)
        run.start(2).leave_well()
    finally:
        run.end()
    compare((name, "and a start after the end", "restart"), run, expected)


@needs_live_host
@pytest.mark.slow
@pytest.mark.parametrize("kind, step", [("first", 3), ("evaluation", 4)])
@pytest.mark.parametrize("framework", ["Trainer", "Lightning"])
def test_an_evaluation_ends_a_training_that_is_resized_live_where_it_ends_the_other_one(framework, kind, step, tmp_path, reference):
    name = f"{framework}, stops at once"
    expected = reference(name)
    run = LiveRun(tmp_path / "run", "matrix", *words(name), f"{kind}@{step}", steps=STEPS).fast()
    try:
        run.start(1).until(lambda: os.path.exists(os.path.join(run.folder, f"moment.{kind}.{step}")), kind)
        report = run.switch(2)
        assert report.get("committed"), report
        run.leave_well()
    finally:
        run.end()
    compare((name, kind, "live"), run, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOMENTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_that_is_resized_at_one_moment_is_the_same(framework, kind, tmp_path, reference):
    if kind not in moments_of(framework):
        pytest.skip("evaluates in a loop of its own")
    expected = reference(framework)
    run = Run(tmp_path / "run", "matrix", *words(framework), f"{kind}@{MOMENTS[kind]}", steps=STEPS).fast()
    try:
        resized_by_restarts(run, [1, 2], [(kind, MOMENTS[kind])])
    finally:
        run.end()
    # Where training ends a request comes too late; Trainer says each third loss.
    assert run.worlds() in ([[1]] if kind == "last" else [[1, 2], [2]] if kind == "first" and run.curve().keys() == {3, 6, 9} else [[1, 2]])
    compare((framework, kind, "restart"), run, expected)


@needs_live_host
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["first", "accumulation", "evaluation", "smaller"])
@pytest.mark.parametrize("framework", FRAMEWORKS + STREAMED + DROPPING)
def test_a_run_that_is_resized_live_is_the_same(framework, kind, tmp_path, reference):
    if kind not in moments_of(framework):
        pytest.skip("evaluates in a loop of its own")
    expected = reference(framework)
    # The engine's switch is one or two steps after the next workers are ready: after its last evaluation that may be the end.
    step = 4 if kind == "evaluation" and framework.startswith("Engine") else MOMENTS[kind]
    run = LiveRun(tmp_path / "run", "matrix", *words(framework), f"{kind}@{step}", steps=STEPS).fast()
    try:
        run.start(1).until(lambda: os.path.exists(os.path.join(run.folder, f"moment.{kind}.{step}")), kind)
        report = run.switch(2)
        assert report.get("committed"), report
        run.leave_well()
    finally:
        run.end()
    assert run.worlds()[-1] == 2
    compare((framework, kind, "live"), run, expected)
