# SPDX-License-Identifier: GPL-2.0-or-later
"""A plain DistributedDataParallel loop. Arguments: `fsdp`: over fully_shard; `paced`: with a layer that
takes its time; `on-gpu`: its state is on a GPU that a driver's stand-in
has, of which each step needs as much again until the process has ended (`activations`); `keeps`: the script has the state of step 3 until it ends, uncloned; `starting`: it does not come to its first step; `held-saves`: no checkpoint but the first is written while there is a file
`hold`; `evaluate`: an evaluation after step 13 that ends with its world; `polls`: it polls before each step, too; `drops`: with dropout; `undrawn`: with one that is not drawn by sample; `unreadable`: a state that no start could read; `average`: of the weights,
with a loader that reads in a process of its own; `stream`, `loader`: samples come from an iterable dataset or a loader that has a state (`by-rank`: another on
each worker). `unfreezes`, `adds`: its first layer is trained from step 5 on, in the latter by another group of the optimizer; `freezes`: to step 5; `alternates`: from step 5 to 9, and from 13 on; `outside`: the optimizer has what is not of the model from step 5 on; `inner`: what is within DDP is called; `static`: DDP's graph is; `compiled`: DDP is; `plain`: the model is not wrapped; `skips`: batches with one of two broken samples, whose losses are not finite, and those after
steps 6 and 20 are skipped (`leaves`: the first start is asked to leave so that step 7 is its last); `looks`: before the first step in each world it looks at the mean loss; `skips-long`: those after steps 5 to 34, too, and `skipped` is written; `skips-apart`: rank 1 alone skips after step 6; `fails-once`: rank 1 fails
as it collects the state of the second checkpoint. While there is a file
`full` no checkpoint can be written; EIO: common.fail_with(); `cuts`: common.cut_as_told(); `together`: rank 1 fails in
a save that all make together. Options that keep it from staying: `other-group`, `late-group` (after step 8), `hooked`, `second`."""

import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint import FileSystemWriter

import common
import swell.checkpoint
from swell.torch import Elastic


ACTIVATIONS = 32 << 20      # bytes that a first step takes of the GPU


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def hold_saves():
    """While there is a file `hold`, whoever writes another checkpoint than the first says so in `writing.RANK`, and waits."""
    write, written = FileSystemWriter.write_data, []

    def held(*arguments):
        written.append(True)
        if len(written) == 1:
            return write(*arguments)
        if os.path.exists(common.path("hold")):
            with open(common.path(f"writing.{dist.get_rank()}"), "w"):
                pass
        while os.path.exists(common.path("hold")):
            time.sleep(0.01)
        return write(*arguments)
    FileSystemWriter.write_data = held


def save_together():
    """As a framework that gathers shards, once a write fails, and once rank 1 before it has given its own."""
    group = dist.new_group(backend="gloo")

    def save(error):
        if dist.get_rank() == 1:
            raise error
    try:
        swell.checkpoint.together(group, lambda: save(OSError(28, "No space left on device")))
    except OSError as error:
        print("all have failed:", error.strerror, flush=True)
    swell.checkpoint.together(group, lambda: dist.barrier() if dist.get_rank() == 0 else save(RuntimeError("out of memory")))


def fail_once():
    """Rank 1 fails as it collects what the optimizer keeps, the second time."""
    collect, collected = swell.checkpoint.get_optimizer_state_dict, []

    def failing(*arguments):
        collected.append(True)
        if len(collected) == 2 and dist.get_rank() == 1:
            raise RuntimeError("out of memory")
        return collect(*arguments)
    swell.checkpoint.get_optimizer_state_dict = failing


class Unreadable:
    def state_dict(self):
        return {"it": Unreadable}

    def load_state_dict(self, state):
        pass


class Heavy:
    """Keeps more than is handed over beside tensors."""

    def state_dict(self):
        return {"kept": list(range(1000, 500000))}

    def load_state_dict(self, state):
        pass


def main(arguments):
    try:
        train(arguments)
    except SystemExit:
        if "activations" in arguments:
            time.sleep(1)       # what train() has of the GPU is there as long
        raise


def train(arguments):
    common.fail_as_told(arguments)
    common.cut_as_told(arguments)
    dist.init_process_group("gloo")
    if "together" in arguments:
        save_together()
    if "held-saves" in arguments:
        hold_saves()
    if "fails-once" in arguments:
        fail_once()
    model = common.network()
    if "paced" in arguments:
        model.append(common.Paced())
    if "drops" in arguments:
        model.insert(1, torch.nn.Dropout(0.2))
        model.append(torch.nn.Dropout(0.1))
    if "undrawn" in arguments:
        model.append(torch.nn.AlphaDropout(0.1))
    layers = model
    if {"unfreezes", "adds", "alternates"} & set(arguments):
        layers[0].requires_grad_(False)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    wrap = torch.nn.parallel.DistributedDataParallel
    if "on-gpu" in arguments:
        import stand_in_gpu     # of tests that fork; a script alone has no use for it
        if os.path.exists(common.path("gpus")):     # a GPU for each rank, with so much memory
            os.environ.update({"STAND_IN_MEMORY": common.path("gpus"), "STAND_IN_FIRST": os.environ["RANK"]})
        stand_in_gpu.begin()
        stand_in_gpu.move(model)
    if "static" in arguments:
        model = wrap(model, static_graph=True)
    elif "compiled" in arguments:
        model = torch.compile(wrap(model), backend="eager")
    elif "plain" in arguments:
        model = torch.nn.Sequential(*model)
    else:
        model = sharded(model) if "fsdp" in arguments else wrap(model, gradient_as_bucket_view=True)
    if "on-gpu" in arguments and "fsdp" in arguments:
        stand_in_gpu.move(model)
    if "hooked" in arguments:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    kept = wrap(torch.nn.Linear(1, 1)) if "second" in arguments else None
    if "other-group" in arguments:
        kept = dist.new_group()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad or "adds" not in arguments], lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20))
    if "adds" in arguments:     # a LambdaLR has a function for each group
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.9)
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=common.GLOBAL_BATCH,
                      micro_batch=4, scheduler=scheduler, max_grad_norm=1.0, checkpoint_every=0 if "no-checkpoints" in arguments else 10,
                      state={"average": average} if "average" in arguments else {"heavy": Heavy()} if "heavy" in arguments
                      else {"odd": Unreadable()} if "unreadable" in arguments else None)
    if "starting" in arguments:
        with open(common.path(f"starting.{elastic.rank}"), "w"):
            pass
        if elastic.rank:
            dist.barrier()      # a call that hears no signal
        while True:
            time.sleep(0.01)
    samples, options = common.regression(), {"num_workers": 1} if "average" in arguments else {}
    if "skips" in arguments:
        samples.tensors[0][[5, 50], 0] = float("nan")
    if "stream" in arguments:
        samples = common.Streamed(torch.utils.data.Subset(samples, range(dist.get_rank() if "by-rank" in arguments else 0, len(samples))))
    if "loader" in arguments:
        samples = common.StatefulLoader(samples, batch_size=3)
    has_added, looked = False, 0
    for x, y in elastic.batches(samples, steps=common.steps(), **options):
        common.fill()
        if "adds" in arguments and elastic.steps >= 5 and not has_added:
            has_added = True
            optimizer.add_param_group({"params": layers[0].requires_grad_(True).parameters(), "lr": 1e-3})
        if "polls" in arguments:
            elastic.poll()
        if "activations" in arguments and kept is None:     # of a first step; the process has them until it has ended, which takes its time
            kept = stand_in_gpu.memory(ACTIVATIONS // 4, torch.float32)
        loss = torch.nn.functional.mse_loss((layers if "inner" in arguments else model)(x), y)
        if "looks" in arguments and elastic.world != looked:
            looked, mean = elastic.world, elastic.mean_loss()
            if elastic.rank == 0:
                with open(common.path("looked"), "a") as file:
                    file.write(f"{looked} {mean}\n")
        if "skips" in arguments:
            if elastic.steps == 5 and "leaves" in arguments and os.environ["SWELL_GENERATION"] == "0":
                os.kill(os.getpid(), signal.SIGUSR1)
            if elastic.skip(not torch.isfinite(loss) or elastic.steps in (6, 20) or "skips-long" in arguments and 5 <= elastic.steps < 35):
                if "skips-long" in arguments:
                    open(common.path("skipped"), "w").close()
                    common.pace()
                continue
        if "skips-apart" in arguments and elastic.steps == 6 and elastic.rank == 1 and elastic.skip():
            continue
        if elastic.step(loss):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            if "average" in arguments:
                average.update_parameters(model.module)
            if elastic.steps == 5 and {"unfreezes", "freezes", "alternates"} & set(arguments):
                layers[0].requires_grad_("freezes" not in arguments)
            if "alternates" in arguments and elastic.steps in (9, 13):
                layers[0].requires_grad_(elastic.steps == 13)
            if "outside" in arguments and elastic.steps == 5:
                optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.zeros(1)))
            if "keeps" in arguments and elastic.steps == 3:
                kept = model.state_dict()
            if "late-group" in arguments and elastic.steps == 8:
                kept = dist.new_group()
            if "profile" in arguments and elastic.steps == common.steps():
                common.write_profile(elastic._profile.session)
            if "evaluate" in arguments and elastic.steps == 13:
                with open(common.path("evaluating"), "w"):
                    pass
                world = elastic.world
                while elastic.world == world:
                    elastic.poll()
    if "keeps" in arguments:
        print("kept:", all(map(torch.equal, kept.values(), model.state_dict().values())), flush=True)
    if "average" in arguments and elastic.rank == 0:
        with open(common.path("average"), "w") as file:
            json.dump([float(each.detach().double().sum()) for each in average.parameters()], file)
    del kept
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
