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
_KERNEL = b"a kernel of the stand-in"


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
        torch.backends.cuda.enable_mem_efficient_sdp(False)     # under warn_only its backward pass stays as it is
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

    def hold(self, share):
        """Takes memory until `share` of the GPU is in use, for as long as this process lives."""
        free, total = self.memory()
        wanted = int(share * total - (total - free))
        if wanted > 0:
            self.held = torch.empty(wanted, dtype=torch.uint8, device=self.device) if self._driver is None else self._driver.memory(wanted, torch.uint8)

    def fill_cache(self, share):
        """Leaves so much in PyTorch's cache, where activations of a step stay. REQUIRES: not a stand-in."""
        self.hold(share)
        self.held = None

    def settle(self):
        """Waits until the GPU has done what it was given."""
        if self._driver is None:
            torch.cuda.synchronize(self.device)

    def peak_bytes(self):
        """The most that PyTorch had allocated."""
        return 0 if self._driver is not None else torch.cuda.max_memory_allocated(self.device)


def pace():
    """Lets a step last long enough that requests meet a run; not longer while workers change, as in common.pace(): that is measured."""
    if not os.path.exists(common.path("fast")):
        time.sleep(common.PACE_S)


def log(place, step, loss, world):
    """One line a step, of the first worker: as the log of the other jobs, with its time and the free memory."""
    place.settle()
    if STAND_IN and "SWELL_TRACE_KERNELS" in os.environ:
        ctypes.CDLL("libcupti.so.13").fake_kernel(_KERNEL, ctypes.c_uint64(1_100_000), ctypes.c_uint64(1_200_000), 7)
    if os.environ.get("RANK", "0") != "0":
        return
    free, total = place.memory()
    with open(common.path("losses"), "a") as file:
        file.write(json.dumps({"step": step, "loss": loss, "world": world, "generation": int(os.environ.get("SWELL_GENERATION", 0)), "pid": os.getpid(),
                               "at": time.time(), "free": free, "total": total, "peak": place.peak_bytes()}) + "\n")
    with open(common.path("step.new"), "w") as file:
        file.write(str(step))
    os.replace(common.path("step.new"), common.path("step.0"))


def _part(name):
    """The part of a step that an outermost call is of: the profiler's names of autograd's calls and of optimizers."""
    if name.startswith("autograd::engine"):
        return "backward"
    return "optimizer" if name.startswith("Optimizer.step") or name == "aten::_foreach_zero_" else "forward"


@contextlib.contextmanager
def kernels(steps):
    """Within it torch.profiler records. At its end what is yielded has the seconds of kernels in a step, by its parts."""
    seen, activity = dict.fromkeys(("forward", "backward", "optimizer"), 0.0), torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU] if STAND_IN else [activity.CPU, activity.CUDA]) as recorded:
        yield seen
    for event in recorded.events():
        if event.cpu_parent is None and event.device_type == torch.autograd.DeviceType.CPU:
            seen[_part(event.name)] += (event.cpu_time_total if STAND_IN else event.device_time_total) / 1e6 / steps


def median_step(lines, skip=5):
    """Seconds of a usual step, from the lines of one run."""
    times = [line["at"] for line in lines][skip:]
    return statistics.median(b - a for a, b in zip(times, times[1:], strict=False))
