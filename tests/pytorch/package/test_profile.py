# SPDX-License-Identifier: GPL-2.0-or-later
"""The memory in the profile of a loop: the peak of a step, and what its forward pass keeps."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from swell import _profile
from swell._native import Region
from swell.engine import memory


class Session:
    """Keeps what it is told."""

    def __init__(self):
        self.profiler = self
        self.role, self.peaks, self.open, self.allocated, self.gpu_bytes = {}, [], 0, [], 0

    def begin_region(self, kind, allocated_bytes=None, **_):
        self.open += 1
        if allocated_bytes is not None:
            self.allocated.append((kind, allocated_bytes))
        return self.open

    def end_region(self, _number, allocated_bytes=0):
        self.open -= 1
        if allocated_bytes:
            self.allocated.append(allocated_bytes)

    def memory(self, peak):
        self.peaks.append(peak)

    def set_role(self, **role):
        self.role = role


class Allocator:
    """A GPU's memory as torch counts it."""

    def __init__(self, monkeypatch):
        self.now = self.most = self.readings = 0
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: self.most)
        monkeypatch.setattr(torch.cuda, "memory_allocated", self.read)
        monkeypatch.setattr(_profile.Profile, "_stream", lambda self: 1)

    def reset(self, device=None):
        self.most = self.now

    def read(self, device=None):
        self.readings += 1
        return self.now

    def use(self, size):
        self.now += size
        self.most = max(self.most, self.now)


def model_of(layers):
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(layers)))


def step(profile, model, samples, micro_batches=1):
    for _ in range(micro_batches):
        loss = model(torch.ones(samples, 16)).sum()
        profile.begin_backward()
        loss.backward()
        profile.end_backward()
    profile.boundary(samples)


def test_a_forward_pass_that_fails_leaves_nothing_open():
    model, session = model_of(2), Session()
    profile = _profile.Profile(session, model, rank=0)
    step(profile, model, 2)
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    assert session.open == 0
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None, "autograd still has the hooks of the pass"
    step(profile, model, 2)
    assert session.open == 0 and session.role["local_batch"] == 2


def test_the_peak_is_that_of_a_step_under_the_present_plan(monkeypatch):
    allocator, model, session = Allocator(monkeypatch), model_of(2), Session()
    allocator.use(1000)     # what came before: weights are loaded, another plan
    allocator.use(-900)
    profile = _profile.Profile(session, model, rank=0)
    model.register_forward_hook(lambda *_: allocator.use(50))
    model.register_full_backward_hook(lambda *_: allocator.use(-50))
    step(profile, model, 1)
    allocator.use(30)       # the optimizer makes its state
    step(profile, model, 1)
    step(profile, model, 1)
    assert session.peaks == [180]
    later = Session()
    later.gpu_bytes = 400       # state that does not stand in the allocator's memory
    profile.go_on(later, rank=0)
    step(profile, model, 1)
    step(profile, model, 1)
    assert later.peaks == [580]


def test_kept_bytes_are_read_in_one_micro_batch_of_one_step(monkeypatch):
    allocator, model, session = Allocator(monkeypatch), model_of(2), Session()
    allocator.use(1000)
    model.register_forward_hook(lambda *_: allocator.use(5 * 4 * 16 * 4))      # five tensors of each layer's size, of four samples
    profile = _profile.Profile(session, model, rank=0)
    model.register_full_backward_hook(lambda *_: allocator.use(-5 * 4 * 16 * 4))
    for _ in range(4):
        step(profile, model, 4, micro_batches=3)
    assert session.role["whole_activations"] == 5
    assert session.allocated == [(Region.FORWARD, 1000), 1000 + 5 * 4 * 16 * 4]
    assert allocator.readings == 2


@pytest.fixture(name="mesh")
def one_worker(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("wrapper", ["none", "ddp", "fsdp"])
def test_kept_bytes_on_a_host_are_those_that_autograd_saves(mesh, wrapper):
    inner, session = model_of(3), Session()
    if wrapper == "fsdp":
        for layer in inner:
            fully_shard(layer, mesh=mesh)
        fully_shard(inner, mesh=mesh)
    model = DistributedDataParallel(inner) if wrapper == "ddp" else inner
    profile = _profile.Profile(session, model, rank=0)
    for _ in range(3):
        step(profile, model, 4, micro_batches=2)
    # The input and what each layer gives; nothing of the parameters, which are the larger part.
    assert session.role["whole_activations"] == 4


def test_recomputed_values_are_not_kept():
    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model_of(3)

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return x
    model, session = Recomputed(), Session()
    profile = _profile.Profile(session, model, rank=0)
    for _ in range(2):
        step(profile, model, 4)
    assert session.role["whole_activations"] == 3       # each layer's input


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
    profile = _profile.Profile(session, model, rank=0)
    step(profile, model, 1)
    step(profile, model, 1)
    assert session.peaks == [1000] and session.role["local_batch"] == 1
