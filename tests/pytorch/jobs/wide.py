# SPDX-License-Identifier: GPL-2.0-or-later
"""A model of TEST_PARAMETERS million parameters, for measuring resizes: arguments `ddp` or `fsdp`, a file for the times.

Rank 0 adds a line a step, [end of the step on the host's clock in seconds, workers]. It trains until it is ended, but not
while there is a file `hold`.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common
from swell.torch import Elastic

WIDTH, GLOBAL_BATCH = 1024, 8


def network():
    layers = max(1, round(float(os.environ.get("TEST_PARAMETERS", "50")) * 1e6 / (WIDTH * WIDTH)))
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])


def main(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = network()
    if arguments[0] == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dataset = torch.utils.data.TensorDataset(torch.randn(4096, WIDTH, generator=torch.Generator().manual_seed(1)))

    def warm_up():
        model(torch.zeros(1, WIDTH)).square().mean().backward()
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=GLOBAL_BATCH, checkpoint_every=0,
                      warm_up=warm_up)
    for (x,) in elastic.batches(dataset, steps=1_000_000):
        if elastic.step(model(x).square().mean()) and elastic.rank == 0:
            with open(arguments[1], "a") as file:
                file.write(json.dumps([time.monotonic(), elastic.world]) + "\n")
        while os.path.exists(common.path("hold")):      # another job has its turn
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
