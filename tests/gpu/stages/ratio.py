# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `ratio`: a live change beside a restart, and the libraries that the profiler is loaded by."""

import os

import bench
from forked import LiveRun, Run
from memory import arguments

STEPS = 400


def pauses(stage):
    with stage.case("5 GiB: restart beside live", 120) as folder:
        if not folder:
            return
        job, given = arguments("ddp", 5)
        live = LiveRun(os.path.join(folder, "live"), job, *given, steps=STEPS, keepers=2)
        try:
            live.start(1).reach(8)
            report = live.switch(1, limit_s=90)
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
        stage.row("5 GiB: pause of a live change", short, "s")
        stage.row("5 GiB: pause of a restart, imports left out", long, "s")
        stage.row("5 GiB: restart over live", long / short, goal=10.0, passed=None if bench.STAND_IN else long / short >= 10)


def libraries(stage):
    """NCCL loads Swell's profiler plugin, and the profiler finds CUPTI."""
    with stage.case("NCCL's profiler plugin, and CUPTI", 40) as folder:
        if not folder:
            return
        if bench.STAND_IN:
            raise bench.Skipped("neither library is there")
        os.environ.update(NCCL_DEBUG="INFO", NCCL_PROFILER_PLUGIN=os.path.join(bench.BUILD, "stage", "lib", "libswell-nccl-profiler.so"))
        job, given = arguments("ddp", 1)
        one = LiveRun(os.path.join(folder, "live"), job, *given, steps=STEPS, keepers=1)
        try:
            one.start(1).reach(20)
            said = [line for line in one.said().splitlines() if "PROFILER" in line.upper()]
            stage.row("NCCL on its profiler plugin", said[-1][-160:] if said else "says nothing", passed=bool(said) and "swell" in " ".join(said).lower())
            with open(f"/proc/{one.workers[0]}/maps") as maps:
                mapped = sorted({os.path.basename(line.split()[-1]) for line in maps if "cupti" in line})
            stage.row("CUPTI that the worker has loaded", ", ".join(mapped) or "none", passed=bool(mapped))
        finally:
            one.end()
            del os.environ["NCCL_DEBUG"], os.environ["NCCL_PROFILER_PLUGIN"]


def compiled(stage):
    with stage.case('torch.compile(mode="reduce-overhead")', 120) as folder:
        if not folder:
            return
        if bench.STAND_IN:
            raise bench.Skipped("the stand-in computes nothing")
        job, given = arguments("ddp", 1)
        alone = Run(os.path.join(folder, "alone"), job, *given, "compiled=1", steps=STEPS).start(1).reach(14)
        alone.end()
        one = LiveRun(os.path.join(folder, "live"), job, *given, "compiled=1", steps=STEPS, keepers=2)
        try:
            one.start(1).reach(8)
            report = one.switch(1, limit_s=90)
            assert report.get("committed"), f"not committed: {report.get('why')}"
            one.reach(one.step() + 4)
            stage.row("compiled: losses as those of a run that never changed, bit by bit", "compared", passed=bench.same_losses(one, alone))
        finally:
            one.end()


if __name__ == "__main__":
    one = bench.Stage("ratio")
    pauses(one)
    libraries(one)
    compiled(one)
    one.close()
