# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine tells the profiler of each pass its chunk's layers, and on a GPU the memory of one micro-batch's passes."""

import torch

from swell._native import Region
from swell.engine.live import NativeRegions


class Session:
    """Keeps what it is told."""

    def __init__(self):
        self.profiler = self
        self.opened, self.closed = [], []

    def begin_region(self, kind, micro_batch=None, layers=None, allocated_bytes=None, **_):
        self.opened.append((kind, micro_batch, layers, allocated_bytes))
        return len(self.opened)

    def end_region(self, _number, allocated_bytes=0):
        self.closed.append(allocated_bytes)


def passes(device, monkeypatch):
    """Returns what is told of each pass of two micro-batches through the second of two chunks."""
    allocated = iter(range(100, 1000, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: next(allocated))
    monkeypatch.setattr(NativeRegions, "_stream", lambda self: None)
    session = Session()
    regions = NativeRegions(session, torch.device(device), [range(0, 2), range(4, 7)])
    for micro_batch in range(2):
        for kind in ("forward", "inputs", "weights", "head", "send"):
            with regions.region(kind, micro_batch, 0, 1):
                pass
    return session


def test_each_pass_says_the_layers_of_its_chunk(monkeypatch):
    told = passes("cpu", monkeypatch).opened
    assert told[:5] == [(Region.FORWARD, 0, (4, 3), None), (Region.BACKWARD, 0, (4, 3), None), (Region.WEIGHTS, 0, (4, 3), None),
                        (Region.HEAD, 0, None, None), (Region.SEND, 0, None, None)]


def test_memory_is_read_around_the_passes_of_one_micro_batch(monkeypatch):
    session = passes("cuda", monkeypatch)
    assert [allocated for *_, allocated in session.opened] == [100, 300, 500] + [None] * 7
    assert session.closed == [200, 400, 600] + [0] * 7
