# SPDX-License-Identifier: GPL-2.0-or-later
"""Embedding and output projection divided by vocabulary over the shards of a stage."""

import models
import pool
import pytest
import torch
import torch.distributed as dist

from swell.engine import Engine
from swell.engine.tensor_parallel import Shards, cross_entropy, split_embedding

ROWS, WIDTH, TOKENS = 24, 8, 40


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def parts(rank, count):
    """A shard's loss and gradient of logits, and its embedding's output and gradient; each of the whole, and by torch."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(TOKENS, ROWS, generator=generator) * 30     # so large that exp() alone would overflow
    targets = torch.randint(0, ROWS, (TOKENS,), generator=generator)
    targets[::5] = -100
    mine, whole = (one.clone().requires_grad_() for one in (logits.chunk(count, -1)[rank], logits))
    shards = Shards(dist.group.WORLD, rank, count)
    loss, expected = cross_entropy(mine, targets, -100, shards), torch.nn.functional.cross_entropy(whole, targets, ignore_index=-100, reduction="sum")
    (loss * 0.25).backward()
    (expected * 0.25).backward()
    yield loss, expected
    yield mine.grad, whole.grad.chunk(count, -1)[rank]
    tokens, weight = torch.randint(0, ROWS, (4, 10), generator=generator), torch.randn(ROWS, WIDTH, generator=generator)
    plain, split = torch.nn.Embedding(ROWS, WIDTH, padding_idx=5), torch.nn.Embedding(ROWS, WIDTH, padding_idx=5)
    split_embedding(split, shards)
    plain.weight, split.weight = torch.nn.Parameter(weight.clone()), torch.nn.Parameter(weight.chunk(count)[rank].clone())
    tokens[0, :4] = 5
    direction = torch.randn(4, 10, WIDTH, generator=generator)
    for one in (plain, split):
        (one(tokens) * direction).sum().backward()
    yield split(tokens).detach(), plain(tokens).detach()
    yield split.weight.grad, plain.weight.grad.chunk(count)[rank]


def compared(rank, count):
    return [float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-3)) for found, expected in parts(rank, count)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_of_loss_and_embedding_are_those_of_the_whole(count, tmp_path):
    for worker in pool.run(tmp_path, [(count, compared, (count,))])[0]:
        assert max(worker) < 1e-5, worker


def held(rank, family, plan, vocabulary):
    """Rows of the embedding and of the output projection, the width of logits, losses."""
    config = models.ALL[family]()
    config.vocab_size = vocabulary
    engine = Engine(config, sgd, global_batch=models.BATCH, plan=plan, seed=1, max_grad_norm=0.1)
    widths = []
    for model in engine._generation.share.models():
        if model.last:
            model.head().register_forward_hook(lambda _, __, out: widths.append(out.shape[-1]))
    losses = [engine.step(models.batch(seed=number)) for number in range(3)] + [engine.evaluate(models.batch(seed=9))]
    rows = {name: engine._generation.state.tensors[name].shape[0] for name in engine._generation.share.own if name in (engine._generation.share.skeleton.embedding_path + ".weight", engine._generation.share.skeleton.head_path + ".weight")}
    return rows, set(widths), losses


@pytest.mark.parametrize("family", ["llama", "llama_gqa_tied", "gemma2", "gptj"])
def test_shards_hold_and_compute_their_part_of_the_vocabulary(family, tmp_path):
    models.model(models.ALL[family]())
    vocabularies = (models.VOCABULARY, models.VOCABULARY + 1)       # the latter does not divide
    jobs = [(models.PLANS[name], vocabulary) for vocabulary in vocabularies for name in ("one worker", "pp2 dp2 tp2", "tp by stage: 2, 1")]
    results = pool.run(tmp_path, [(plan.world, held, (family, plan, vocabulary)) for plan, vocabulary in jobs])
    tied = family in ("llama_gqa_tied", "gemma2")
    for at, vocabulary in enumerate(vocabularies):
        alone, both, one = results[3 * at:3 * at + 3]
        for result in (both, one):
            for _, _, losses in result:
                assert max(abs(a / b - 1) for a, b in zip(losses, alone[0][2], strict=True)) < 1e-5
        part = models.VOCABULARY // 2 if vocabulary == models.VOCABULARY else vocabulary
        assert all(set(rows.values()) == {part} and widths <= {part} for rows, widths, _ in both), both
        # The first stage has two shards, the last one has one: a tied matrix stays whole on both.
        assert set(one[0][0].values()) == {vocabulary if tied else part} and one[2][1] == {vocabulary}, one
