# SPDX-License-Identifier: GPL-2.0-or-later
"""Features that people expect of training: dropout, recomputation, bf16, evaluation, data, logs, export, and errors that help."""

import contextlib
import json
import pickle
import random
import re
import threading
import time
import traceback

import models
import numpy
import pool
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from swell.data import ElasticSampler
from swell.engine import Engine, Plan, arena, batches, families, schedule, state
from swell.engine.loss import LateLoss
from swell.engine.skeleton import Skeleton
from swell.engine.standing import Standing

WHOLE = models.plan(3, (4, 1, [4]))
PLANS = {name: {**models.PLANS, **models.CHUNKS}[name] for name in (
    "one worker", "dp2", "pp2 dp2", "dp by stage: 1, 2", "two chunks, tp and dp by stage: 2x1, 1x2, 1x1", "three stages, all different")}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def config(family, **changes):
    made = models.CONFIGS[family]()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def losses(rank, family, plan, changes, options, steps=3):
    engine = Engine(config(family, **changes), adamw, global_batch=models.BATCH, plan=plan, **options)
    return [engine.step(models.batch(seed=number)) for number in range(steps)], engine.evaluate(models.batch(seed=9))


def same_under_all(tmp_path, family, changes, options, limit):
    models.model(models.CONFIGS[family]())
    results = pool.run(tmp_path, [(plan.world, losses, (family, plan, changes, options)) for plan in PLANS.values()])
    expected, evaluated = results[0][0]
    for name, result in zip(PLANS, results, strict=True):
        for found, also in result:
            for one, other in zip([*found, also], [*expected, evaluated], strict=True):
                assert abs(one / other - 1) < limit, f"{name}: {found} {also}, under one worker {expected} {evaluated}"
    return expected, evaluated


DROPS = {"llama_gqa_tied": {"attention_dropout": 0.3}, "gpt2": {"attn_pdrop": 0.3, "resid_pdrop": 0.2, "embd_pdrop": 0.1}}


@pytest.mark.parametrize("family", list(DROPS))
def test_dropout_does_not_depend_on_the_plan(family, tmp_path):
    dropped, evaluated = same_under_all(tmp_path / "dropped", family, DROPS[family], {}, 1e-5)
    recomputed, _ = same_under_all(tmp_path / "recomputed", family, DROPS[family], {"recompute": True}, 1e-5)
    assert recomputed == dropped
    (found,), = pool.run(tmp_path / "none", [(1, losses, (family, WHOLE, dict.fromkeys(DROPS[family], 0.0), {}))])
    assert all(abs(a - b) > 1e-4 for a, b in zip(found[0], dropped, strict=True)), "nothing was dropped"


def test_bf16_autocast_is_close_under_every_plan(tmp_path):
    exact, _ = same_under_all(tmp_path / "float32", "llama", {}, {}, 1e-5)
    rounded, _ = same_under_all(tmp_path / "bf16", "llama", {}, {"autocast": torch.bfloat16}, 5e-3)
    assert all(abs(a / b - 1) < 2e-2 for a, b in zip(exact, rounded, strict=True)) and exact != rounded


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 3 * models.BATCH + 5

    def __getitem__(self, index):
        ids = models.batch(seed=index, samples=1)["input_ids"][0]
        return {"input_ids": ids, "labels": torch.where(ids % 3 == 0, -100, ids)}


@pytest.mark.parametrize("options, place", [({}, "cpu"), ({"foreach": True}, "cpu"), ({"fused": True}, "meta")])
def test_the_number_of_a_step_stands_where_the_optimizer_reads_it(options, place):
    plan = models.PLANS["one worker"]
    share = Standing(Skeleton(config("llama")), plan, 0, seed=0, device=torch.device("cpu"), recompute=False, timed=None).share
    requests = list(state.wanted(share, plan.places[0], lambda parameters: torch.optim.AdamW(parameters, **options)))
    tensors, _ = arena.Ordinary().take(requests, torch.device("meta"))      # in place of a GPU
    assert {tensors[one.name].device.type for one in requests if one.kind == "step"} == {place}
    assert {tensors[one.name].device.type for one in requests if one.kind != "step"} == {"meta"}
    assert all(tensors[one.name].shape == torch.Size(one.local) for one in requests)


def over_dataset(rank, plan, folder):
    engine = Engine(config("gpt2"), adamw, global_batch=models.BATCH, plan=plan, seed=1, log=f"{folder}/log.jsonl", peak_flops=1e12)
    found = [engine.step(batch) for batch in engine.batches(Tokens(), epochs=2)]
    engine.save_pretrained(f"{folder}/exported")
    return found, engine.evaluate(models.batch())


@pytest.mark.parametrize("name", ["one worker", "three stages, all different", "pp2 dp2 tp2"])
def test_data_logs_and_export(name, tmp_path):
    models.model(models.CONFIGS["gpt2"]())
    plan = models.PLANS[name]
    results, = pool.run(tmp_path / "pool", [(plan.world, over_dataset, (plan, str(tmp_path)))])
    found, evaluated = results[0]
    assert len(found) == 6 and all(result == results[0] for result in results)
    lines = [json.loads(line) for line in open(tmp_path / "log.jsonl")]
    assert [line["loss"] for line in lines] == found and [line["step"] for line in lines] == list(range(1, 7))
    assert lines[0]["plan"] == plan.summary() and lines[0]["mfu"] > 0 and lines[0]["tokens_per_s"] > 0
    # The same samples in the same order, by transformers alone.
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    batch = models.batch()
    with torch.no_grad():
        loss = float(model(**batch).loss)
    assert abs(loss / evaluated - 1) < 1e-5
    (alone,), = pool.run(tmp_path / "alone", [(1, over_dataset, (WHOLE, str(tmp_path)))])
    assert max(abs(a / b - 1) for a, b in zip(found, alone[0], strict=True)) < 1e-4


class Reads(TorchDispatchMode):
    """Counts how often the host reads a number of a tensor, and would wait for a GPU; but not transformers' reading of one for its masks."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            self.count += not any("masking_utils" in frame.filename for frame in traceback.extract_stack())
        return func(*args, **(kwargs or {}))


def read_late(rank, is_late, plan, order):
    made = Engine(config("llama"), lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), global_batch=models.BATCH, plan=plan, schedule=order, seed=1,
                  max_grad_norm=0.5, late_loss=is_late)
    made._generation.reads_late = is_late
    losses, counts = [], []
    for batch in made.batches(Tokens(), epochs=1):
        with Reads() as reads:
            losses.append(made.step(batch))
        counts.append(reads.count)
    return pickle.loads(pickle.dumps(losses)), counts, {name: tensor.clone() for name, tensor in made._generation.state.tensors.items()}, f"{losses[0]:.3f} {losses[1] < losses[0] + 1}"


def test_a_step_whose_numbers_are_read_late_is_bitwise_the_same_and_waits_for_none(tmp_path):
    models.model(models.CONFIGS["llama"]())
    for at, (plan, order) in enumerate([(WHOLE, None), (models.PLANS["pp2 dp2"], "zero-bubble")]):
        at_once, late = pool.run(tmp_path / str(at), [(plan.world, read_late, (is_late, plan, order)) for is_late in (False, True)])
        for (losses, counts, state, said), (also, reads, end, says) in zip(at_once, late, strict=True):
            assert losses == also and said == says and all(type(loss) is float for loss in also)
            assert set(reads) == {0} and min(counts) > 0
            assert all(torch.equal(tensor, end[name]) for name, tensor in state.items())


def test_the_loss_of_a_step_is_a_float_unless_a_late_one_is_asked_for():
    for options, kind in (({}, float), ({"late_loss": True}, LateLoss)):
        made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE, **options)
        made._generation.reads_late = True     # as on a GPU
        loss = made.step(models.batch())
        assert type(loss) is kind
        assert float(torch.tensor(float(loss), dtype=torch.float64)) == loss


class Alone(Tokens):
    """Notes how many read it at a time."""

    def __init__(self):
        self.readers, self.most = 0, 0

    def __getitem__(self, index):
        self.readers += 1
        self.most = max(self.most, self.readers)
        time.sleep(0.01)
        self.readers -= 1
        return super().__getitem__(index)


def test_one_thread_at_a_time_reads_a_dataset():
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    dataset = Alone()
    for _ in range(3):
        for _ in made.batches(dataset, epochs=1):
            deadline = time.monotonic() + 60
            while not dataset.readers and time.monotonic() < deadline:
                time.sleep(0.001)
            break       # within the read of the next batch
        assert dataset.readers == 0, "the reader of the next batch is still reading"
    assert dataset.most == 1


class Noted(Tokens):
    """Says when it is read, and fails at one sample."""

    def __init__(self):
        self.read, self.fails = [], False

    def __getitem__(self, index):
        if self.fails:
            raise OSError("the disk is gone")
        self.read.append(index)
        return super().__getitem__(index)


def test_the_next_batch_is_read_during_a_step_and_its_errors_come_when_it_is_due():
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    dataset = Noted()
    batches = made.batches(dataset, epochs=1, shuffle=False)
    first = next(batches)
    deadline = time.monotonic() + 60
    while len(dataset.read) < 2 * models.BATCH and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dataset.read == list(range(2 * models.BATCH)), "the first batch is being trained on"
    dataset.fails = True
    made.step(first)
    made.step(next(batches))        # has been read
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (Tokens()[number] for number in range(3 * models.BATCH))

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def in_a_list(made, dataset):
    list(made.batches(dataset, epochs=1))


def ahead(made, dataset):
    """As loops that bring the next batch to a device beside a step."""
    given = made.batches(dataset, epochs=1)
    coming = next(given)
    while coming is not None:
        now, coming = coming, next(given, None)
        made.step(now)


def not_each(made, dataset):
    for number, batch in enumerate(made.batches(dataset, epochs=1)):
        if number != 1:
            made.step(batch)


def evaluated(made, dataset):
    for batch in made.batches(dataset, epochs=1):
        made.evaluate(batch)


def twice(made, dataset):
    for batch in made.batches(dataset, epochs=1):
        made.step(batch)
        made.step(batch)


def of_two_loops(made, dataset):
    for batch, other in zip(made.batches(dataset, epochs=1), made.batches(Tokens(), epochs=1)):
        made.step(other)
        made.step(batch)


def after_one_of_another(made, dataset):
    for batch in made.batches(dataset, epochs=1):
        for other in made.batches(Tokens(), epochs=1):
            made.step(other)
            break
        made.step(batch)


def between_others(made, dataset):
    for _ in made.batches(dataset, epochs=1):
        kept = made.batches(Tokens(), epochs=1)
        made.step(next(kept))


def beside_its_own(made, dataset):
    for batch in made.batches(dataset, epochs=1):
        made.step(batch)
        made.step(models.batch())


def skipped_too_late(made, dataset):
    for batch in made.batches(dataset, epochs=1):
        made.step(batch)
        made.skip()


def trained_once_skipped(made, dataset):
    for batch in made.batches(dataset, epochs=1):
        assert made.skip(True)
        made.step(batch)


@pytest.mark.parametrize("dataset", [Tokens, Stream])
@pytest.mark.parametrize("loop, steps, says", [
    (in_a_list, 0, "step(batch) was not called for the last batch"), (ahead, 0, "step(batch) was not called for the last batch"), (not_each, 1, "step(batch) was not called for the last batch"),
    (evaluated, 0, "evaluate() takes batches of the script's own"), (twice, 1, "step() was called for a batch that has had its step"),
    (beside_its_own, 1, "step() was given a batch of the script's own within a loop"), (skipped_too_late, 1, "skip() belongs into"),
    (trained_once_skipped, 1, "step() was called for a batch that has had its step, was left out by engine.skip()")])
def test_each_batch_has_one_step(dataset, loop, steps, says):
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    with pytest.raises(RuntimeError, match=re.escape(says)):
        loop(made, dataset())
    assert made.steps == steps
    with pytest.raises(RuntimeError, match="engine.skip.. belongs into"):
        made.skip()


@pytest.mark.parametrize("loop, steps, says", [(of_two_loops, 1, "is of another loop over engine.batches()"), (after_one_of_another, 1, "is of another loop over engine.batches()"), (between_others, 1, "has begun within this one")])
def test_two_loops_at_once_are_refused(loop, steps, says):
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    with pytest.raises(RuntimeError, match=re.escape(says)):
        loop(made, Tokens())
    assert made.steps == steps


def test_loops_one_after_the_other_and_steps_between_them_are_not_refused():
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    made.step(next(made.batches(Tokens(), epochs=1)))
    losses = [made.step(batch) for batch in made.batches(Tokens(), epochs=1)]
    made.step(models.batch())
    for batch in made.batches(Tokens(), epochs=3):
        if made.steps > 5:
            break       # its batch comes again
        made.step(batch)
    assert len(losses) == 2 and made.steps == 6 and sum(1 for batch in made.batches(Tokens(), epochs=3) if made.step(batch)) == 3


@pytest.mark.parametrize("dataset", [Tokens, Stream])
def test_a_skipped_batch_leaves_all_but_the_position_as_it_is(dataset):
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE, scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1))
    seen = []
    for batch in made.batches(dataset(), epochs=1):
        seen.append(batch.micro_batches[0].inputs["input_ids"])
        before = {name: tensor.clone() for name, tensor in made._generation.state.tensors.items()}, made.scheduler.get_last_lr()
        made.backward(batch)
        if made.skip(torch.tensor(made.steps != 1)):
            assert all(torch.equal(tensor, before[0][name]) for name, tensor in made._generation.state.tensors.items()) and made.scheduler.get_last_lr() == before[1]
            assert not any(bool(gradient.any()) for gradient in made.gradients().values())
            continue
        made.step(batch)
        assert made.scheduler.get_last_lr() != before[1]
    assert made.steps == 3 == len({tuple(one.flatten().tolist()) for one in seen})


class Odd(torch.utils.data.Dataset):
    def __init__(self, *samples):
        self.samples = samples

    def __len__(self):
        return models.BATCH

    def __getitem__(self, index):
        return self.samples[index % len(self.samples)]


IDS = torch.arange(models.LENGTH)


@pytest.mark.parametrize("samples, error, said", [
    ([{"text": "a", "labels": IDS}], ValueError, 'a sample of the dataset has "text", "labels", but not "input_ids"; give a mapping'),
    ([{"input_ids": IDS}, {"tokens": IDS}], ValueError, 'a sample of the dataset has "tokens", but not "input_ids"'),
    ([{}], ValueError, 'a sample of the dataset has nothing, but not "input_ids"'),
    ([(IDS, IDS)], TypeError, 'a sample of the dataset is of type tuple; give a mapping with "input_ids"'),
    ([IDS], TypeError, "a sample of the dataset is of type Tensor"),
    ([{"input_ids": IDS, "labels": IDS}, {"input_ids": IDS}], ValueError, ': give all samples the same of "input_ids", "labels"'),
    ([{"input_ids": IDS}, {"input_ids": IDS, "labels": IDS}], ValueError, ': give all samples the same of "input_ids", "labels"'),
])
def test_a_sample_that_the_engine_cannot_read_is_said_in_one_sentence(samples, error, said):
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    with pytest.raises(error, match=re.escape(said)):
        next(iter(made.batches(Odd(*samples), epochs=1)))


@pytest.mark.parametrize("name", ["input_ids", "labels"])
def test_a_batch_of_the_script_s_own_that_lacks_a_name_is_said_in_one_sentence(name):
    made = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=WHOLE)
    batch = models.batch()
    del batch[name]
    with pytest.raises(ValueError, match=f'the batch of the script.s own has .*, but not "{name}"; give a mapping with "input_ids", "labels"'):
        made.step(batch)


class Masked(Tokens):
    """Changes tokens at random as it reads them, and says in which threads."""

    def __init__(self):
        self.threads = set()

    def __getitem__(self, index):
        self.threads.add(threading.current_thread())
        tokens = torch.as_tensor(super().__getitem__(index)["input_ids"]).clone()
        tokens[0], tokens[1], tokens[2] = random.randrange(90), numpy.random.randint(90), torch.randint(0, 90, (1,))
        return {"input_ids": tokens, "labels": tokens}


def drawn(plan, seed, rank=0):
    """The samples of two epochs as one of a plan's workers reads them."""
    place, dataset, device = plan.places[rank], Masked(), torch.device("cpu")
    made = batches.batches(dataset, plan, place, device, sampler=ElasticSampler(dataset, models.BATCH, seed=seed, drop_last=True, rank=0, world=1), epochs=2)
    found = []
    for batch in made:
        own = torch.rand(1).item(), random.random(), numpy.random.rand()
        found += [(one.inputs if one.labels is None else {"input_ids": one.labels})["input_ids"] for one in batch.micro_batches]
        random.seed(sum(own)), numpy.random.seed(int(own[0] * 1000)), torch.manual_seed(int(own[1] * 1000))
    assert dataset.threads == {threading.current_thread()}, "what draws is not read while the training may draw"
    return torch.stack(found)


def test_draws_of_a_dataset_depend_on_the_sample_alone_on_all_stages_and_under_all_plans():
    alone = drawn(WHOLE, 1)
    assert len(set(map(tuple, alone.flatten(0, 1).tolist()))) == alone.shape[0] * alone.shape[1], "no two samples, nor one in two epochs, are the same"
    pp2 = models.plan(3, (2, 1, [4]), (2, 1, [4]))
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
    assert torch.equal(drawn(pp2, 1, 0), alone) and torch.equal(drawn(pp2, 1, 1), alone)
    dp2 = models.plan(3, (4, 1, [2, 2]))
    assert torch.equal(torch.cat([drawn(dp2, 1, rank) for rank in range(2)], 1), alone)
    assert not torch.equal(drawn(WHOLE, 2)[..., :3], alone[..., :3])


class Queue:
    """A stream of a GPU: what is copied on it is there once another one has waited for it, or it was waited for by the host."""

    def __init__(self, *_):
        self.due = []

    def record_event(self):
        due, self.due = self.due, []
        return due

    def wait_event(self, due):
        for copy in due:
            copy()


def test_batches_are_copied_to_a_gpu_from_pinned_memory_on_a_stream_of_their_own(monkeypatch):
    """There is no GPU: its tensors are the host's, filled as a stream would fill them."""
    gpu, now, pinned, used, stream = torch.device("cuda", 0), Queue(), set(), [], [None]
    plainly = torch.Tensor.to

    def pin(tensor):
        made = tensor.clone()
        pinned.add(made.data_ptr())
        return made

    def to(tensor, *args, **options):
        if args[:1] != (gpu,):
            return plainly(tensor, *args, **options)
        assert options == {"non_blocking": True} and tensor.data_ptr() in pinned, "a copy that the host waits for"
        assert stream[0] is not None, "a copy behind the step's own work"
        made = torch.full_like(tensor, -1)
        stream[0].due.append(lambda: made.copy_(tensor))
        return made

    @contextlib.contextmanager
    def entered(its):
        stream[0] = its
        yield
        stream[0] = None
    for name, value in (("Stream", Queue), ("stream", entered), ("current_stream", lambda device: now)):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, its: used.append((tensor, its)))
    place = WHOLE.places[0]
    copied, alone = (list(batches.batches(Tokens(), WHOLE, place, device, sampler=ElasticSampler(Tokens(), models.BATCH, drop_last=True, rank=0, world=1),
                                          epochs=1)) for device in (gpu, torch.device("cpu")))
    assert len(copied) == len(alone) > 1
    for one, other in zip(copied, alone, strict=True):
        for mine, its in zip(one.micro_batches, other.micro_batches, strict=True):
            for name, tensor in its.inputs.items():
                assert torch.equal(mine.inputs[name], tensor)
                assert any(each is mine.inputs[name] and at is now for each, at in used), "its memory could be another batch's too soon"
            assert torch.equal(mine.labels, its.labels)


def from_folder(rank, plan, folder):
    engine = Engine(folder, adamw, global_batch=models.BATCH, plan=plan)
    return engine.evaluate(models.batch())


def test_a_folder_with_weights_is_read_in_parts(tmp_path):
    model = models.model(models.CONFIGS["llama_gqa_tied"]()).eval()
    model.save_pretrained(tmp_path / "model")
    with torch.no_grad():
        loss = float(model(**models.batch()).loss)
    plan = models.PLANS["three stages, all different"]
    results, = pool.run(tmp_path / "pool", [(plan.world, from_folder, (plan, str(tmp_path / "model")))])
    assert all(abs(found / loss - 1) < 1e-5 for found in results)


def share(rank, plan):
    engine = Engine(config("llama"), adamw, global_batch=models.BATCH, plan=plan)
    return sum(one.numel() for one in engine._generation.share.parameters.values()), [one.shape for one in engine._generation.state.tensors.values()]


def test_no_worker_holds_more_than_its_share(tmp_path):
    skeleton = Skeleton(config("llama"))
    whole = sum(torch.Size(one.shape).numel() for one in skeleton.parameters.values())
    layer = sum(torch.Size(one.shape).numel() for one in skeleton.parameters.values() if one.layer == 0)
    results, = pool.run(tmp_path, [(4, share, (models.plan(3, (2, 2, [4]), (2, 2, [4])),))])
    ends = (whole - 4 * layer) / 2
    for held, _ in results:
        assert held <= ends + 2 * layer * 0.55 + 64, f"{held} of {whole}"


def test_random_weights_are_drawn_as_the_family_says():
    from swell.engine import weights
    skeleton = Skeleton(config("llama", hidden_size=256, intermediate_size=512))
    name = "model.layers.2.mlp.up_proj.weight"
    whole = torch.empty(skeleton.parameters[name].shape)
    weights.fill(whole, skeleton.beginnings[name], name, 7, whole.shape, (0, 0))
    assert abs(float(whole.mean())) < 2e-4 and abs(float(whole.std()) / 0.02 - 1) < 0.01
    kurtosis = float((whole / whole.std()).pow(4).mean())
    assert abs(kurtosis - 3) < 0.1
    part = torch.empty(100, 30)
    weights.fill(part, skeleton.beginnings[name], name, 7, whole.shape, (17, 40))
    assert torch.equal(part, whole[17:117, 40:70])
    norm = torch.empty(256)
    weights.fill(norm, skeleton.beginnings["model.norm.weight"], "model.norm.weight", 7, (256,), (0,))
    assert torch.equal(norm, torch.ones(256))


@pytest.mark.parametrize("make, words", [
    (lambda: families.read(models.CONFIGS["llama"](), {"layers": "layers"}), "needs inputs, layers and outputs"),
    (lambda: models.PLANS["dp2"].check(4, 12, 3), "is for 2 workers, there are 3"),
    (lambda: models.plan(1, (3, 1, [12])).check(4, 12, 1), "has 3 layers, the model 4"),
    (lambda: models.plan(1, (2, 1, [12]), (2, 1, [6, 5])).check(4, 12, 3), "stage 1 computes 11 samples"),
    (lambda: models.plan(1, (2, 1, [12], 1, 1), (2, 1, [12], 2)).check(4, 12, 2), "stage 1 has 1 chunk, another one 2; give every stage as many"),
    (lambda: models.plan(1, (4, 1, [12], 2, 3)).check(4, 12, 1), "the chunks have 5 units; embedding, 4 layers and head are 6, so give that many, or 4"),
    (lambda: models.plan(1, (4, 1, [12], 5, 5)).check(4, 12, 1), "the chunks have 10 units, 2 MTP heads with their losses among them"),
    (lambda: models.plan(1, (4, 1, [12], 3, 3), (0, 1, [12], 0, 0)).check(4, 12, 2), "stage 1 has no unit in any of its chunks"),
    (lambda: models.plan(1, (4, 1, [12], *[1] * 7)).check(4, 12, 1), "each stage has 7 chunks, more than the 6 units of the model; give fewer"),
    (lambda: models.plan(1, (3, 1, [12], 3, 0), (1, 1, [12], 0, 3)).check(4, 12, 2), "stage 0 has 3 layers, its chunks hold 2"),
    (lambda: Plan.from_json({"micro_batches": 1, "stages": [{"layers": 4, "tp": 1, "groups": [], "chunks": [3, -1]}]}),
     r'stage 0 has "chunks": \[3, -1\]; give a list of numbers of units'),
    (lambda: schedule.check([[schedule.Pass(True, 0), schedule.Pass(False, 0)]], 1, 1), "stage 0: B .* stands before its F"),
])
def test_errors_name_the_value(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class NoSession:
    """A runtime that must not be asked for anything but the end of a step."""

    def step(self, *_, **__):
        return 0


def head_apart(rank):
    made = Engine(models.CONFIGS["llama"](), adamw, global_batch=models.BATCH, plan=models.plan(3, (4, 1, [4], 5), (0, 1, [4], 1)))
    made._generation.session, made._observer.is_done = NoSession(), False
    return made.step(models.batch())


def test_a_stage_without_layers_trains_without_a_profile(tmp_path):
    models.model(models.CONFIGS["llama"]())
    results = pool.run(tmp_path, [(2, head_apart, ())])
    assert results[0][0] == results[0][1]
