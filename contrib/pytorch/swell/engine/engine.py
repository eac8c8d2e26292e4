# SPDX-License-Identifier: BSD-3-Clause
"""Trains a transformers model under any plan of the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from swell import _request
from swell.engine import optimizer as optimizers
from swell.engine import reduce, schedule as schedules, sources
from swell.engine.arena import Arena, Ordinary, Request
from swell.engine.comm import Links
from swell.engine.executor import Executor, MicroBatch, Regions
from swell.engine.plan import Plan
from swell.engine.skeleton import Skeleton
from swell.engine.stage import StageModel
from swell.engine.tensor_parallel import Shards

__all__ = ["Engine"]


class Engine:
    """Trains a causal language model over all workers, under the plan that Swell decided.

    ::

        engine = Engine(config, optimizer=lambda p: torch.optim.AdamW(p, lr=3e-4), global_batch=64, micro_batch=2)
        for batch in engine.batches(dataset):
            loss = engine.step(batch)

    model_or_config: a transformers config (random weights), a folder with weights, or a model.
    optimizer: makes the optimizer from an iterable of parameters.
    global_batch: samples of one optimizer step, over all workers and micro-batches.
    micro_batch: samples of one pass, where no plan was decided.
    plan: else SWELL_PLAN; else data parallelism over all workers.
    scheduler: makes the learning rate's schedule from the optimizer; stepped once an optimizer step.
    max_grad_norm: of all gradients together; None: not clipped.
    dtype: of the parameters. autocast: dtype that passes compute in; None: that of the parameters.
    description: of a model that transformers does not describe, see docs/engine.md.
    schedule: of passes, by stage, see swell.engine.schedule; 1F1B where not given.
    """

    def __init__(self, model_or_config: Any, optimizer: optimizers.Factory, *, global_batch: int, micro_batch: int = 1,
                 plan: Plan | None = None, scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
                 max_grad_norm: float | None = None, dtype: torch.dtype = torch.float32, autocast: torch.dtype | None = None,
                 seed: int = 0, description: Mapping[str, Any] | str | None = None, schedule: schedules.Schedule | None = None,
                 arena: Arena | None = None, regions: Regions | None = None) -> None:
        here = _request.place()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if here.world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        self.rank, self.world = here.rank, here.world
        source = sources.read(model_or_config)
        self.config, self.seed, self.global_batch, self.autocast = source.config, seed, global_batch, autocast
        self.max_grad_norm, self.steps = max_grad_norm, 0
        skeleton = Skeleton(source.config, description, dtype)
        self.plan = plan or Plan.given(skeleton.layers, global_batch, micro_batch, self.world)
        self.plan.check(skeleton.layers, global_batch, self.world)
        self.place = self.plan.place(self.rank)
        self._regions = regions or Regions()
        self._links = Links(self.plan, self.place)
        tp = self.plan.stages[self.place.stage].tp
        shards = Shards(self._links.tp, self.place.shard, tp, lambda: self._regions.region("tp")) if tp > 1 else None
        self._stage = StageModel(skeleton, self.plan, self.place, shards)
        self._hold(source, optimizer, arena or Ordinary())
        self.scheduler = scheduler(self.optimizer) if scheduler is not None else None
        order = schedule or schedules.one_forward_one_backward(self.plan.pp, self.plan.micro_batches)
        schedules.check(order, self.plan.pp, self.plan.micro_batches)
        self._executor = Executor(self._stage, self.plan, self.place, self._links, order, width=self.config.hidden_size, wire=dtype,
                                  device=self.device, regions=self._regions, around=self._around)
        self._totals = reduce.Totals(skeleton, self.plan, self.place, self.device)

    # ---- state

    def _hold(self, source: sources.Source, factory: optimizers.Factory, arena: Arena) -> None:
        stage, skeleton = self._stage, self._stage.skeleton
        kept = optimizers.entries(factory)
        tensors, fresh = arena.take(self._requests(kept), self.device)
        gradients, _ = Ordinary().take([Request(name, "gradient", one.dtype, one.local_shape(stage.tp), (0,) * len(one.shape),
                                                one.local_shape(stage.tp)) for name, one in self._with_gradient()], self.device)
        held = {name: tensors[name].view(one.local_shape(stage.tp)) for name, one in stage.own.items()}
        if fresh:
            for name, one in stage.own.items():
                source.fill(held[name], one, skeleton, self.place.shard, stage.tp, self.seed)
        stage.hold(held, gradients, self.device)
        embedding_of = stage.heads if stage.last and not stage.first else {}
        alias = {embedding: head for head, embedding in embedding_of.items()}
        self._trained = {name: stage.parameters[alias.get(name, name)] for name in stage.own}
        self._gradients = list(gradients.values())
        self.optimizer = factory(list(self._trained.values()))
        for name, parameter in self._trained.items():
            self.optimizer.state[parameter].update({
                entry.name: tensors[f"{name}#{entry.name}"].view(parameter.shape if entry.moment else ()) for entry in kept})

    def _with_gradient(self) -> list[tuple[str, Any]]:
        stage = self._stage
        elsewhere = set(stage.heads.values()) if stage.last and not stage.first else set()
        named = [(name, one) for name, one in stage.own.items() if name not in elsewhere]
        return named + [(head, stage.own[embedding]) for head, embedding in stage.heads.items()]

    def _requests(self, kept: list[optimizers.StateEntry]) -> list[Request]:
        requests = []
        for name, one in self._stage.own.items():
            begin, end = one.block(self.place.shard, self._stage.tp)
            requests.append(Request(name, "parameter", one.dtype, one.global_shape, begin, end, one.layer))
            for entry in kept:
                if entry.moment:
                    dtype = one.dtype if entry.dtype == torch.float32 else entry.dtype
                    requests.append(Request(f"{name}#{entry.name}", "moment", dtype, one.global_shape, begin, end, one.layer))
                else:
                    requests.append(Request(f"{name}#{entry.name}", "step", entry.dtype, (1,), (0,), (1,), one.layer))
        return requests

    # ---- training

    def step(self, batch: Mapping[str, torch.Tensor]) -> float:
        """One optimizer step over the global batch. Returns its loss, the same on every worker.

        batch: "input_ids" and "labels" of all samples, the same on every worker; "attention_mask" and "position_ids" if there are.
        """
        losses = self.backward(batch)
        gradients = self.gradients()
        loss, norm = self._totals.over(losses, gradients if self.max_grad_norm is not None else None)
        with self._regions.region("optimizer"):
            if norm is not None and self.max_grad_norm is not None and norm > self.max_grad_norm:
                torch._foreach_mul_(list(gradients.values()), self.max_grad_norm / (norm + 1e-6))
            self.optimizer.step()
            torch._foreach_zero_(self._gradients)
        if self.scheduler is not None:
            self.scheduler.step()
        self.steps += 1
        return loss

    def backward(self, batch: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The passes of a step and the sums of its gradients, without the optimizer. For tests; step() calls it."""
        mine = self._micro_batches(batch)
        tokens = int((batch["labels"][:, 1:] != -100).sum())
        losses = self._executor.train(mine, tokens)
        self._sum_gradients()
        return losses

    def gradients(self) -> dict[str, torch.Tensor]:
        """What this worker holds of the gradients, by the parameter's name in the whole model."""
        return {name: parameter.grad for name, parameter in self._trained.items() if parameter.grad is not None}

    def _sum_gradients(self) -> None:
        stage = self._stage
        if self._links.tp is not None:
            partial = [parameter.grad for name, parameter in self._trained.items()
                       if stage.skeleton.summed_over_shards(name) and parameter.grad is not None]
            if partial:
                reduce.add_gradients(partial, self._links.tp)
        if self._links.dp is not None:
            with self._regions.region("dp"):
                reduce.add_gradients(self._gradients, self._links.dp)
        reduce.add_tied(stage, self.plan, self.place, self._links)

    def _micro_batches(self, batch: Mapping[str, torch.Tensor]) -> list[MicroBatch]:
        for name, tensor in batch.items():
            if tensor.shape[0] != self.global_batch:
                raise ValueError(f"{name} has {tensor.shape[0]} samples; a global batch has {self.global_batch}")
        size, mine = self.plan.micro_batch_samples, self.plan.samples(self.place.stage, self.place.group)
        found = []
        for number in range(self.plan.micro_batches):
            part = {name: tensor[number * size + mine.start:number * size + mine.stop].to(self.device) for name, tensor in batch.items()}
            labels = part.pop("labels")
            found.append(MicroBatch(part, labels if self._stage.last else None))
        return found

    def _around(self, micro_batch: int) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self.autocast) if self.autocast is not None else nullcontext()
