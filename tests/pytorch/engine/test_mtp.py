# SPDX-License-Identifier: GPL-2.0-or-later
"""MTP heads: loss and gradients of a plain implementation, under any plan and schedule, bitwise the same where only the pipeline changes."""

import contextlib
import os
import shutil
from dataclasses import replace

import models
import pool
import pytest
import torch
import transformers
from torch import nn

from swell.engine import Engine, Plan
from swell.engine.regions import Regions
from swell.engine.skeleton import Skeleton

HEADS, WEIGHT, LIMIT = 2, 0.4, 1e-5
# Units: the embedding, 4 layers, the head, and twice a module and a head.
PLANS = {
    "one worker": (models.plan(3, (4, 1, [4])), None),
    "all heads on the last of two stages": (models.plan(3, (3, 1, [4]), (1, 1, [2, 2])), "gpipe"),
    "a head apart from its module": (models.plan(3, (4, 1, [4], 6), (0, 1, [4], 1), (0, 1, [2, 2], 3)), "zero-bubble"),
    "two chunks": (models.plan(3, (2, 1, [4], 2, 3), (2, 1, [4], 2, 3)), None),
    "heads before the end of the last chunk": (models.plan(3, (2, 1, [4], 3, 4), (2, 1, [4], 3, 0)), "zero-bubble"),
    "tp and dp by stage": (models.plan(3, (3, 2, [4], 4), (1, 1, [1, 3], 4), (0, 2, [4], 2)), None),
}
# One replica and one shard: only the pipeline differs.
PIPELINES = [(models.plan(3, (4, 1, [4])), None), (models.plan(3, (3, 1, [4]), (1, 1, [4])), "zero-bubble"),
             (models.plan(3, (2, 1, [4], 2, 3), (2, 1, [4], 2, 3)), "interleaved"), (models.plan(3, (4, 1, [4], 6), (0, 1, [4], 1), (0, 1, [4], 3)), "gpipe"),
             (models.plan(3, (1, 1, [4], 1, 1, 2), (3, 1, [4], 2, 3, 1)), "memory-minimised"), (models.plan(3, (4, 1, [4], 5, 1, 4)), "interleaved")]


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def under_plan(rank, family, plan, order, options):
    """Loss, this worker's parts of the gradients, and its parameters."""
    engine = Engine(models.model(models.CONFIGS[family]()), adamw, global_batch=models.BATCH, plan=plan, schedule=order, seed=5, mtp_heads=HEADS,
                    mtp_weight=WEIGHT, **options)
    loss, _ = engine._generation.totals.over(engine.backward(models.batch()), None)
    parts = {name: (engine._generation.share.own[name], engine.place.shard, engine._generation.share.tp, gradient) for name, gradient in engine.gradients().items()}
    return loss, parts, {name: engine._generation.state.tensors[name].clone() for name in engine._generation.share.own}, engine.evaluate(models.batch())


class Head(nn.Module):
    """An MTP head of LLaMA, by transformers' own modules."""

    def __init__(self, model, number):
        super().__init__()
        config, self.number = model.config, number
        self.layer = type(model.model.layers[0])(config, config.num_hidden_layers - 1)
        self.hidden_norm, self.token_norm, self.norm = (type(model.model.norm)(config.hidden_size, config.rms_norm_eps) for _ in range(3))
        self.projection = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, model, hidden, ids):
        later = torch.cat([ids[:, self.number + 1:], torch.zeros_like(ids[:, :self.number + 1])], 1)
        made = self.projection(torch.cat([self.hidden_norm(hidden), self.token_norm(model.model.embed_tokens(later))], -1))
        places = torch.arange(ids.shape[1])[None]
        return self.layer(made, attention_mask=None, position_ids=places, position_embeddings=model.model.rotary_emb(made, places))


def loss_of(logits, labels, ahead):
    return nn.functional.cross_entropy(logits[:, :-ahead].flatten(0, 1), labels[:, ahead:].flatten(), ignore_index=-100, reduction="sum")


def plain(rank, family, begin):
    """Loss and gradients without the engine. begin: parameters of the MTP heads."""
    model, batch = models.model(models.CONFIGS[family]()), models.batch()
    heads = [Head(model, number) for number in range(HEADS)]
    held = []
    model.model.layers[-1].register_forward_hook(lambda _, __, out: held.append(out[0] if isinstance(out, tuple) else out))
    named = {f"mtp.{number}.{name}": one for number, head in enumerate(heads) for name, one in head.named_parameters()}
    with torch.no_grad():
        for name, one in named.items():
            one.copy_(begin[name].view(one.shape))
    ids, labels = batch["input_ids"], batch["labels"]
    loss = loss_of(model(ids, use_cache=False).logits, labels, 1)
    hidden = held[0]
    for number, head in enumerate(heads):
        hidden = head(model, hidden, ids)
        loss = loss + WEIGHT / HEADS * loss_of(model.lm_head(head.norm(hidden)), labels, number + 2)
    loss = loss / (labels[:, 1:] != -100).sum()
    loss.backward()
    with torch.no_grad():
        evaluated = float(model(**batch, use_cache=False).loss)
    return float(loss.detach()), {name: one.grad for name, one in {**dict(model.named_parameters()), **named}.items()}, evaluated


@pytest.mark.parametrize("family", ["llama", "llama_gqa_tied", "qwen3"])
def test_loss_and_gradients_are_those_of_a_plain_implementation_under_every_plan(family, tmp_path):
    models.model(models.CONFIGS[family]())
    plans = {name: one for at, (name, one) in enumerate(PLANS.items()) if at % 2 == 0 or family != "llama"}
    if family == "qwen3":       # it has norms of a shard's own heads
        plans = {"one worker": PLANS["one worker"], "tp2": (models.PLANS["tp2"], None), "tp and dp by stage": PLANS["tp and dp by stage"]}
    results = pool.run(tmp_path, [(plan.world, under_plan, (family, plan, order, {})) for plan, order in plans.values()])
    begin = results[0][0][2]
    ((loss, gradients, evaluated),), = pool.run(tmp_path / "plain", [(1, plain, (family, begin))])
    for name, result in zip(plans, results, strict=True):
        found, seen = {}, {}
        for there, parts, _, also in result:
            assert abs(there / loss - 1) < LIMIT, f"{name}: loss {there}, by a plain implementation {loss}"
            assert abs(also / evaluated - 1) < LIMIT, f"{name}: {also} without MTP heads, by transformers {evaluated}"
            for parameter, (one, shard, shards, gradient) in parts.items():
                key = parameter, shard if one.dim is not None else 0
                assert key not in seen or torch.equal(seen[key], gradient), f"{name}: copies of {parameter} differ"
                seen[key] = gradient
                one.put(found.setdefault(parameter, torch.full(one.shape, float("nan"))), gradient, shard, shards)
        assert set(found) == set(gradients)
        for parameter, expected in gradients.items():
            error = float((found[parameter] - expected).abs().max()) / max(float(expected.abs().max()), 1e-3)
            assert error < LIMIT, f"{name}: gradient of {parameter} is off by {error}"


class Seen(Regions):
    """Notes which regions begin and end, in their order."""

    def __init__(self):
        self.noted = []

    @contextlib.contextmanager
    def region(self, kind, micro_batch=None, size=0, chunk=0):
        self.noted.append(kind)
        yield
        self.noted.append(f"end of {kind}")


def parts_of_a_step(rank, plan, order, kind):
    engine = Engine(models.CONFIGS["llama_gqa_tied"](), adamw, global_batch=models.BATCH, plan=plan, schedule=order, seed=5, mtp_heads=HEADS)
    seen = engine._generation.executor._regions = Seen()
    engine.backward(models.batch())
    passes = seen.noted.count("forward")
    modules = []        # the MTP modules' own backward passes, which belong to no head and come between two of them
    for at, each in enumerate(seen.noted):
        if each == f"end of {kind}":
            modules.append(seen.noted[at + 1] == kind)
    return passes, [seen.noted.count(each) for each in ("head", "end of head", kind, f"end of {kind}")], modules


@pytest.mark.parametrize("order, kind", [("1f1b", "head backward"), ("zero-bubble", "head inputs")])
def test_each_of_several_heads_in_a_chunk_is_timed_on_its_way_back(order, kind, tmp_path):
    ((passes, counts, modules),), = pool.run(tmp_path, [(1, parts_of_a_step, (PLANS["one worker"][0], order, kind))])
    assert counts == [passes * (1 + HEADS)] * 4
    assert modules == [True, True, False] * passes, "a head's region ends with its own gradient"


def segment(rank, family, plan, order, folder, steps, options):
    engine = Engine(models.CONFIGS[family](), adamw, global_batch=models.BATCH, plan=plan, schedule=order, directory=folder, seed=3, mtp_heads=HEADS,
                    max_grad_norm=0.5, **options)
    losses = [engine.step(models.batch(seed=engine.steps)) for _ in range(steps)]
    engine.save()
    return losses, {name: tensor.clone() for name, tensor in engine._generation.state.tensors.items()}


@pytest.mark.parametrize("family, options, plans", [("llama_gqa_tied", {}, PIPELINES), ("gpt2", {"recompute": True}, PIPELINES[:1] + PIPELINES[4:])])
def test_changes_of_the_pipeline_are_bitwise_invisible(family, options, plans, tmp_path):
    """Each plan goes on from the checkpoint of the one before, which had other chunks."""
    models.model(models.CONFIGS[family]())
    folder = str(tmp_path / "checkpoints")
    results = pool.run(tmp_path / "pool", [(plan.world, segment, (family, plan, order, folder, 2, options)) for plan, order in plans])
    shutil.rmtree(folder)
    ((reference, alone),), = pool.run(tmp_path / "alone", [(1, segment, (family, *plans[0], folder, 2 * len(plans), options))])
    assert [loss for result in results for loss in result[0][0]] == reference
    assert all(torch.equal(tensor, alone[name]) for _, tensors in results[-1] for name, tensor in tensors.items())
    assert any(name.startswith("mtp.1.layer.") for name in alone)


def one_step(rank, family):
    engine = Engine(models.CONFIGS[family](), adamw, global_batch=models.BATCH, plan=models.PLANS["pp2"], mtp_heads=1)
    losses = [engine.step(models.batch()) for _ in range(3)]
    engine.save_pretrained(os.path.join(os.environ["TMPDIR"], family)) if family == "llama" else None
    return losses


def test_a_family_has_mtp_heads_or_says_why_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for make in models.CONFIGS.values():
        Skeleton(make(), mtp_heads=1)
    for make, words in ((lambda: transformers.PersimmonConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4), "nothing describes its layers"),
                        (lambda: transformers.OPTConfig(hidden_size=32, word_embed_proj_dim=16, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4), "there are 2 modules")):
        with pytest.raises(ValueError, match=f"mtp_heads=1: .* cannot have MTP heads, since {words}.*; leave mtp_heads out"):
            Skeleton(make(), mtp_heads=1)
    trained = ("llama", "gpt2", "opt", "gemma2", "qwen3_moe")
    for family in trained:
        models.model(models.CONFIGS[family]())
    results = pool.run(tmp_path / "pool", [(2, one_step, (family,)) for family in trained])
    for family, result in zip(trained, results, strict=True):
        assert all(one == result[0] for one in result) and result[0][2] < result[0][0], f"{family}: {result}"
    assert os.path.exists(tmp_path / "llama" / "model.safetensors"), "the model is exported without its MTP heads"


@pytest.mark.parametrize("make, words", [
    (lambda: Engine(models.CONFIGS["llama"](), adamw, global_batch=12, plan=models.plan(1, (4, 1, [12], 5, 5)), mtp_heads=1),
     r"the chunks have 10 units, 2 MTP heads with their losses among them, and the engine trains 1; give Engine\(mtp_heads=2\), or a plan of 8 units"),
    (lambda: Engine(models.CONFIGS["llama"](), adamw, global_batch=12, mtp_heads=-1), "mtp_heads=-1; give a whole number of at least 0"),
    (lambda: Engine(models.CONFIGS["llama"](), adamw, global_batch=12, mtp_heads=1, mtp_weight=0), "mtp_weight=0; give a number above 0"),
])
def test_numbers_that_do_not_fit_are_refused_with_what_to_give(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_start_with_another_number_of_mtp_heads_is_refused(tmp_path):
    def start(heads):
        return Engine(models.CONFIGS["llama"](), adamw, global_batch=12, plan=PLANS["one worker"][0], mtp_heads=heads, directory=tmp_path)
    engine = start(2)
    engine.step(models.batch())
    engine.save()
    rest, = tmp_path.glob("step-*/engine.pt")
    del engine
    for heads in (0, 1):
        with pytest.raises(ValueError, match=f"the training before had mtp_heads=2, here it is {heads}: keep it"):
            start(heads)
    assert start(2).steps == 1
    written = torch.load(rest, weights_only=True)
    assert written.pop("mtp_heads") == 2
    torch.save(written, rest)       # as before checkpoints had the word
    assert start(0).steps == 1


def test_a_plan_of_layers_alone_keeps_its_schedule_with_mtp_heads() -> None:
    plan = replace(Plan.symmetric(4, 12, 2, pp=2), schedule="zero-bubble")
    assert plan.with_mtp(2).schedule == "zero-bubble" and plan.with_mtp(2).stages != plan.stages


def test_a_plan_of_layers_alone_has_all_mtp_heads_behind_the_models_own() -> None:
    plan = Plan.symmetric(4, 12, 2, pp=2).with_mtp(2)
    assert [stage.chunks for stage in plan.stages] == [(3,), (7,)] and plan.contents.heads_of(1) == [0, 1, 2] and plan.contents.parts[1][0].modules == range(2)
    plan.check(4, 12, 2, 2)
    assert plan.with_mtp(2) == plan and Plan.from_json(plan.to_json()) == plan
