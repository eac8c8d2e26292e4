# SPDX-License-Identifier: GPL-2.0-or-later
"""python -m swell.check: what it finds, and the lines that it names."""

import os
import subprocess
import sys
import textwrap

import pytest

from conftest import TOP
from swell.check import find_places

JOBS = os.path.join(TOP, "tests", "pytorch", "jobs")
PLAIN = """\
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(100000):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """


def check(folder, script, *arguments, **environment):
    done = subprocess.run([sys.executable, "-m", "swell.check", "--patience", "600", str(script), *arguments], capture_output=True, text=True, check=False,
                          cwd=folder, env={**os.environ, "TEST_FOLDER": str(folder), "TEST_STEPS": "5000", **environment})
    return done.returncode, done.stdout + done.stderr


def write(folder, text):
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    return path


def test_an_elastic_script_is_found_to_be_so(tmp_path):
    code, said = check(tmp_path, os.path.join(JOBS, "ddp.py"))
    assert code == 0 and said.count("yes  ") == 4 and "is elastic" in said, said


def test_a_plain_script_lacks_the_handler_and_the_line_is_named(tmp_path):
    code, said = check(tmp_path, write(tmp_path, PLAIN))
    assert code == 1 and "NO   1." in said and "after line 5: elastic = Elastic(model, optimizer" in said, said


@pytest.mark.slow
def test_workers_that_leave_at_different_steps_and_a_run_that_begins_anew_are_told(tmp_path):
    handler = """import torch, signal, os
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    """
    alone = PLAIN.replace("import torch\n    ", handler, 1)
    script = write(tmp_path, alone.replace("optimizer.zero_grad()", "optimizer.zero_grad()\n        if asked: os._exit(0)"))
    code, said = check(tmp_path, script)
    assert code == 1 and "NO   2." in said and "elastic.batches" in said, said

    agreed = alone.replace("optimizer.zero_grad()", """optimizer.zero_grad()
        leave = torch.tensor(len(asked))
        dist.all_reduce(leave)
        if leave: os._exit(0)""")
    code, said = check(tmp_path, write(tmp_path, agreed))
    assert code == 1 and "NO   4." in said and "began anew" in said, said


@pytest.mark.parametrize("text, expected", [
    (PLAIN, {"framework": "torch", "wrap": 4, "optimizer": 5, "loop": 6, "step": 8}),
    ("import transformers\nt = transformers.Trainer(model,\n  args)\nt.train()\n", {"framework": "transformers", "trainer": 3, "train": 4}),
    ("import lightning as L\nt = L.Trainer()\nt.fit(m, d)\n", {"framework": "lightning", "trainer": 2, "train": 3}),
])
def test_places_are_found(text, expected):
    places = find_places(textwrap.dedent(text))
    assert {name: getattr(places, name) for name in expected} == expected
