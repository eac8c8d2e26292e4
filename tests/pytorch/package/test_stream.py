# SPDX-License-Identifier: GPL-2.0-or-later
"""Streams over random sequences of resizes: no sample is lost or repeated, and the order is the stream's.

The sources stand for packages with the same protocols: Hugging Face's datasets, torchdata's StatefulDataLoader, WebDataset.
"""

import random

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from forked import Run, apart, deviation
from swell._stream import Stream
from swell.data import ElasticIterable
from swell.torch import Elastic

BATCH = 12


class Shards(IterableDataset):
    """As datasets.IterableDataset: it has shards, and its state names one and a place in it. A state loaded is of its epoch alone."""

    def __init__(self, length=100, shards=7):
        self.length, self.shards, self.epoch, self.at, self.loaded = length, shards, 0, None, None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.at = {"shard": 0, "place": 0, "epoch": self.epoch}
        if self.loaded and self.loaded["epoch"] == self.epoch:
            self.at = dict(self.loaded)
        order = list(range(self.shards))
        random.Random(self.epoch).shuffle(order)
        while self.at["shard"] < self.shards:
            mine = range(order[self.at["shard"]], self.length, self.shards)
            while self.at["place"] < len(mine):
                self.at["place"] += 1
                yield mine[self.at["place"] - 1]
            self.at.update(shard=self.at["shard"] + 1, place=0)

    def state_dict(self):
        return self.at      # not a copy: whoever keeps it must make one

    def load_state_dict(self, state):
        self.loaded = state


class Loader(DataLoader):
    """As torchdata's StatefulDataLoader: batches, and the state counts those that were given."""

    def __init__(self, dataset, batch_size):
        super().__init__(dataset, batch_size=batch_size)
        self.given, self.next = 0, None

    def __iter__(self):
        begin, self.next = self.next or 0, None
        self.given = begin
        for number, batch in enumerate(super().__iter__()):
            if number >= begin:
                self.given += 1
                yield batch

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.next = state["given"]


class Tar(IterableDataset):
    """As webdataset.WebDataset: an order of its own, and no state."""

    def __iter__(self):
        return iter(range(100, 0, -1))


SOURCES = {"datasets": Shards, "shorter": lambda: Shards(length=30, shards=3), "torchdata": lambda: Loader(list(range(100)), 3),
           "torchdata, uneven": lambda: Loader(list(range(99)), 4), "webdataset": lambda: ElasticIterable(Tar(), BATCH)}


def taken(workers, steps, epochs):
    """The samples of the next steps, as all workers count them, step by step; fewer where the epochs are over."""
    found = []
    while len(found) < steps and workers[0].epoch < epochs:
        pulled = [worker.pull() for worker in workers]
        assert len(set(pulled)) == 1, "workers would wait for each other"
        if not pulled[0]:
            continue
        assert len({worker.digest() for worker in workers}) == 1
        parts = [(piece, batch) for worker in workers for piece, batch in zip(worker.pieces_at(worker.samples), worker.share(), strict=True)]
        found.append([int(each) for piece, batch in parts if piece.counted for each in batch])
        for worker in workers:
            worker.advance()
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_20_random_sequences_of_resizes_lose_and_repeat_no_sample(name):
    epochs = 3
    reference = taken([Stream(SOURCES[name](), BATCH, micro_batch=BATCH, rank=0, world=1)], 10 ** 6, epochs)
    per_epoch = len(reference) // epochs
    for epoch in range(epochs):
        one = [sample for step in reference[epoch * per_epoch:(epoch + 1) * per_epoch] for sample in step]
        assert len(set(one)) == len(one) == per_epoch * BATCH
    for seed in range(20):
        chance, state, seen = random.Random(seed), None, []
        while len(seen) < len(reference):
            world, micro = chance.randint(1, BATCH + 2), chance.randint(1, BATCH)
            workers = [Stream(SOURCES[name](), BATCH, micro_batch=micro, rank=rank, world=world) for rank in range(world)]
            for worker in workers:
                if state:
                    worker.load_state_dict(state)
            seen += taken(workers, chance.randint(1, 5), epochs)
            state = workers[chance.randrange(world)].state_dict()
        assert seen == reference, f"seed {seed}"


def test_what_cannot_be_gone_on_with_is_refused_with_what_to_use():
    make = {"micro_batch": 4, "rank": 0, "world": 1}
    with pytest.raises(TypeError, match=r"Tar has no length and no state_dict\(\).*ElasticIterable\(Tar\(\.\.\.\), global_batch=12\)"):
        Stream(Tar(), BATCH, **make)
    with pytest.raises(TypeError, match="DataLoader has no length.*Give batches.. its dataset.*StatefulDataLoader"):
        Stream(DataLoader(list(range(9)), batch_size=3), BATCH, **make)
    with pytest.raises(ValueError, match="batches of 5, which do not divide global_batch=12"):
        Stream(Loader(list(range(9)), 5), BATCH, **make)
    with pytest.raises(ValueError, match="gave 9 samples in an epoch; global_batch=12"):
        Stream(Loader(list(range(9)), 3), BATCH, **make).pull()
    with pytest.raises(ValueError, match="stream False, here it is True"):
        Stream(Shards(), BATCH, **make).load_state_dict({"samples": 12, "seed": 0, "length": 100})


@pytest.mark.parametrize("readers", [1, 2])
def test_readers_that_would_each_give_all_samples_are_refused(readers):
    loader = DataLoader(ElasticIterable(Tar(), BATCH, rank=0, world=1), batch_size=4, num_workers=readers)
    if readers > 1:
        with pytest.raises(ValueError, match=f"num_workers={readers}: each reader"):
            list(loader)
    else:
        assert sum(len(batch) for batch in loader) == 96


@pytest.mark.parametrize("kind", ["stream", "loader"])
def test_a_streamed_training_is_the_same_over_other_workers(runs, kind):
    reference = runs(Run, "reference", "ddp", kind, steps=24).fast().start(1).leave_well()
    run = runs(Run, "resized", "ddp", kind, steps=24).start(1)
    run.reach(5).ask().leave_well()
    run.fast().start(3).leave_well()
    assert run.worlds() == [1, 3] and deviation(run.curve(), reference.curve()) < 1e-5
    assert run.sizes() == list(range(1, 13 if kind == "stream" else 5))


def test_workers_that_read_different_streams_are_told(runs):
    run = runs(Run, "apart", "ddp", "stream", "by-rank", steps=24).start(2)
    assert run.leave() == [1, 1]
    assert "gives other samples on rank 1 than on rank 0; give every worker the whole stream" in run.said(0)


@apart
def test_elastic_takes_an_iterable_and_says_what_it_does_not_take(tmp_path):
    class Rows(IterableDataset):
        def __iter__(self):
            return iter((torch.full((4,), float(number)), torch.zeros(1)) for number in range(30))
    model = torch.nn.Linear(4, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=1e-4), directory=tmp_path / "c", global_batch=8)
    with pytest.raises(TypeError, match=r"ElasticIterable\(Rows"):
        next(elastic.batches(Rows(), steps=5))
    with pytest.raises(ValueError, match="num_workers: batches.. reads Elastic"):
        next(elastic.batches(ElasticIterable(Rows(), 8), steps=5, num_workers=2))
    seen = []
    for x, y in elastic.batches(ElasticIterable(Rows(), 8), epochs=2):
        elastic.step((model(x) - y).square().mean())
        seen += x[:, 0].int().tolist()
    assert seen == [*range(24), *range(24)]
