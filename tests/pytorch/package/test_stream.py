# SPDX-License-Identifier: GPL-2.0-or-later
"""Streams over random sequences of resizes: no sample is lost or repeated, and the order is the stream's.

The sources stand for packages with the same protocols: Hugging Face's datasets, torchdata's StatefulDataLoader, WebDataset.
"""

import random

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from forked import Run, apart, deviation
from swell._stream import Stream, packed, unpacked
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


class DataLoaderWithState(Loader):
    def __init__(self, dataset, **options):
        DataLoader.__init__(self, dataset, **options)


class Tar(IterableDataset):
    """As webdataset.WebDataset: an order of its own, and no state."""

    def __iter__(self):
        return iter(range(100, 0, -1))


class Buffered(Shards):
    """Shuffles by a buffer, which its state leaves out."""

    def __iter__(self):
        chance, held = random.Random(self.epoch), []
        for sample in super().__iter__():
            held.append(sample)
            if len(held) > 9:
                yield held.pop(chance.randrange(len(held)))
        yield from held


def of_datasets(make):
    """make: gives a streamed dataset of Hugging Face's, from that package and one of 100 rows "n" in five shards."""
    def made():
        datasets = pytest.importorskip("datasets")
        return make(datasets, datasets.IterableDataset.from_generator(rows_of, gen_kwargs={"shards": list(range(5))}))
    return made


def rows_of(shards):
    for shard in shards:
        for number in range(20):
            yield {"n": 20 * shard + number}


def of_torchdata(make):
    """make: gives a loader by torchdata's StatefulDataLoader."""
    return lambda: make(pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader)


def peeked(dataset):
    next(iter(dataset))     # as scripts look at a first sample
    return dataset


SOURCES = {"datasets": Shards, "shorter": lambda: Shards(length=30, shards=3), "torchdata": lambda: Loader(list(range(100)), 3),
           "torchdata, uneven": lambda: Loader(list(range(99)), 4), "webdataset": lambda: ElasticIterable(Tar(), BATCH), "buffer": Buffered,
           "hf": of_datasets(lambda _, one: one), "hf, peeked": of_datasets(lambda _, one: peeked(one)),
           "hf, shuffle": of_datasets(lambda _, one: one.shuffle(seed=3, buffer_size=20)),
           "hf, mapped": of_datasets(lambda _, one: one.map(lambda row: {"n": [number for each in row["n"] for number in (each, each + 1000)]},
                                                            batched=True, batch_size=7).filter(lambda row: row["n"] % 3)),
           "hf, interleaved": of_datasets(lambda datasets, one: datasets.interleave_datasets(
               [one, one.map(lambda row: {"n": row["n"] + 1000})], probabilities=[0.7, 0.3], seed=4)),
           "hf, skip and take": of_datasets(lambda _, one: one.skip(5).take(60)),
           "StatefulDataLoader": of_torchdata(lambda loader: loader(list(range(100)), batch_size=3)),
           "StatefulDataLoader, shuffled": of_torchdata(lambda loader: loader(list(range(100)), batch_size=3, shuffle=True,
                                                                              generator=torch.Generator().manual_seed(4))),
           "StatefulDataLoader of hf": of_torchdata(lambda loader: loader(SOURCES["hf"](), batch_size=3)),
           "StatefulDataLoader of hf, shuffle": of_torchdata(lambda loader: loader(SOURCES["hf, shuffle"](), batch_size=3))}


def stream_of(name, micro=BATCH, rank=0, world=1):
    source = SOURCES[name]()
    return Stream(source, BATCH, micro_batch=micro, rank=rank, world=world, collate=None if hasattr(source, "batch_size") else list)


def numbers(batch):
    """The samples of a batch."""
    if isinstance(batch, dict):
        batch = batch["n"]
    return [int(each["n"] if isinstance(each, dict) else each) for each in batch]


def taken(workers, steps, epochs):
    """The samples of the next steps, as all workers count them, step by step; fewer where the epochs are over. As Elastic, Trainer and Engine do it."""
    found = []
    while len(found) < steps and workers[0].epoch < epochs:
        pulled = [worker.pull() for worker in workers]
        assert len(set(pulled)) == 1, "workers would wait for each other"
        if not pulled[0]:
            continue
        assert len({worker.digest() for worker in workers}) == 1
        parts = [(piece, batch) for worker in workers for piece, batch in zip(worker.pieces_at(worker.samples), worker.share(), strict=True)]
        found.append([each for piece, batch in parts if piece.counted for each in numbers(batch)])
        for worker in workers:
            worker.advance()
    return found


def taken_ahead(workers, steps, epochs):
    """The same from loaders that read ahead of the steps, and are begun anew now and then. As Lightning does it."""
    found = []
    while len(found) < steps and workers[0].epoch < epochs:
        epoch, loaders = workers[0].epoch, [worker.joined_shares() for worker in workers]
        read = [next(loader) for loader in loaders]
        while len(found) < steps and read:
            now, read = read, [batch for batch in (next(loader, None) for loader in loaders) if batch is not None]
            found.append([each for batch in now for each in numbers(batch)])
            for worker in workers:
                worker.advance()
            if len(found) % 3 == 0 and read:
                break
        assert read or len(found) == steps or workers[0].epoch == epoch + 1
    return found


def is_made_slowly(name):
    return name.startswith(("hf", "Stateful"))


@pytest.mark.parametrize("name, take", [pytest.param(name, take, marks=pytest.mark.slow if is_made_slowly(name) and (take is taken_ahead or name.endswith(("take", "of hf"))) else ())
                                        for take in (taken, taken_ahead) for name in SOURCES])
def test_20_random_sequences_of_resizes_lose_and_repeat_no_sample(name, take):
    epochs, is_slow = 3, is_made_slowly(name)
    first = stream_of(name)
    first.check()
    reference = taken([first], 10 ** 6, epochs)
    per_epoch = len(reference) // epochs
    for epoch in range(epochs):
        one = [sample for step in reference[epoch * per_epoch:(epoch + 1) * per_epoch] for sample in step]
        assert len(set(one)) == len(one) == per_epoch * BATCH
    for seed in range(20):
        chance, state, seen = random.Random(seed), None, []
        while len(seen) < len(reference):
            most = 2 if is_slow else 3 if take is taken else first.units
            world = chance.choice([each for each in range(1, most + 1) if first.units % each == 0])
            micro = chance.randint(1, BATCH) if take is taken else BATCH
            workers = [stream_of(name, micro, rank, world) for rank in range(world)]
            for worker in workers:
                if state:
                    worker.load_state_dict(unpacked(state))
                else:
                    worker.check()
            seen += take(workers, chance.randint(3, 9) if is_slow else chance.randint(1, 5), epochs)
            state = packed(workers[chance.randrange(world)].state_dict())
        assert seen == reference, f"seed {seed}"


def test_a_position_may_be_asked_for_after_the_next_global_batch_was_read():
    ahead, plain = Stream(Shards(), BATCH, micro_batch=BATCH, rank=0, world=1), Stream(Shards(), BATCH, micro_batch=BATCH, rank=0, world=1)
    for stream in (ahead, plain):
        taken([stream], 3, 9)
    ahead.pull()
    assert ahead.state_dict() == plain.state_dict()


def test_the_end_of_an_epoch_is_known_before_its_last_step_is_left():
    stream = Stream(Shards(length=30), BATCH, micro_batch=BATCH, rank=0, world=1)
    ends = []
    while stream.epoch < 2:
        if stream.pull():
            stream.advance()
            ends.append((stream.samples, stream.is_at_end()))
    assert ends == [(12, False), (24, True), (36, False), (48, True)]


class Moved(Shards):
    """Another stream, of the same form."""

    def __iter__(self):
        return (sample + 1 for sample in super().__iter__())


def test_a_stream_that_has_changed_since_the_checkpoint_is_refused():
    before = Stream(Shards(), BATCH, micro_batch=BATCH, rank=0, world=1)
    taken([before], 4, 9)
    after = Stream(Moved(), BATCH, micro_batch=BATCH, rank=0, world=1)
    after.load_state_dict(before.state_dict())
    with pytest.raises(ValueError, match="Moved gives other samples up to step 4 than the run so far has trained on: give the same stream"):
        after.pull()


class Unseeded(IterableDataset):
    def __iter__(self):
        return iter(random.sample(range(100), 100))


class Fresh(Shards):
    """Takes a state back, and does not begin anew."""

    def load_state_dict(self, state):
        self.loaded = {**(state or {"shard": 1, "place": 0}), "epoch": self.epoch}


@pytest.mark.parametrize("make, says", [
    (lambda: ElasticIterable(Unseeded(), BATCH), "Unseeded gives other samples when it is read again, so that no start could go on.*give its shuffling a seed"),
    (lambda: ElasticIterable(iter(range(100)), BATCH), "range_iterator can be read once alone: give what begins anew"),
    (lambda: of_datasets(lambda _, one: one.shuffle(buffer_size=20))(), "shuffled by shuffle.. without seed="),
    (lambda: DataLoaderWithState(list(range(100)), batch_size=3, shuffle=True), "shuffled without generator="),
    (lambda: of_torchdata(lambda loader: loader(list(range(100)), batch_size=3, shuffle=True))(), "StatefulDataLoader is shuffled without generator="),
    (Fresh, "Fresh does not begin anew with the state that it had before it was read")])
def test_a_source_in_which_no_start_could_go_on_is_refused_before_a_step(make, says):
    source = make()
    with pytest.raises(ValueError, match=says):
        Stream(source, BATCH, micro_batch=BATCH, rank=0, world=1, collate=None).check()


def test_a_source_is_looked_at_without_moving_it_or_the_random_numbers(capfd):
    source = Shards()
    stream, kept = Stream(source, BATCH, micro_batch=BATCH, rank=0, world=1), random.getstate()
    stream.check()
    assert random.getstate() == kept and taken([stream], 1, 1)[0] == taken([Stream(Shards(), BATCH, micro_batch=BATCH, rank=0, world=1)], 1, 1)[0]
    Stream(Buffered(), BATCH, micro_batch=BATCH, rank=0, world=1).check()
    assert "state_dict() of Buffered does not restore its position exactly" in capfd.readouterr().err


def test_streams_that_cannot_go_on_are_refused_with_what_to_use():
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
