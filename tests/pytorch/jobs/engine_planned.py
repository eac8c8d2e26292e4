# SPDX-License-Identifier: GPL-2.0-or-later
"""A small model under the engine, by the plan that Swell decides; data parallel where it has decided none.

Argument: the family (llama or gpt2). Ends with the step that the file `last` names. What plan it follows is in `plan`.
"""

import os
import sys

import torch
import transformers

import common

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine"))
import models  # noqa: E402

from swell.torch import Engine  # noqa: E402

transformers.utils.logging.set_verbosity_error()


def last():
    try:
        with open(common.path("last")) as file:
            return int(file.read())
    except FileNotFoundError:
        return 1 << 30


def write(name, text):
    with open(common.path(name + ".new"), "w") as file:
        file.write(text)
    os.replace(common.path(name + ".new"), common.path(name))


def main(arguments):
    family = {"llama": "llama_gqa_tied", "gpt2": "gpt2"}[arguments[0]]
    config = models.CONFIGS[family]()
    config.vocab_size = 512     # so that the head, too, is a part of a step that takes a while
    engine = Engine(config, lambda p: torch.optim.AdamW(p, lr=3e-3), global_batch=models.BATCH, micro_batch=1,
                    scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / 20)), max_grad_norm=0.5,
                    seed=3, log=common.path("losses"))
    if engine.rank == 0:
        write("plan", os.environ.get("SWELL_PLAN", ""))
    while engine.steps < last():
        engine.step(models.batch(seed=engine.steps))
        if engine.rank == 0:
            write("step.0", str(engine.steps))


if __name__ == "__main__":
    main(sys.argv[1:])
