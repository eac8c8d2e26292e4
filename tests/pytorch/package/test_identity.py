# SPDX-License-Identifier: GPL-2.0-or-later
"""A checkpoint can be read back, is of the run that goes on with it, and one run alone writes to its folder."""

import collections
import errno
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import numpy
import pytest
import torch

from forked import Run, apart
from swell import _content, _lock, _plain
from swell._content import fingerprint
from swell._generators import generators, restore_generators, seed_generators
from swell._identity import Trained, record
from swell.checkpoint import Checkpoints
from swell.torch import Elastic

DATA = torch.utils.data.TensorDataset(torch.randn(48, 4, generator=torch.Generator().manual_seed(0)), torch.ones(48, 1))


class Box:
    """Keeps any value."""

    def __init__(self, value=None):
        self.value = value

    def state_dict(self):
        return {"it": self.value}

    def load_state_dict(self, state):
        self.value = state["it"]


def loop(folder, steps, *, model=None, optimizer=None, shuffle=True, length=48, drop_last=False, **options):
    """Trains a small model to so many steps."""
    torch.manual_seed(0)
    model = model or torch.nn.Linear(4, 1)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=options.pop("lr", 0.01))
    if options.pop("schedule", False):
        options["scheduler"] = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    elastic = Elastic(model, optimizer, directory=folder, **{"global_batch": 10, **options})
    for x, y in elastic.batches(torch.utils.data.Subset(DATA, range(length)), steps=steps, shuffle=shuffle, drop_last=drop_last):
        elastic.step(torch.nn.functional.mse_loss(model(x), y))
    return elastic


class Unknown:
    def __init__(self):
        self.x = 1


VALUES = [numpy.float64(3e-3), numpy.float32(0.1), numpy.int64(7), numpy.bool_(True), numpy.str_("a"), numpy.str_(""), numpy.bytes_(b""), numpy.arange(6).reshape(2, 3),
          numpy.array(2.5), pathlib.Path("/a/b"), pathlib.PurePosixPath("c"), collections.deque([1, numpy.float64(2)], maxlen=3),
          collections.defaultdict(int, {"a": 1}), collections.defaultdict(list), {"deep": [(pathlib.Path("x"), {"y": numpy.float64(1)})]},
          {pathlib.Path("key"): 1}, {"swell.encoded": 1}, numpy.random.RandomState(3).get_state(), collections.OrderedDict(a=numpy.int8(1)),
          numpy.datetime64("2026-01-02"), {1: "one", (2, 3): None}, {"a", "b"}, 1 + 2j, b"x"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_numpy_or_the_library_comes_back_as_it_was(tmp_path, value):
    torch.save(_plain.encoded({"it": value}), tmp_path / "x")
    back = _plain.decoded(torch.load(tmp_path / "x", weights_only=True))["it"]
    assert type(back) is type(value)
    if isinstance(value, (tuple, numpy.ndarray)):
        numpy.testing.assert_equal(back, value)
    else:
        assert back == value
    if isinstance(value, collections.deque):
        assert back.maxlen == value.maxlen
    if isinstance(value, collections.defaultdict):
        assert back.default_factory is value.default_factory
    assert not _plain.unreadable(value, "it")


@apart
def test_a_learning_rate_of_numpy_and_odd_states_resume(tmp_path):
    loop(tmp_path / "c", 4, lr=numpy.float64(3e-3), schedule=True, state={"box": Box(collections.deque([pathlib.Path("p")], 4))})
    box = Box(1)
    elastic = loop(tmp_path / "c", 6, lr=numpy.float64(3e-3), schedule=True, state={"box": box})
    assert elastic.steps == 6 and box.value == collections.deque([pathlib.Path("p")], 4)


CIRCLE: list = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value, where", [
    (CIRCLE, r"state\['box'\] contains itself, or is nested too deeply"),
    ({"a": [1, Unknown()]}, r"state\['box'\]\['it'\]\['a'\]\[1\] is of type \S*Unknown"),
    (collections.defaultdict(lambda: 1), r"state\['box'\]\['it'\] is of type collections.defaultdict"),
    (Unknown, r"state\['box'\]\['it'\] is of type builtins.type"),
], ids=["circle", "deep", "factory", "type"])
@apart
def test_values_that_no_start_could_read_are_named_and_nothing_is_saved(tmp_path, value, where, capfd):
    capfd.readouterr()
    elastic = loop(tmp_path / "c", 3, state={"box": Box(value)}, checkpoint_every=1)
    said = capfd.readouterr().err
    assert elastic.steps == 3, "training goes on"
    assert len(re.findall(where, said)) == 1, said
    assert not list((tmp_path / "c").glob("step-*"))


@apart
def test_other_groups_of_the_optimizer_are_refused(tmp_path):
    def groups(*names):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        found = dict(model.named_parameters())
        decayed = [found.pop(name) for name in names]
        return {"model": model, "optimizer": torch.optim.AdamW([{"params": decayed}, {"params": list(found.values()), "weight_decay": 0.0}], lr=0.01)}
    loop(tmp_path / "c", 3, **groups("0.weight", "1.weight"))
    assert "optimizer has 1.weight in its group 1, the run so far had not" in refused(tmp_path / "c", **groups("0.weight"))
    assert "optimizer has 1.bias in its group 0, the run so far had not" in refused(tmp_path / "c", **groups("0.weight", "1.weight", "1.bias"))
    assert loop(tmp_path / "c", 4, **groups("1.weight", "0.weight")).steps == 4, "the order within a group says nothing"


@apart
def test_a_script_that_goes_to_another_folder_saves_where_each_start_looks(tmp_path, monkeypatch):
    for steps in (3, 5):
        (tmp_path / "home").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "home")
        model = torch.nn.Linear(4, 1)
        elastic = Elastic(model, torch.optim.AdamW(model.parameters()), directory="c", global_batch=10)
        assert elastic.steps == (3 if steps == 5 else 0)
        monkeypatch.chdir(tmp_path)
        for x, y in elastic.batches(DATA, steps=steps):
            elastic.step(torch.nn.functional.mse_loss(model(x), y))
    assert [each.name for each in tmp_path.iterdir()] == ["home"]


@apart
def test_a_model_of_other_tensors_is_refused_in_one_sentence(tmp_path):
    loop(tmp_path / "c", 3)
    model = torch.nn.Linear(4, 1)
    model.register_buffer("seen", torch.zeros(2))
    assert refused(tmp_path / "c", model=model) == "this start's model has seen, the run so far had not; give the same model, or another directory"
    loop(tmp_path / "b", 3, model=model)
    assert refused(tmp_path / "b") == "the run so far had seen, this start's model has not; give the same model, or another directory"
    model = torch.nn.Linear(4, 2)
    assert "the run so far had weight of shape (1, 4), here it is (2, 4); give the same model" in refused(tmp_path / "c", model=model)


class Caching(torch.nn.Linear):
    """Makes a buffer in its first pass."""

    def forward(self, x):
        if not hasattr(self, "cache"):
            self.register_buffer("cache", x.mean(0).detach())
        return super().forward(x)


@apart
def test_a_buffer_that_a_pass_makes_is_left_out_and_said(tmp_path, capfd):
    loop(tmp_path / "c", 3, model=Caching(4, 1))
    for steps in (4, 5):
        capfd.readouterr()
        assert loop(tmp_path / "c", steps, model=Caching(4, 1)).steps == steps
        assert capfd.readouterr().err.count(f"cache of {tmp_path}/c/step-00000000{steps - 1} is left out: the model has made it in training, and begins without it") == 1


class Front(torch.utils.data.Dataset):
    """A front of an iterator and a file, which end with it."""

    def __init__(self, path):
        self.left, self.file = iter(range(48)), open(path)

    def __len__(self):
        return 48

    def __getitem__(self, at):
        self.file.seek(at)
        return torch.full((4,), next(self.left)), 0

    def __del__(self):
        self.file.close()


def trained_on(folder, steps, data, **options):
    model = torch.nn.Linear(4, 1)
    elastic = Elastic(model, torch.optim.AdamW(model.parameters()), directory=folder, global_batch=10)
    for x, *_ in elastic.batches(data, steps=steps, **options):
        elastic.step(model(x.float()).mean())
    return elastic


SETS = {"tensors": lambda first: torch.utils.data.TensorDataset(torch.arange(192.).view(48, 4) + first), "parts": lambda first: torch.utils.data.Subset(
    torch.utils.data.TensorDataset(torch.arange(200.).view(50, 4) + first), range(48)), "rows": lambda first: [(torch.full((4,), first + at), f"{at}") for at in range(48)]}


@pytest.mark.parametrize("kind", SETS)
@apart
def test_other_samples_in_a_dataset_of_the_same_length_are_said(tmp_path, kind, monkeypatch, capfd):
    monkeypatch.setattr(_content, "_SECONDS", 60)
    trained_on(tmp_path / "c", 3, SETS[kind](0))
    assert trained_on(tmp_path / "c", 4, SETS[kind](0)).steps == 4 and "a few samples" not in capfd.readouterr().err
    assert trained_on(tmp_path / "c", 5, SETS[kind](1)).steps == 5
    assert capfd.readouterr().err.count("a few samples of the dataset are not those of the run so far") == 1
    assert trained_on(tmp_path / "c", 6, SETS[kind](1)).steps == 6 and "a few samples" not in capfd.readouterr().err, "the run is one over these from there on"


@apart
def test_a_dataset_of_the_script_s_is_fetched_from_for_training_alone(tmp_path):
    data = Front(os.devnull)
    trained_on(tmp_path / "c", 2, data)
    assert list(data.left) == list(range(20, 48))


def test_data_made_by_the_script_and_slow_data_have_no_digest(monkeypatch):
    class Own(Front):
        format = "mine"

    class Part(torch.utils.data.Subset):
        pass

    class Joined(torch.utils.data.ConcatDataset):
        pass
    monkeypatch.setattr(Own, "__module__", "datasets.arrow_dataset")
    rows = [1.0] * 48
    assert [fingerprint(each, 48) for each in (Own(os.devnull), Part(rows, range(48)), Joined([rows]))] == ["", "", ""]
    assert fingerprint(rows, 48)
    monkeypatch.setattr(_content, "_SECONDS", -1)
    assert fingerprint(rows, 48) == ""


def test_a_part_of_data_made_by_the_script_has_a_digest_of_its_indices():
    class Made(torch.utils.data.Dataset):
        def __getitem__(self, index):
            raise AssertionError("a sample is fetched")

    def part(*indices):
        return fingerprint(torch.utils.data.Subset(Made(), *indices), 3)
    assert part([1, 2, 5]) and len({part(each) for each in ([1, 2, 5], (1, 2, 5), torch.tensor([1, 2, 5]), numpy.array([1, 2, 5]))}) == 1
    assert part(range(1, 4)) == part([1, 2, 3]) != part([3, 2, 1]) and part(iter([1, 2, 3])) == ""
    whole = torch.utils.data.Subset(Made(), range(9))
    assert len({fingerprint(torch.utils.data.Subset(each, [1, 2, 5]), 3) for each in (Made(), whole, torch.utils.data.Subset(Made(), range(8)))}) == 3
    drawn = list(torch.randperm(10 ** 6).tolist())
    began = time.monotonic()
    other = [*drawn[:-2000:-1], *drawn[:-1999]]
    assert part(drawn) != part(other) and time.monotonic() - began < 0.5


def test_to_look_at_samples_draws_no_numbers():
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    expected = random.random(), numpy.random.rand(), torch.rand(1)
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    assert fingerprint(DATA, 48)
    assert (random.random(), numpy.random.rand(), torch.rand(1)) == expected


class Watched(torch.optim.SGD):
    """Counts how often its groups are looked at."""

    looks = 0

    @property
    def param_groups(self):
        self.looks += 1
        return self.kept

    @param_groups.setter
    def param_groups(self, groups):
        self.kept = groups


def test_a_step_looks_once_at_what_is_trained(monkeypatch):
    model = torch.nn.Linear(4, 1)
    optimizer, parts = Watched(model.parameters(), lr=0.1), []
    trained, replaced = Trained(model, [optimizer]), Trained._how_replaced
    monkeypatch.setattr(Trained, "_how_replaced", lambda *arguments, **options: parts.append(1) or replaced(*arguments, **options))
    for look in (trained.why_not, trained.why_not_live):
        optimizer.looks = 0
        parts.clear()
        assert not look() and optimizer.looks == len(parts) == 1
    model.weight = torch.nn.Parameter(torch.ones(1, 4))
    assert trained.why_not() == trained.why_not_live() == ("the script has put another tensor in the place of weight, which the optimizer still trains: "
                                                          "copy its values into the parameter instead")


KINDS = [numpy.random.MT19937, numpy.random.PCG64, numpy.random.Philox, numpy.random.SFC64]


@pytest.fixture
def numpys():
    """Ends with numpy's own bit generator."""
    before = numpy.random.get_bit_generator()
    yield
    numpy.random.set_bit_generator(before)


def draw():
    return [torch.rand(1).item(), random.random(), random.gauss(0, 1), float(numpy.random.normal()), int(numpy.random.randint(1 << 30))]


@pytest.mark.parametrize("kind", KINDS)
def test_generators_go_on_from_a_file_whatever_numpy_draws_by(tmp_path, kind, numpys):
    numpy.random.set_bit_generator(kind(5))
    draw()
    torch.save(generators(), tmp_path / "x")
    expected = draw()
    seed_generators(0, 1, 2)
    found = torch.load(tmp_path / "x", weights_only=True)
    for _ in range(2):
        restore_generators(found)
        assert draw() == expected


def test_numpy_s_numbers_are_left_alone_where_it_draws_by_another_kind_now(numpys):
    found = [generators(), {**generators(), "numpy": list(numpy.random.get_state())}]
    numpy.random.set_bit_generator(numpy.random.PCG64(5))
    expected = [numpy.random.rand() for _ in range(3)]
    numpy.random.set_bit_generator(numpy.random.PCG64(5))
    for each in found:
        restore_generators(each)
    seed_generators(0, 1, 2)
    assert [numpy.random.rand() for _ in range(3)] == expected


def test_generators_of_older_checkpoints_go_on():
    kind, keys, *rest = numpy.random.get_state()
    version, words, gauss = random.getstate()
    older = {"torch": torch.get_rng_state(), "python": (version, words, gauss), "numpy": (kind, keys.tolist(), *rest)}
    expected = draw()
    restore_generators(older)
    assert draw() == expected


@pytest.mark.parametrize("kind", KINDS[:2])
@apart
def test_draws_of_a_script_go_on_for_every_generator_of_numpy(tmp_path, kind):
    def drawn(folder, steps):
        numpy.random.set_bit_generator(kind(5))
        model = torch.nn.Linear(4, 1)
        elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.01), directory=folder, global_batch=10)
        return [numpy.random.rand() for x, _ in elastic.batches(DATA, steps=steps) if elastic.step(model(x).mean())]
    assert drawn(tmp_path / "c", 2) + drawn(tmp_path / "c", 4) == drawn(tmp_path / "alone", 4)


def test_generators_are_few_things():
    things = []

    def count(value):
        things.append(value)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ():
            count(each)
    count(generators())
    assert len(things) < 40


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize("damage, says", [
    (lambda folder: cut(folder / "rest.pt"), r"rest\.pt is cut off"), (lambda folder: (folder / "rest.pt").unlink(), r"rest\.pt is gone"),
    (lambda folder: cut(folder / ".metadata"), r"\.metadata cannot be read: "), (lambda folder: next(folder.glob("*.distcp")).unlink(), r"__0_0\.distcp is gone"), (lambda folder: (folder / ".metadata").write_bytes(b""), r"\.metadata cannot be read: "),
    (lambda folder: cut(next(folder.glob("*.distcp"))), r"__0_0\.distcp has \d+ of \d+ bytes")], ids=["rest", "rest gone", "metadata", "tensors gone", "no metadata", "tensors"])
@apart
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path, damage, says, capfd):
    alone = loop(tmp_path / "alone", 8)
    loop(tmp_path / "c", 6, checkpoint_every=3)
    damage(tmp_path / "c" / "step-000000006")
    (tmp_path / "c" / "damaged-step-000000006" / "of a start before").mkdir(parents=True)
    capfd.readouterr()
    elastic = loop(tmp_path / "c", 8)
    said = capfd.readouterr().err
    assert re.search(rf"swell: the checkpoint of step 6 is damaged \({says}.*\), and stands in \S*damaged-step-000000006-2 now", said), said
    assert (tmp_path / "c" / "damaged-step-000000006" / "of a start before").exists()
    assert f"continues from step 3, {tmp_path}/c/step-000000003" in said
    assert all(torch.equal(*pair) for pair in zip(elastic.model.parameters(), alone.model.parameters()))
    for folder in (tmp_path / "c").glob("step-*"):
        damage(folder)
    assert re.search(rf"step-000000008 is damaged \({says}.*step-000000003 is damaged \({says}.*, and there is no whole one before it: move them away to begin anew",
                     refused(tmp_path / "c", 9))


@apart
def test_checkpoints_that_may_be_whole_are_neither_set_aside_nor_removed(tmp_path, monkeypatch):
    loop(tmp_path / "c", 6, checkpoint_every=3)
    older, newest = (tmp_path / "c" / f"step-00000000{step}" for step in (3, 6))
    whole, stat, hidden = (newest / ".metadata").read_bytes(), os.stat, older / ".metadata"

    def away(path, *arguments, **options):
        if str(path) == str(hidden):
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, *arguments, **options)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", away)
        assert loop(tmp_path / "c", 6).steps == 6 and older.exists()
        hidden = newest / ".metadata"
        with pytest.raises(OSError, match="Stale file handle"):
            loop(tmp_path / "c", 7)
    (newest / ".metadata").write_bytes(b"cnewer_torch\nThing\n.")
    with pytest.raises(ImportError, match="newer_torch"):
        loop(tmp_path / "c", 7)
    (newest / ".metadata").write_bytes(whole)
    assert loop(tmp_path / "c", 6).steps == 6 and not list((tmp_path / "c").glob("damaged-*"))


@apart
def test_schedulers_and_optimizers_that_need_more_than_Elastic_has_are_refused_first(tmp_path):
    model = torch.nn.Linear(4, 1)
    for how, says in ((lambda optimizer: {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)}, "scheduler= is a ReduceLROnPlateau, whose step() wants metrics"),
                      (lambda optimizer: {"optimizer": torch.optim.LBFGS(model.parameters())}, "optimizer= is a LBFGS, whose step() wants closure")):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        with pytest.raises(TypeError, match=re.escape(says)):
            Elastic(model, **{"optimizer": optimizer, **how(optimizer)}, directory=tmp_path / "c", global_batch=10)


def refused(folder, steps=6, **other):
    with pytest.raises(ValueError) as error:
        loop(folder, steps, **other)
    assert "\n" not in str(error.value)
    return str(error.value)


@apart
@pytest.mark.parametrize("name", ["batch_size", "sampler", "batch_sampler"])
def test_an_order_of_the_script_s_own_is_refused_in_one_sentence(name, tmp_path):
    model = torch.nn.Linear(4, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path, global_batch=10)
    with pytest.raises(TypeError, match=rf"^batches\(\) is given {name}=, and orders and divides the samples itself.* with shuffle=False$"):
        next(elastic.batches(DATA, steps=1, **{name: 4}))


@apart
def test_another_training_is_refused_in_one_sentence(tmp_path):
    loop(tmp_path / "c", 3)
    (folder,) = (tmp_path / "c").glob("step-*")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "shuffle True, here it is False" in refused(tmp_path / "c", shuffle=False)
    assert "drop_last False, here it is True" in refused(tmp_path / "c", drop_last=True)
    assert "length 48, here it is 40" in refused(tmp_path / "c", length=40)
    assert "seed 0, here it is 1" in refused(tmp_path / "c", seed=1)
    assert "global_batch=10, here it is 12" in refused(tmp_path / "c", global_batch=12)
    frozen = torch.nn.Linear(4, 1)
    frozen.bias.requires_grad = False
    assert "trains bias too, this start does not: 1 parameters in place of 2" in refused(tmp_path / "c", model=frozen)
    model = torch.nn.Linear(4, 1)
    groups = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.01)
    assert "has 1 groups of parameters, this start's optimizer has 2" in refused(tmp_path / "c", model=model, optimizer=groups)
    doubled = torch.nn.Linear(4, 1, dtype=torch.bfloat16)
    assert "trains parameters in float32, here they are in bfloat16" in refused(tmp_path / "c", model=doubled)
    model = torch.nn.Linear(4, 1)
    assert "had the optimizer AdamW, here it is SGD" in refused(tmp_path / "c", model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    assert "this start has scheduler (LambdaLR), the run so far had none: leave it out as before" in refused(tmp_path / "c", schedule=True)
    assert "this start has state['box'] (Box), the run so far had none" in refused(tmp_path / "c", state={"box": Box(1)})
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert loop(tmp_path / "c", 5).steps == 5, "the same one goes on"


@apart
def test_other_hyperparameters_than_those_of_the_run_so_far_are_said_once(tmp_path, capfd):
    def said(steps, **options):
        model = torch.nn.Linear(4, 1)
        groups = [{"params": [model.weight], "betas": options.pop("betas", (0.9, 0.999))}, {"params": [model.bias]}]
        loop(tmp_path / "c", steps, model=model, optimizer=torch.optim.AdamW(groups, lr=options.pop("lr", numpy.float64(0.01)), foreach=options.pop("foreach", None)), **options)
        return [line for line in capfd.readouterr().err.splitlines() if "gives other" in line]
    begins = "swell: this start gives other hyperparameters than the run so far: "
    assert not said(2, max_grad_norm=1.0, schedule=True) and not said(3, max_grad_norm=1.0, schedule=True, foreach=True, micro_batch=2)
    assert said(4, schedule=True) == [begins + "max_grad_norm=None (it was 1.0), with which it trains on"]
    assert said(5, schedule=True, lr=0.5, betas=(0.5, 0.9)) == [begins + "lr=0.5 of the optimizer (it was 0.01) and betas=(0.5, 0.9) of the optimizer's group 0 (it was (0.9, 0.999)), "
                                                                "in whose place the checkpoint's stay"]
    assert not said(6, schedule=True, lr=0.5, betas=(0.5, 0.9)) and not said(7, schedule=True), "the run's own again"


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("kind", ["given beside", "in turn", "at once"])
@apart
def test_each_of_several_schedules_of_one_kind_that_another_start_makes_otherwise_is_said(kind, changed, tmp_path, capfd):
    rates = torch.optim.lr_scheduler

    def said(steps, *factors):
        model = torch.nn.Linear(4, 1)
        optimizer, other = (torch.optim.AdamW(model.parameters(), lr=0.01) for _ in range(2))
        each = [rates.LambdaLR(of, lambda step, factor=factor: 1 / (1 + factor * step)) for of, factor in zip((optimizer, other if kind == "given beside" else optimizer), factors)]
        options = {"given beside": lambda: {"scheduler": each[0], "state": {"rates": each[1]}}, "in turn": lambda: {"scheduler": rates.SequentialLR(optimizer, each, [9])},
                   "at once": lambda: {"scheduler": rates.ChainedScheduler(each)}}[kind]()
        loop(tmp_path / "c", steps, model=model, optimizer=optimizer, **options)
        return capfd.readouterr().err
    assert "gives other" not in said(2, 1, 3) and "gives other" not in said(3, 1, 3)
    name = {"given beside": ("scheduler", "state['rates']"), "in turn": ("scheduler[0]", "scheduler[1]"), "at once": ("scheduler[0]", "scheduler[1]")}[kind]
    found = said(4, *((5, 3), (1, 5))[changed])
    assert f"other hyperparameters than the run so far: factors of LambdaLR {name[changed]} at steps 1 to 100000=[0.166667," in found and name[1 - changed] not in found, found


@apart
def test_left_out_or_changed_arguments_of_a_start_are_refused_in_one_sentence(tmp_path):
    parts = {"schedule": True, "scaler": torch.amp.GradScaler("cpu"), "state": {"box": Box(1)}}
    loop(tmp_path / "c", 3, **parts)
    for name, says in (("schedule", "had scheduler (LambdaLR), this start has none: give it as before, or another directory"),
                       ("scaler", "had scaler (GradScaler), this start has none"), ("state", "had state['box'] (Box), this start has none")):
        assert says in refused(tmp_path / "c", **{**parts, name: None})
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    assert "had the scheduler LambdaLR, here it is StepLR" in refused(
        tmp_path / "c", model=model, optimizer=optimizer, **{**parts, "schedule": False, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)})
    assert loop(tmp_path / "c", 5, **parts).steps == 5


@apart
def test_a_program_that_began_otherwise_is_refused_what_a_run_has_come_to_train(tmp_path):
    def model(*frozen):
        made = torch.nn.Linear(4, 1)
        for name in frozen:
            getattr(made, name).requires_grad_(False)
        return made
    trained = model("bias")
    elastic = Elastic(trained, torch.optim.AdamW(trained.parameters(), lr=0.01), directory=tmp_path / "c", global_batch=10)
    for x, y in elastic.batches(DATA, steps=4):
        elastic.step(torch.nn.functional.mse_loss(trained(x), y))
        trained.bias.requires_grad_(elastic.steps >= 2)
    assert "the run so far trains weight too, this start does not" in refused(tmp_path / "c", model=model("weight"))
    again = loop(tmp_path / "c", 5, model=model("bias"))
    assert again.steps == 5 and again.model.bias.requires_grad, "it began so, too"
    assert loop(tmp_path / "c", 6).steps == 6, "it trains all that is trained by now"


@apart
def test_a_parameter_that_no_loss_has_needed_so_far_is_gone_on_without(tmp_path):
    def spare():
        made = torch.nn.Linear(4, 1)
        made.spare = torch.nn.Parameter(torch.ones(2))
        return made
    loop(tmp_path / "c", 3, model=spare())
    elastic = loop(tmp_path / "c", 5, model=spare())
    assert elastic.steps == 5 and elastic.model.spare.requires_grad


def test_an_optimizer_of_more_than_the_model_has_a_record():
    model, temperature = torch.nn.Linear(4, 1), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([*model.parameters(), temperature])
    trained = Trained(model, [optimizer])
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    assert not trained.why_not() and record(1, trained=trained)["trained"] == [["weight", "bias", ""]]


def _replace(module, name):
    setattr(module, name, torch.nn.Parameter(getattr(module, name).detach() * 2))


def test_a_parameter_in_the_place_of_one_that_is_trained_is_named():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    trained = Trained(torch.nn.parallel.DataParallel(model), [optimizer])
    with torch.no_grad():
        model[0].weight.mul_(2)
    torch.nn.utils.parametrizations.weight_norm(model[1])       # parameters of other names, which the optimizer has not
    torch.nn.utils.parametrize.remove_parametrizations(model[1], "weight")
    assert "place of 1.weight" in trained.why_not()
    trained = Trained(model, [optimizer])
    assert not trained.why_not() and not trained.why_not_live()
    _replace(model[0], "weight")
    assert trained.why_not() == trained.why_not_live() == (
        "the script has put another tensor in the place of 0.weight, which the optimizer still trains: copy its values into the parameter instead")


def test_a_module_in_the_place_of_one_that_is_trained_is_named_and_a_removed_parameter_too():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Sequential(torch.nn.Linear(3, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    trained = Trained(model, [optimizer])
    model[0] = torch.nn.Sequential(model[0])
    assert not trained.why_not() and not trained.why_not_live(), "the same parameters, wrapped"
    model[0] = model[0][0]
    model[1][0] = torch.nn.Linear(3, 1)
    assert "the script has put another tensor in the place of 1.0.weight, which" in trained.why_not()
    trained = Trained(model, [torch.optim.AdamW(model.parameters())])
    model[1] = torch.nn.Sequential(torch.nn.Linear(3, 1))
    assert "the script has put another tensor in the place of 1.0.weight, which" in trained.why_not()
    trained = Trained(model, [torch.optim.AdamW(model.parameters())])
    model[0].bias = None
    assert trained.why_not() == "the script has removed 0.bias, which the optimizer still trains: keep it, frozen, instead"


def test_a_frozen_parameter_in_the_place_of_another_ends_live_mode_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    trained = Trained(model, [torch.optim.AdamW(model[1].parameters())])
    model[0].alias = model[0].weight        # another name for the same one
    del model[0].weight
    assert not trained.why_not_live()
    _replace(model[0], "bias")
    assert not trained.why_not(), "a checkpoint has its values by name"
    assert trained.why_not_live() == ("the script has put another tensor in the place of 0.bias, and the next workers of a live switch would take over "
                                      "the one before")


@apart
def test_a_checkpoint_names_a_parameter_that_is_replaced_and_training_goes_on(tmp_path, capfd):
    model = torch.nn.Linear(4, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.01), global_batch=12, directory=str(tmp_path / "c"))
    for x, y in elastic.batches(DATA, steps=3):
        if elastic.steps == 1:
            _replace(model, "bias")
        elastic.step(torch.nn.functional.mse_loss(model(x), y))
    assert elastic.steps == 3
    assert re.search("checkpoint of step 3 could not be written to .*: the script has put another tensor in the place of bias, which the optimizer still "
                     "trains: copy its values into the parameter instead, and there is none before it; training goes on", capfd.readouterr().err)


@apart
def test_each_start_says_from_which_checkpoint_it_continues_and_whose_it_is(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SWELL_JOB_ID", "123")
    loop(tmp_path / "c", 3)
    assert "continues" not in capfd.readouterr().err
    loop(tmp_path / "c", 4)
    said = capfd.readouterr().err
    assert f"swell: continues from step 3, {tmp_path}/c/step-000000003, written by job 123 on " in said and "this is job" not in said
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "130")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    loop(tmp_path / "c", 5)
    assert "written by job 123 on " in (said := capfd.readouterr().err) and "; this is job 130_2, which continues that run" in said
    loop(tmp_path / "c", 6)
    assert "written by job 130_2 on " in capfd.readouterr().err


@apart
def test_a_checkpoint_without_a_record_is_gone_on_with_in_its_own_order(tmp_path, capfd):
    elastic = loop(tmp_path / "c", 3)
    rest = elastic._rest()
    rest["data"] = {name: rest["data"][name] for name in ("samples", "seed", "length")}
    (folder,) = (tmp_path / "c").glob("step-*")
    torch.save(rest, folder / "rest.pt")
    elastic = loop(tmp_path / "c", 5)
    assert elastic.steps == 5 and elastic._data["order"] == 1
    assert "continues from step 3" in capfd.readouterr().err


def test_two_live_runs_cannot_share_a_folder_and_a_killed_one_does_not_block(runs, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    a = runs(Run, "a", "ddp")
    b = runs(Run, "b", "ddp")
    os.makedirs(shared)
    for run in (a, b):
        os.symlink(shared, os.path.join(run.folder, "checkpoints"))
    monkeypatch.setenv("SWELL_JOB_ID", "7")
    a.start(2).reach(11)
    monkeypatch.setenv("SWELL_JOB_ID", "8")
    assert b.start(2).leave() == [1, 1]
    for rank in (0, 1):
        said = b.said(rank).strip().splitlines()[-1]
        assert "job 7 (process" in said and "job 8 would continue its training" in said and "a directory of its own" in said, said
    assert a.reach(21).step() >= 21, "the first one trains on"
    a.kill(0).kill(1).leave()
    b.start(1).fast().leave_well()
    assert "written by job 7 on" in b.said() and "this is job 8, which continues that run" in b.said()
    assert b.lines()[0]["step"] in (11, 21)


def test_a_lock_of_another_machine_is_kept_while_its_holder_touches_it(tmp_path, monkeypatch):
    monkeypatch.setattr(_lock, "_SILENT_S", 1.0)
    lock = _lock.FolderLock(tmp_path)
    lock.acquire()
    holder = json.loads((tmp_path / "run.lock").read_text())
    holder.update(run="55", host="elsewhere", boot="other", token="t", shim="")
    lock.release()
    assert not list(tmp_path.iterdir())
    (tmp_path / "run.lock").write_text(json.dumps(holder))
    touching = subprocess.Popen([sys.executable, "-c", f"import os, time\nwhile True: os.utime({str(tmp_path / 'run.lock')!r}); time.sleep(0.05)"])
    try:
        time.sleep(0.5)
        with pytest.raises(_lock.InUse, match=r"job 55 \(process \d+ on elsewhere\)"):
            _lock.FolderLock(tmp_path).acquire()
    finally:
        touching.kill()
        touching.wait()
    again = _lock.FolderLock(tmp_path)
    again.acquire()     # nobody touches it any more
    assert again.is_held
    again.release()


@pytest.mark.parametrize("of_run", [{"SWELL_RUN": "a1"}, {"SWELL_SHIM": "@9"}, {"SWELL_JOB_ID": "9"}], ids=["swellrun", "shim", "requeue"])
def test_a_later_start_of_the_same_swellrun_takes_the_folder_at_once(tmp_path, monkeypatch, of_run):
    number = "SLURM_RESTART_COUNT" if "SWELL_JOB_ID" in of_run else "SWELL_GENERATION"
    for variable, value in {**of_run, number: "1"}.items():
        monkeypatch.setenv(variable, value)
    first, second = _lock.FolderLock(tmp_path), _lock.FolderLock(tmp_path)
    first.acquire()
    take = [sys.executable, "-c", f"from swell._lock import FolderLock; FolderLock({str(tmp_path)!r}).acquire()"]
    same = subprocess.run(take, capture_output=True, text=True, check=False)
    assert same.returncode == 1 and "is training with the checkpoints in" in same.stderr, "another run of the same job is not a later start of this one"
    monkeypatch.setenv(number, "2")
    second.acquire()
    first.release()
    assert "2" in json.loads((tmp_path / "run.lock").read_text())["start_number"], "the first one does not take the second's away"
    second.release()


@pytest.mark.parametrize("mine, its", [(1, 2), (2, 1), (0, 0)])
def test_two_swellruns_of_one_job_do_not_take_each_others_folder(tmp_path, monkeypatch, mine, its):
    for variable, value in {"SWELL_JOB_ID": "9", "SWELL_RUN": "a1", "SWELL_SHIM": "@1", "SWELL_GENERATION": str(mine)}.items():
        monkeypatch.setenv(variable, value)
    first = _lock.FolderLock(tmp_path)
    first.acquire()
    take = [sys.executable, "-c", f"from swell._lock import FolderLock; FolderLock({str(tmp_path)!r}).acquire()"]
    other = {**os.environ, "SWELL_RUN": "b2", "SWELL_SHIM": "@2", "SWELL_GENERATION": str(its)}
    refused = subprocess.run(take, env=other, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "give each run a directory of its own" in refused.stderr, refused.stderr
    first.release()
    assert subprocess.run(take, env=other, check=False).returncode == 0, "it may go on from what the first has left"


def test_a_later_start_takes_the_folder_under_a_swellrun_that_has_no_name(tmp_path, monkeypatch):
    monkeypatch.delenv("SWELL_RUN", raising=False)
    for variable, value in {"SWELL_JOB_ID": "9", "SWELL_SHIM": "@1", "SWELL_GENERATION": "1"}.items():
        monkeypatch.setenv(variable, value)
    first = _lock.FolderLock(tmp_path)
    first.acquire()
    take = [sys.executable, "-c", f"from swell._lock import FolderLock; FolderLock({str(tmp_path)!r}).acquire()"]
    assert subprocess.run(take, env={**os.environ, "SWELL_SHIM": "@2", "SWELL_GENERATION": "1"}, capture_output=True, check=False).returncode == 1
    assert subprocess.run(take, env={**os.environ, "SWELL_SHIM": "@2", "SWELL_GENERATION": "2"}, check=False).returncode == 0


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b'{"start_number": 7}', b'{"start_number": ["x", null, "1"], "pid": "me"}'])
def test_a_damaged_file_of_a_holder_does_not_block(tmp_path, monkeypatch, content):
    monkeypatch.setattr(_lock, "_SILENT_S", 0.2)
    monkeypatch.setenv("SWELL_JOB_ID", "9")
    (tmp_path / "run.lock").write_bytes(content)
    lock = _lock.FolderLock(tmp_path)
    lock.acquire()
    assert lock.is_held
    lock.release()


@apart
def test_the_folder_is_let_go_at_the_end_of_training(tmp_path):
    elastic = loop(tmp_path / "c", 3)
    assert not (tmp_path / "c" / "run.lock").exists() and isinstance(elastic._checkpoints, Checkpoints)


@apart
def test_a_scaler_trains_as_none_does_is_saved_and_skips_what_overflows(tmp_path):
    def scaler():
        return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    plain = loop(tmp_path / "plain", 8, max_grad_norm=0.1)
    scaled = loop(tmp_path / "scaled", 4, max_grad_norm=0.1, scaler=scaler())
    assert scaled.scaler.get_scale() == 2048.0
    scaled = loop(tmp_path / "scaled", 8, max_grad_norm=0.1, scaler=scaler())
    assert scaled.scaler.get_scale() == 4096.0, "it goes on from the saved one"
    for a, b in zip(plain.model.parameters(), scaled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    model = torch.nn.Linear(4, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path / "overflow", global_batch=10, scaler=scaler())
    before = model.weight.clone()
    for x, _ in elastic.batches(DATA, steps=1):
        elastic.step(model(x).mean() * float("inf"))
    assert torch.equal(model.weight, before) and elastic.scaler.get_scale() == 512.0


@apart
def test_two_elastic_in_one_loop_are_refused_by_name_and_one_after_the_other_are_not(tmp_path):
    class Generator(torch.nn.Linear):
        pass
    generator, discriminator = Generator(4, 1), torch.nn.Linear(4, 1)
    g = Elastic(generator, torch.optim.SGD(generator.parameters(), lr=0.1), directory=tmp_path / "a", global_batch=10)
    d = Elastic(discriminator, torch.optim.SGD(discriminator.parameters(), lr=0.1), directory=tmp_path / "b", global_batch=10)
    refused = r"one loop has one Elastic.*with one optimizer of several"
    before = discriminator.weight.clone()

    for x, _ in g.batches(DATA, steps=3):       # as of a GAN
        g.step(generator(x).mean())
        with pytest.raises(RuntimeError, match=r"the Elastic of Linear and that of Generator train in one loop.*" + refused):
            d.step(discriminator(x).mean())
        break
    with pytest.raises(RuntimeError, match=refused):
        for (x, _), (y, _) in zip(g.batches(DATA, steps=3), d.batches(DATA, steps=3), strict=True):
            g.step(generator(x).mean())
            d.step(discriminator(y).mean())
    with pytest.raises(RuntimeError, match=r"the Elastic of Generator and that of Linear"):
        for x, _ in g.batches(DATA, steps=3):
            for y, _ in d.batches(DATA, steps=0):       # it has ended its loop within the other's
                d.step(discriminator(y).mean())
            g.step(generator(x).mean())
    assert torch.equal(discriminator.weight, before), "nothing was trained before the error"

    held = g.batches(DATA, steps=3)
    for x, _ in held:
        g.step(generator(x).mean())
        break       # the loop of a script that stops early, and keeps what it read from
    for x, _ in d.batches(DATA, steps=2):
        d.step(discriminator(x).mean())
    for x, _ in g.batches(DATA, steps=3):
        g.step(generator(x).mean())
    assert (g.steps, d.steps) == (3, 2)


@apart
def test_a_loss_that_is_scaled_already_is_an_error(tmp_path):
    model, scaler = torch.nn.Linear(4, 1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), directory=tmp_path, global_batch=10)
    with pytest.raises(RuntimeError, match=r"scaled by a GradScaler already; give the loss itself, and Elastic\(scaler="):
        for x, _ in elastic.batches(DATA, steps=1):
            elastic.step(scaler.scale(model(x).mean()))
    for x, _ in elastic.batches(DATA, steps=1):
        elastic.step(model(x).mean() * torch.tensor(2.0))       # another factor
