# SPDX-License-Identifier: GPL-2.0-or-later
"""A GPU for state that is not there: tensors of the CPU in what a stand-in for NVIDIA's driver takes for its memory, so that
libswell hands them over as it would on a GPU. Nothing is computed on it; parts of a step are timed by the driver's events."""

import ctypes
import glob
import os
import struct
import sys

import torch

from swell import _profile, _slots, _staying
from swell import live as lived
from swell.engine import arena, live

DRIVER = os.path.join(os.environ.get("SWELL_STAGE", ""), "..", "tests", "unit", ".libs", "libcuda.so.1")
_driver = None


class Freed:
    """Gives memory of the GPU back with the last tensor over it. used, peak: bytes of all of this process."""

    used = peak = 0

    def __init__(self, address, size):
        self._address, self._size = address, size
        Freed.used += size
        Freed.peak = max(Freed.peak, Freed.used)

    @staticmethod
    def reset_peak():
        Freed.peak = Freed.used

    def __del__(self):
        Freed.used -= self._size
        _driver.cuMemFree_v2(self._address)


def memory(count, dtype):
    """Returns so many zero elements in the GPU's memory."""
    address, size = ctypes.c_uint64(), count * dtype.itemsize
    code = _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if code == 2:
        raise torch.OutOfMemoryError("the stand-in's GPU is full")
    assert code == 0
    found = (ctypes.c_char * size).from_address(address.value)
    found.owner = Freed(address, size)
    return torch.frombuffer(found, dtype=dtype).zero_()


def free_on(device):
    left, whole = ctypes.c_size_t(), ctypes.c_size_t()
    assert _driver.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(whole)) == 0
    return left.value


def size_gpus(file, size):
    """Each GPU has so many bytes for all processes that begin() with the file, also where these have begun. Returns the most that GPU 0 had taken."""
    most = struct.unpack("16Q", open(file, "rb").read()[16:]) if os.path.exists(file) else (0,) * 16
    with open(file, "r+b" if os.path.exists(file) else "wb") as out:
        out.write(struct.pack("18Q", size, 0, *most))
    return most[0]


def taken(file):
    """Returns the bytes of GPU 0 that all processes which begin() with the file have now."""
    name, sizes = f"/memfd:stand-in-gpu-0-of-{os.stat(file).st_ino} ", {}
    for process in glob.glob("/proc/[0-9]*"):
        try:
            with open(process + "/maps") as maps:
                for words in (line.split(maxsplit=5) for line in maps if name in line):
                    begin, end = (int(each, 16) for each in words[0].split("-"))
                    sizes[int(words[4])] = max(end - begin, sizes.get(int(words[4]), 0))
            for each in os.scandir(process + "/fd"):
                if (os.readlink(each.path) + " ").startswith(name):
                    sizes[os.stat(each.path).st_ino] = os.stat(each.path).st_size
        except OSError:     # it has ended, or has closed that file
            continue
    return sum(sizes.values())


def begin():
    """From now on state is taken for a GPU's. libswell finds the stand-in by its name, which is the driver's."""
    global _driver
    _driver = ctypes.CDLL(DRIVER, mode=ctypes.RTLD_GLOBAL)
    context = ctypes.c_void_p()
    assert _driver.cuInit(0) == 0 and _driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert _driver.cuCtxPushCurrent_v2(context) == 0
    for module in (_slots, _staying, live):
        module.gpu_of = lambda device: 0
    for regions in (_profile.Profile, live.NativeRegions):
        regions._stream = lambda self: 1
    live.Ordinary = OnGpu
    torch.cuda.empty_cache = _give_back
    _staying.settle = lambda device: _driver.cuCtxSynchronize()
    lived.free_on, lived.reset_peak = free_on, lambda device: Freed.reset_peak()
    _slots.free_on, _slots.peak_on, _slots.used_on = free_on, lambda device: Freed.peak, lambda device: Freed.used
    _slots.room_on = lambda device, count, dtype: memory(count, dtype)


def _give_back():
    """Say that torch was asked for what it caches."""
    print("stand-in: the cache is given back", file=sys.stderr, flush=True)


class OnGpu(arena.Ordinary):
    """The engine's state as it is on a GPU."""

    def take(self, requests, device):
        found = {one.name: memory(torch.Size(one.local).numel(), one.dtype).view(one.local) for one in requests}
        return found, True


def move(model):
    """Parameters and buffers stand on the GPU from now on; shards of fully_shard, too."""
    from swell.live import fsdp_parameters
    sharded = fsdp_parameters(model)
    for tensor in [*model.parameters(), *model.buffers()]:
        one = sharded.get(id(tensor))
        if one is None:
            tensor.data = memory(tensor.numel(), tensor.dtype).copy_(tensor.detach().reshape(-1)).view(tensor.shape)
            continue
        padded, local = one._sharded_param_data, tensor._local_tensor
        one._sharded_param_data = memory(padded.numel(), padded.dtype).copy_(padded)
        tensor._local_tensor = one._sharded_param_data[:local.numel()].view(local.shape)
