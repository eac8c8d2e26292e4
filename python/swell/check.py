# SPDX-License-Identifier: BSD-3-Clause
"""python -m swell.check SCRIPT [ARGUMENTS]: is this script elastic, and if not, what does it lack?

Runs the script on two workers of this machine's CPU, asks them to leave as swellrun does, and starts it again over one. No
cluster and no GPU is needed. Checkpoints of the package go to a folder of the check's, which is removed at its end. Four things make a script elastic; the report says of each whether it was seen, and
where to put what is missing.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
import tempfile
import time
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field

from swell._counted import counted
from swell._deepspeed import INSTEAD
from swell._printable import Parser, printable, printable_lines
from swell._workers import Workers, python

__all__ = ["Finding", "find_places", "main"]

# Imported by Python itself in each worker and in what that starts. It says by files on which optimizer step a worker is, whether it has imported
# torch's optimizers, and whether steps are made by a process that the worker has started.
_WATCH = '''\
import os, sys
def _watch():
    import importlib.abc, importlib.machinery
    folder = os.environ["SWELL_CHECK_FOLDER"]
    name = os.path.join(folder, "step." + os.environ["SWELL_GENERATION"] + "." + os.environ["RANK"])
    def below():
        if os.getppid() == int(os.environ.get("SWELL_CHECK_PID", os.getppid())):
            return
        pairs = [("RANK", "SWELL_RANK"), ("WORLD_SIZE", "SWELL_WORLD_SIZE"), ("TORCHELASTIC_RUN_ID", "SWELL_JOB_ID")]
        given = [each for each, other in pairs if os.environ.get(each) != os.environ.get(other)]
        what = "the steps are made by a process that it has started"
        if given:
            what += ", with " + ", ".join(each + "=" + os.environ.get(each, "") for each in given)
        with open(os.path.join(folder, "below"), "w") as file:
            file.write(what)
    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, module, path=None, target=None):
            if module != "torch.optim.optimizer":
                return None
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(module, path)
            load = spec.loader.exec_module
            def exec_module(made):
                load(made)
                open(os.path.join(folder, "torch"), "w").close()
                made.register_optimizer_step_post_hook(note)
            spec.loader.exec_module = exec_module
            return spec
    steps, first = [0], []
    def note(optimizer, *_):
        if not first:
            below()
        first[:] = first or [id(optimizer)]
        if first[0] != id(optimizer):       # the others step as often
            return
        steps[0] += 1
        values = [value for state in optimizer.state.values() for key, value in state.items() if key == "step"]
        done = int(float(values[0])) if values else 0     # SGD counts none
        with open(name + ".new", "w") as file:
            file.write(f"{steps[0]} {done}")
        os.replace(name + ".new", name)
    sys.meta_path.insert(0, Finder())
if "SWELL_CHECK_FOLDER" in os.environ and os.environ.get("RANK"):
    _watch()
'''

_MANY_STEPS = 10    # in this many times a step's time one that goes on has ended


@dataclass
class Finding:
    """One of the four things: whether it was seen, what was, and how to get it."""

    name: str
    good: bool | None       # None: could not be looked at
    seen: str
    fix: str = ""
    is_untold: bool = False     # the trial itself came to no end here; fix says how it would

    def untold(self, seen: str, fix: str) -> None:
        self.good, self.seen, self.fix, self.is_untold = None, seen, fix, True

    def lines(self, shows_fix: bool = True) -> str:
        """As the report shows it. shows_fix: no finding before has shown the same advice."""
        first = f"{'yes' if self.good else '?  ' if self.good is None else 'NO '}  {self.name}: {self.seen}"
        return f"{first}\n       {self.fix}" if shows_fix and (self.good is False or self.is_untold) else first


@dataclass
class Places:
    """Lines of a script, from 1, where something belongs; 0: not found."""

    wrap: int = 0       # after DistributedDataParallel, fully_shard or prepare
    optimizer: int = 0  # where an optimizer is made
    loop: int = 0       # the training loop
    around: int = 0     # the outermost statement with that loop, in the block in which the newest optimizer is made; 0: it is in another block
    reads: str = ""     # what the loop has of each batch, as it is written: "x, y"
    dataset: str = ""   # what the loop's loader reads, as it is written
    loss: str = ""      # whose backward() is called, as it is written
    step: int = 0       # the optimizer's step, or backward
    trainer: int = 0    # transformers' or Lightning's Trainer
    train: int = 0      # trainer.train() or trainer.fit()
    elastic: int = 0    # where Elastic, a callback or LightningElastic is made
    batches: int = 0    # where elastic.batches() or elastic.loader() is called
    elastic_step: int = 0       # where elastic.step() is
    framework: str = "torch"
    names: set[str] = field(default_factory=set)
    variables: dict[str, list[str]] = field(default_factory=dict)       # names of what is made: "model", "optimizer", "accelerator", "elastic"
    optimized: dict[str, str] = field(default_factory=dict)     # the model whose parameters each optimizer is given
    launchers: list[tuple[int, str]] = field(default_factory=list)      # lines that start workers, with what they start
    deepspeed: tuple[int, str] | None = None        # the line where the script first trains with DeepSpeed, and how
    depends: set[tuple[int, str]] = field(default_factory=set)      # modules whose results depend on the number of workers, with their lines

    has_group: bool = False     # whether init_process_group() is called

    def variable(self, kind: str) -> str:
        """The script's own name of its newest one."""
        return self.variables.get(kind, [kind])[-1]

    def model(self) -> str:
        """The script's own name of its newest model that is wrapped; where none is, of the one that the newest optimizer trains."""
        trained = list(self.optimized.values())
        return trained[-1] if trained and "model" not in self.variables else self.variable("model")

    def optimizer_of(self, model: str) -> str:
        """The script's own name of the optimizer that trains a model; its newest one where none is seen to."""
        return next((name for name, trained in self.optimized.items() if trained == model), self.variable("optimizer"))


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


_WRAPPERS = ("DistributedDataParallel", "DDP", "fully_shard", "FullyShardedDataParallel", "FSDP")
_ELASTIC = ("Elastic", "AccelerateElastic", "LightningElastic", "MegatronElastic", "SwellCallback", "attach")
_MADE = {**dict.fromkeys(("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"), "optimizer"), **dict.fromkeys(_ELASTIC[:4], "elastic"),
         **dict.fromkeys(_WRAPPERS, "model"), "Accelerator": "accelerator"}
_DEPENDS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


_LAUNCHERS = re.compile(r"\b(torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|deepspeed|mpirun|mpiexec|srun)\b")
_SPAWNS = ("spawn", "start_processes", "notebook_launcher", "elastic_launch")
_STARTS = ("run", "call", "check_call", "check_output", "Popen", "system", "execv", "execvp", "execlp", "execl")


def _launcher_in(node: ast.AST) -> str:
    """Names the launcher that a call starts workers with; empty: none."""
    name = _called(node)
    if name in _SPAWNS:
        return name
    if name not in _STARTS:
        return ""
    text = " ".join(each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    found = _LAUNCHERS.search(text)
    return found.group(1) if found else ""


def _deepspeed_in(node: ast.AST) -> str:
    """Says how a call has DeepSpeed train, as it is written; empty: it does not."""
    name = _called(node)
    if not isinstance(node, ast.Call) or not name:
        return ""
    if ast.unparse(node.func) == "deepspeed.initialize" or name in ("DeepSpeedPlugin", "DeepSpeedStrategy"):
        return ast.unparse(node.func)
    for each in node.keywords:
        value = each.value.value if isinstance(each.value, ast.Constant) else None
        if (each.arg == "deepspeed" and name.endswith(("Arguments", "Config")) and not (isinstance(each.value, ast.Constant) and value is None)) or \
                (each.arg == "strategy" and isinstance(value, str) and value.startswith("deepspeed")):
            return f"{name}({ast.unparse(each)})"
    return ""


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Names that an assignment gives, a.b as it is written."""
    found = []
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for each in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            found.append(ast.unparse(each) if isinstance(each, (ast.Name, ast.Attribute)) else "")
    return found


def _parameters_of(node: ast.AST) -> str:
    """The model whose parameters() stands in a call, as it is written; empty: none does."""
    return next((ast.unparse(each.func.value) for each in ast.walk(node)
                 if isinstance(each, ast.Call) and _called(each) in ("parameters", "named_parameters") and isinstance(each.func, ast.Attribute)), "")


def _name_variables(tree: ast.AST, places: Places) -> None:
    stepped = {ast.unparse(node.func.value) for node in ast.walk(tree)
               if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] if _called(node.value) != "prepare" else []
        for name, value in zip(_targets(node), values):
            model = _parameters_of(value) if isinstance(value, ast.Call) else ""
            # One of another library, or that the list lacks, is told by what it is given and that it steps.
            kind = _MADE.get(_called(value)) or ("optimizer" if model and name in stepped else None)
            if name and kind:
                places.variables.setdefault(kind, []).append(name)
                if kind == "optimizer":
                    places.optimizer = max(places.optimizer, node.end_lineno or 0)
                    if model:
                        places.optimized[name] = model
        if _called(node.value) == "prepare" and (names := [name for name in _targets(node) if name]):
            places.variables.setdefault("model", names[:1])


def _differentiated(node: ast.AST) -> str:
    """The loss that a call of backward() is for, as it is written, within a GradScaler too; empty: it is not a name."""
    if _called(node) != "backward" or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    of: ast.AST = node.args[0] if node.args else node.func.value
    if _called(of) == "scale" and isinstance(of, ast.Call) and of.args:
        of = of.args[0]
    return ast.unparse(of) if isinstance(of, (ast.Name, ast.Attribute)) else ""


def _read_loop(tree: ast.Module, places: Places) -> None:
    """Where the training loop stands, and the script's own names of what it reads."""
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While)) and any(_called(inner) == "backward" for inner in ast.walk(node))]
    if not loops:
        return
    loop = loops[-1]        # the innermost one that trains: found last
    places.loop = loop.lineno
    places.loss = next((loss for node in ast.walk(loop) if (loss := _differentiated(node))), "")
    for node in ast.walk(tree):
        blocks = [value for _, value in ast.iter_fields(node) if isinstance(value, list) and value and isinstance(value[0], ast.stmt)]
        for block in blocks:
            if any(isinstance(one, (ast.Assign, ast.AnnAssign)) and one.end_lineno == places.optimizer for one in block):
                places.around = next((one.lineno for one in block if one.lineno > places.optimizer and loop in ast.walk(one)), 0)
    if not isinstance(loop, ast.For):
        return
    target, source = loop.target, loop.iter
    if _called(source) == "enumerate" and isinstance(source, ast.Call) and source.args and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target, source = target.elts[1], source.args[0]
    if isinstance(source, ast.Name):
        source = next((node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and source.id in _targets(node)), source)
    if _called(source).endswith("DataLoader") and isinstance(source, ast.Call) and source.args:
        places.reads = ", ".join(map(ast.unparse, target.elts)) if isinstance(target, (ast.Tuple, ast.List)) else ast.unparse(target)
        places.dataset = ast.unparse(source.args[0])


def find_places(source: str) -> Places:
    """Where in a script's text things belong."""
    places = Places()
    tree = ast.parse(source)
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    places.names = imported
    for framework in ("lightning", "pytorch_lightning", "megatron", "transformers", "accelerate"):
        if framework in imported:
            places.framework = "lightning" if "lightning" in framework else framework
            break
    _name_variables(tree, places)
    own = places.variable("elastic")
    for node in ast.walk(tree):
        name, line = _called(node), getattr(node, "end_lineno", 0) or 0
        owner = ast.unparse(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        places.has_group = places.has_group or name == "init_process_group"
        if name in _ELASTIC and (name != "attach" or owner == "SwellCallback"):
            places.elastic = max(places.elastic, line)
        elif name in ("batches", "loader") and owner == own:
            places.batches = max(places.batches, line)
        elif name in _DEPENDS:
            places.depends.add((getattr(node, "lineno", 0), name))
        if how := _deepspeed_in(node):
            places.deepspeed = min(places.deepspeed or (sys.maxsize, ""), (getattr(node, "lineno", 0), how))
        if starts := _launcher_in(node):
            places.launchers.append((getattr(node, "lineno", 0), starts))
        if name == "step" and owner == own:
            places.elastic_step = max(places.elastic_step, line)
            continue
        if name in (*_WRAPPERS, "prepare"):
            places.wrap = max(places.wrap, line)
        elif name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "get_megatron_optimizer"):
            places.optimizer = max(places.optimizer, line)
        elif name.endswith("Trainer"):
            places.trainer = max(places.trainer, line)
        elif name in ("train", "fit") and places.framework in ("transformers", "lightning"):
            places.train = getattr(node, "lineno", 0) if name == "fit" or not getattr(node, "args") else places.train
        elif name in ("step", "backward"):
            places.step = max(places.step, line) if name == "step" else places.step or line
    _read_loop(tree, places)
    if places.framework == "transformers" and not places.trainer:
        places.framework = "torch"
    return places


def _how(places: Places) -> dict[str, str]:
    """For each of the four things, the line that brings it and where it belongs."""
    def after(line: int, what: str) -> str:
        return f"after line {line}: {what}" if line else what
    if places.framework == "transformers":
        line = after(places.trainer, "SwellCallback.attach(trainer)") + "  (from swell.integrations import SwellCallback)"
        return dict.fromkeys(("signal", "agreement", "checkpoint", "resume"), line)
    if places.framework == "lightning":
        where = f"line {places.trainer}: " if places.trainer else ""
        fit = f"line {places.train}: " if places.train else ""
        line = where + "Trainer(callbacks=[elastic], use_distributed_sampler=False, ...) with elastic = LightningElastic(\"checkpoints\")"
        resume = fit + "trainer.fit(module, elastic.loader(dataset, global_batch=...), ckpt_path=elastic.newest())"
        return {"signal": line, "agreement": line, "checkpoint": line, "resume": resume}
    if places.framework == "megatron":
        made = after(places.optimizer, "elastic = MegatronElastic(chunks, optimizer, degrees=degrees, directory=\"checkpoints\", global_batch=..., micro_batch=...) "
                     "with degrees = Degrees.given(tp=..., pp=...) before initialize_model_parallel(**degrees.groups())")
        loop = "for batch in elastic.batches(dataset, steps=...), and **batch for the arguments of forward_backward_func"
        missing = [line for line, there in ((made, places.elastic), (loop, places.batches)) if not there]
        told = "\n       ".join(missing) or "it has the lines of an elastic script: its output says what went wrong"
        return dict.fromkeys(("signal", "agreement", "checkpoint", "resume"), told)
    model, own = places.model(), places.variable("elastic")
    optimizer = places.optimizer_of(model)
    name = f"AccelerateElastic({places.variable('accelerator')}, " if places.framework == "accelerate" else "Elastic("
    # Before the loop rather than after the optimizer: a dataset that draws its samples from the global generators is then the same at each start.
    belongs = f"before line {places.around}: " if places.around > places.wrap else after(max(places.wrap, places.optimizer), "")
    made = f"{belongs}{own} = {name}{model}, {optimizer}, directory=\"checkpoints\", global_batch=...)"
    loop = (f"line {places.loop}: " if places.loop else "") + f"for {places.reads or 'batch'} in {own}.batches({places.dataset or 'dataset'}, epochs=...):"
    step = (f"line {places.step}: " if places.step else "") + f"{own}.step({places.loss or 'loss'}) in place of backward and {optimizer}.step"
    wrap = (f"before line {places.optimizer}: " if places.optimizer else "") + \
        ("" if places.has_group else "torch.distributed.init_process_group(), and ") + \
        f"{model} = DistributedDataParallel({model}), which averages gradients over the workers, unless another module does so"
    missing = [line for line, there in ((wrap, places.wrap or places.framework == "accelerate"), (made, places.elastic), (loop, places.batches), (step, places.elastic_step)) if not there]
    if len(places.variables.get("optimizer", [])) > 1 and not places.elastic:
        missing.append(f"{own} takes one optimizer: give it one with the parameters of {' and '.join(places.variables['optimizer'])} as groups, or "
                       "handle the signal by hand (README, By hand)")
    told = "\n       ".join(missing) or "it has the lines of an elastic script: its output says what went wrong"
    return dict.fromkeys(("signal", "agreement", "checkpoint", "resume"), told)


class _Trial:
    """The script, watched from outside."""

    def __init__(self, script: str, arguments: list[str], folder: str, patience_s: float, steps: int) -> None:
        self.folder, self.patience_s, self.steps = folder, patience_s, steps
        self.longest_step_s = 0.0       # after the first, which is often longer
        self.still_s = 0.0              # since the last step that all workers made, where one was
        self.notes: list[str] = []      # of the package, on the model
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write(_WATCH)
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = [folder, here, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.workers = Workers(python(os.path.abspath(script), *arguments), os.path.join(folder, "output"), basic=2,
                               environment={"SWELL_CHECK_FOLDER": folder, "SWELL_CHECK_PID": str(os.getpid()), "PYTHONPATH": os.pathsep.join(path), "CUDA_VISIBLE_DEVICES": ""})

    def progress(self, rank: int = 0) -> tuple[int, int]:
        """Optimizer steps of this generation, and in all as the optimizer counts them."""
        try:
            with open(os.path.join(self.folder, f"step.{self.workers.generation}.{rank}")) as file:
                here, done = file.read().split()
                return int(here), int(done)
        except FileNotFoundError:
            return 0, 0

    def below(self) -> str:
        """Says what was seen of workers that the script starts itself; empty: it started none."""
        try:
            with open(os.path.join(self.folder, "below")) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def has_torch(self) -> bool:
        """Whether a worker has imported torch's optimizers, whose steps are counted."""
        return os.path.exists(os.path.join(self.folder, "torch"))

    def trains(self, steps: int) -> bool:
        """Whether all workers come so far; not if they end, start workers of their own or the time is over before."""
        deadline = time.monotonic() + self.patience_s
        done, since = 0, 0.0
        while True:
            before, now = done, time.monotonic()
            done = min(self.progress(rank)[0] for rank in range(len(self.workers.processes)))
            if before and done > before:
                self.longest_step_s = max(self.longest_step_s, (now - since) / (done - before))
            if done > before:
                since = now
            self.still_s = now - since if done else 0.0
            if done >= steps:
                return True
            if not self.workers.running() or now > deadline or self.below():
                return False
            time.sleep(0.02)

    def why_not(self, steps: int) -> tuple[str, str]:
        """After trains() was not so: what was seen, and what to do."""
        left = [(rank, process.returncode) for rank, process in enumerate(self.workers.processes) if process.poll() is not None]
        if not left and self.still_s > self.patience_s / 2 and self.still_s > _MANY_STEPS * self.longest_step_s:
            return (f"not seen: all workers made a step, and then none for {self.still_s:.0f} s: each waits for the others",
                    "is a collective call (mean_loss, all_reduce, a checkpoint of FSDP) under `if rank == 0`? make it on every worker, and print on one; or, "
                    f"if a step takes so long: --patience {max(10, 5 * self.patience_s):g}")
        if not left:
            made = self.progress()[0]
            why = ", and has not imported torch.optim, whose steps are counted" if not made and not self.has_torch() else ""
            return (f"not seen: it did not get to {counted(steps, 'step')} within {self.patience_s:g} s, it made {made}{why}",
                    f"give it longer: --patience {max(10, 5 * self.patience_s):g}; or give arguments with which it starts and steps sooner" +
                    ("; a loop without PyTorch handles the signal by hand (README, By hand)" if why else ""))
        said = self.last_words()
        return (f"not seen: it did not get to {counted(steps, 'step')}, it made {self.progress()[0]}: " +
                ", ".join(f"rank {rank} left with {code}" for rank, code in left) + (f": {said}" if said else ""),
                f"make it run with `torchrun --nproc_per_node={len(self.workers.processes)}`, and give arguments that make it train for longer than "
                "a few steps")

    def stands(self, since: int) -> bool:
        """Whether it makes no step any more, though in its patience there was time for many."""
        return self.progress(1)[0] <= since and self.patience_s > _MANY_STEPS * self.longest_step_s

    def is_slow(self, since: int) -> bool:
        """Whether it has not come to the end of two steps, of which each ended within its patience."""
        return self.progress(1)[0] < since + 2 and not self.stands(since)

    def last_words(self) -> str:
        for rank in range(len(self.workers.processes)):
            lines = self.workers.said(rank).strip().splitlines()
            if lines and self.workers.processes[rank].returncode:
                return lines[-1]
        return ""


def _try_without_torch(trial: _Trial, findings: list[Finding]) -> None:
    """Judges workers that have a handler and make no steps of torch.optim."""
    signal, agreement, checkpoint, resume = findings
    signal.good, signal.seen = True, "its workers have a handler for USR1"
    trial.workers.ask([1])
    codes = trial.workers.wait(trial.patience_s)
    if codes is None:
        gone = [rank for rank, process in enumerate(trial.workers.processes) if process.poll() is not None]
        agreement.good = False
        agreement.seen = f"rank 1 was asked, and after {trial.patience_s:g} s " + (f"rank {gone[0]} alone had left" if gone else "nobody had left")
        return
    agreement.untold("rank 1 was asked, and both left; after which steps is not known, as torch.optim was not imported",
                     "have each worker print its last step, and compare")
    checkpoint.good = codes == [0, 0]
    checkpoint.seen = f"exit codes {codes[0]} and {codes[1]}" + (f": {trial.last_words()}" if any(codes) else "")
    resume.seen = "not looked at, as torch.optim was not imported: start it again, and see that it goes on after its last step"


def _started(launchers: Sequence[tuple[int, str]]) -> str:
    """The advice on lines that start workers; empty: there are none."""
    said = [f"line {line}: {name} starts workers, as swellrun does: every worker would be a training by itself\n       " for line, name in launchers]
    return "".join([*said, "check and run the program that it starts: python -m swell.check SCRIPT; swellrun python SCRIPT"]) if said else ""


def _try(trial: _Trial, how: dict[str, str], launchers: Sequence[tuple[int, str]] = ()) -> list[Finding]:
    """The four findings."""
    unknown = "not seen, as what comes before is missing"
    signal = Finding("1. it handles the restart signal", None, unknown, how["signal"])
    agreement = Finding("2. all workers leave at the same step", None, unknown, how["agreement"])
    checkpoint = Finding("3. it leaves in time, with exit code 0", None, unknown, how["checkpoint"])
    resume = Finding("4. it resumes over another number of workers", None, unknown, how["resume"])
    findings = [signal, agreement, checkpoint, resume]
    workers = trial.workers
    workers.start(2)
    if not trial.trains(trial.steps):
        if seen := trial.below():
            signal.good, signal.seen = False, seen
            signal.fix = _started(launchers) or "check and run the program that it starts: python -m swell.check SCRIPT; swellrun python SCRIPT"
            return findings
        if not trial.has_torch() and not trial.progress()[0] and trial.workers.running() and workers.handle_signal():
            _try_without_torch(trial, findings)
            return findings
        seen, fix = trial.why_not(trial.steps)
        signal.untold(seen, (not trial.progress()[0] and _started(launchers)) or fix)
        return findings
    trial.notes = [line.removeprefix("swell: ") for line in workers.said(0).splitlines() if line.startswith("swell: ") and " number of workers" in line]
    signal.good = workers.handle_signal()
    if not signal.good:
        signal.seen = f"after {counted(trial.progress()[0], 'step')} its workers have no handler for USR1: swellrun leaves such a script as it is, and it is lent nothing"
        return findings
    signal.seen = "its workers have a handler for USR1"
    asked_at = trial.progress(1)[0]
    workers.ask([1])    # one of them: the others must hear of it from that one
    codes = workers.wait(trial.patience_s)
    left = [trial.progress(rank)[0] for rank in range(2)]
    if codes is None:
        gone = [rank for rank, process in enumerate(workers.processes) if process.poll() is not None]
        if not gone and trial.is_slow(asked_at):
            agreement.untold(f"not seen: in the {trial.patience_s:g} s after the request it made {counted(trial.progress(1)[0] - asked_at, 'step')}; one took "
                             f"{trial.longest_step_s:.1f} s before", f"give it longer: --patience {max(10, 5 * trial.patience_s):g}")
            return findings
        agreement.good = False
        agreement.seen = (f"rank {gone[0]} left and the other one waits for it" if gone else
                          f"nobody left within {trial.patience_s:g} s of a request to rank 1")
        return findings
    agreement.good = left[0] == left[1] and (codes[0] == 0) == (codes[1] == 0)
    agreement.seen = f"rank 1 was asked, and they left after steps {left[0]} and {left[1]}"
    if left[0] == left[1] and any(codes):
        agreement.seen += f", but with exit codes {codes[0]} and {codes[1]}: " + ("one did not wait for the other" if not agreement.good else "both failed")
    checkpoint.good = codes == [0, 0]
    checkpoint.seen = f"exit codes {codes[0]} and {codes[1]}" + (f": {trial.last_words()}" if any(codes) else "")
    if not checkpoint.good:
        return findings
    before = trial.progress()[1]
    workers.start(1)
    if not trial.trains(2):     # the first may be an empty one that makes the optimizer's state
        codes = workers.wait(0)
        if codes is None:
            resume.untold(*trial.why_not(2))
        else:
            resume.good, resume.seen = False, f"over one worker it did not train on: {trial.last_words() or codes}"
        return findings
    here, done = trial.progress()
    if not done:
        resume.seen = "over one worker it trained on; whether from the checkpoint cannot be told: its optimizer counts no steps"
        return findings
    resume.good = done - here > before / 2      # by the count that it began with: a fast script is soon beyond where it left
    resume.seen = f"over one worker it is at step {done}, it had left at step {before}" if resume.good else \
        f"over one worker it began anew: after {counted(here, 'step')} the optimizer is at step {done}, it had left at {before}"
    return findings


def _notes(trial: _Trial, places: Places) -> list[str]:
    """Says what makes losses depend on the number of workers: the package's reason from the model, else what the script's text shows."""
    if trial.notes:
        return [f"note {line}" for line in trial.notes]
    kinds: dict[str, list[int]] = {}
    for line, name in sorted(places.depends):
        kinds.setdefault("BatchNorm" if name.startswith("BatchNorm") else "Dropout", []).append(line)
    what = {"BatchNorm": "batch statistics are of one worker's share, so losses depend on the number of workers; "
                         "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) makes them those of all workers",
            "Dropout": "Elastic and Engine draw masks by sample; in other loops, and within torch.compile(), another number of workers draws other masks, so losses "
                       "differ within their noise; p=0 avoids it"}
    return [f"note line {', '.join(map(str, lines))}: {kind}: {what[kind]}" for kind, lines in kinds.items()]


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if the script is elastic, 1 if not, 2 if it cannot be run, or ran out of time before it could be told."""
    parser = Parser(prog="python -m swell.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps before it is asked to leave (%(default)s)")
    parser.add_argument("--patience", type=float, default=120, metavar="S", help="seconds for each phase (%(default)s)")
    parser.add_argument("script", help="as after `python`; it should train long enough to be asked: some hundred steps")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    options = parser.parse_args(arguments)
    try:
        with tokenize.open(options.script) as file:     # in the encoding that it names, as Python reads it
            places = find_places(file.read())
    except (SyntaxError, UnicodeDecodeError) as error:
        at = getattr(error, "lineno", None)
        is_of_text = isinstance(error, UnicodeDecodeError) or "encoding" in str(error)
        print(f"swell.check: {printable(options.script)}: " + ("it is not in UTF-8, and names no other encoding; save it in UTF-8, or write \"# -*- coding: latin-1 -*-\" (the encoding "
              "that it has) into its first line" if is_of_text else f"line {at}: {printable(error.args[0])}; Python cannot run it: correct it, or give the training script itself"),
              file=sys.stderr)
        return 2
    except OSError as error:
        print(f"swell.check: {printable(options.script)}: {printable(error)}; give the training script itself", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="swell-check-", ignore_cleanup_errors=True) as folder:
        trial = _Trial(options.script, options.arguments, folder, options.patience, options.steps)
        with trial.workers:
            findings = _try(trial, _how(places), places.launchers)
            notes = _notes(trial, places)
    is_elastic = all(finding.good for finding in findings[:3]) and findings[3].good is not False
    if places.deepspeed and not is_elastic:
        line, how_trained = places.deepspeed
        findings[0] = Finding(findings[0].name, False, "it trains with DeepSpeed, which cannot be resized", f"line {line}: {how_trained}: {INSTEAD}")
        del findings[1:]        # their advice goes with what takes its place
    is_untold = any(finding.is_untold for finding in findings)
    shown: set[str] = set()
    for finding in findings:
        lines = finding.lines(finding.fix not in shown)
        print(printable_lines(lines))
        if finding.fix in lines:
            shown.add(finding.fix)
    for note in notes:
        print(printable_lines(note))
    if is_untold:
        print(f"whether {printable(options.script)} is elastic could not be told")
        return 2
    print(f"{printable(options.script)} is {'elastic' if is_elastic else 'not elastic yet'}")
    return 0 if is_elastic else 1


if __name__ == "__main__":
    sys.exit(main())
