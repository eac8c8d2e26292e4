# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `first`: the driver, and GPU memory that goes from program to program."""

import json
import os
import shutil
import subprocess

import bench

HANDOVER = os.path.join(bench.BUILD, "tests", "bench", "gpu-handover")


def asked(*command, limit_s=240):
    """The last line of a program as JSON. Raises Skipped where it says that it cannot run here."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    lines = done.stdout.strip().splitlines() or [""]
    if done.returncode == 77:
        raise bench.Skipped(lines[-1])
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"
    return json.loads(lines[-1])


def driver(stage):
    """What the machine is, as NVIDIA's own tool says and as Swell reads it."""
    with stage.case("GPU and driver", 5):
        facts = asked(os.path.join(bench.BUILD, "tests", "bench", "gpu-facts"))
        if shutil.which("nvidia-smi") is None:
            stage.row("GPUs that Swell reads by NVML", json.dumps(facts["gpus"]))
            raise bench.Skipped("nvidia-smi is not there to compare with")
        said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,compute_mode,memory.total", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60, check=True).stdout.strip()
        links = subprocess.run(["nvidia-smi", "nvlink", "-s"], capture_output=True, text=True, timeout=60, check=False).stdout.strip()
        for line in said.splitlines():
            stage.row("GPU, driver, compute mode, memory", line)
        stage.row("NVLink by nvidia-smi", "; ".join(line.strip() for line in links.splitlines()[:3]) or "none")
        stage.row("GPUs that Swell reads by NVML", json.dumps(facts["gpus"]), passed=len(facts["gpus"]) == len(said.splitlines()))


def handovers(stage):
    with stage.case("handover of 1 GiB", 20):
        found = asked(HANDOVER, "1", "256")
        stage.row("1 GiB: handed over, no copy", found["is_shared"], passed=found["is_shared"])
        tool = shutil.which("compute-sanitizer")
        if tool:
            asked(tool, "--tool", "memcheck", "--error-exitcode", "9", HANDOVER, "1", "256")
            stage.row("1 GiB under compute-sanitizer", "no error", passed=True)
    whole, slabs = ("1", ("64",)) if bench.STAND_IN else ("40", ("64", "256", "1024"))
    for slab in slabs:
        with stage.case(f"handover of {whole} GiB in slabs of {slab} MiB", 60):
            found = asked(HANDOVER, whole, slab)
            what = f"{whole} GiB in slabs of {slab} MiB"
            stage.row(f"{what}: handover", found["handover_s"] * 1e3, "ms", goal=50.0, passed=None if bench.STAND_IN else found["handover_s"] <= 0.05)
            stage.row(f"{what}: bytes that it took", found["bytes_taken_by_handover"] / 2**20, "MiB", goal=64.0,
                      passed=found["bytes_taken_by_handover"] <= 64 * 2**20)
            stage.row(f"{what}: copy in chunks over a plain one", found["ratio"], goal=0.8, passed=None if bench.STAND_IN else found["ratio"] >= 0.8)
            stage.row(f"{what}: plain copy within the GPU", found["plain_gb_s"], "GB/s")
            stage.row(f"{what}: the GPU's checksum is the host's", found["hash_is_host_s"], passed=found["hash_is_host_s"])
            stage.row(f"{what}: checksum on the GPU", found["hash_gb_s"], "GB/s")
            stage.row(f"{what}: loading the checksum's kernel", found["hash_load_s"] * 1e3, "ms")
    held = 2 if bench.STAND_IN else 30
    with stage.case(f"memory without any CUDA process for {held} s", held + 40):
        found = asked(HANDOVER, "1", "256", "0", "1", str(held))
        stage.row(f"memory outlives all CUDA processes by {held} s", found["is_shared"], passed=found["is_shared"])


if __name__ == "__main__":
    one = bench.Stage("first")
    driver(one)
    handovers(one)
    one.close()
