# SPDX-License-Identifier: GPL-2.0-or-later
"""DistributedDataParallel in runs that freeze and unfreeze layers."""

import datetime

import pytest
import torch
import torch.distributed as dist
from swell import _identity, _request
from swell._averaged import average_what_is_trained
from swell.integrations._leaving import Departure
from torch.nn.parallel import DistributedDataParallel


def made(**options):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(False)
    return model, DistributedDataParallel(model, **options)


def unfrozen_beside_a_fixed_reducer(rank):
    model, wrapped = made(static_graph=True)
    averaged = average_what_is_trained(wrapped)
    wrapped(torch.ones(2, 4) * (rank + 1)).sum().backward()
    model[0].requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"^0.weight was frozen when .* with static_graph=True, cannot be made to: leave static_graph=True out"):
        wrapped(torch.ones(2, 4) * (rank + 1))
    assert averaged is not None and not averaged.has(model[0].weight)


def frozen_between_two_passes(rank):
    model, wrapped = made()
    averaged = average_what_is_trained(wrapped)
    with wrapped.no_sync():
        wrapped(torch.ones(2, 4) * (rank + 1)).sum().backward()
    alone = model[1].weight.grad.clone()
    model[1].requires_grad_(False)
    wrapped(torch.ones(2, 4) * (rank + 3)).sum().backward()
    both = [torch.zeros_like(alone) for _ in range(2)]
    dist.all_gather(both, alone)
    torch.testing.assert_close(model[1].weight.grad, (both[0] + both[1]) / 2)
    assert averaged.has(model[1].weight) and not torch.equal(both[0], both[1])
    # A worker that did not come to use a parameter has no gradient, and takes part all the same.
    model[1].requires_grad_(True)
    wrapped.zero_grad()
    with wrapped.no_sync():
        wrapped(torch.ones(2, 4)).sum().backward()
    if rank == 1:
        model[1].weight.grad = None
    model[1].requires_grad_(False)
    wrapped(torch.ones(2, 4)).sum().backward()
    mine = model[1].weight.grad.clone()
    dist.all_gather(both, mine)
    assert torch.equal(both[0], both[1]) and mine.abs().sum() > 0


def run(rank, what, meeting):
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    what(rank)
    dist.destroy_process_group()


@pytest.mark.parametrize("what", [unfrozen_beside_a_fixed_reducer, frozen_between_two_passes])
def test_gradients_are_those_of_all_workers_or_an_error_says_that_they_are_not(what, tmp_path):
    # One process imports torch for all four workers; what is forked from this one, which has computed, may hang.
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "torch.distributed", "swell.torch", "swell.integrations"])
    torch.multiprocessing.start_processes(run, (what, f"file://{tmp_path}/met"), nprocs=2, start_method="forkserver")


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/met", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_one_worker_is_lent_nothing_where_more_would_not_average(alone, monkeypatch):
    told = []
    monkeypatch.setattr(_request, "can_run_with", lambda sizes, why="": told.append((list(sizes), why)))
    model, wrapped = made(static_graph=True)
    departure = Departure()
    departure.lending.listen(4)
    departure.trained = _identity.Trained(wrapped, [torch.optim.SGD(model.parameters(), lr=0.1)])
    departure.averaged = average_what_is_trained(wrapped)
    departure.loaded()
    assert told == [([1, 2, 4], "")] and not departure.averaged.why_not()
    model[1].requires_grad_(False)
    departure.loaded()
    assert len(told) == 1, "what is frozen needs no average"
    model[0].requires_grad_(True)
    departure.loaded()
    assert told[-1][0] == [1] and "static_graph=True" in told[-1][1]
    departure.lending.decline("no room")
    departure.lending.saved()
    assert told[-1][0] == [1] and "static_graph=True" in told[-1][1], "a save does not make more workers possible"


def test_a_live_run_that_has_changed_what_it_trains_stays_alone_after_a_declined_save(monkeypatch):
    told = []
    monkeypatch.setattr(_request, "can_run_with", lambda sizes, why="": told.append((list(sizes), why)))
    model = torch.nn.Linear(2, 1)
    departure = Departure()
    departure.lending.listen(4)
    departure.trained = _identity.Trained(model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    departure._live = type("Live", (), {"follow": lambda self: None})()
    model.bias.requires_grad_(False)
    departure.loaded()
    departure.lending.decline("no room")
    departure.lending.saved()
    assert [sizes for sizes, _ in told] == [[1, 2, 4], [1], [1], [1]] and not departure.is_live
