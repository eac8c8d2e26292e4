# SPDX-License-Identifier: GPL-2.0-or-later
"""A plain DistributedDataParallel loop; with the argument `fsdp`, one over fully_shard."""

import json
import sys

import torch
import torch.distributed as dist

import common
from swell.torch import Elastic


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def write_profile(elastic):
    if elastic.rank == 0:
        with open(common.path("profile"), "w") as file:
            json.dump(elastic._profile.session.profile()._asdict(), file)


def main(arguments):
    dist.init_process_group("gloo")
    model = common.network()
    model = sharded(model) if "fsdp" in arguments else torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20))
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=common.GLOBAL_BATCH,
                      micro_batch=4, scheduler=scheduler, max_grad_norm=1.0, checkpoint_every=0 if "no-checkpoints" in arguments else 10)
    for x, y in elastic.batches(common.regression(), steps=common.steps()):
        if elastic.step(torch.nn.functional.mse_loss(model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
            if "profile" in arguments and elastic.steps == common.steps():
                write_profile(elastic)
            if "evaluate" in arguments and elastic.steps == 7:
                with open(common.path("evaluating"), "w"):
                    pass
                while True:     # an evaluation without end, but for a request
                    elastic.poll()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
