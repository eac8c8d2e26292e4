# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage `first`: the driver, and GPU memory that goes from program to program."""

import json
import os
import shutil
import subprocess
from functools import partial

import bench
from bench import Case

HANDOVER = os.path.join(bench.BUILD, "tests", "bench", "gpu-handover")
MEMORY_GB_S = {"a100": 2039.0, "h100": 3350.0, "h200": 4800.0, "b200": 8000.0}       # of data sheets
SLAB_S = 1e-4       # import, map and access of a slab: three calls of the driver
COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}
facts = {"gpus": []}


def asked(*command, limit_s=240):
    """The last line of JSON that a program says. Raises Skipped where it says that it cannot run here."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    lines = done.stdout.strip().splitlines() or [""]
    if done.returncode == 77:
        raise bench.Skipped(lines[-1])
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"
    return json.loads([line for line in lines if line.startswith("{")][-1])


def driver(stage, _folder):
    """Notes the facts of the machine, as NVIDIA's own tool says and as Swell reads them."""
    facts.update(asked(os.path.join(bench.BUILD, "tests", "bench", "gpu-facts")))
    for gpu, mode in enumerate(facts["compute_modes"]):
        stage.row(f"GPU {gpu}: compute mode that Swell reads", COMPUTE_MODES.get(mode, f"value {mode}"))
    for link in facts["links"]:
        stage.row(f"GPU {link['gpu']}, NVLink {link['link']}: version by NVML", f"value {link['version']}, {link['gb_s'] or 'unknown'} GB/s each way to Swell",
                  passed=bench.on_gpu(link["gb_s"] > 0))
    for pair in facts["nvlinks"]:
        stage.row(f"NVLink from {pair['a']} to {pair['b']} to Swell", pair["gb_s"], "GB/s")
    for note in facts["notes"]:
        stage.row("Swell on this machine", note)
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


def small(stage, _folder):
    found = asked(HANDOVER, "1", "256")
    stage.row("1 GiB: handed over, no copy", found["is_shared"], passed=found["is_shared"])


def sanitized(stage, _folder):
    tool = shutil.which("compute-sanitizer")
    if not tool:
        raise bench.Skipped("compute-sanitizer is not there")
    found = asked(tool, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "9", HANDOVER, "1", "256")
    stage.row("1 GiB under compute-sanitizer", "no error", passed=found["is_shared"])


def handover(slab, stage, _folder):
    whole = 1 if bench.STAND_IN else 40
    found, what = asked(HANDOVER, str(whole), str(slab)), f"{whole} GiB in slabs of {slab} MiB"
    slabs, memory = whole * 1024 / slab, MEMORY_GB_S.get(facts["gpus"][0]["type"]) if facts["gpus"] else None
    stage.row(f"{what}: handover", found["handover_s"] * 1e3, "ms", predicted=slabs * SLAB_S * 1e3, by="0.1 ms a slab, an estimate", goal=50.0,
              passed=bench.on_gpu(found["handover_s"] <= 0.05))
    stage.row(f"{what}: bytes that it took", found["bytes_taken_by_handover"] / 2**20, "MiB", predicted=0.0, by="the driver's documentation", goal=64.0,
              passed=found["bytes_taken_by_handover"] <= 64 * 2**20)
    stage.row(f"{what}: copy in chunks over a plain one", found["ratio"], goal=0.8, passed=bench.on_gpu(found["ratio"] >= 0.8))
    stage.row(f"{what}: plain copy within the GPU", found["plain_gb_s"], "GB/s", predicted=memory and memory / 2, by="the data sheet: a read and a write")
    stage.row(f"{what}: the GPU's checksum is the host's", found["hash_is_host_s"], passed=found["hash_is_host_s"])
    stage.row(f"{what}: checksum on the GPU", found["hash_gb_s"], "GB/s", predicted=memory, by="the data sheet: a read")
    stage.row(f"{what}: loading the checksum's kernel", found["hash_load_s"] * 1e3, "ms")


def outlives(stage, _folder):
    held = 1 if bench.STAND_IN else 30
    found = asked(HANDOVER, "1", "256", "0", "1", str(held))
    stage.row(f"memory outlives all CUDA processes by {held} s", found["is_shared"], passed=found["is_shared"])


if __name__ == "__main__":
    bench.main("first", Case("GPU and driver", 20, driver), Case("handover of 1 GiB", 20, small, False), Case("handover in slabs of 256 MiB", 60, partial(handover, 256), False),
               Case("memory without any CUDA process", 60, outlives), Case("handover in slabs of 64 MiB", 60, partial(handover, 64)),
               Case("handover in slabs of 1024 MiB", 60, partial(handover, 1024), False), Case("handover under compute-sanitizer", 120, sanitized))
