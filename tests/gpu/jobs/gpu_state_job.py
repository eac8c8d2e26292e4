# SPDX-License-Identifier: GPL-2.0-or-later
"""A DDP or FSDP2 loop with a stated amount of state on one GPU.

Arguments: kind=ddp or fsdp; mib=N of parameters and moments; ballast=SHARE: from the first step on so much of the GPU is in use;
cache=SHARE: so much is in use or in PyTorch's cache; allocator=native or expandable; compiled=1: torch.compile(mode="reduce-overhead");
checkpoints=1: leaves with one when asked; gloo=1: gradients go over the host, as those of two ranks on one GPU must.
"""

import sys

import torch
import torch.distributed as dist

import common
import gpu_place
from swell.torch import Elastic

STATE_BYTES = 12        # of a parameter: itself and two moments in float32


def network(mib, device):
    """Linear layers of equal width with so many MiB of state, the same for every seed."""
    width = 64 if mib < 64 else 1024 if mib < 2048 else 4096
    layers = max(2, round(mib * 2**20 / (width * width * STATE_BYTES)))
    torch.manual_seed(3)
    with torch.device(device):
        return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width, bias=False), torch.nn.Tanh()) for _ in range(layers)]), width


def main(arguments):
    wish = dict(one.split("=", 1) for one in arguments)
    place = gpu_place.Place(wish.get("allocator", "native"))
    dist.init_process_group("gloo" if wish.get("gloo") == "1" else place.backend)
    model, width = network(int(wish["mib"]), place.device)
    place.move(model)
    if wish.get("kind") == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh(place.device.type, (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if gpu_place.STAND_IN:
            place.move(model)
    else:
        if wish.get("compiled") == "1":
            model = torch.compile(model, mode="reduce-overhead")
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=8, micro_batch=8,
                      checkpoint_every=10**9 if wish.get("checkpoints") == "1" else 0)
    samples = torch.randn(64, width, generator=torch.Generator().manual_seed(1))
    for x, y in elastic.batches(torch.utils.data.TensorDataset(samples, samples.roll(1, 0)), steps=common.steps()):
        if elastic.step(torch.nn.functional.mse_loss(model(x.to(place.device)), y.to(place.device))):
            gpu_place.log(place, elastic.steps, elastic.mean_loss(), elastic.world)
            if elastic.steps == 1 and "ballast" in wish:
                place.hold(float(wish["ballast"]))
            if elastic.steps == 1 and "cache" in wish:
                place.fill_cache(float(wish["cache"]))
            gpu_place.pace()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
