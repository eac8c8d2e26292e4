# SPDX-License-Identifier: GPL-2.0-or-later
"""python -m swell.check: what it finds, and the lines that it names."""

import argparse
import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch

from conftest import TOP
from swell._share import depends_on_workers
from swell.check import _WATCH, _how, _notes, find_places

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


def check(folder, script, *arguments, patience=600, **environment):
    done = subprocess.run([sys.executable, "-m", "swell.check", "--patience", str(patience), str(script), *arguments], capture_output=True, text=True, check=False,
                          cwd=folder, env={**os.environ, "TEST_FOLDER": str(folder), "TEST_STEPS": "5000", **environment})
    return done.returncode, done.stdout + done.stderr


def write(folder, text):
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    return path


def test_an_elastic_script_is_found_to_be_so(tmp_path):
    code, said = check(tmp_path, os.path.join(JOBS, "ddp.py"))
    assert code == 0 and said.count("yes  ") == 4 and "is elastic" in said, said


@pytest.mark.parametrize("job", ["ddp.py", "hf.py", "accelerated.py", "pl_resnet.py"])
def test_the_check_leaves_no_checkpoint_and_continues_none(tmp_path, job):
    code, said = check(tmp_path, os.path.join(JOBS, job))
    left = [str(path) for path in tmp_path.rglob("*") if re.search(r"^(step|checkpoint)-\d+$|\.ckpt$|^\.metadata$", path.name)]
    assert code == 0 and not left, (said, left)


TRAINER = """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from swell.integrations import SwellCallback
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 4000
        def __getitem__(self, i):
            tokens = torch.randint(0, 64, (8,), generator=torch.Generator().manual_seed(i))
            return {"input_ids": tokens, "labels": tokens}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    args = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=2000, report_to=[], use_cpu=True)
    trainer = Trainer(model, args, train_dataset=Rows())
    SwellCallback.attach(trainer)
    trainer.train()
"""


def test_a_Trainer_keeps_its_global_batch_over_fewer_workers_than_the_jobs_own(tmp_path):
    code, said = check(tmp_path, write(tmp_path, TRAINER))
    assert code == 0 and said.count("yes  ") == 4, said


def test_a_plain_script_lacks_the_handler_and_the_line_is_named(tmp_path):
    code, said = check(tmp_path, write(tmp_path, PLAIN))
    assert code == 1 and "NO   1." in said and "before line 6: elastic = Elastic(model, optimizer" in said, said
    assert "line 6: for batch in elastic.batches(dataset" in said and "line 8: elastic.step(loss)" in said, "all that is missing, at the first run"


def test_a_loop_of_Megatron_Core_is_told_its_own_lines():
    source = "from megatron.core import parallel_state\nfrom megatron.core.optimizer import get_megatron_optimizer\noptimizer = get_megatron_optimizer(config, chunks)\n"
    told = _how(find_places(source))["checkpoint"]
    assert "after line 3: elastic = MegatronElastic(chunks, optimizer" in told and "elastic.batches(dataset, steps=...)" in told


@pytest.mark.parametrize("text, named", [
    ("import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config={})\n", "line 2: deepspeed.initialize"),
    ("from accelerate import Accelerator, DeepSpeedPlugin\naccelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))\n", "line 2: DeepSpeedPlugin"),
    ("import transformers\narguments = transformers.TrainingArguments('out', deepspeed='ds.json')\n", "line 2: TrainingArguments(deepspeed='ds.json')"),
    ("import trl\narguments = trl.SFTConfig('out', deepspeed=options.zero)\n", "line 2: SFTConfig(deepspeed=options.zero)"),
    ("import lightning\ntrainer = lightning.Trainer(strategy='deepspeed_stage_2')\n", "line 2: Trainer(strategy='deepspeed_stage_2')"),
    ("import transformers\narguments = transformers.TrainingArguments('out', deepspeed=None)\ntrainer = Trainer(strategy='ddp')\n", "")])
def test_a_training_with_DeepSpeed_is_refused_by_name(tmp_path, text, named):
    code, said = check(tmp_path, write(tmp_path, "import time\n" + text + "time.sleep(600)\n"), patience=0.5)
    assert ("which cannot be resized" in said) == bool(named) and code == (1 if named else 2), said
    assert not named or (named.replace("2", "3", 1) + ": its checkpoints are read by as many workers as wrote them; use fully_shard" in said and "elastic = " not in said), said


GAN = """\
    import torch
    from accelerate import Accelerator
    acc = Accelerator()
    G, D = torch.nn.Linear(2, 1), torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.1))
    og, od = torch.optim.AdamW(G.parameters()), torch.optim.SGD(D.parameters())
    G, og = acc.prepare(G, og)
    for _ in range(3):
        acc.backward(G(torch.ones(1, 2)).sum())
        og.step()
    """


LOADED = """\
    import torch
    from torch.nn.parallel import DistributedDataParallel as DDP
    net = DDP(torch.nn.Linear(2, 1))
    opt = torch.optim.AdamW(net.parameters())
    rows = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.randn(8, 1))
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    for epoch in range(3):
        for a, b in loader:
            err = (net(a) - b).square().mean()
            err.backward()
            opt.step()
    """


@pytest.mark.parametrize("text, said", [
    (GAN, ["AccelerateElastic(acc, G, og, ", "elastic takes one optimizer: give it one with the parameters of og and od as groups"]),
    (PLAIN.replace("model", "net").replace("optimizer =", "opt ="), ["before line 6: elastic = Elastic(net, opt, "]),
    (LOADED, ["before line 7: elastic = Elastic(net, opt, ", "line 8: for a, b in elastic.batches(rows, epochs=...):", "line 11: elastic.step(err) in place of"]),
    (LOADED.replace("in loader", "in enumerate(loader)").replace("for a, b", "for i, (a, b)").replace("err.backward()", "scaler.scale(err).backward()"),
     ["line 8: for a, b in elastic.batches(rows, epochs=...):", "elastic.step(err) in place of"]),
    (LOADED.replace("for epoch in range(3):", "def train():"), ["before line 7: elastic = Elastic(net, opt, ", "line 8: for a, b in elastic.batches(rows"]),
    (PLAIN + "elastic = Elastic(model, optimizer)\n", ["line 6: for batch in elastic.batches(dataset, epochs=...):"]),
    ("net = torch.nn.Linear(4, 4)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nopt.step()\n",
     ["before line 2: torch.distributed.init_process_group(), and net = DistributedDataParallel(net)", "after line 2: elastic = Elastic(net, opt, "]),
    ("net = FSDP(Net())\nopt = Lion(net.parameters())\nopt.step()\n", ["after line 2: elastic = Elastic(net, opt, "]),
    ("self.net = Net()\nself.opt: Optimizer = Lion(self.net.parameters())\nema = EMA(self.net.parameters())\nself.opt.step()\nema.update()\n",
     ["self.net = DistributedDataParallel(self.net)", "after line 2: elastic = Elastic(self.net, self.opt, "]),
    ("a, b = Net(), Net()\none = NAdam(a.parameters())\nother = Muon(b.parameters())\none.step()\nother.step()\n",
     ["elastic = Elastic(b, other, ", "give it one with the parameters of one and other as groups"]),
    ("dist.init_process_group()\nnet = Net()\nopt = Lion(net.parameters())\nopt.step()\n", ["before line 3: net = DistributedDataParallel(net)", "after line 3: "]),
])
def test_advice_has_the_script_s_own_names_and_only_what_is_missing(text, said):
    told = _how(find_places(textwrap.dedent(text)))["signal"]
    assert all(each in told for each in said), told
    assert ("elastic = " in told) == ("elastic = Elastic(" not in text), told
    assert ("init_process_group()" in told) == (not any(each in text for each in ("DistributedDataParallel", "FSDP", "acc")) and "init_process_group()" not in text), told


def test_modules_that_depend_on_the_number_of_workers_are_noted(tmp_path):
    trial = argparse.Namespace(notes=[])
    notes = _notes(trial, find_places(textwrap.dedent(GAN)))
    assert [note.partition(": ")[0] for note in notes] == ["note line 4"] * 2 and "SyncBatchNorm" in notes[0] and "Dropout" in notes[1], notes
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.LayerNorm(2), torch.nn.Dropout(0.0), torch.nn.Dropout(0.1))
    said = depends_on_workers(model)
    assert [each.partition(":")[0] for each in said] == ["0 (BatchNorm1d)", "3 (Dropout)"]
    assert depends_on_workers(model.eval()) == [] and depends_on_workers(torch.nn.SyncBatchNorm.convert_sync_batchnorm(model[:1].train())) == []


def test_steps_of_two_optimizers_that_step_alike_are_counted_once(tmp_path):
    script = _WATCH + textwrap.dedent("""\
        import torch
        nets = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
        optimizers = [torch.optim.AdamW(net.parameters()) for net in nets]
        for at in range(4):
            for net, optimizer in zip(nets, optimizers):
                net(torch.ones(1, 2)).sum().backward()
                optimizer.step()
        """)
    environment = {**os.environ, "SWELL_CHECK_FOLDER": str(tmp_path), "SWELL_GENERATION": "0", "RANK": "0"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert (tmp_path / "step.0.0").read_text() == "4 4"


@pytest.mark.parametrize("text", [b"# -*- coding: latin-1 -*-\nname = '\xe9'\nimport time; time.sleep(600)\n",
                                  b"\xef\xbb\xbfimport time; time.sleep(600)\n"])
def test_a_script_is_read_in_the_encoding_that_it_names(tmp_path, text):
    (tmp_path / "train.py").write_bytes(text)
    code, said = check(tmp_path, tmp_path / "train.py", patience=1)
    assert code == 2 and "did not get to 3 steps within 1 s" in said, said


def test_workers_that_leave_at_the_same_step_but_fail_are_told_so(tmp_path):
    script = COUNTS + "[step(done) for done in (1, 2, 3)]\n" + LEAVES + "raise SystemExit(int(os.environ['RANK']))\n"
    code, said = check(tmp_path, write(tmp_path, script), patience=30)
    assert code == 1 and "they left after steps 3 and 3, but with exit codes 0 and 1: one did not wait for the other" in said, said
    assert said.count("elastic.batches") == 1, "the advice, once: " + said


@pytest.mark.parametrize("line, starts", [
    ('subprocess.run(["torchrun", "--nproc-per-node=2", "train.py"], check=True)', "torchrun"),
    ('os.system("accelerate launch train.py")', "accelerate launch"),
    ('subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "train.py"])', "torch.distributed.run"),
    ('torch.multiprocessing.spawn(work, nprocs=4)', "spawn"),
    ('subprocess.run(["nvidia-smi"])', ""),
    ('print("use torchrun train.py")', ""),
])
def test_lines_that_start_workers_are_found(line, starts):
    assert find_places("x = 1\n" + line).launchers == ([(2, starts)] if starts else [])


def test_a_launcher_within_the_script_is_seen_and_its_line_is_named(tmp_path):
    (tmp_path / "inner.py").write_text(textwrap.dedent(COUNTED_ALONE))
    script = "import os, subprocess, sys\nprogram = [sys.executable, 'inner.py']\n" \
        "subprocess.run([*program, 'as torchrun'], env={**os.environ, 'WORLD_SIZE': '1', 'TORCHELASTIC_RUN_ID': 'none'})\n"
    code, said = check(tmp_path, write(tmp_path, script))
    assert code == 1 and "NO   1." in said and "made by a process that it has started, with WORLD_SIZE=1, TORCHELASTIC_RUN_ID=none" in said, said
    assert "line 3: torchrun starts workers" in said and "swellrun python SCRIPT" in said, said
    assert not _lives(tmp_path / "pid"), "what the script started is ended with it"


def test_a_launcher_that_fails_is_named_with_its_line_too(tmp_path):
    code, said = check(tmp_path, write(tmp_path, "import subprocess\nsubprocess.run(['/no/such/torchrun', 'train.py'])\n"))
    assert code == 2 and "No such file or directory: '/no/such/torchrun'" in said, said
    assert "line 2: torchrun starts workers" in said and "swellrun python SCRIPT" in said and "make it run with" not in said, said


@pytest.mark.parametrize("text, named", [(b"name = '\xe9'\n", "it is not in UTF-8"), (b"\n" * 9 + b"name = '\xe9'\n", "it is not in UTF-8"),
                                         (b"print 'a'\n", "line 1: Missing parentheses")])
def test_a_script_that_Python_cannot_read_is_refused_in_one_sentence(tmp_path, text, named):
    (tmp_path / "train.py").write_bytes(text)
    code, said = check(tmp_path, tmp_path / "train.py")
    assert code == 2 and named in said and len(said.splitlines()) == 1, said


def _lives(path):
    """Whether the process whose number a file has runs; one that has ended and is not reaped does not."""
    try:
        with open(f"/proc/{path.read_text()}/cmdline") as file:
            return bool(file.read())
    except OSError:
        return False


COUNTED_ALONE = """\
    import os, torch
    open("pid", "w").write(str(os.getpid()))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    """


def test_a_loop_without_torch_is_told_by_what_can_be_seen(tmp_path):
    hand = textwrap.dedent("""\
        import os, signal, time
        asked = os.path.join(os.environ["SWELL_CHECK_FOLDER"], "asked")
        signal.signal(signal.SIGUSR1, lambda *_: open(asked, "w").close())
        while not os.path.exists(asked):
            time.sleep(0.02)
        """)
    code, said = check(tmp_path, write(tmp_path, hand), patience=5)
    assert code == 2 and "yes  1." in said and "yes  3." in said and "exit codes 0 and 0" in said, said
    assert "?    2. all workers leave at the same step: rank 1 was asked, and both left" in said and "as torch.optim was not imported" in said, said
    code, said = check(tmp_path, write(tmp_path, hand + "time.sleep(600)\n"), patience=3)
    assert code == 1 and "NO   2." in said and "after 3 s nobody had left" in said, said


# Steps as the checker counts them, without PyTorch: quick to start.
COUNTS = """\
    import os, signal, time
    asked, folder = [], os.environ["SWELL_CHECK_FOLDER"]
    name = os.path.join(folder, "step." + os.environ["SWELL_GENERATION"] + "." + os.environ["RANK"])
    signal.signal(signal.SIGUSR1, lambda *_: open(os.path.join(folder, "asked"), "w").close())
    def step(done):
        with open(name + ".new", "w") as file:
            file.write(f"{done} {done}")
        os.replace(name + ".new", name)
    """
LEAVES = """\
    while not os.path.exists(os.path.join(folder, "asked")):
        time.sleep(0.02)
    """


def test_a_script_that_only_starts_slowly_is_not_said_to_lack_the_handler(tmp_path):
    code, said = check(tmp_path, write(tmp_path, "import time\ntime.sleep(600)\n"), patience=2)
    assert code == 2 and "?    1." in said and "did not get to 3 steps within 2 s, it made 0, and has not imported torch.optim" in said and "--patience 10" in said, said
    assert "NO " not in said and "not elastic" not in said, said


def test_workers_that_wait_for_each_other_for_ever_are_told_why(tmp_path):
    # As where rank 0 alone calls mean_loss(): a step is made, and no other.
    code, said = check(tmp_path, write(tmp_path, COUNTS + "step(1)\n    time.sleep(600)\n"), patience=4)
    assert code == 2 and "?    1." in said and "made a step, and then none for" in said and "(mean_loss, all_reduce" in said, said


def test_a_script_that_ends_before_it_was_asked_is_told_so(tmp_path):
    code, said = check(tmp_path, write(tmp_path, COUNTS + "step(1)\n    raise SystemExit('no data in /nowhere')"), patience=60)
    assert code == 2 and "?    1." in said and "rank 0 left with 1, rank 1 left with 1: no data in /nowhere" in said and "torchrun --nproc_per_node=2" in said, said


def test_a_slow_resume_is_told_from_none(tmp_path):
    script = COUNTS + "if os.environ['SWELL_GENERATION'] == '1': time.sleep(600)\n    [step(done) for done in (1, 2, 3)]\n" + LEAVES
    code, said = check(tmp_path, write(tmp_path, script), patience=5)
    assert code == 2 and said.count("yes  ") == 3 and "?    4." in said and "did not get to 2 steps within 5 s" in said, said


@pytest.mark.parametrize("step_s, expected", [(1.0, "?    2."), (0.1, "NO   2.")])
def test_long_steps_are_told_from_workers_that_never_leave(tmp_path, step_s, expected):
    script = COUNTS + f"for done in (1, 2, 3):\n        step(done)\n        time.sleep({step_s})\n    time.sleep(600)\n"
    code, said = check(tmp_path, write(tmp_path, script), patience=6)
    assert expected in said and code == (2 if expected[0] == "?" else 1), said


def test_a_script_that_begins_anew_and_is_soon_beyond_where_it_left_is_told_so(tmp_path):
    # Its second start shows no step until it has made more than the first one.
    anew = COUNTS + "if os.environ['SWELL_GENERATION'] == '1': step(50); time.sleep(600)\n    [step(done) for done in (1, 2, 3)]\n" + LEAVES
    code, said = check(tmp_path, write(tmp_path, anew), patience=60)
    assert code == 1 and "NO   4." in said and "began anew: after 50 steps the optimizer is at step 50, it had left at 3" in said, said


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
