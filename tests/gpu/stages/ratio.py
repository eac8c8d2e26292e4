# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `ratio`: a live change beside a restart, and the libraries that the profiler is loaded by."""

import importlib.util
import json
import os
import shutil
import time
from unittest import mock

import bench
import memory
from bench import Case
from forked import LiveRun, Run

STEPS = memory.STEPS


def disk_bytes_s(folder):
    """Returns the rate of writes that go through to the disk."""
    path, block = os.path.join(folder, "written"), os.urandom(1 << 20)
    began = time.monotonic()
    with open(path, "wb") as file:
        for _ in range(8 if bench.STAND_IN else 256):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    os.remove(path)
    return size / (time.monotonic() - began)


def pauses(stage, folder):
    job, given = memory.arguments("ddp", 5)
    live = LiveRun(os.path.join(folder, "live"), job, *given, steps=STEPS, keepers=2)
    try:
        live.start(1).reach(8)
        report = live.switch(1)
        assert report.get("committed"), f"not committed: {report.get('why')}"
        live.reach(live.step() + 4)
        short = bench.pause(live.lines())
    finally:
        live.end()
    # Its start does not import PyTorch: the restart at its best.
    restarted = Run(os.path.join(folder, "restart"), job, *given, "checkpoints=1", steps=STEPS)
    try:
        restarted.start(1).reach(8)
        restarted.ask().leave_well()
        restarted.start(1).reach(restarted.step() + 4)
        long = bench.pause(restarted.lines())
    finally:
        restarted.end()
    before, after = memory.predicted_s(report, True), 2 * 5 * bench.UNIT / disk_bytes_s(folder)
    stage.row("5 GiB: pause of a live change", short, "s", predicted=before, by="its bytes, as in memory")
    stage.row("5 GiB: pause of a restart, imports left out", long, "s", predicted=after, by="writing and reading at the rate of this disk")
    stage.row("5 GiB: restart over live", long / short, predicted=after / before, by="both", goal=10.0, passed=bench.on_gpu(long / short >= 10))


def plugin(stage, folder):
    """NCCL loads Swell's profiler plugin."""
    job, given = memory.arguments("ddp", 1)
    with mock.patch.dict(os.environ, NCCL_DEBUG="INFO", NCCL_PROFILER_PLUGIN=os.path.join(bench.BUILD, "stage", "lib", "libswell-nccl-profiler.so")):
        one = LiveRun(os.path.join(folder, "live"), job, *given, steps=STEPS, keepers=1)
        try:
            one.start(1).reach(20)
            said = [line for line in one.said().splitlines() if "PROFILER" in line.upper()]
            stage.row("NCCL on its profiler plugin", said[-1][-160:] if said else "says nothing", passed="swell" in " ".join(said).lower())
        finally:
            one.end()


def cupti(stage, folder):
    """A traced step has its kernels."""
    job, given = memory.arguments("ddp", 1)
    trace = os.path.join(folder, "trace.json")
    with mock.patch.dict(os.environ, SWELL_TRACE=trace, SWELL_TRACE_KERNELS="1"):
        one = LiveRun(os.path.join(folder, "live"), job, *given, steps=STEPS, keepers=1)
        try:
            one.start(1).until(lambda: os.path.exists(os.path.join(folder, "trace.0.json")), "a trace of a step")
        finally:
            one.end()
    with open(os.path.join(folder, "trace.0.json")) as file:
        made = json.load(file)
    tracks = {each["tid"] for each in made["traceEvents"] if each["name"] == "thread_name" and each["args"]["name"].startswith("kernels of device")}
    kernels = [each["name"] for each in made["traceEvents"] if each["ph"] == "X" and each["tid"] in tracks]
    missing = made["otherData"].get("missing", "")
    stage.row("kernels by CUPTI in the trace of a step", len(kernels), f"such as {kernels[0][:60]}" if kernels else missing, passed=bool(kernels))


def compiled(stage, folder):
    if not any(map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))):
        raise bench.Skipped("torch.compile needs a C compiler")
    if importlib.util.find_spec("triton") is None:
        raise bench.Skipped("torch.compile needs Triton")
    if bench.STAND_IN:
        raise bench.Skipped("the stand-in computes nothing")
    job, given = memory.arguments("ddp", 1)
    one = LiveRun(os.path.join(folder, "live"), job, *given, "compiled=1", steps=STEPS, keepers=2)
    try:
        one.start(1).reach(8)
        report = one.switch(1)
        assert report.get("committed"), f"not committed: {report.get('why')}"
        one.reach(one.step() + 4)
    finally:
        one.end()
    alone = Run(os.path.join(folder, "alone"), job, *given, "compiled=1", steps=one.step()).fast().start(1)
    try:
        alone.leave_well()
    finally:
        alone.end()
    stage.row("compiled: losses as those of a run that never changed, bit by bit", "compared", passed=bench.same_losses(one, alone))


if __name__ == "__main__":
    bench.main("ratio", Case("5 GiB: restart beside live", 120, pauses), Case("CUPTI", 40, cupti), Case("NCCL's profiler plugin", 40, plugin, False),
               Case('torch.compile(mode="reduce-overhead")', 150, compiled))
