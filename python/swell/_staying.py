# SPDX-License-Identifier: BSD-3-Clause
"""A process that trains on in a smaller world: what that is possible for, and the process group of the new one.

Where GPUs go back, a program trains on each worker of the next generation already, so that none has to start, and import torch, in
time. Where workers come, theirs begin with the script's own collectives, which want all ranks: there all start anew.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from swell._agreement import end_groups, finish_saves
from swell._native import Session, is_torchs_alone, shares_gpu_memory
from swell._slots import NoRoom, Unsupported, gpu_of, settle

__all__ = ["OVERWRITTEN", "decline", "give_way", "let_go", "other_groups", "regroup", "regroup_ddp", "why_not"]

OVERWRITTEN = "its parameters are in torch's memory of a GPU, where it would be overwritten before the switch is certain"
_PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
          "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "SWELL_GENERATION", "SWELL_EPOCH", "SWELL_PLAN")


def other_groups(groups: int) -> int:
    """How many process groups this process has beside so many."""
    return len(distributed_c10d._world.pg_map) - groups


def why_not(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, groups: int) -> str:
    """Why this process cannot be another rank of another world; empty: it can.

    groups: process groups that are ours, or the default one: they are made anew. Those of others cannot be.
    """
    if type(model) is not DistributedDataParallel:
        return f"{type(model).__name__} is not a DistributedDataParallel"
    if getattr(model, "device_mesh", None) is not None or model.process_group is not dist.group.WORLD:
        return "DistributedDataParallel was given a process group or a mesh"
    if model._get_ddp_logging_data().get("comm_hook"):      # type: ignore[no-untyped-call]
        return "DistributedDataParallel has a communication hook"
    if model.mixed_precision is not None or model._use_python_reducer or model._delay_all_reduce_params:
        return "DistributedDataParallel was given mixed_precision, or delays or compiles its reductions"
    try:
        gpus = {gpu for parameter in model.parameters() if (gpu := gpu_of(parameter.device)) is not None}
        if gpus and (is_torchs_alone() or not all(map(shares_gpu_memory, gpus))):
            return OVERWRITTEN
    except Unsupported as error:
        return str(error)
    if hasattr(optimizer, "process_group"):
        return f"{type(optimizer).__name__} has a process group"
    if (others := other_groups(groups)) != 0:
        return f"there are process groups beside the default one ({others})"
    for thing in gc.get_objects():
        kinds = type(thing).__mro__
        if gpus and torch.cuda.CUDAGraph in kinds:
            return "a CUDA graph was captured, which reads the parameters where they stand before a switch"
        if DistributedDataParallel in kinds and thing is not model:
            return "there is another DistributedDataParallel"
        if torch.nn.Module in kinds and any(child is model for child in thing.__dict__.get("_modules", {}).values()):
            return f"DistributedDataParallel is part of a {type(thing).__name__}"
    return ""


def decline(session: Session, rank: int, why: str | Exception) -> None:
    """Do not stay in the generation that PREPARE told of: the workers leave for it, and start anew."""
    print(f"swell: rank {rank}: {why}: this worker cannot stay, and all start anew", file=sys.stderr, flush=True)
    _say(session, why)


def _say(session: Session, why: str | Exception) -> bool:
    return session.decline(str(why), room=why.room if isinstance(why, NoRoom) else None)


def let_go(session: Session, rank: int, device: torch.device) -> None:
    """Another session of this process has taken over: nothing is mapped of a GPU by this one any more, but where the script has tensors over it.

    Memory of the host is not unmapped here: tensors that are left keep the session. The GPU is waited for, as the driver, unlike
    cudaFree(), does not wait before it unmaps memory that launched work still reads.
    """
    if not session.gpu_bytes:
        return
    if session.has_gpu_tensors():
        gc.collect()
    if not session.has_gpu_tensors():
        settle(device)
        session.close()
        return
    print(f"swell: rank {rank}: the script keeps tensors over Swell's memory of the GPU, as of a state_dict() that it has not cloned: up to "
          f"{session.gpu_bytes} bytes of the state before stay there until this process ends", file=sys.stderr, flush=True)


def give_way(session: Session, rank: int, why: str | Exception) -> None:
    """Have the one beside this new process train on, and wait to be ended. Returns where none trains."""
    if not _say(session, why):
        return
    print(f"swell: rank {rank}: {why}: the workers that train go on", file=sys.stderr, flush=True)
    while True:
        signal.pause()


def _take_place(session: Session) -> None:
    """This process's environment becomes that of its place in the session's generation."""
    for name in {*_PLACE, *(name for name in os.environ if name.startswith("SLURM_"))}:
        value = session.variable(name)
        if value is not None:
            os.environ[name] = value


def regroup(session: Session, device: torch.device) -> None:
    """Make the default process group that of the session's generation, with the backends and the time limit that it has; others are gone.

    device: of the backend that training uses. All ranks of the generation do this at the same time.
    """
    _take_place(session)
    world: Any = dist.group.WORLD
    if world is None:
        return
    backends, bound = dist.get_backend_config(), world.bound_device_id
    timeout = getattr(getattr(world._get_backend(device), "options", None), "_timeout", None)
    del world
    finish_saves()
    end_groups(1)
    dist.init_process_group(backends, timeout=timeout, device_id=bound)


def regroup_ddp(model: DistributedDataParallel, session: Session) -> None:
    """regroup(), and the model averages its gradients over the new group: its variable, its hooks and what it was given stay.

    model: that why_not() has nothing against.
    """
    # The state to build it from again: all but its group and its reducer.
    state = model.__getstate__()        # type: ignore[no-untyped-call]
    del model.process_group, model.reducer, model.logger
    regroup(session, model.device)
    model.__setstate__(state)           # type: ignore[no-untyped-call]
