# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `memory`: live changes from one worker to one, by amount of state, use of the GPU, memory and checksums, and what is killed meanwhile."""

import os
import signal
from functools import partial
from unittest import mock

import bench
import gpu_llama
import stand_in_gpu
from bench import Case
from forked import LiveRun, Run

# GB a second, before any GPU was seen: a copy within one, over PCIe to the host and back, and a checksum of both sides.
COPY, HOST, CHECKSUM = 1000.0, 12.0, 500.0
BOUNDARY_S, CONTEXT_GIB = 0.1, 0.7      # guesses: a change that copies nothing; a context with its libraries
STEPS = 10**5       # more than any run makes
STAND_IN_MIB = 256      # of its GPU, where that is finite
GIB = 1 if bench.STAND_IN else 5        # where the stand-in is slow: it counts a finite GPU's memory by /proc, and interprets the checksum's kernel


def shape(gib):
    """The engine's model that comes near so much state."""
    fixed = dict(hidden=64, length=16, vocabulary=1024) if bench.STAND_IN else dict(hidden=2048, length=256, vocabulary=1024)
    one, two = (gpu_llama.parameters(**fixed, layers=layers) for layers in (1, 2))
    return dict(fixed, layers=max(1, 1 + round((gib * bench.UNIT / 12 - one) / (two - one))))


def arguments(kind, gib):
    """Returns the arguments of a job that has so many GiB of parameters and moments."""
    if kind != "engine":
        return "gpu_state_job", (f"kind={kind}", f"mib={max(1, gib * bench.UNIT >> 20)}")
    return "gpu_engine_job", (*(f"{key}={value}" for key, value in shape(gib).items()), "micro=2", "samples=2")


def run(folder, kind, gib, *more):
    job, given = arguments(kind, gib)
    return LiveRun(os.path.join(folder, "live"), job, *given, *more, steps=STEPS, keepers=2, slab_mib=2 if bench.STAND_IN else 0)


def predicted_s(report, verify):
    """The pause that a change should have made: what stays in place costs nothing."""
    gb = {path: count / 1e9 for path, count in report["bytes"].items() if path != "in place"}
    return BOUNDARY_S + sum(count / (HOST if "host" in path else COPY) + (count / CHECKSUM if verify == "all" else 0) for path, count in gb.items())


def measured(stage, what, one, report, verify):
    """Rows of a change that was made."""
    one.reach(one.step() + 4)
    stage.row(f"{what}: pause seen by the steps", bench.pause(one.lines()), "s", predicted=predicted_s(report, verify),
              by=f"{BOUNDARY_S} s and bytes not in place at {COPY:.0f} GB/s ({HOST:.0f} through the host{f', hashed at {CHECKSUM:.0f}' if verify == 'all' else ''})")
    stage.row(f"{what}: moved", "; ".join(f"{count / 1e9:.4g} GB {path}" for path, count in report["bytes"].items() if count) or "nothing")
    stage.row(f"{what}: phases", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in report["phases"]))


def changes(kind, gib, verify, more, environment, stage, folder):
    """One live change, and the losses of a run without. verify: as swellrun --switch-verify=, whose default hashes nothing on one node."""
    what = ", ".join([f"{kind}, {gib} GiB", *(f"{key}={value}" for key, value in environment.items()), *more, *([f"verify={verify}"] if verify != "network" else [])])
    with mock.patch.dict(os.environ, environment):
        one = run(folder, kind, gib, *more)
        try:
            one.tell(f"verify {verify}")
            one.start(1).reach(8)
            report = one.switch(1)
            assert report.get("committed"), f"not committed: {report.get('why')}"
            if environment.get("SWELL_GPU_MEMORY") == "torch":
                assert any(count for path, count in report["bytes"].items() if path != "in place"), "nothing was copied"
            measured(stage, what, one, report, verify)
        finally:
            one.end()
        job, given = arguments(kind, gib)
        alone = Run(os.path.join(folder, "alone"), job, *given, *more, steps=one.step()).fast().start(1)
        try:
            alone.leave_well()
        finally:
            alone.end()
    stage.row(f"{what}: losses as those of a run that never changed, bit by bit", "compared", passed=bench.same_losses(one, alone))


def fullness(kind, share, way, stage, folder):
    """A change beside memory that is held, or in PyTorch's cache. A GPU that has no room for it calls it off, and the old worker trains on."""
    what, environment = f"{kind}, {GIB} GiB, {share:.0%} of the GPU {'in use' if way == 'ballast' else 'in use or cached'}", {}
    if bench.STAND_IN:
        environment["STAND_IN_MEMORY"] = os.path.join(folder, "gpus")
        stand_in_gpu.size_gpus(environment["STAND_IN_MEMORY"], STAND_IN_MIB << 20)
    with mock.patch.dict(os.environ, environment):
        one = run(folder, kind, GIB, f"{way}={share}")
        try:
            one.tell("verify network")
            one.start(1).reach(8)
            before = one.lines()[-1]
            used = 1 - before["free"] / before["total"]
            stage.row(f"{what}: used before the change", used, goal=share, passed=used > share - 0.01)
            needed = GIB / 3 + (0 if bench.STAND_IN else CONTEXT_GIB)
            fits = way == "cache" or before["free"] / bench.UNIT >= needed
            report = one.switch(1)
            committed = bool(report.get("committed"))
            stage.row(f"{what}: change", "made" if committed else f"called off: {report.get('why')}", predicted="made" if fits else "called off",
                      by="room for the new model and a context", passed=committed or not fits)
            if committed:
                measured(stage, what, one, report, "network")
            else:
                one.reach(one.step() + 3)
        finally:
            one.end()


def kills(kind, phase, kills_old, stage, folder):
    """Checks that a kill costs at most what was agreed: the old worker trains on, or the new one with what stays in Swell's memory of the GPU."""
    what = f"{kind}: kill -9 of the {'old' if kills_old else 'new'} worker in {phase}"
    one = run(folder, kind, 5)
    try:
        one.start(1).reach(6)
        held = os.path.join(one.folder, "held")
        with open(held, "w"):
            one.tell(f"hold {phase} {held}")
        one.switch(1, wait=False, limit_s=5 if phase == "prepare" else 60)
        one.until(lambda: os.path.exists(held + ".reached"), phase)
        killed = (one.old if kills_old else one.workers)[0]
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)        # else it may go on for as long as the change takes
        os.remove(held)
        report = one.switched()
        committed = bool(report.get("committed"))
        if committed == kills_old:
            one.reach(one.step() + 3)
        stage.row(what, "the new one trains on" if committed else f"called off: {report.get('why', '')}", predicted="the new one trains on" if kills_old else "called off",
                  by="docs/runtime.md", passed=committed == kills_old)
    finally:
        one.end()


def kill_shim(kind, stage, folder):
    one = run(folder, kind, 5)
    try:
        one.start(1).reach(6)
        before = one.lines()[0]["free"]
        one.host.kill()
    finally:
        one.end()
    again = run(os.path.join(folder, "again"), kind, 5)
    try:
        again.start(1).reach(1)
        free = again.lines()[0]["free"]
        stage.row(f"{kind}: kill -9 of the shim: free memory at the next start over that before", free / before, predicted=1.0, by="its descriptors' end", goal=0.98,
                  passed=free >= 0.98 * before)
    finally:
        again.end()


def of(kind, gib, needs_s, *more, verify="network", on_stand_in=False, **environment):
    """The case of changes()."""
    return Case(f"{kind}, {gib} GiB {' '.join([*environment.values(), *more, verify])}", needs_s, partial(changes, kind, gib, verify, more, environment), on_stand_in)


def full(kind, share, way="ballast", on_stand_in=False):
    """The case of fullness()."""
    return Case(f"{kind}, {share:.0%} of the GPU, {way}", 13, partial(fullness, kind, share, way), on_stand_in)


def killing(kind):
    """The cases of what is killed."""
    return [Case(f"{kind}: kill {'old' if old else 'new'} in {phase}", 11, partial(kills, kind, phase, old)) for phase, old in (("move", True), ("move", False), ("prepare", False))] + [
        Case(f"{kind}: kill the shim", 13, partial(kill_shim, kind))]


if __name__ == "__main__":
    torch_s = {"SWELL_GPU_MEMORY": "torch"}
    bench.main(
        "memory", *(of(kind, 5, 18, on_stand_in=True) for kind in ("ddp", "engine", "fsdp")), full("ddp", 0.8), *killing("ddp"),
        of("ddp", 5, 12, on_stand_in=True, **torch_s), of("ddp", GIB, 12, verify="all", on_stand_in=True, **torch_s),
        full("ddp", 0.95, on_stand_in=True), full("fsdp", 0.8, on_stand_in=True), *killing("engine"),
        of("ddp", 30, 30), of("engine", 30, 34), of("fsdp", 30, 30), of("ddp", 5, 11, verify="all"),
        of("ddp", 5, 12, "allocator=expandable", **torch_s), of("ddp", 5, 12, "allocator=expandable"),
        full("ddp", 0.6), full("ddp", 0.4), full("ddp", 0.8, "cache"),
        *(of(kind, gib, needs_s) for gib, needs_s in ((15, 17), (1, 9)) for kind in ("ddp", "engine", "fsdp")))
