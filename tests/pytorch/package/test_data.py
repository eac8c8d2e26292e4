# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples over random sequences of resizes."""

import random
import socket

import pytest

from swell import _request, data


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
    assert sampler.order(0) != sampler.order(1) and sorted(sampler.order(0)) == list(range(50))


def test_the_length_is_what_is_left_of_the_epoch():
    sampler = data.ElasticSampler(50, 8, micro_batch=2, rank=0, world=2)
    assert len(sampler) == len(list(sampler)) == 6 * 2 + 1
    sampler.advance()
    assert len(sampler) == len(list(sampler)) == 5 * 2 + 1


def test_other_data_than_the_checkpoint_s_is_refused():
    state = data.ElasticSampler(50, 5, rank=0, world=1).state_dict()
    with pytest.raises(ValueError, match="length 50, here it is 40"):
        data.ElasticSampler(40, 5, rank=0, world=1).load_state_dict(state)


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
        data.ElasticIterable(range(10), 6, rank=0, world=4)


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
        assert not capfd.readouterr().err
    _request.can_run_with([1, 2])
    assert "submit with --elastic=sizes=" in capfd.readouterr().err
    monkeypatch.delenv("SWELL_SHIM")
    _request.can_run_with([1, 2])
    assert not capfd.readouterr().err
