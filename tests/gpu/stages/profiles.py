# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `profile`: what the profiler costs, whether its times are the kernels', and what one profile says of other plans."""

import json
import os
from unittest import mock

import bench
import gpu_llama
import gpu_place
from bench import Case
from forked import LiveRun, Run

SHAPES = dict(hidden=64, length=16, vocabulary=256) if bench.STAND_IN else dict(hidden=1536, length=1024, vocabulary=32000)
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


def size(stage, _folder):
    count = [gpu_llama.parameters(**{**SHAPES, **plan}) / 1e9 for plan in (OBSERVED, *OTHERS)]
    stage.row("LLaMA: parameters of the plan that is profiled", count[0], "10^9")
    stage.row("LLaMA: parameters of all plans", f"{min(count):.4g} to {max(count):.4g} 10^9", goal="0.3 to 1", passed=bench.on_gpu(0.3 <= min(count) and max(count) <= 1))


def overhead(stage, folder):
    """By turns: without a runtime nothing is profiled."""
    without, beside = [], []
    for turn in range(1 if bench.STAND_IN else 3):
        without.append(gpu_place.median_step(finished(run(os.path.join(folder, f"without{turn}"), OBSERVED))))
        beside.append(gpu_place.median_step(finished(run(os.path.join(folder, f"with{turn}"), OBSERVED, live=True))))
    cost = min(beside) / min(without) - 1
    stage.row("profiler: step time with it over without, less 1", 100 * cost, "%", predicted=0.4, by="docs/profiler.md, without a device", goal=0.5,
              passed=bench.on_gpu(cost <= 0.005))


def kernels(stage, folder):
    """The profiler's times of a step's parts beside those of torch.profiler's kernels, in one process."""
    with mock.patch.dict(os.environ):
        os.environ.pop("SWELL_PACED", None)     # torch.profiler sees what is computed
        run(folder, OBSERVED, "kernels=1").leave_well()
    with open(os.path.join(folder, "kernels")) as file:
        seen = json.load(file)
    for part, seconds in seen["kernels"].items():
        ours = seen["profile"][f"{part}_s"] * (1 if part == "optimizer" else OBSERVED["micro"])
        assert ours > 0 and seconds > 0, f"{part}: {ours} s by Swell, {seconds} s by torch.profiler"
        stage.row(f"{part} of a step: Swell's time over that of torch.profiler's kernels", ours / seconds, predicted=1.0, by="their work being the same")
    stage.row("all kernels of a step by torch.profiler over the step", sum(seen["kernels"].values()) / seen["profile"]["step_s"])


def others(stage, folder):
    """Other plans by one profile."""
    one = run(os.path.join(folder, "observed"), OBSERVED, live=True, steps=3 * STEPS)
    try:
        one.leave_well()        # by then it has reported what it saw
        stage.row("profile", json.dumps(one.profile()["profile"])[:400])
        off, over = [], []
        for plan in [OBSERVED, *OTHERS]:
            said = one.tell(f"predict {plan['micro']} {plan['samples']} {plan['layers']}")
            assert "why" not in said, said["why"]
            lines = finished(run(os.path.join(folder, "-".join(map(str, plan.values()))), plan))
            seconds, what = gpu_place.median_step(lines), f"{plan['micro']} micro-batches of {plan['samples']}, {plan['layers']} layers"
            stage.row(f"step, {what}", seconds, "s", predicted=said["step_s"], by="the profile")
            off.append(abs(said["step_s"] / seconds - 1))
            if lines[-1]["peak"]:
                stage.row(f"peak memory, {what}", lines[-1]["peak"] / 1e9, "GB", predicted=said["peak_bytes"] / 1e9, by="the profile")
                over.append(abs(said["peak_bytes"] / lines[-1]["peak"] - 1))
        worst = 100 * sum(off[1:]) / len(off[1:])
        stage.row("step times of other plans from one profile: mean error", worst, "%", goal=8.0, passed=bench.on_gpu(worst <= 8))
        if over:
            mean = 100 * sum(over) / len(over)
            stage.row("peak memory from one profile: mean error", mean, "%", goal=5.0, passed=mean <= 5)
    finally:
        one.end()


def two_ranks(stage, folder):
    """One worker becomes two on the same GPU, which NCCL does not take twice."""
    what, given = "two ranks on one GPU over gloo", ("gpu_state_job", "kind=ddp", f"mib={1 if bench.STAND_IN else 256}", "gloo=1")
    alone = Run(os.path.join(folder, "alone"), *given, steps=STEPS).fast()
    finished(alone.start(1))
    one = LiveRun(os.path.join(folder, "two"), *given, steps=10**5, keepers=2)
    try:
        one.start(1).reach(6)
        report = one.switch(2)
        assert report.get("committed"), f"not committed: {report.get('why')}"
        one.reach(max(STEPS, one.step() + 4))
        curve, reference = one.curve(), alone.curve()
        off = max(abs(curve[at] / reference[at] - 1) for at in reference)
        stage.row(f"{what}: loss beside that of one rank, at most", off, predicted=0.0, by="sums in another order alone", goal=1e-4, passed=off < 1e-4)
        stage.row(f"{what}: state of the second came", "; ".join(path for path, count in report["bytes"].items() if count))
    finally:
        one.end()


if __name__ == "__main__":
    bench.main("profile", Case("size of the model", 5, size), Case("profile of one plan", 150, others), Case("profiler: overhead", 120, overhead),
               Case("profiler beside torch.profiler", 60, kernels), Case("two ranks on one GPU over gloo", 60, two_ranks))
