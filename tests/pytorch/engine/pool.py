# SPDX-License-Identifier: GPL-2.0-or-later
"""Forked workers of one parent that has imported torch and transformers: many plans in seconds."""

import gc
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "python"))

import torch  # noqa: E402
import torch._dynamo  # noqa: E402,F401  once, for all workers: optimizers import it when they are first used
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()
PATIENCE_S = int(os.environ.get("TEST_PATIENCE", "240"))


def run(folder, jobs):
    """Runs each job, (number of workers, function, arguments), over as many forked workers; all jobs in the same processes.

    Returns what the function returned, by job and rank. A function is called as function(rank, *arguments), within a
    process group of its own.
    """
    os.makedirs(folder, exist_ok=True)
    folder = tempfile.mkdtemp(dir=folder)       # stores of a run before would name its dead processes
    sys.stdout.flush()
    gc.freeze()     # workers need not look through all that was imported, nor copy its pages
    children = {}
    for rank in range(max(world for world, _, _ in jobs)):
        child = os.fork()
        if not child:
            _work(folder, rank, jobs)
        children[child] = rank
    deadline, failed = time.monotonic() + PATIENCE_S, []
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in children:
            rank = children.pop(child)
            if status:
                failed.append(rank)
        elif failed or time.monotonic() > deadline:
            for left in children:
                os.kill(left, signal.SIGKILL)
                os.waitpid(left, 0)
            failed = failed or sorted(children.values())
            children = {}
        else:
            time.sleep(0.005)
    if failed:
        said = []
        for rank in failed:
            path = os.path.join(folder, f"error.{rank}")
            said.append(open(path).read() if os.path.exists(path) else f"rank {rank} did not end within {PATIENCE_S} s")
        raise AssertionError("\n".join(said))
    found = []
    for number, (world, _, _) in enumerate(jobs):
        found.append([pickle.load(open(os.path.join(folder, f"result.{number}.{rank}"), "rb")) for rank in range(world)])
    return found


def _work(folder, rank, jobs):
    code = 1
    number = -1
    # Turns PyTorch's notices of a removal into errors. Here, as pytest has filters of its own for each test.
    warnings.filterwarnings("error", message="`torch.distributed", category=FutureWarning)
    try:
        for number, (world, function, arguments) in enumerate(jobs):
            if rank >= world:
                continue
            os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)})
            dist.init_process_group("gloo", init_method=f"file://{folder}/store.{number}", rank=rank, world_size=world)
            value = function(rank, *arguments)
            with open(os.path.join(folder, f"result.{number}.{rank}"), "wb") as file:
                pickle.dump(value, file)
            dist.barrier()
            dist.destroy_process_group()
        code = 0
    except BaseException:
        with open(os.path.join(folder, f"error.{rank}"), "w") as file:
            file.write(f"rank {rank}, job {number} {jobs[number][2] if number >= 0 else ''}:\n{traceback.format_exc()}")
    finally:
        os._exit(code)
