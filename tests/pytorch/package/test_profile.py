# SPDX-License-Identifier: GPL-2.0-or-later
"""What the profile of a loop says of memory: the peak of a step."""

import pytest
import torch
from torch import nn

from swell import _profile
from swell.engine import memory


class Session:
    """Keeps what it is told."""

    def __init__(self):
        self.role, self.peaks, self.open = {}, [], 0

    def begin_region(self, kind, **_):
        self.open += 1
        return self.open

    def end_region(self, _number):
        self.open -= 1

    def memory(self, peak):
        self.peaks.append(peak)

    def set_role(self, **role):
        self.role = role


class Allocator:
    """A GPU's memory as torch counts it."""

    def __init__(self, monkeypatch):
        self.now = self.most = 0
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: self.most)
        monkeypatch.setattr(_profile.Profile, "_stream", lambda self: 1)

    def reset(self, device=None):
        self.most = self.now

    def use(self, size):
        self.now += size
        self.most = max(self.most, self.now)


def model_of(layers):
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(layers)))


def step(profile, model, samples):
    loss = model(torch.ones(samples, 16)).sum()
    profile.begin_backward()
    loss.backward()
    profile.end_backward()
    profile.boundary(samples)


def test_a_forward_pass_that_fails_leaves_nothing_open():
    model, session = model_of(2), Session()
    profile = _profile.Profile(session, model, rank=0)
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    assert session.open == 0
    step(profile, model, 2)
    assert session.open == 0 and session.role["local_batch"] == 2


def test_the_peak_is_that_of_a_step_under_the_present_plan(monkeypatch):
    allocator, model, session = Allocator(monkeypatch), model_of(2), Session()
    allocator.use(1000)     # what came before: weights are loaded, another plan
    allocator.use(-900)
    profile = _profile.Profile(session, model, rank=0)
    model.register_forward_hook(lambda *_: allocator.use(50))
    step(profile, model, 1)
    assert session.peaks == [150]
    allocator.use(-50)
    later = Session()
    profile.go_on(later, rank=0)
    step(profile, model, 1)
    step(profile, model, 1)
    assert later.peaks == [150]


def test_the_engines_peak_is_not_that_of_a_plan_before(monkeypatch):
    allocator = Allocator(monkeypatch)
    allocator.use(1000)
    allocator.use(-900)
    with memory.DevicePeak(torch.device("cuda")) as peak:
        allocator.use(70)
        allocator.use(-70)
    assert peak.most == 170


def test_the_peak_of_a_sharded_model_is_told_too(monkeypatch):
    allocator, model, session = Allocator(monkeypatch), model_of(2), Session()
    model._get_fsdp_state = lambda: None
    allocator.use(1000)
    step(_profile.Profile(session, model, rank=0), model, 1)
    assert session.peaks == [1000] and session.role["local_batch"] == 1
