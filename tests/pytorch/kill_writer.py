# SPDX-License-Identifier: GPL-2.0-or-later
"""Kill a process that writes checkpoints, again and again, and read what it leaves.

Run by resize_test.py under a Python with torch, with the example's folder in PYTHONPATH.
Argument: a folder to write in."""

import os
import random
import signal
import sys
import time

import lean_torch  # noqa: F401
import torch

import checkpoint

KILLS = 40
NUMBERS = 1 << 19       # 2 MiB a checkpoint: most of a writer's time is spent writing


def write(folder, step):
    while True:
        step += 1
        checkpoint.save(folder, step, {"step": step, "numbers": torch.full((NUMBERS,), float(step))})


def main(folder):
    torch.set_num_threads(1)
    os.makedirs(folder)
    chance, step, cut_short = random.Random(1), 0, 0
    for _ in range(KILLS):
        writer = os.fork()
        if writer == 0:
            write(folder, step)
        time.sleep(chance.uniform(0.0, 0.08))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        before, step = step, checkpoint.latest_step(folder)
        cut_short += any(name.endswith(".unfinished") for name in os.listdir(folder))
        checkpoint.clear_unfinished(folder)
        if step < before:
            sys.exit(f"after a kill the latest checkpoint is of step {step}; it was of step {before}")
        if step:
            # The newest by name must itself be readable: no falling back to the one before.
            path = os.path.join(folder, f"gpt-{step:09d}.pt")
            try:
                state = torch.load(path, weights_only=True)
            except Exception as error:
                sys.exit(f"{os.path.basename(path)} cannot be read: {error}")
            if state["step"] != step or not bool((state["numbers"] == step).all()):
                sys.exit(f"{os.path.basename(path)} holds something else")
    if cut_short < KILLS // 4:
        sys.exit(f"only {cut_short} of {KILLS} kills hit a writer while it wrote: the test shows nothing")
    print(f"{KILLS} kills, {cut_short} while writing, {step} checkpoints")


main(sys.argv[1])
