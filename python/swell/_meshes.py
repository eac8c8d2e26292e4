# SPDX-License-Identifier: BSD-3-Clause
"""Which workers of a model over a mesh train on the same samples, as fully_shard's own records say: all that Swell reads of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Place", "by_mesh", "place_of"]


@dataclass(frozen=True)
class Place:
    """This worker's place among those that train on samples of their own.

    count: parts into which samples are divided. index: of this worker's. together: workers that train on the same part (tensor parallelism).
    unit: numbers of workers that the script's mesh has room for are taken to be multiples of it.
    """

    index: int
    count: int
    together: int = 1
    unit: int = 1


def _records(model: torch.nn.Module) -> dict[int, Any]:
    from swell.live import fsdp_parameters      # which needs more of this package than this module may
    return fsdp_parameters(model)


def place_of(model: torch.nn.Module, rank: int, world: int) -> Place:
    """Returns a worker's place; of itself where fully_shard does not shard the model, or does over all workers.

    Raises TypeError, with a parameter's name, where some of the model is laid out over a mesh without being averaged over all of its samples' workers.
    """
    wrapped = getattr(model, "_orig_mod", model)
    if isinstance(wrapped, DistributedDataParallel) and (count := dist.get_world_size(wrapped.process_group)) != world:
        raise TypeError(f"DistributedDataParallel averages gradients over {count} of {world} workers (by a process group or a mesh, as beside tensor parallelism), and Elastic "
                        "would give each of them samples of its own: give it no group, or, for tensor parallelism, fully_shard in its place")
    records = _records(model)
    places: dict[tuple[int, int, int], str] = {}
    for name, parameter in model.named_parameters():
        record = records.get(id(parameter))
        if record is None and isinstance(parameter, DTensor):
            raise TypeError(f"{name} is laid out over a mesh of {' x '.join(map(str, parameter.device_mesh.shape))} workers, and fully_shard does not shard it (tensor "
                            "parallelism alone): give fully_shard the mesh's other dimension, also where that has one worker, or use "
                            "swell.torch.Engine")
        if record is None:
            if records and parameter.requires_grad:
                raise TypeError(f"{name} is trained, and fully_shard leaves it out (ignored_params, or a part of the model that was not given to it): nothing averages "
                                "its gradient over workers; call fully_shard on the model too, without it")
            continue
        shape, coordinate = record.mesh_info.mesh.shape, record.mesh_info.mesh.get_coordinate()
        index = 0
        for size, at in zip(shape, coordinate, strict=True):
            index = index * size + at
        shards = shape[-1] if len(shape) > 1 and shape[0] > 1 else 1
        places.setdefault((index, math.prod(shape), shards), name)
    if not places:
        return Place(rank, world)
    if len(places) > 1:
        (one, other, *_) = ((f"{name} over {count} workers") for (_, count, _), name in places.items())
        raise TypeError(f"fully_shard divides samples in several ways ({one}, {other}; expert parallelism): give it one mesh for all of the model")
    [(index, count, shards)] = places
    if world % count:
        raise TypeError(f"fully_shard has a mesh of {count} workers, of {world}: the others would train by themselves; give it a mesh of all workers")
    together = world // count
    return Place(index, count, together, together * shards)


def by_mesh(model: torch.nn.Module) -> Iterator[list[torch.nn.Parameter]]:
    """Yields the parameters of each mesh that have a gradient: those of several have no common norm to torch."""
    found: dict[Any, list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.grad is not None:
            found.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    yield from found.values()
