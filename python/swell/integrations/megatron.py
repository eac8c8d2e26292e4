# SPDX-License-Identifier: BSD-3-Clause
"""Elastic loops with Megatron-Core: GPTModel, parallel_state, its schedules, the distributed optimizer, dist_checkpointing."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.utils import get_model_config
from torch.distributed.checkpoint.api import CheckpointException

from swell import _identity, _native, _request, data
from swell._agreement import Agreement, cpu_group, leave_with_checkpoint
from swell._content import is_stored
from swell._counted import counted
from swell._drawn import DrawnSamples, Numbered
from swell._lock import FolderLock
from swell._plain import Unreadable, decoded, plain
from swell._room import make_room
from swell._written import check_written
from swell.checkpoint import lock_together, newest_whole, on_all, together, why_unsaved, write_rest
from swell.engine.plan import Group, Plan, Stage

__all__ = ["Degrees", "MegatronElastic"]

_NAME = re.compile(r"step-(\d{9})")
_UNFINISHED = ".new"
_REST = "swell.pt"      # in a checkpoint folder, beside Megatron-Core's own files
_OWN = ("common.pt", "metadata.json")      # those, beside what torch.distributed.checkpoint writes
# The one format of the distributed optimizer that any plan reads.
_METADATA = {"distrib_optim_sharding_type": "fully_reshardable", "chained_optim_avoid_prefix": True}
_COMPARED = ("num_layers", "hidden_size", "num_attention_heads", "params_dtype")


def _bare(chunk: Any) -> Any:
    """The model within Megatron-Core's wrappers, as its own checkpoints have it."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


@dataclass(frozen=True)
class Degrees:
    """Megatron-Core's degrees on the workers that there are.

    vpp: chunks of each stage. micro_batch: samples of one pass, where a plan says it. layers: of each virtual stage, where they differ:
    those of the stages' first chunks, then those of their second ones; none: Megatron-Core divides them evenly.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch: int | None = None
    layers: tuple[int, ...] = ()
    own: Degrees | None = field(default=None, compare=False)      # the program's, where a plan has decided these: what it has without one
    planned: tuple[int, int] | None = field(default=None, compare=False)      # layers and global batch of the plan

    @staticmethod
    def given(*, tp: int = 1, pp: int = 1, vpp: int = 1, cp: int = 1, ep: int = 1) -> Degrees:
        """Those of SWELL_PLAN where a plan was decided; else the arguments, with as many replicas as the workers suffice for.

        Raises ValueError where Megatron-Core cannot run the plan, or where the workers are not a multiple.
        """
        text, world = os.environ.get("SWELL_PLAN"), _request.place().world
        for name, value in (("tp", tp), ("pp", pp), ("vpp", vpp), ("cp", cp), ("ep", ep)):
            if value < 1:
                raise ValueError(f"{name}={value}; give a whole number of at least 1")
        if text:
            if cp > 1 or ep > 1:
                raise ValueError(f"the plan has neither context nor expert parallelism, the program has cp={cp} and ep={ep}; "
                                 "submit with --elastic=sizes=..., and without a plan")
            made = replace(Degrees.of_plan(Plan.parse(text)), own=Degrees(tp, pp, 1, vpp))
            if made.world != world:
                raise ValueError(f"the plan is for {counted(made.world, 'worker')}, and there are {world}; start as many, or unset SWELL_PLAN")
            return made
        made = Degrees(tp, pp, world // (tp * pp * cp), vpp, cp, ep)
        if made.world != world or not made.dp:
            raise ValueError(f"tp={tp} pp={pp} cp={cp} is for a multiple of {counted(tp * pp * cp, 'worker')}; there are {world}: start a multiple, or give "
                             "other degrees")
        return made

    @staticmethod
    def of_plan(plan: Plan) -> Degrees:
        """Raises ValueError, one sentence, where Megatron-Core cannot run the plan."""
        first = plan.stages[0]
        for number, stage in enumerate(plan.stages):
            for name, here, there in (("tp", stage.tp, first.tp), ("dp", len(stage.groups), len(first.groups))):
                if here != there:
                    raise ValueError(f"stage {number} of the plan has {name}={here}, the first one {name}={there}; Megatron-Core has the same on all stages")
            sizes = {group.local_batch for group in stage.groups} | {first.groups[0].local_batch}
            if len(sizes) > 1:
                raise ValueError(f"the groups of stage {number} of the plan have passes of {' and '.join(map(str, sorted(sizes)))} samples; Megatron-Core has "
                                 "the same on all replicas")
        plan.check(sum(stage.layers for stage in plan.stages), plan.global_batch, plan.world)
        if plan.schedule and plan.schedule not in ("1f1b", "interleaved"):
            raise ValueError(f"the plan has the schedule {plan.schedule!r}; Megatron-Core has 1f1b, and interleaved with chunks")
        virtual = [plan.contents.parts[stage][chunk] for chunk in range(plan.chunks) for stage in range(plan.pp)]
        if not virtual[0].embedding or not virtual[-1].head:
            raise ValueError(f"the plan ({plan.summary()}) has the embedding or the head elsewhere than on its first and last chunk; give it there")
        layers = tuple(len(part.layers) for part in virtual)
        if plan.pp == 1 and plan.chunks > 1:
            raise ValueError(f"the plan has {plan.chunks} chunks on one stage; Megatron-Core interleaves over 2 stages or more")
        return Degrees(first.tp, plan.pp, len(first.groups), plan.chunks, micro_batch=first.groups[0].local_batch,
                       layers=layers if len(set(layers)) > 1 else (), planned=(sum(layers), plan.global_batch))

    def plan(self, layers: int, global_batch: int, micro_batch: int) -> Plan:
        """Returns the plan that these degrees are. Raises ValueError where there is none."""
        if self.cp > 1 or self.ep > 1:
            raise ValueError(f"cp={self.cp} ep={self.ep}: a plan has neither context nor expert parallelism")
        parts, micro = self.pp * self.vpp, self.micro_batch or micro_batch
        if global_batch % (micro * self.dp):
            raise ValueError(f"global_batch={global_batch} is not a multiple of micro_batch={micro} times {self.dp} replicas; give another micro_batch")
        if not self.layers and layers % parts:
            raise ValueError(f"{counted(layers, 'layer')} cannot be divided evenly over pp={self.pp} times vpp={self.vpp}; give other degrees")
        each = self.layers or (layers // parts,) * parts
        stages = []
        for stage in range(self.pp):
            chunks = each[stage::self.pp]
            groups = tuple(Group("localhost", "any", tuple(range((stage * self.dp + group) * self.tp, (stage * self.dp + group + 1) * self.tp)), micro)
                           for group in range(self.dp))
            stages.append(Stage(sum(chunks), self.tp, groups, chunks if self.vpp > 1 else ()))
        return Plan(global_batch // (micro * self.dp), tuple(stages))

    @property
    def world(self) -> int:
        """Workers."""
        return self.tp * self.pp * self.cp * self.dp

    def groups(self) -> dict[str, Any]:
        """Returns the arguments of parallel_state.initialize_model_parallel()."""
        return {"tensor_model_parallel_size": self.tp, "pipeline_model_parallel_size": self.pp, "context_parallel_size": self.cp,
                "expert_model_parallel_size": self.ep, "virtual_pipeline_model_parallel_size": self.vpp if self.vpp > 1 else None}

    def config(self) -> dict[str, Any]:
        """Returns arguments of TransformerConfig()."""
        found = self.groups()
        if self.layers:
            layout = [["decoder"] * count for count in self.layers]
            layout[0].insert(0, "embedding")
            layout[-1].append("loss")
            found["pipeline_model_parallel_layout"] = layout
        return found


class MegatronElastic:
    """Makes a loop of Megatron-Core's elastic: it leaves with a checkpoint when asked, and goes on under any other degrees.

    ::

        degrees = Degrees.given(tp=2)
        parallel_state.initialize_model_parallel(**degrees.groups())
        ...     # TransformerConfig(**degrees.config(), ...), the model's chunks, get_megatron_optimizer()
        elastic = MegatronElastic(chunks, optimizer, degrees=degrees, directory="checkpoints", global_batch=512, micro_batch=4)
        for batch in elastic.batches(dataset, steps=10000):
            losses = forward_backward(forward_step_func=step, seq_length=1024, forward_only=False, **batch)
            optimizer.step()

    The constructor loads the newest complete checkpoint, which any degrees have written. The global batch and the order of its samples stay
    what they are. Where no plan is decided the number of replicas changes alone, and the others stay as they are given.

    chunks: the model's, as they are trained; one or more, by vpp. optimizer: of get_megatron_optimizer().
    directory: for checkpoints; one that all workers see, and no other run uses.
    global_batch: samples of one optimizer step, over all replicas. micro_batch: of one pass; a plan may say another.
    scheduler: OptimizerParamScheduler or the like; the loop steps it. checkpoint_every: steps between checkpoints; 0: none.
    seed: of the order of the samples, and of what is drawn after a start.
    """

    def __init__(self, chunks: Sequence[torch.nn.Module], optimizer: Any, *, degrees: Degrees, directory: str | os.PathLike[str], global_batch: int,
                 micro_batch: int, scheduler: Any = None, checkpoint_every: int = 1000, keep: int = 2, seed: int = 0) -> None:
        self.chunks, self.optimizer, self.scheduler = list(chunks), optimizer, scheduler
        self.degrees, self.folder = degrees, _request.run_folder(directory)
        self.global_batch, self.micro_batch = global_batch, degrees.micro_batch or micro_batch
        self.checkpoint_every, self.keep, self.seed, self._own_micro_batch = checkpoint_every, keep, seed, micro_batch
        self.steps = 0      # done since training began
        self._check()
        self._whole: int | None = None      # the newest complete checkpoint
        self._data: dict[str, Any] | None = None
        self._says = True       # why a save fails, once
        if _native.is_live() and _request.place().rank == 0:
            print("swell: Megatron-Core's state is not handed over in live mode: this job is resized by restarts", file=sys.stderr, flush=True)
        _request.can_run_with(self._sizes())
        _request.listen(leaves_at_once=True)
        self._group = cpu_group()
        self._agreement, self._lock = Agreement(self._group), FolderLock(self.folder)
        self._load()

    def _check(self) -> None:
        for name, value, least in (("keep", self.keep, 1), ("global_batch", self.global_batch, 1), ("micro_batch", self._own_micro_batch, 1),
                                   ("checkpoint_every", self.checkpoint_every, 0)):
            if value < least:
                raise ValueError(f"{name}={value}; give a whole number of at least {least}")
        has = (get_model_config(self.chunks[0]).num_layers, self.global_batch)
        planned = self.degrees.planned
        if planned is not None and planned != has:
            raise ValueError(f"the plan has {counted(planned[0], 'layer')} and a global batch of {planned[1]}, the program {has[0]} and {has[1]}; "
                             "give a plan of this model")
        there = (parallel_state.get_tensor_model_parallel_world_size(), parallel_state.get_pipeline_model_parallel_world_size(),
                 parallel_state.get_data_parallel_world_size(), parallel_state.get_context_parallel_world_size())
        wanted = (self.degrees.tp, self.degrees.pp, self.degrees.dp, self.degrees.cp)
        if there != wanted or len(self.chunks) != self.degrees.vpp:
            raise ValueError(f"tp, pp, dp, cp are {there} with {counted(len(self.chunks), 'chunk')}, the degrees {wanted} with {self.degrees.vpp}; "
                             "give parallel_state.initialize_model_parallel(**degrees.groups()), and a model for each chunk")
        each = [getattr(one, "optimizer", None) for one in getattr(self.optimizer, "chained_optimizers", [self.optimizer])]
        if self._is_distributed() and any(isinstance(one, (torch.optim.Adam, torch.optim.AdamW)) for one in each):
            raise ValueError("use_distributed_optimizer=True over torch's Adam: Megatron-Core does not load its checkpoints under other degrees; install Transformer "
                             "Engine or Apex, whose FusedAdam it then takes, or give use_distributed_optimizer=False")
        if self.degrees.vpp > 1 and self.degrees.pp == 2 and not getattr(get_model_config(self.chunks[0]), "overlap_p2p_comm", True):
            raise ValueError("pp=2 with chunks and overlap_p2p_comm=False: Megatron-Core would mix up what the two stages exchange in one batch; give "
                             "TransformerConfig(overlap_p2p_comm=True, batch_p2p_comm=False)")
        if not self._fits(self.degrees, self.micro_batch):
            raise ValueError(f"global_batch={self.global_batch} in passes of {counted(self.micro_batch, 'sample')} does not divide over {counted(self.degrees.dp, 'replica')}"
                             f"{f', a multiple of pp={self.degrees.pp} passes on each' if self.degrees.vpp > 1 else ''}; give another micro_batch or number of workers")

    def _fits(self, degrees: Degrees, micro_batch: int) -> bool:
        """Whether the replicas have equal shares of the global batch."""
        passes, rest = divmod(self.global_batch, micro_batch * degrees.dp)
        interleaves = degrees.vpp == 1 or passes % degrees.pp == 0
        return passes > 0 and not rest and interleaves and (degrees.dp * degrees.cp) % degrees.ep == 0

    def _sizes(self) -> list[int]:
        """The numbers of workers with the program's own degrees but for the replicas: a plan holds for its own workers alone."""
        own = [replace(self.degrees.own or self.degrees, dp=dp) for dp in range(1, self.global_batch // self._own_micro_batch + 1)]
        return sorted({each.world for each in own if self._fits(each, self._own_micro_batch)} | {self.degrees.world})

    def batches(self, dataset: Any, *, steps: int, shuffle: bool = True,
                collate: Callable[[list[Any]], Any] = torch.utils.data.default_collate) -> Iterator[dict[str, Any]]:
        """For each optimizer step, up to a number since training began, yields arguments of Megatron-Core's forward_backward_func: model, data_iterator,
        num_microbatches and micro_batch_size. Leaves between two steps when that is asked: raises SystemExit with code 0. The end writes a
        checkpoint."""
        sampler = data.ElasticSampler(dataset, self.global_batch, seed=self.seed, shuffle=shuffle, drop_last=True, micro_batch=self.micro_batch,
                                      rank=parallel_state.get_data_parallel_rank(), world=self.degrees.dp)
        if self._data is not None:
            sampler.load_state_dict(self._data)
        self._data = sampler.state_dict()

        drawn = None if is_stored(dataset) else DrawnSamples(dataset, self.seed)

        def read(indices: list[list[Numbered]]) -> Iterator[Any]:
            for each in indices:
                yield collate([dataset[int(index)] for index in each] if drawn is None else drawn.read(each))
        while self.steps < steps:
            self.poll()
            indices = [Numbered.all_of(each, sampler.samples + piece.begin) for piece, each in sampler.passes(sampler.samples)]
            iterators, one = [read(indices) for _ in self.chunks], self.degrees.vpp == 1
            yield {"model": self.chunks[0] if one else self.chunks, "data_iterator": iterators[0] if one else iterators,
                   "num_microbatches": len(indices), "micro_batch_size": self.micro_batch}
            sampler.advance()
            self.steps, self._data = self.steps + 1, sampler.state_dict()
            _request.made_step(self.steps, steps)
            if self.checkpoint_every and self.steps % self.checkpoint_every == 0:
                self._say(self._save())
        if self.steps:
            self._say(self._save(), "the last steps are in no checkpoint")
        self._agreement.end()
        self._lock.release()

    def poll(self) -> None:
        """Leave, with a checkpoint, if swellrun has asked. For phases that take no steps; every worker calls it equally often."""
        if not self._agreement.poll():
            return
        if self.steps and (why := self._save()):
            _request.decline(why, self.degrees.world)
        else:
            leave_with_checkpoint(self.steps, self._lock)

    # ---- checkpoints

    def _is_distributed(self) -> bool:
        return bool(getattr(getattr(self.optimizer, "config", None), "use_distributed_optimizer", False))

    def _alike(self) -> dict[str, Any]:
        """Returns the values that a start must share with the run that wrote a checkpoint."""
        config, its = get_model_config(self.chunks[0]), getattr(self.optimizer, "config", None)
        told = {name: plain(getattr(its, name)) for name in ("clip_grad", "weight_decay", "adam_beta1", "adam_beta2", "sgd_momentum", "bf16", "fp16") if hasattr(its, name)}
        return {"told": told, "global_batch": self.global_batch, "use_distributed_optimizer": self._is_distributed(),
                **{name: str(getattr(config, name, None)) for name in _COMPARED}}

    def _state(self, is_loading: bool) -> dict[str, Any]:
        """Returns the state that Megatron-Core saves and loads, as its own sharded state dictionaries."""
        state: dict[str, Any] = {f"model{at}": _bare(chunk).sharded_state_dict(metadata=_METADATA) for at, chunk in enumerate(self.chunks)}
        state["optimizer"] = self.optimizer.sharded_state_dict(dict(state), is_loading=is_loading, metadata=_METADATA)
        return state

    def _path(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step:09d}")

    def _complete(self) -> list[int]:
        """Steps of the complete checkpoints, newest first."""
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return sorted((int(match[1]) for match in map(_NAME.fullmatch, names) if match), reverse=True)

    def _lead(self, act: Callable[[], None]) -> None:
        """Do something by the first worker; all raise what it raises."""
        on_all(self._group, act if _request.place().rank == 0 else None)

    def _load(self) -> None:
        lock_together(self._lock, self._group)
        found: list[int | None] = [None]

        def look() -> None:
            found[0] = newest_whole(self.folder, self._complete(), _REST, also=_OWN)
            for name in os.listdir(self.folder):
                if name.endswith(_UNFINISHED):      # of workers that were killed as they wrote
                    shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        self._lead(look)
        if self._group is not None:
            dist.broadcast_object_list(found, group=self._group, group_src=0)
        step = self._whole = found[0]
        if step is None:
            return
        path = self._path(step)
        rest: dict[str, Any] = {}

        def read() -> None:
            rest.update(decoded(torch.load(os.path.join(path, _REST), map_location="cpu", weights_only=True)))
            _identity.check_same(rest.get("identity"), **self._alike())
        on_all(self._group, read)       # before workers meet in the load
        identity = rest.get("identity")
        state = dist_checkpointing.load(self._state(is_loading=True), path)
        for at, chunk in enumerate(self.chunks):
            _bare(chunk).load_state_dict(state[f"model{at}"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self._data = step, rest["data"]
        if self.scheduler is not None and rest["scheduler"] is not None:
            self.scheduler.load_state_dict(rest["scheduler"])
        tensor_parallel.model_parallel_cuda_manual_seed(self.seed + self.steps)     # not the numbers that the first workers drew at the beginning
        if _request.place().rank == 0:
            print("swell: " + _identity.continues(identity, step, path), file=sys.stderr, flush=True)

    def _save(self) -> str:
        """Save the state of the present step. Returns why that failed, the same on all workers; empty: it did not."""
        if self.steps == self._whole:
            return ""
        path, new = self._path(self.steps), self._path(self.steps) + _UNFINISHED
        rest = {"data": self._data, "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
                "identity": _identity.record(self.steps, data=self._data, **self._alike())}

        def begin() -> None:
            shutil.rmtree(new, ignore_errors=True)
            make_room([self._path(step) for step in self._complete()])
            write_rest(os.path.join(new, _REST), rest)

        def end() -> None:
            check_written(new)
            os.rename(new, path)
            for step in self._complete()[self.keep:]:
                shutil.rmtree(self._path(step), ignore_errors=True)
        try:
            self._lead(begin)
            together(self._group, lambda: self._write(new))
            self._lead(end)
        except (OSError, Unreadable) as error:
            if _request.place().rank == 0:
                shutil.rmtree(new, ignore_errors=True)
            return str(error) if isinstance(error, Unreadable) else why_unsaved(self.folder, self.steps, self._whole, error)
        self._whole, self._says = self.steps, True
        return ""

    def _write(self, new: str) -> None:
        try:
            dist_checkpointing.save(self._state(is_loading=False), new, content_metadata=dict(_METADATA))
        except CheckpointException as error:    # no Exception; all workers raise it
            raise OSError(str(next(iter(error.failures.values()), ("another worker could not write",))[0])) from error

    def _say(self, why: str, then: str = "training goes on") -> None:
        if why and self._says and _request.place().rank == 0:
            print(f"swell: {why}; {then}", file=sys.stderr, flush=True)
        self._says = not why
