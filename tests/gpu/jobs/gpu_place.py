# SPDX-License-Identifier: GPL-2.0-or-later
"""The GPU of a job of tests/gpu: the first one, or a stand-in for its memory and its driver."""

import contextlib
import ctypes
import json
import os
import statistics
import time

import torch

import common

STAND_IN = os.environ.get("GPU_STAND_IN") == "1"


class Place:
    """Where a worker's state stands. REQUIRES: the process has not used a GPU yet."""

    def __init__(self, allocator="native"):
        if STAND_IN:
            import stand_in_gpu
            stand_in_gpu.begin()
            self.device, self.backend, self._driver = torch.device("cpu"), "gloo", stand_in_gpu
            return
        if allocator == "expandable":
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        torch.cuda.set_device(0)
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.device, self.backend, self._driver = torch.device("cuda", 0), "nccl", None

    def move(self, model):
        """Puts parameters and buffers on the GPU."""
        if self._driver is not None:
            self._driver.move(model)
            return model
        return model.to(self.device)

    def memory(self):
        """Free and total bytes, as the driver says."""
        if self._driver is None:
            return torch.cuda.mem_get_info(self.device)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self._driver._driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value, total.value

    def fill_cache(self, share):
        """Takes memory until `share` of the GPU is in use, and returns it to PyTorch's cache, where activations of a step stay."""
        free, total = self.memory()
        wanted = int(share * total - (total - free))
        if wanted > 0 and self._driver is None:
            torch.empty(wanted, dtype=torch.uint8, device=self.device)      # freed at once: to the cache
        return wanted

    def settle(self):
        """Waits until the GPU has done what it was given."""
        if self._driver is None:
            torch.cuda.synchronize(self.device)

    def peak_bytes(self):
        """The most that PyTorch had allocated."""
        return 0 if self._driver is not None else torch.cuda.max_memory_allocated(self.device)


def log(place, step, loss, world):
    """One line a step: as the log of the other jobs, with its time and the free memory."""
    place.settle()
    with open(common.path("losses"), "a") as file:
        file.write(json.dumps({"step": step, "loss": loss, "world": world, "epoch": int(os.environ.get("SWELL_EPOCH", 0)), "pid": os.getpid(),
                               "at": time.time(), "free": place.memory()[0], "peak": place.peak_bytes()}) + "\n")
    with open(common.path("step.new"), "w") as file:
        file.write(str(step))
    os.replace(common.path("step.new"), common.path("step.0"))


@contextlib.contextmanager
def kernels_to(name, steps_left):
    """Within it torch.profiler records. At its end the seconds that kernels took, by step, go to file `name`."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU if STAND_IN else activity.CUDA]) as seen:
        yield
    key = "self_cpu_time_total" if STAND_IN else "self_device_time_total"
    with open(common.path(name), "w") as file:
        json.dump({"kernels_s": sum(getattr(each, key) for each in seen.key_averages()) / 1e6 / steps_left}, file)


def median_step(lines, skip=5):
    """Seconds of a usual step, from the lines of one run."""
    times = [line["at"] for line in lines][skip:]
    return statistics.median(b - a for a, b in zip(times, times[1:], strict=False))
