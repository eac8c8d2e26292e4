# SPDX-License-Identifier: GPL-2.0-or-later
"""A small model under the engine: another plan for each number of workers.

Arguments: the family (llama or gpt2), "pipeline" or "swaps" for plans that differ in the pipeline alone, "checkpoints" for one every 5 steps,
"dataset" to train by engine.batches() ("shorter", "unshuffled": another one), "sgd", "adam", "stepped", "unscheduled": another optimizer, another schedule, none, "clips" for other hyperparameters, "unreadable" for a schedule that no checkpoint can hold,
"draws" for numbers that the loop draws before each step, which it writes to drawn.RANK; each start has a seed of its own, and draws more before the loop, and with "checkpoints" after each step ("apart": ranks have other seeds),
"skips" for a loop that leaves some batches out by the word of the last worker, "skips-long" for one that leaves those of 30 steps in a row out and then writes `skipped`, "skips-apart" for one in which that worker alone calls skip(),
"half" for passes in bfloat16, "own" for no plan but what the engine makes, "mtp" for an MTP head, "other-group" for a process group that is not the engine's, "ends-together" for process groups that end as NCCL's, "on-gpu" for state on a
GPU that a driver's stand-in has, "keeps" for tensors that the script keeps over it, "wide" for a state of 40 MB, "zero" for moments that replicas divide.
Workers that reach the end write what they hold of the state to state.RANK.
"""

import os
import random
import sys

import numpy
import torch
import transformers

import common

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine"))
import models  # noqa: E402
import nccl  # noqa: E402

from swell.torch import Engine  # noqa: E402

transformers.utils.logging.set_verbosity_error()
ANY = {1: models.plan(3, (4, 1, [4], 1, 3)), 2: models.plan(3, (4, 2, [4])), 3: models.plan(3, (1, 1, [4]), (3, 1, [1, 3])),
       4: models.plan(3, (1, 2, [4]), (3, 1, [2, 2])), 5: models.plan(3, (2, 1, [1, 3]), (1, 2, [4]), (1, 1, [4]))}
PIPELINE = {1: ANY[1], 2: models.plan(3, (3, 1, [4]), (1, 1, [4])), 3: models.plan(3, (1, 1, [4], 1, 1), (2, 1, [4], 0, 2), (1, 1, [4], 1, 1)),
            4: models.plan(3, *[(1, 1, [4])] * 4)}

# From two to three workers the first two change all their layers.
SWAPS = {1: ANY[1], 2: models.plan(3, (2, 1, [4]), (2, 1, [4])), 3: models.plan(3, (2, 1, [4], 1, 2), (2, 1, [4], 2, 0), (0, 1, [4], 0, 1))}


class Rows:
    batches = 5

    def __len__(self):
        return self.batches * models.BATCH

    def __getitem__(self, index):
        return {"input_ids": torch.randint(0, 90, (9,), generator=torch.Generator().manual_seed(index))}


def schedule(optimizer, is_unreadable, is_stepped):
    made = torch.optim.lr_scheduler.StepLR(optimizer, 5) if is_stepped else torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    if is_unreadable:
        made.owner = Rows()
    return made


def main(arguments):
    common.die_as_told()
    family = {"llama": "llama_gqa_tied", "gpt2": "gpt2"}[arguments[0]]
    if "on-gpu" in arguments:
        import stand_in_gpu     # of tests that fork; a script alone has no use for it
        if os.path.exists(common.path("gpus")):     # a GPU for each rank, with so much memory
            os.environ.update({"STAND_IN_MEMORY": common.path("gpus"), "STAND_IN_FIRST": os.environ["RANK"]})
        stand_in_gpu.begin()
    if "ends-together" in arguments:
        nccl.ends_together(common.path(""))
    plans = PIPELINE if "pipeline" in arguments else SWAPS if "swaps" in arguments else ANY
    made = torch.optim.SGD if "sgd" in arguments else torch.optim.Adam if "adam" in arguments else torch.optim.AdamW
    config = models.CONFIGS[family]()
    if "wide" in arguments:
        config.n_embd = 256
    if "draws" in arguments:
        begin = (7 if "SWELL_GENERATION" not in os.environ or os.environ["SWELL_GENERATION"] == "0" else 1000 + int(os.environ["SWELL_GENERATION"])) + ("apart" in arguments) * int(os.environ["RANK"])
        torch.manual_seed(begin), random.seed(begin), numpy.random.seed(begin)
    engine = Engine(config, lambda p: made(p, lr=5e-3 if "clips" in arguments else 3e-3), global_batch=models.BATCH, micro_batch=2, plan=None if "own" in arguments else plans.__getitem__,
                    scheduler=None if "unscheduled" in arguments else lambda o: schedule(o, "unreadable" in arguments, "stepped" in arguments), max_grad_norm=0.7 if "clips" in arguments else 0.5,
                    autocast=torch.bfloat16 if "half" in arguments else None, mtp_heads=1 if "mtp" in arguments else 0, zero=int("zero" in arguments), seed=3, log=common.path("losses"), checkpoint_every=5 if "checkpoints" in arguments else 0,
                    directory=common.path("checkpoints") if "checkpoints" in arguments else None)
    other = torch.distributed.new_group() if "other-group" in arguments else None
    Rows.batches = 4 if "shorter" in arguments else 5
    given = engine.batches(Rows(), shuffle="unshuffled" not in arguments) if "dataset" in arguments else None
    kept: list[torch.Tensor] = []
    if "draws" in arguments:
        torch.rand(3), random.random(), numpy.random.rand()
    while engine.steps < common.steps():
        batch = next(given) if given is not None else models.batch(seed=engine.steps)
        if "draws" in arguments:
            rates = torch.tensor([float(torch.rand(())), random.random(), float(numpy.random.rand())])
            with open(common.path(f"drawn.{engine.rank}"), "a") as file:
                file.write(f"{engine.steps + 1} {rates.tolist()}\n")
        if "skips" in arguments and engine.skip((engine.steps % 7 == 2 or "skips-long" in arguments and 4 <= engine.steps < 34) and engine.rank == engine.world - 1):
            if "skips-long" in arguments and engine.steps > 4:
                open(common.path("skipped"), "w").close()
                common.pace()
            continue
        if "skips-apart" in arguments and engine.rank == engine.world - 1 and engine.steps == 1:
            engine.skip()
        engine.step(batch)
        if {"draws", "checkpoints"} <= set(arguments):
            torch.rand(5), random.random(), numpy.random.rand()     # of what a live switch leaves out
        if engine.rank == 0:
            with open(common.path("step.new"), "w") as file:
                file.write(str(engine.steps))
            os.replace(common.path("step.new"), common.path("step.0"))
        if "keeps" in arguments and engine.steps == 2:
            kept = [parameter.detach() for group in engine.optimizer.param_groups for parameter in group["params"]]
        common.pace()
    if "keeps" in arguments:
        print("kept:", len(kept) > 0 and all(bool(each.isfinite().all()) for each in kept), flush=True)
    del other, kept
    torch.save({one.name: (one.shape, [(begin, end, part.clone()) for begin, end, part in one.blocks(engine._generation.state.tensors[one.name])]) for one in engine._generation.state.requests},
               common.path(f"state.{engine.rank}"))


if __name__ == "__main__":
    main(sys.argv[1:])
