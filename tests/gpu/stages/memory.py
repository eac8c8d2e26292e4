# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `memory`: live changes from one worker to one, by amount of state, use of the GPU, and what is killed meanwhile."""

import os
import signal

import bench
from forked import LiveRun, Run

# Seconds a GB of state: to the host and back over PCIe at 25 GB/s, hashed twice at 8 GB/s; before any GPU was seen.
PREDICTED_S_PER_GB = 2 / 25 + 2 / 8
STEPS = 400
MIB = bench.UNIT >> 10


def arguments(kind, gib):
    """Of the job that has so many GiB of parameters and moments; the engine's model comes near it."""
    if kind != "engine":
        return "gpu_state_job", (f"kind={kind}", f"mib={max(1, gib * bench.UNIT >> 20)}")
    width, length = (64, 16) if bench.STAND_IN else (2048, 256)
    parameters = gib * bench.UNIT / 12
    layer = 4 * width * width + 3 * width * (width * 11 // 4)
    return "gpu_engine_job", (f"hidden={width}", f"layers={max(1, round((parameters - 2 * 1024 * width) / layer))}", f"length={length}",
                              "vocabulary=1024", "micro=2", "samples=2")


def run(folder, kind, gib, *more, live=True):
    job, given = arguments(kind, gib)
    return (LiveRun if live else Run)(os.path.join(folder, "live" if live else "alone"), job, *given, *more, steps=STEPS, **({"keepers": 2} if live else {}))


def change(stage, what, folder, kind, gib, *more, hashes=True, beside=None):
    """One live change; `beside`: another run whose losses must be the same."""
    one = run(folder, kind, gib, *more)
    try:
        one.tell(f"verify {int(hashes)}")
        one.start(1).reach(8)
        report = one.switch(1, limit_s=90)
        assert report.get("committed"), f"not committed: {report.get('why')}"
        one.reach(one.step() + 4)
        moved = sum(report["bytes"].values()) / 1e9
        stage.row(f"{what}: pause seen by the steps", bench.pause(one.lines()), "s",
                  predicted=None if bench.STAND_IN else moved * PREDICTED_S_PER_GB + 0.1)
        stage.row(f"{what}: moved", moved, "GB by " + "; ".join(path for path, count in report["bytes"].items() if count))
        stage.row(f"{what}: phases", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in report["phases"]))
        if beside is not None:
            stage.row(f"{what}: losses as those of a run that never changed, bit by bit", "compared", passed=bench.same_losses(one, beside))
    finally:
        one.end()


def sizes(stage, *amounts):
    for gib in amounts:
        for kind in ("ddp", "engine", "fsdp"):
            what = f"{kind}, {gib} GiB of state"
            with stage.case(what, 20 + 2 * gib) as folder:
                if not folder:
                    continue
                alone = run(folder, kind, gib, live=False) if gib == 5 else None
                if alone is not None:
                    alone.start(1).reach(14)
                    alone.end()
                change(stage, what, folder, kind, gib, beside=alone)


def options(stage):
    for what, more, hashes in (("not hashed", (), False), ("expandable segments", ("allocator=expandable",), True)):
        with stage.case(f"ddp, 5 GiB, {what}", 40) as folder:
            if folder:
                change(stage, f"ddp, 5 GiB, {what}", folder, "ddp", 5, *more, hashes=hashes)


def fullness(stage):
    for share in (0.4, 0.6, 0.8, 0.95):
        what = f"ddp, 5 GiB, {share:.0%} of the GPU in use"
        with stage.case(what, 40) as folder:
            if bench.STAND_IN:
                raise bench.Skipped("PyTorch has no cache on the stand-in")
            if folder:
                change(stage, what, folder, "ddp", 5, f"cache={share}")


def kills(stage):
    """What is killed costs at most what was agreed: the old worker trains on, or another start goes on from nothing it did not have."""
    for phase, kills_old in (("prepare", False), ("move", False), ("move", True)):
        what = f"kill -9 of the {'old' if kills_old else 'new'} worker in {phase}"
        with stage.case(what, 60) as folder:
            if not folder:
                continue
            one = run(folder, "ddp", 5)
            try:
                one.start(1).reach(6)
                held = os.path.join(one.folder, "held")
                with open(held, "w"):
                    one.tell(f"hold {phase} {held}")
                one.switch(1, wait=False, limit_s=60)
                one.until(lambda one=one, held=held: os.path.exists(held + ".reached"), phase)
                os.kill((one.old if kills_old else one.workers)[0], signal.SIGKILL)
                os.remove(held)
                if kills_old:
                    report = one.switched_badly()
                    stage.row(what, f"committed: {bool(report.get('committed'))}, {report.get('why', '')}", passed=not report.get("committed"))
                else:
                    report = one.switched()
                    one.reach(one.step() + 3)
                    stage.row(what, f"the old one trains on: {report.get('why', '')}", passed=not report.get("committed"))
            finally:
                one.end()
    with stage.case("kill -9 of the shim", 60) as folder:
        if folder:
            one = run(folder, "ddp", 5)
            one.start(1).reach(6)
            before = one.lines()[0]["free"]
            one.host.kill()
            one.end()
            again = run(os.path.join(folder, "again"), "ddp", 5)
            try:
                again.start(1).reach(1)
                free = again.lines()[0]["free"]
                stage.row("kill -9 of the shim: free memory at the next start over that before", free / before, goal=0.98, passed=free >= 0.98 * before)
            finally:
                again.end()


if __name__ == "__main__":
    one = bench.Stage("memory")
    fullness(one)
    sizes(one, 5)
    kills(one)
    options(one)
    if not bench.STAND_IN:
        sizes(one, 1, 15, 30)
    one.close()
