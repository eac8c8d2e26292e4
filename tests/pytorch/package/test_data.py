# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples over random sequences of resizes."""

import collections
import random
import socket
import time
import tracemalloc

import pytest

from swell import _request, data
from swell._order import order_of_epoch


def epochs_of_one_worker(length, batch, epochs, **options):
    """The order in which one worker that nobody resizes sees the samples."""
    sampler = data.ElasticSampler(length, batch, rank=0, world=1, **options)
    seen = []
    while sampler.epoch < epochs:
        for indices in sampler:
            seen.append(indices)
            sampler.advance()
    return seen


def resized(length, batch, epochs, chance, **options):
    """The global batches of a run whose number of workers changes at random, with the state handed on."""
    state, seen = None, []
    while True:
        world, micro = chance.randint(1, batch + 3), chance.randint(1, batch)
        workers = []
        for rank in range(world):
            sampler = data.ElasticSampler(length, batch, micro_batch=micro, rank=rank, world=world, **options)
            if state:
                sampler.load_state_dict(state)
            workers.append(sampler)
        for _ in range(chance.randint(1, 9)):
            if workers[0].epoch >= epochs:
                return seen
            # As loaders see it: what iterating gives, and which of it counts.
            shares = []
            for sampler in workers:
                passes = sampler.passes(sampler.samples)
                lists = iter(sampler)
                assert [next(lists) for _ in passes] == [indices for _, indices in passes]
                shares.append(passes)
            assert len({len(passes) for passes in shares}) == 1, "workers would wait for each other"
            assert all(0 < len(indices) <= micro for passes in shares for _, indices in passes)
            seen.append([index for passes in shares for piece, indices in passes if piece.counted for index in indices])
            for sampler in workers:
                sampler.advance()
        state = workers[0].state_dict()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("drop_last", [False, True])
def test_random_resizes_lose_and_repeat_no_sample_and_change_no_order(seed, drop_last):
    chance = random.Random(seed)
    batch = chance.randint(1, 16)
    length, epochs = chance.randint(batch, 150), 3
    options = {"seed": seed, "drop_last": drop_last, "shuffle": seed % 4 != 0}
    seen = resized(length, batch, epochs, chance, **options)
    assert seen == epochs_of_one_worker(length, batch, epochs, **options)
    counted = length - length % batch if drop_last else length
    steps = -(-counted // batch)
    for epoch in range(epochs):
        one = [index for step in seen[epoch * steps:(epoch + 1) * steps] for index in step]
        assert len(one) == len(set(one)) == counted


def test_epochs_are_in_different_orders():
    sampler = data.ElasticSampler(50, 5, rank=0, world=1)
    assert list(sampler.order(0)) != list(sampler.order(1)) and sorted(sampler.order(0)) == list(range(50))


def test_the_order_of_a_seed_is_the_same_for_ever():
    # Literal values: a change of them would lose and repeat samples of each run that is under way.
    assert list(order_of_epoch(20, 0, 0, 2)) == [13, 1, 10, 5, 15, 19, 14, 0, 18, 12, 6, 9, 8, 3, 11, 7, 4, 16, 2, 17]
    assert list(order_of_epoch(20, 0, 1, 2)) == [18, 11, 7, 2, 10, 16, 1, 13, 4, 5, 14, 8, 12, 9, 6, 19, 0, 3, 15, 17]
    large = order_of_epoch(10 ** 8, 7, 3, 2)
    assert large[:5] == [60799713, 54483016, 62436684, 16548369, 49303185] and large[10 ** 8 - 1] == large[-1] == 72752967
    assert order_of_epoch(10, 3, 1, 1) == [1, 2, 8, 0, 9, 6, 5, 3, 4, 7]
    with pytest.raises(ValueError, match="order 3, this Swell knows 1 to 2"):
        order_of_epoch(10, 3, 1, 3)


@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 97, 1000, 65537])
def test_an_order_has_each_sample_once(length):
    order = order_of_epoch(length, 5, 2, 2)
    whole = list(order)
    assert sorted(whole) == list(range(length))
    for at in (slice(0, 7), slice(3, None), slice(length // 2, length // 2 + 5), slice(None, None, -2), slice(1000, 1100), slice(5, 5)):
        assert order[at] == whole[at]
    assert [order[at] for at in (0, -1)] == [whole[0], whole[-1]]


def test_every_order_of_few_samples_is_about_as_likely():
    counts = collections.Counter(tuple(order_of_epoch(4, seed, 0, 2)) for seed in range(960))
    assert len(counts) == 24 and min(counts.values()) > 15 and max(counts.values()) < 75


def test_the_order_of_10_to_the_8_samples_takes_no_memory_and_no_time():
    def read(sampler):
        for step in range(100):
            assert len(sampler.passes(step * 1024)[0][1]) == 1024
        len(sampler)
    def timed(length):
        begin = time.process_time()
        read(data.ElasticSampler(length, 1024, rank=0, world=1))
        return time.process_time() - begin
    timed(2 * 10 ** 5)
    # By turns, and the quickest of each: a busy machine makes both slower.
    tries = [(timed(2 * 10 ** 5), timed(10 ** 8)) for _ in range(5)]
    short_s, long_s = (min(each) for each in zip(*tries))
    tracemalloc.start()
    read(data.ElasticSampler(10 ** 8, 1024, rank=0, world=1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20, f"{peak} bytes"
    assert long_s * 10 < 1, f"{long_s * 10:.2f} ms of this process's time a batch of 1024"
    assert long_s < 3 * short_s, f"{long_s * 10:.2f} ms a batch, {short_s * 10:.2f} ms of 10^5 samples"


def test_a_run_of_before_keeps_its_order():
    sampler = data.ElasticSampler(50, 5, seed=4, rank=0, world=1)
    sampler.load_state_dict({"samples": 10, "seed": 4, "length": 50})
    old = list(range(50))
    random.Random("4 0").shuffle(old)
    assert list(sampler)[0] == old[10:15] and sampler.state_dict()["order"] == 1


def test_the_length_is_what_is_left_of_the_epoch():
    sampler = data.ElasticSampler(50, 8, micro_batch=2, rank=0, world=2)
    assert len(sampler) == len(list(sampler)) == 6 * 2 + 1
    sampler.advance()
    assert len(sampler) == len(list(sampler)) == 5 * 2 + 1


def test_other_data_than_the_checkpoint_s_is_refused():
    state = data.ElasticSampler(50, 5, rank=0, world=1).state_dict()
    with pytest.raises(ValueError, match="length 50, here it is 40"):
        data.ElasticSampler(40, 5, rank=0, world=1).load_state_dict(state)
    for other, said in (({"shuffle": False}, "shuffle True, here it is False"), ({"drop_last": True}, "drop_last False, here it is True"),
                        ({"seed": 1}, "seed 0, here it is 1")):
        with pytest.raises(ValueError, match=said):
            data.ElasticSampler(50, 5, rank=0, world=1, **other).load_state_dict(state)
    with pytest.raises(ValueError, match="global_batch 5, here it is 6"):
        data.ElasticSampler(50, 6, rank=0, world=1).load_state_dict(state)


@pytest.mark.parametrize("seed", range(20))
def test_an_iterable_dataset_is_shared_out_in_its_own_order(seed):
    chance = random.Random(seed)
    batch, length = 12, 200
    at, seen = 0, []
    while at + batch <= length:
        world = chance.choice(data.sizes(batch))
        workers = [iter(data.ElasticIterable(range(length), batch, rank=rank, world=world, samples=at)) for rank in range(world)]
        for _ in range(chance.randint(1, 5)):
            if at + batch > length:
                break
            seen += [next(worker) for worker in workers for _ in range(batch // world)]
            at += batch
    assert seen == list(range(length // batch * batch))


def test_a_number_of_workers_that_an_iterable_cannot_serve_is_refused_with_those_that_it_can():
    with pytest.raises(ValueError, match="sizes=1/2/3/6"):
        next(iter(data.ElasticIterable(range(10), 6, rank=0, world=4)))


def test_sizes_begin_with_the_job_s_own_workers():
    assert data.sizes(24, 4) == [4, 6, 8, 12, 24] and data.sizes(24, 4, 8) == [4, 6, 8]


def test_numbers_of_workers_are_told_by_rank_0_alone_and_nobody_need_listen(monkeypatch, capfd):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as shim:
        shim.bind("")
        monkeypatch.setenv("SWELL_SHIM", "@" + shim.getsockname()[1:].decode())
        monkeypatch.setenv("RANK", "1")
        _request.can_run_with([1, 2])
        monkeypatch.setenv("RANK", "0")
        _request.can_run_with(range(1, 4098))    # more than swellrun reads
        _request.can_run_with([1, 2, 4])
        assert shim.recv(100) == b"sizes 1 2 4"
        _request.can_run_with([])
        assert shim.recv(100) == b"sizes"
        monkeypatch.setenv("SWELL_SHIM_KEY", "0123456789abcdef")
        _request.can_run_with([3])
        assert shim.recv(100) == b"0123456789abcdef sizes 3", "without the key swellrun does not hear it"
        monkeypatch.setattr(_request, "_step_told", 0.0)
        for step in range(1, 100):
            _request.made_step(step)
        assert shim.recv(100) == b"0123456789abcdef step 1"
        with pytest.raises(BlockingIOError):    # the others came within a second
            shim.recv(100)
        for total, said in ((5000, b"step 7 of 5000"), (None, b"step 7"), (0, b"step 7"), (-1, b"step 7")):
            monkeypatch.setattr(_request, "_step_told", 0.0)
            _request.made_step(7, total)
            assert shim.recv(100) == b"0123456789abcdef " + said
        assert not capfd.readouterr().err
    _request.made_step(100)     # nobody listens
    _request.can_run_with([1, 2])
    assert "submit with --elastic=sizes=" in capfd.readouterr().err
    monkeypatch.delenv("SWELL_SHIM")
    _request.can_run_with([1, 2])
    assert not capfd.readouterr().err
