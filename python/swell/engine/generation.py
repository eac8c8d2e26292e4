# SPDX-License-Identifier: BSD-3-Clause
"""One worker's training under one plan: its process groups, its part of the state, and the passes of a step with the sums of their gradients."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
import torch.distributed as dist

from swell import _native
from swell._agreement import Agreement
from swell._counted import counted
from swell._lock import FolderLock
from swell.engine import batches, live, paced, reduce, sources
from swell.engine import log as logs
from swell.engine.arena import Arena, Ordinary
from swell.engine.beside import SumsBeside
from swell.engine.checkpoint import Checkpoints
from swell.engine.comm import Links
from swell.engine.executor import Executor, MicroBatch
from swell.engine.given_schedule import GivenSchedule
from swell.engine.regions import Regions
from swell.engine.settings import Settings
from swell.engine.standing import Standing
from swell.engine.state import State

__all__ = ["Generation", "GlobalBatch"]

GlobalBatch = Mapping[str, torch.Tensor] | batches.Batch


class Generation:
    """Begins with all workers of a plan; the next plan has another one.

    standing: this worker's place and share of the model, which get their memory here, from `arena`, filled from the generation before, a checkpoint or `source`.
    session: with libswell; None: there is none. around: as Executor takes it. lock: of the checkpoints' folder; None: there are none.
    """

    def __init__(self, settings: Settings, standing: Standing, schedule: GivenSchedule, session: _native.Session | None, arena: Arena, source: sources.Source, *,
                 device: torch.device, lock: FolderLock | None, around: Callable[[int, int], AbstractContextManager[object]]) -> None:
        self._settings, self.device, self.schedule, self._around, self.session, self.arena = settings, device, schedule, around, session, arena
        self.plan, self.place, self.share, self.dropout = standing.plan, standing.place, standing.share, standing.dropout
        self.length = 0     # tokens of the samples that came last
        self.reads_late = device.type != "cpu"      # the norm and the number of tokens, so that the host does not wait for the device
        self.regions = self._timed()
        skeleton = standing.skeleton
        self.links = Links(self.plan, self.place, skeleton.stages_of_shared(self.plan).values())
        self.links.connect(self.plan, self.place, bool(skeleton.tied) and not skeleton.shared, device)
        if standing.shards is not None:
            standing.shards.group = self.links.tp
        self.totals = reduce.Totals(self.share, self.plan, self.place, device)
        self.votes = Agreement(self.links.host, of="engine")
        self.checkpoints = Checkpoints(lock, self.links.host) if lock is not None else None
        self.state = State(self.share, self.plan, self.place, source, settings.optimizer, settings.seed, arena=arena, checkpoints=self.checkpoints,
                           device=device, divides=settings.divides)
        self.sums: SumsBeside | None = None     # over replicas, which begin beside the passes
        self.executor = self._executing()
        if session is not None and isinstance(arena, Ordinary):
            session.adopt()

    def reschedule(self, schedule: GivenSchedule) -> None:
        """Goes on with another schedule of the plan. Raises ValueError, and keeps the one before, where it is of another plan."""
        plan = replace(self.plan, schedule="")
        schedule.passes(plan)
        self.plan, self.schedule = plan, schedule
        self.executor.end()     # first: both put the gradients of the same layers off
        self.executor = self._executing()

    def _executing(self) -> Executor:
        settings = self._settings
        self.sums = self._summing()
        return Executor(self.share, self.plan, self.place, self.links, self.schedule.passes(self.plan), width=settings.config.hidden_size, wire=settings.dtype,
                        device=self.device, regions=self.regions, around=self._around, recompute=settings.recompute,
                        mtp_weight=settings.mtp_weight / max(settings.mtp_heads, 1))

    def _summing(self) -> SumsBeside | None:
        """Returns the sums over replicas that begin beside the passes; None where there are no replicas. REQUIRES: gradients have their memory."""
        group = self.links.dp
        if group is None:
            return None

        def meet(size: int) -> None:
            self.regions.meet(group)
            self.regions.beside(size)
        return SumsBeside(self.share, self.schedule.passes(self.plan)[self.place.stage], group, self.device, self._summed_over_shards(), meet)

    def _summed_over_shards(self) -> dict[str, torch.Tensor]:
        """Gradients of which each shard has made a part, by the parameter's use."""
        if self.links.tp is None:
            return {}
        return {self.share.trained_as(name): parameter.grad for name, parameter in self.state.trained.items()
                if self.share.skeleton.summed_over_shards(name) and parameter.grad is not None}

    def _timed(self) -> Regions:
        """Returns the recorder that takes, or states, the times of a step's parts."""
        layers = [part.layers for part in self.plan.contents.parts[self.place.stage]]
        regions = live.NativeRegions(self.session, self.device, layers) if self.session is not None else Regions()
        if not os.environ.get("SWELL_PACED"):
            return regions
        if self.device.type != "cpu":
            raise ValueError(f"SWELL_PACED is for host devices, the engine is on {self.device}; unset it")
        device = paced.device_of(paced.parse(os.environ["SWELL_PACED"]), self.plan, self.place)
        if self.place.rank == 0:
            print(f"swell: paced host devices ({os.environ['SWELL_PACED']}): times are those of stated accelerators, not of this machine",
                  file=sys.stderr, flush=True)
        return paced.Paced(regions, device, self.plan, self.place, self.work)

    def work(self) -> paced.Work:
        """Returns the operations and bytes of a sample, of this worker's share, for paced devices."""
        skeleton, length = self.share.skeleton, self.length
        layers_flops, head_flops = logs.forward_flops_of_a_token(skeleton, length)
        parts, layers = self.plan.contents.parts[self.place.stage], self.plan.stages[self.place.stage].layers
        return paced.Work(layers_flops * length * layers / skeleton.layers, head_flops * length / self.share.vocabulary_parts if self.share.last else 0.0,
                          self.state.bytes, self._settings.recompute, tuple(len(part.layers) / max(layers, 1) for part in parts),
                          next((number for number, part in enumerate(parts) if part.head), 0))

    def samples(self) -> range:
        """Returns which samples of a micro-batch this worker computes."""
        return self.plan.stages[self.place.stage].samples(self.place.group)

    def mine(self, batch: GlobalBatch) -> list[MicroBatch]:
        """Returns this worker's part of a global batch. Raises ValueError where a batch of the script's own has too few samples, or lacks a name."""
        if isinstance(batch, batches.Batch):
            found = batch.micro_batches
        else:
            batches.check(batch, "the batch of the script's own", ("input_ids", "labels"))
            for name, tensor in batch.items():
                if tensor.shape[0] != self._settings.global_batch:
                    raise ValueError(f"{name} has {counted(tensor.shape[0], 'sample')}; a global batch has {self._settings.global_batch}")
            size, mine, found = self.plan.micro_batch_samples, self.samples(), []
            for number in range(self.plan.micro_batches):
                part = {name: tensor[number * size + mine.start:number * size + mine.stop].to(self.device) for name, tensor in batch.items()}
                labels = part.pop("labels")
                found.append(MicroBatch(part, labels if self.share.predicts else None))
        self.length = found[0].shape[1]
        return found

    def _tokens(self, batch: GlobalBatch, mine: list[MicroBatch]) -> int | torch.Tensor:
        """Tokens that the whole global batch predicts; those with the head ask each other where they do not see all."""
        if not isinstance(batch, batches.Batch):
            return int((batch["labels"][:, 1:] != -100).sum())
        if not self.share.predicts:
            return 0
        count = sum((one.labels[:, 1:] != -100).sum() for one in mine if one.labels is not None)
        assert isinstance(count, torch.Tensor)
        if self.links.dp is not None:
            dist.all_reduce(count, group=self.links.dp)
        return count if self.reads_late else int(count)

    def backward(self, batch: GlobalBatch, sums: SumsBeside | None) -> list[torch.Tensor]:
        """Makes the passes of a step, and sums their gradients. sums: that begin beside the passes; None: all come after them.

        Returns losses of this worker's samples, by micro-batch, where the head is.
        """
        mine = self.mine(batch)
        if sums is not None:
            sums.begin()
        losses = self.executor.train(mine, self._tokens(batch, mine), sums)
        self._sum_gradients(sums)
        return losses

    def _sum_gradients(self, sums: SumsBeside | None) -> None:
        """The sums over shards and replicas, and over the ends of a tied matrix. sums: those that are under way."""
        share, group, partial = self.share, self.links.dp, list(self._summed_over_shards().values())
        if self.links.tp is not None and partial:
            reduce.add_gradients(partial, self.links.tp)
        if sums is not None and group is not None:
            with self.regions.region("dp"):
                sums.wait()
                self._add_over_replicas(partial, group)
        elif group is not None:
            self.regions.meet(group)
            with self.regions.region("dp", None, _bytes(self.state.gradients)):
                reduce.add_gradients(self.state.gradients, group)
        (reduce.add_shared if share.skeleton.shared else reduce.add_tied)(share, self.plan, self.place, self.links)

    def _add_over_replicas(self, gradients: list[torch.Tensor], group: dist.ProcessGroup) -> None:
        if gradients:
            self.regions.meet(group)
            self.regions.beside(_bytes(gradients))
            reduce.add_gradients(gradients, group)

    def evaluate(self, batch: GlobalBatch) -> float:
        """See Engine.evaluate()."""
        mine = self.mine(batch)
        tokens = self._tokens(batch, mine)
        self.share.train(False)
        if self.dropout is not None:
            self.dropout.training = False
        try:
            losses = [loss / tokens for loss in self.executor.evaluate(mine)]
        finally:
            self.share.train(True)
            if self.dropout is not None:
                self.dropout.training = True
        return float(self.totals.over(losses, None, mtp=False)[0])

    def gather_parameters(self) -> None:
        """After the optimizer's step: replicas that divide it gather the parameters that each has stepped."""
        if self._settings.divides and self.links.dp is not None:
            self.regions.meet(self.links.dp)
            with self.regions.region("dp", None, self.state.parts.bytes // 2):      # half of what a sum of as many takes
                self.state.parts.gather(self.links.dp)

    def gradients(self) -> dict[str, torch.Tensor]:
        """Returns this worker's gradients, by the parameter's name in the whole model."""
        return {name: parameter.grad for name, parameter in self.state.trained.items() if parameter.grad is not None}

    def free_gradients(self) -> None:
        """Gives the memory of gradients back: no further pass is made."""
        self.sums = None
        self.state.gradients.clear()        # modules with hooks refer to themselves: what they hold is freed late
        for parameter in (*self.share.parameters.values(), *self.state.parts.stepped.values()):
            parameter.grad = None


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)
