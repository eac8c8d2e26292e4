# SPDX-License-Identifier: GPL-2.0-or-later
"""Random numbers that a dataset of map style draws: the same for a sample, whoever reads it."""

import random
import threading

import numpy
import pytest
import torch

from forked import Run, deviation
from swell._drawn import DrawnLoader
from swell.data import ElasticSampler

LENGTH, GLOBAL_BATCH = 29, 12
KEPT, COLLATED = ["28.0000000", "0.0562934", "0.7502199", "0.3829610", "0.6597330", "-0.5485520"], ["0.8682647", "0.4089111", "0.4351277", "0.6600721"]     # of seed 11


class Drawing(torch.utils.data.Dataset):
    """Each sample is its index and what three generators have drawn."""

    def __init__(self, draws=True):
        self.draws, self.reads = draws, 0

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        self.reads += 1
        assert type(index) is int
        reader = torch.utils.data.get_worker_info()
        assert reader is None or type(reader.dataset) in (type(self), torch.utils.data.Subset)
        if not self.draws:
            return [float(index)] * 4
        return [float(index), torch.rand(1).item(), float(numpy.random.rand()), random.random()]


def halves(length=LENGTH):
    """As random_split() gives them: its __getitems__ is torch's own, and reads one by one."""
    return torch.utils.data.Subset(Drawing(), range(length))


class Joined(torch.utils.data.ConcatDataset):
    """Draws beside what it has stored."""

    def __init__(self):
        super().__init__([list(range(9)), list(range(9, LENGTH))])

    def __getitem__(self, index):
        return [float(super().__getitem__(index)), torch.rand(1).item(), float(numpy.random.rand()), random.random()]


class Part(torch.utils.data.Subset):
    """Draws beside what it has stored."""

    def __init__(self):
        super().__init__(list(range(LENGTH)), range(LENGTH))

    def __getitem__(self, index):
        return [super().__getitem__(index), torch.rand(1).item()]

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Rows(Drawing):
    """Makes whole batches, and has no single samples."""

    def __getitem__(self, index):
        raise NotImplementedError

    def __getitems__(self, indices):
        assert all(type(index) is int for index in indices)
        return {"index": torch.tensor(indices), "drawn": torch.rand(len(indices)), "of": len(indices)}


def joined(samples):
    """Marks each batch with what its collate function draws."""
    return torch.tensor([[*sample, torch.rand(1).item()] for sample in samples], dtype=torch.float64)


def two_epochs(kind, world, seed=3, collate=torch.tensor, **loader):
    """Samples by number in the training."""
    found = {}
    for rank in range(world):
        sampler = ElasticSampler(LENGTH, GLOBAL_BATCH, micro_batch=5, seed=seed, rank=rank, world=world)
        dataset = kind()
        for _ in range(2):
            begins = iter([at for at in range(sampler.epoch * LENGTH, (sampler.epoch + 1) * LENGTH) if (at - sampler.epoch * LENGTH) % GLOBAL_BATCH == 0])
            passes = iter(DrawnLoader(dataset, batch_sampler=sampler, collate_fn=collate, **loader))
            for begin in begins:
                for piece in sampler.pieces_at(begin):
                    batch = next(passes)
                    for at, sample in enumerate(batch):
                        if piece.counted:
                            found[begin + piece.begin + at] = sample.tolist()
                sampler.advance()
            assert next(passes, None) is None
    return [found[number] for number in range(2 * LENGTH)]


@pytest.mark.parametrize("kind", [Drawing, halves, Joined])
@pytest.mark.parametrize("world, readers", [(2, 0), (3, 0), (1, 1), (1, 3), (2, 2)])
def test_a_sample_draws_the_same_however_many_workers_and_readers_there_are(kind, world, readers):
    alone = two_epochs(kind, 1)
    assert two_epochs(kind, world, num_workers=readers) == alone
    drawn = {tuple(sample[1:]) for sample in alone}
    assert len(drawn) == 2 * LENGTH, "no two samples, nor one in two epochs, draw the same"
    assert all(mine[1:] != other[1:] for mine, other in zip(alone, two_epochs(kind, 1, seed=4)))


def test_draws_of_a_collate_function_do_not_depend_on_the_number_of_readers():
    assert two_epochs(Drawing, 2, collate=joined, num_workers=1) == two_epochs(Drawing, 2, collate=joined, num_workers=3)


def test_the_training_s_own_random_numbers_are_left_alone():
    def left(kind):
        torch.manual_seed(1), numpy.random.seed(1), random.seed(1)
        two_epochs(kind, 1)
        return torch.rand(1).item(), numpy.random.rand(), random.random()
    assert left(Drawing) == left(lambda: Drawing(draws=False))


class Pairs(Drawing):
    """Draws normal numbers, of which numpy makes two at a time, and Python too."""

    def __getitem__(self, index):
        return [*super().__getitem__(index), float(numpy.random.randn()), random.gauss(0, 1)]


@pytest.mark.parametrize("own", [
    [], [lambda: float(numpy.random.randn())], [lambda: float(numpy.random.rand())], [lambda: None, lambda: float(numpy.random.randn())],
    [lambda: numpy.random.seed(4), lambda: None], [lambda: None, lambda: None, lambda: numpy.random.set_state(numpy.random.RandomState(8).get_state())],
    [lambda: float(numpy.random.randn()), lambda: None, random.random, lambda: random.gauss(0, 1)]])
@pytest.mark.parametrize("kind", [Drawing, Pairs])
def test_the_training_s_own_numbers_between_batches_are_as_without_samples(own, kind):
    def left(batches):
        torch.manual_seed(1), numpy.random.seed(1), random.seed(1)
        found = []
        for at, _ in enumerate(batches):
            found += [each() for each in own[at % max(1, len(own)):][:1]]
        return [*found, numpy.random.rand(), numpy.random.randn(3).tolist(), random.gauss(0, 1), torch.rand(1).item()]
    sampler = ElasticSampler(60, 6, rank=0, world=1)
    assert left(DrawnLoader(kind(), batch_sampler=sampler, generator=torch.Generator())) == left(range(10))


@pytest.mark.parametrize("readers", [0, 1])
def test_a_seed_has_the_samples_for_ever(readers):
    sampler = ElasticSampler(LENGTH, 4, seed=11, rank=0, world=1)
    first = next(iter(DrawnLoader(Pairs(), batch_sampler=sampler, num_workers=readers, collate_fn=joined)))
    assert [f"{each:.7f}" for each in first[1].tolist()[:-1]] == KEPT
    stored = next(iter(DrawnLoader(torch.utils.data.TensorDataset(torch.arange(29.0)), batch_sampler=sampler, num_workers=1, collate_fn=joined)))
    assert stored[:, 0].tolist() == first[:, 0].tolist() and [f"{each:.7f}" for each in stored[:, 1].tolist()] == COLLATED


@pytest.mark.parametrize("draws", [False, True])
def test_samples_are_read_once(draws):
    sampler = ElasticSampler(LENGTH, GLOBAL_BATCH, rank=0, world=1)
    mine = Drawing(draws)
    assert len(list(DrawnLoader(mine, batch_sampler=sampler))) == 3 and mine.reads == LENGTH


def passes(dataset, seed=3, **loader):
    return list(DrawnLoader(dataset, batch_sampler=ElasticSampler(LENGTH, GLOBAL_BATCH, seed=seed, rank=0, world=1), **loader))


@pytest.mark.parametrize("readers", [0, 2])
def test_a_batch_that_the_dataset_makes_stays_whole_and_draws_by_its_first_sample(readers):
    made = passes(Rows(), collate_fn=lambda batch: batch, num_workers=readers)
    assert [each["of"] for each in made] == [12, 12, 5]
    again = passes(Rows(), collate_fn=lambda batch: batch, num_workers=1)
    assert all(torch.equal(one["drawn"], other["drawn"]) for one, other in zip(made, again, strict=True))
    assert len({each["drawn"][0].item() for each in made}) == 3


def test_a_part_with_changes_of_the_script_s_draws_by_number():
    drawn = []
    for seed in range(2):
        torch.manual_seed(seed)
        drawn.append(torch.cat([batch[1] for batch in passes(Part())]))
    assert torch.equal(*drawn)


def test_a_table_of_hugging_face_s_is_read_at_once_until_its_transform_draws():
    datasets = pytest.importorskip("datasets")
    asked = []

    def read(transform, **sampler):
        asked.clear()
        table = datasets.Dataset.from_dict({"x": list(range(LENGTH))})
        table.set_transform(lambda rows: asked.append(len(rows["x"])) or transform(rows))
        batches = DrawnLoader(table, collate_fn=list, batch_sampler=ElasticSampler(LENGTH, GLOBAL_BATCH, **{"rank": 0, "world": 1, **sampler}))
        return [each for batch in batches for each in batch]
    read(lambda rows: {"y": rows["x"]})
    assert asked == [12, 12, 5]
    change = {"transform": lambda rows: {"y": [(x, random.random()) for x in rows["x"]]}}
    alone = [each["y"] for each in read(**change)]
    assert asked == [12] + [1] * LENGTH
    assert sorted(set(alone)) == sorted({each["y"] for rank in range(2) for each in read(**change, rank=rank, world=2)})


@pytest.mark.parametrize("readers", [0, 1])
def test_the_loader_s_dataset_is_the_script_s_own(readers):
    mine = Drawing(draws=False)
    loader = DrawnLoader(mine, batch_sampler=ElasticSampler(LENGTH, GLOBAL_BATCH, rank=0, world=1), num_workers=readers)
    assert loader.dataset is mine
    reading = iter(loader)
    assert loader.dataset is mine and loader.worker_init_fn is None
    list(reading)
    loader.dataset.draws = True
    assert any(sample[1] % 1 for sample in torch.stack(next(iter(loader)), 1).tolist())


class Cursor(torch.utils.data.Dataset):
    """Cannot be read twice."""

    def __init__(self):
        self.left = {index: [index, 0.0] for index in range(LENGTH)}

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return [*self.left.pop(index), torch.rand(1).item()]


@pytest.mark.parametrize("kind", [Cursor, lambda: torch.utils.data.Subset(Cursor(), range(LENGTH))])
def test_a_dataset_that_cannot_be_read_twice_is_not(kind):
    assert sum(len(batch[0]) for batch in passes(kind())) == LENGTH


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("readers", [0, 1])
def test_numpy_with_another_bit_generator_is_left_alone(readers, draws):
    before = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(numpy.random.PCG64(5))
        drawn = [passes(Drawing(draws), num_workers=readers) for _ in range(2)]
        assert torch.equal(drawn[0][0][1], drawn[1][0][1]) and torch.equal(drawn[0][0][3], drawn[1][0][3])
    finally:
        numpy.random.set_bit_generator(before)


class Watched(Drawing):
    """Another thread draws from Python's generator as each sample is read."""

    def __getitem__(self, index):
        thread = threading.Thread(target=random.random)
        thread.start(), thread.join()
        return super().__getitem__(index)[:3]


def test_a_thread_that_draws_meanwhile_changes_no_sample_that_draws_elsewhere():
    watched = Watched()
    assert all(torch.equal(one, other) for mine, other_s in zip(passes(watched), passes(Drawing()), strict=True)
               for one, other in zip(mine[:3], other_s[:3], strict=True)) and watched.reads == LENGTH


@pytest.mark.parametrize("framework, readers", [("elastic", 2), pytest.param("elastic", 0, marks=pytest.mark.slow), *(
    pytest.param(framework, readers, marks=pytest.mark.slow) for framework in ("trainer", "lightning") for readers in (0, 2))])
def test_a_script_with_augmentation_trains_the_same_after_resizes(runs, framework, readers):
    words = ["drawing", framework, str(readers)]
    alone = runs(Run, "alone", *words, steps=14).fast().start(1).leave_well()
    run = runs(Run, "resized", *words, steps=14)
    for world in (1, 2):
        run.start(world).reach(run.step() + 3).ask().leave_well()
    run.fast().start(3 if framework != "lightning" else 1).leave_well()
    assert len(set(run.worlds())) > 1 and sorted(run.curve()) == sorted(alone.curve()) and deviation(run.curve(), alone.curve()) < 1e-5
