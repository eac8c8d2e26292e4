# SPDX-License-Identifier: GPL-2.0-or-later
"""Paced accelerators whose passes take the times measured on A100s, which are not linear in the samples of a pass and the TP degree.

The table is for Megatron-DeepSpeed, hidden width 2048, 1,024 tokens a sample, full recomputation, and comes from vTrain's published
iteration times (vtrain_single_dev.csv, MIT): a layer is the difference between 16 and 20 layers; the output projection with its loss is the
rest of the last stage. It uses no equation of the performance model.
"""

import ctypes
import os
import sys
import time
from contextlib import contextmanager

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "pytorch", "engine"))

import pool  # noqa: E402,F401  the path

from swell.engine import Engine, paced  # noqa: E402
from swell.engine.generation import Generation  # noqa: E402
from swell.engine.live import NativeRegions  # noqa: E402
from swell.engine.regions import Regions  # noqa: E402

TYPE, SAMPLES = "a100", (1, 2, 4)
# Milliseconds of one micro-batch by TP degree, for each of SAMPLES.
LAYER = {1: (3.237, 4.761, 8.784), 2: (3.402, 4.630, 6.222), 4: (2.986, 2.749, 4.952)}      # forward, the same again, and backward
HEAD = {1: (10.51, 18.47, 35.10), 2: (3.617, 5.146, 8.180), 4: (3.056, 4.699, 7.404)}       # forward and backward
# Shares of the time of a layer and of a head: a backward pass takes twice as long as a forward pass.
_LAYER_PARTS = {"forward": 1 / 4, "backward": 2 / 4, "inputs": 1 / 4, "weights": 1 / 4}
_HEAD_PARTS = {"forward": 1 / 3, "backward": 2 / 3, "inputs": 1 / 3, "head": 1 / 3, "head backward": 2 / 3, "head inputs": 1 / 3}
# Host time to launch a layer's forward pass: the shortest forward pass, for which launches were the limit.
LAUNCH_S = min(min(row) for row in LAYER.values()) * _LAYER_PARTS["forward"] / 1e3
_STREAM = 1     # CUDA's legacy stream


def seconds(table, tp, samples):
    """Reads a table; between two numbers of samples on the straight line between them."""
    row = table[tp]
    if not SAMPLES[0] <= samples <= SAMPLES[-1]:
        raise ValueError(f"{samples} samples a pass are not in the table; it has {SAMPLES[0]} to {SAMPLES[-1]}")
    at = max(index for index, here in enumerate(SAMPLES[:-1]) if here <= samples)
    return (row[at] + (row[at + 1] - row[at]) * (samples - SAMPLES[at]) / (SAMPLES[at + 1] - SAMPLES[at])) / 1e3


class Driver:
    """The stand-in for NVIDIA's driver, whose events the profiler times passes by. Nothing computes on it."""

    PATH = os.path.join(os.environ.get("SWELL_STAGE", ""), "..", "tests", "unit", ".libs", "libcuda.so.1")

    def __init__(self):
        self._library, context = ctypes.CDLL(self.PATH, mode=ctypes.RTLD_GLOBAL), ctypes.c_void_p()
        if self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or self._library.cuCtxPushCurrent_v2(context):
            raise OSError(f"{self.PATH} gives no context")

    def works_until(self, when):
        """Makes the work on the stream so far end at that time of the monotonic clock."""
        self._library.stand_in_works_until(ctypes.c_void_p(_STREAM), ctypes.c_double(when))


class _OnStream(NativeRegions):
    def _stream(self):
        return _STREAM


class Bent(paced.Paced):
    """Passes as a GPU makes them: the host has launched one long before the device has made it, and waits for what it is to send.

    slow: by how much all is slower than what was measured. driver: None where nobody times the passes.
    """

    def __init__(self, inner, device, plan, place, work, slow, driver):
        super().__init__(inner, device, plan, place, work)
        self._slow, self._driver = slow, driver

    @contextmanager
    def _paced(self, kind, micro_batch, size, chunk):
        if kind not in _LAYER_PARTS and kind not in _HEAD_PARTS:
            with super()._paced(kind, micro_batch, size, chunk):
                yield
            return
        with self._inner.region(kind, micro_batch, size, chunk):
            began = time.monotonic()
            yield
            end = began + self._slow * self._device_s(kind, chunk)
            if self._driver is not None:
                self._driver.works_until(end)
            if kind in _LAYER_PARTS:
                self._sleep_until(min(end, began + self._slow * LAUNCH_S * self._layers(chunk) * _LAYER_PARTS[kind] / _LAYER_PARTS["forward"]))
        if kind in _LAYER_PARTS:
            self._until(end)

    def _stated(self, kind, size, chunk):
        return None if kind == "tp" else super()._stated(kind, size, chunk)     # passes in the table include their all-reduces

    def _layers(self, chunk):
        return len(self._plan.contents.parts[self._place.stage][chunk].layers)

    def _device_s(self, kind, chunk):
        tp = self._plan.stages[self._place.stage].tp
        head = seconds(HEAD, tp, self._samples) * _HEAD_PARTS[kind] if kind in _HEAD_PARTS else 0.0
        if kind not in _LAYER_PARTS:
            return head
        has_head = self._plan.contents.parts[self._place.stage][chunk].head
        return self._layers(chunk) * seconds(LAYER, tp, self._samples) * _LAYER_PARTS[kind] + (head if has_head else 0.0)

    @staticmethod
    def _sleep_until(when):
        time.sleep(max(0.0, when - time.monotonic()))


class BentGeneration(Generation):
    """Trains on such accelerators."""

    slow = 1.0

    def _timed(self):
        stages = self.plan.contents.parts[self.place.stage]
        driver = Driver() if self.session is not None else None
        inner = _OnStream(self.session, self.device, [part.layers for part in stages]) if driver else Regions()
        device = paced.device_of(paced.parse(os.environ["SWELL_PACED"]), self.plan, self.place)
        return Bent(inner, device, self.plan, self.place, self.work, self.slow, driver)


class BentEngine(Engine):
    """The engine on such accelerators."""

    _makes = BentGeneration
