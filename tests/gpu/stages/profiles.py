# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `profile`: what the profiler costs, whether its times are the kernels', and what one profile says of other plans."""

import json
import os

import bench
import gpu_place
from forked import LiveRun, Run

SHAPES = {True: dict(hidden=64, length=16, vocabulary=256), False: dict(hidden=1024, length=1024, vocabulary=32000)}[bench.STAND_IN]
OBSERVED = dict(layers=4 if bench.STAND_IN else 16, micro=4, samples=2)
OTHERS = [dict(OBSERVED, micro=8)] if bench.STAND_IN else [
    dict(OBSERVED, micro=8), dict(OBSERVED, samples=4), dict(OBSERVED, layers=OBSERVED["layers"] // 2), dict(OBSERVED, layers=OBSERVED["layers"] * 3 // 2)]
STEPS = 20 if bench.STAND_IN else 40
if bench.STAND_IN:      # parts of a step last as long on a busy host as on a quiet one
    os.environ["SWELL_PACED"] = "type:0.001tflops:memory=500MB/s"


def run(folder, plan, *more, live=False, steps=STEPS):
    given = [f"{key}={value}" for key, value in {**SHAPES, **plan}.items()]
    if not bench.STAND_IN:
        given.append("dtype=bfloat16")
    one = (LiveRun if live else Run)(folder, "gpu_engine_job", *given, "unpaced=1", *more, steps=steps, **({"keepers": 1} if live else {}))
    return one.start(1)


def finished(one, needs=STEPS):
    one.reach(needs)
    lines = one.lines()
    one.end()
    return lines


def overhead(stage):
    """By turns: without a runtime nothing is profiled."""
    with stage.case("profiler: overhead", 90) as folder:
        if not folder:
            return
        without, beside = [], []
        for turn in range(1 if bench.STAND_IN else 3):
            without.append(gpu_place.median_step(finished(run(os.path.join(folder, f"without{turn}"), OBSERVED))))
            beside.append(gpu_place.median_step(finished(run(os.path.join(folder, f"with{turn}"), OBSERVED, live=True))))
        cost = min(beside) / min(without) - 1
        stage.row("profiler: step time with it over without, less 1", 100 * cost, "%", goal=0.5, passed=None if bench.STAND_IN else cost <= 0.005)


def truth(stage):
    """Its times beside those of kernels by torch.profiler; then other plans by that one profile."""
    with stage.case("profile of one plan", 60) as folder:
        if not folder:
            return
        one = run(os.path.join(folder, "observed"), OBSERVED, live=True, steps=3 * STEPS)
        try:
            one.leave_well()        # by then it has reported what it saw
            found = one.profile()
            kernels = run(os.path.join(folder, "kernels"), OBSERVED, "kernels=1")
            finished(kernels)
            with open(os.path.join(kernels.folder, "kernels")) as file:
                measured = json.load(file)["kernels_s"]
            step = gpu_place.median_step(one.lines())
            stage.row("time of kernels in a step by torch.profiler over the step's", measured / step)
            stage.row("profile", json.dumps(found["profile"])[:400])
            off, over = [], []
            for plan in [OBSERVED, *OTHERS]:
                said = one.tell(f"predict {plan['micro']} {plan['samples']} {plan['layers']}")
                assert "why" not in said, said["why"]
                lines = finished(run(os.path.join(folder, "-".join(map(str, plan.values()))), plan))
                seconds, what = gpu_place.median_step(lines), f"{plan['micro']} micro-batches of {plan['samples']}, {plan['layers']} layers"
                stage.row(f"step, {what}", seconds, "s", predicted=said["step_s"])
                off.append(abs(said["step_s"] / seconds - 1))
                if lines[-1]["peak"]:
                    stage.row(f"peak memory, {what}", lines[-1]["peak"] / 1e9, "GB", predicted=said["peak_bytes"] / 1e9)
                    over.append(abs(said["peak_bytes"] / lines[-1]["peak"] - 1))
            worst = 100 * sum(off[1:]) / len(off[1:])
            stage.row("step times of other plans from one profile: mean error", worst, "%", goal=8.0, passed=None if bench.STAND_IN else worst <= 8)
            if over:
                mean = 100 * sum(over) / len(over)
                stage.row("peak memory from one profile: mean error", mean, "%", goal=5.0, passed=mean <= 5)
        finally:
            one.end()


if __name__ == "__main__":
    one = bench.Stage("profile")
    overhead(one)
    truth(one)
    one.close()
