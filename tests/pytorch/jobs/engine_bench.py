# SPDX-License-Identifier: GPL-2.0-or-later
"""A GPT-2 of ten million parameters under the engine: two stages for two workers, and two replicas of them for four. Trains until it is ended."""

import sys

import torch

import common
import engine_planned
import models

from swell.torch import Engine

PLANS = {2: models.plan(4, (4, 1, [3]), (4, 1, [3])), 4: models.plan(2, (4, 1, [3, 3]), (4, 1, [3, 3]))}


def main(arguments):
    engine = Engine(engine_planned.config("gpt2", "10m"), lambda p: torch.optim.AdamW(p, lr=1e-4), global_batch=engine_planned.BATCH,
                    plan=PLANS.__getitem__, log=common.path("losses"))
    while True:
        engine.step(engine_planned.batch(engine.steps))
        if engine.rank == 0:
            engine_planned.write("step.0", str(engine.steps))


if __name__ == "__main__":
    main(sys.argv[1:])
