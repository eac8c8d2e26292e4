# SPDX-License-Identifier: GPL-2.0-or-later
"""A loop over Elastic whose model is laid out and optimized as its arguments say: a name of LAYOUTS, a name of OPTIMIZERS, and `clip` to bound the gradients' norm.

Each start but the first makes other weights: what is not gone on with shows."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import common
from swell.torch import Elastic

TOGETHER = 2    # workers of a tensor-parallel group, and of a shard of HSDP


def mesh_of(*sizes):
    """sizes: 0 stands for as many as are left."""
    left = dist.get_world_size()
    for size in sizes:
        left //= size or 1
    return init_device_mesh("cpu", tuple(size or left for size in sizes), mesh_dim_names=("data", "within")[:len(sizes)])


def sharded(model, mesh, **options):
    for layer in model:
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def tensor_parallel(model, mesh):
    return parallelize_module(model, mesh["within"], {"0": ColwiseParallel(), "2": RowwiseParallel()})


def over_both(model):
    mesh = mesh_of(0, TOGETHER)
    return sharded(tensor_parallel(model, mesh), mesh["data"])


def beside_replicas(model):
    mesh = mesh_of(0, TOGETHER)
    return DistributedDataParallel(tensor_parallel(model, mesh), device_mesh=mesh["data"])


def without_the_last(model):
    return fully_shard(model, mesh=mesh_of(0), ignored_params=set(model[-1].parameters()))


def shares_alone(model):
    """Each part of the model over the workers' halves: the others train by themselves."""
    return sharded(model, mesh_of(0, TOGETHER)["within"])


def over_two_meshes(model):
    fully_shard(model[0], mesh=mesh_of(0, TOGETHER)["within"])
    return fully_shard(model, mesh=mesh_of(0))


def in_columns(model):
    return sharded(model, mesh_of(0), shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1) if parameter.shape[-1] % dist.get_world_size() == 0 else None)


def checkpointed(model):
    return sharded(nn.Sequential(*(checkpoint_wrapper(layer) if isinstance(layer, nn.Linear) else layer for layer in model)), mesh_of(0))


def compiled_parts(model):
    for layer in model:
        layer.compile(backend="eager")
    return sharded(model, mesh_of(0))


LAYOUTS = {
    "ddp": DistributedDataParallel,
    "fsdp": lambda model: sharded(model, mesh_of(0)),
    "hsdp": lambda model: sharded(model, mesh_of(0, TOGETHER)),
    "fsdp-tp": over_both,
    "ddp-tp": beside_replicas,
    "tp": lambda model: tensor_parallel(model, mesh_of(0, TOGETHER)),
    "columns": in_columns,
    "checkpointed": checkpointed,
    "compiled": lambda model: torch.compile(sharded(model, mesh_of(0)), backend="eager"),
    "compiled-parts": compiled_parts,
    "ignored": without_the_last,
    "halves": shares_alone,
    "two-meshes": over_two_meshes,
    "lazy": lambda model: nn.Sequential(nn.LazyLinear(16), *model),
}

OPTIMIZERS = {
    "AdamW": lambda given: torch.optim.AdamW(given, lr=1e-2),
    "AMSGrad": lambda given: torch.optim.AdamW(given, lr=1e-2, amsgrad=True),
    "fused": lambda given: torch.optim.AdamW(given, lr=1e-2, fused=True),
    "foreach": lambda given: torch.optim.AdamW(given, lr=1e-2, foreach=True),
    "tensor-rate": lambda given: torch.optim.AdamW(given, lr=torch.tensor(1e-2)),
    "SGD": lambda given: torch.optim.SGD(given, lr=1e-2, momentum=0.9, nesterov=True),
    "Adafactor": lambda given: torch.optim.Adafactor(given, lr=1e-2),
    "Muon": lambda given: torch.optim.Muon(given, lr=1e-2),
    "Adagrad": lambda given: torch.optim.Adagrad(given, lr=1e-2, initial_accumulator_value=0.1),
    "Adadelta": lambda given: torch.optim.Adadelta(given, lr=0.5),
    "Adamax": lambda given: torch.optim.Adamax(given, lr=1e-2),
    "ASGD": lambda given: torch.optim.ASGD(given, lr=1e-2, t0=5),
    "NAdam": lambda given: torch.optim.NAdam(given, lr=1e-2),
    "RAdam": lambda given: torch.optim.RAdam(given, lr=1e-2),
    "RMSprop": lambda given: torch.optim.RMSprop(given, lr=1e-3, momentum=0.5, centered=True),
    "SparseAdam": lambda given: torch.optim.SparseAdam(given, lr=1e-2),
    "LBFGS": lambda given: torch.optim.LBFGS(given),
}


class Looked(nn.Sequential):
    """Rows of a table, with sparse gradients."""

    def forward(self, x):
        return super().forward((x * 4).long().remainder(8)).mean(1)


def network(optimizer):
    torch.manual_seed(3 + int(os.environ["SWELL_GENERATION"]))
    if optimizer == "SparseAdam":
        return Looked(nn.Embedding(8, 1, sparse=True))
    bias = optimizer != "Muon"      # which takes matrices alone
    return nn.Sequential(nn.Linear(16, 64, bias=bias), nn.Tanh(), nn.Linear(64, 64, bias=bias), nn.Tanh(), nn.Linear(64, 1, bias=bias))


def main(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layout, kind = arguments[:2]
    model = LAYOUTS[layout](network(kind))
    optimizer = OPTIMIZERS[kind](model.parameters())
    elastic = Elastic(model, optimizer, directory=common.path("checkpoints"), global_batch=common.GLOBAL_BATCH, micro_batch=3, checkpoint_every=0,
                      max_grad_norm=0.1 if "clip" in arguments else None)
    for x, y in elastic.batches(common.regression(), steps=common.steps()):
        if elastic.step(nn.functional.mse_loss(model(x), y)):
            common.log(elastic.steps, elastic.mean_loss(), elastic.world)
    dist.destroy_process_group()
